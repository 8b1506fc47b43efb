# SPDX-License-Identifier: BSD-3-Clause
"""The trees that are measured, built the same way on every side.

A *side* is a module system with a tensor library: modtree with NumPy leaves, modtree with torch
leaves, torch, and plain Python objects (the floor). Tensors are tiny: what is measured is the tree.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from .common import FLOOR, OURS, OURS_TORCH, TORCH

SHAPE = (4,)
_made = itertools.count()  # the classes of two sides have different names
BLOCKS, EXPERTS = 61, 256  # the expert tree: 15,862 modules, 47,092 parameters


@dataclass(frozen=True, eq=False)
class Side:
    name: str
    Module: type
    ModuleList: Callable[[list[Any]], Any]
    Sequential: Callable[..., Any]
    zeros: Callable[[], Any]
    parameter: Callable[[], Any]
    lib: Any

    @functools.cached_property
    def classes(self) -> SimpleNamespace:
        return _classes(self)

    def leaves(self) -> Iterator[Any]:
        """Fresh parameters without end."""
        make = self.parameter
        while True:
            yield make()

    def __hash__(self) -> int:
        return hash(self.name)


class _Plain:
    def __init__(self) -> None:
        pass

    def register_buffer(self, name: str, value: Any) -> None:
        setattr(self, name, value)


class _PlainList(_Plain):
    def __init__(self, modules: list[Any]) -> None:
        self.modules = list(modules)


@functools.cache
def side(name: str) -> Side:
    """The side of that name; ImportError when its library is missing."""
    if name == FLOOR:
        plain = functools.partial(np.zeros, SHAPE, np.float32)
        return Side(name, _Plain, _PlainList, lambda *m: _PlainList(list(m)), plain, plain, np)
    if name == OURS:
        import modtree
        from modtree import nn

        def zeros() -> Any:
            return modtree.zeros(SHAPE)

        return Side(
            name,
            nn.Module,
            nn.ModuleList,
            nn.Sequential,
            zeros,
            lambda: nn.Parameter(zeros()),
            modtree,
        )
    import torch

    def torch_zeros() -> Any:
        return torch.zeros(SHAPE)

    def torch_parameter() -> Any:
        return torch.nn.Parameter(torch_zeros())

    if name == TORCH:
        nn = torch.nn
    elif name == OURS_TORCH:
        from modtree import nn
    else:
        raise ValueError(f"no side is called {name!r}")
    return Side(name, nn.Module, nn.ModuleList, nn.Sequential, torch_zeros, torch_parameter, torch)


def _classes(s: Side) -> SimpleNamespace:
    """The model classes, deriving from the side's Module."""

    class Empty(s.Module):
        pass

    class Three(s.Module):
        def __init__(self, a, b, c):
            super().__init__()
            self.w1 = a
            self.w2 = b
            self.w3 = c

    class Identity(s.Module):
        def forward(self, x):
            return x

    class Expert(s.Module):
        def __init__(self, leaves):
            super().__init__()
            self.w1 = next(leaves)
            self.w2 = next(leaves)
            self.w3 = next(leaves)

    class Pair(s.Module):
        def __init__(self, leaves):
            super().__init__()
            self.weight = next(leaves)
            self.bias = next(leaves)

    class Block(s.Module):
        def __init__(self, experts, leaves):
            super().__init__()
            self.norm = Pair(leaves)
            self.gate = Pair(leaves)
            self.experts = s.ModuleList([Expert(leaves) for _ in range(experts)])

    class ExpertTree(s.Module):
        def __init__(self, blocks, experts, leaves):
            super().__init__()
            self.blocks = s.ModuleList([Block(experts, leaves) for _ in range(blocks)])

    class Conv(s.Module):
        def __init__(self):
            super().__init__()
            self.weight = s.parameter()

    class BatchNorm(s.Module):
        def __init__(self):
            super().__init__()
            self.weight = s.parameter()
            self.bias = s.parameter()
            self.register_buffer("running_mean", s.zeros())
            self.register_buffer("running_var", s.zeros())
            self.register_buffer("num_batches_tracked", s.zeros())

    class Bottleneck(s.Module):
        def __init__(self, downsample):
            super().__init__()
            self.conv1, self.bn1 = Conv(), BatchNorm()
            self.conv2, self.bn2 = Conv(), BatchNorm()
            self.conv3, self.bn3 = Conv(), BatchNorm()
            self.relu = Empty()
            if downsample:
                self.downsample = s.Sequential(Conv(), BatchNorm())

    class ResNet50(s.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = Conv(), BatchNorm()
            self.relu, self.maxpool = Empty(), Empty()
            for i, depth in enumerate((3, 4, 6, 3), start=1):
                setattr(
                    self, f"layer{i}", s.Sequential(*[Bottleneck(k == 0) for k in range(depth)])
                )
            self.avgpool = Empty()
            self.fc = Pair(s.leaves())

    class Link(s.Module):
        def __init__(self, leaves, child):
            super().__init__()
            self.weight = next(leaves)
            if child is not None:
                self.child = child

    found = {k: v for k, v in locals().items() if isinstance(v, type)}
    made = next(_made)
    for name, cls in found.items():  # pickle looks them up in this module
        cls.__qualname__ = f"{name}_{s.name.replace(', ', '_').replace(' ', '_')}_{made}"
        globals()[cls.__qualname__] = cls
    return SimpleNamespace(**found)


def expert_tree(
    s: Side, leaves: Iterator[Any] | None = None, blocks: int = BLOCKS, experts: int = EXPERTS
) -> Any:
    """``blocks`` blocks of ``experts`` experts with three parameters each."""
    return s.classes.ExpertTree(blocks, experts, s.leaves() if leaves is None else leaves)


def resnet50(s: Side) -> Any:
    """The shape of ResNet-50: 161 parameters and 159 buffers in 151 modules."""
    return s.classes.ResNet50()


def chain(s: Side, length: int = 900) -> Any:
    """``length`` modules, each the only child of the one before, with one parameter each."""
    leaves, child = s.leaves(), None
    for _ in range(length):
        child = s.classes.Link(leaves, child)
    return child


def flat_experts(s: Side, entries: int) -> Any:
    """One list of experts with ``entries`` parameters: the widest tree."""
    leaves = s.leaves()
    return s.ModuleList([s.classes.Expert(leaves) for _ in range(entries // 3)])


def blocks_of_64(s: Side, entries: int) -> Any:
    """Blocks of 64 experts with about ``entries`` parameters together."""
    return expert_tree(s, blocks=max(1, round(entries / (64 * 3 + 4))), experts=64)


def flat_links(s: Side, length: int = 900) -> Any:
    """The modules of a chain side by side in one list."""
    leaves = s.leaves()
    return s.ModuleList([s.classes.Link(leaves, None) for _ in range(length - 1)])


def pairs(s: Side, modules: int) -> Any:
    """A Sequential with weight and bias in each of its ``modules - 1`` modules."""
    leaves = s.leaves()
    return s.Sequential(*[s.classes.Pair(leaves) for _ in range(modules - 1)])
