# SPDX-License-Identifier: BSD-3-Clause
"""Equinox: modules are frozen dataclasses and pytrees; whatever changes one makes a new one."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bench.peers.base import Peer, identity
from bench.trees import Side

_ZEROS = jnp.zeros(4)


def _leaves() -> Iterator[Any]:
    while True:
        yield _array()


class Empty(eqx.Module):
    pass


class Identity(eqx.Module):
    def __call__(self, x: Any) -> Any:
        return x


class Small(eqx.Module):
    w1: Any
    w2: Any
    w3: Any
    child: Any = None
    flag: Any = 1


class Expert(eqx.Module):
    w1: Any
    w2: Any
    w3: Any

    def __init__(self, leaves: Any) -> None:
        self.w1, self.w2, self.w3 = next(leaves), next(leaves), next(leaves)


class Pair(eqx.Module):
    weight: Any
    bias: Any

    def __init__(self, leaves: Any) -> None:
        self.weight, self.bias = next(leaves), next(leaves)


class Block(eqx.Module):
    norm: Pair
    gate: Pair
    experts: list[Expert]

    def __init__(self, experts: int, leaves: Any) -> None:
        self.norm, self.gate = Pair(leaves), Pair(leaves)
        self.experts = [Expert(leaves) for _ in range(experts)]


class ExpertTree(eqx.Module):
    blocks: list[Block]

    def __init__(self, blocks: int, experts: int, leaves: Any) -> None:
        self.blocks = [Block(experts, leaves) for _ in range(blocks)]


class Conv(eqx.Module):
    weight: Any

    def __init__(self) -> None:
        self.weight = _array()


class BatchNorm(eqx.Module):
    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(self) -> None:
        self.weight, self.bias, self.running_mean = _array(), _array(), _array()
        self.running_var, self.num_batches_tracked = _array(), _array()


class Bottleneck(eqx.Module):
    convs: list[Conv]
    norms: list[BatchNorm]
    relu: Empty
    downsample: list[Any]

    def __init__(self, downsample: bool) -> None:
        self.convs, self.norms = [Conv() for _ in range(3)], [BatchNorm() for _ in range(3)]
        self.relu = Empty()
        self.downsample = [Conv(), BatchNorm()] if downsample else []


class ResNet50(eqx.Module):
    first: list[Any]
    layers: list[list[Bottleneck]]
    fc: Pair

    def __init__(self) -> None:
        self.first = [Conv(), BatchNorm(), Empty(), Empty(), Empty()]
        self.layers = [[Bottleneck(k == 0) for k in range(n)] for n in (3, 4, 6, 3)]
        self.fc = Pair(_leaves())


class Link(eqx.Module):
    weight: Any
    child: Any


def _array() -> Any:
    return np.zeros(4, np.float32)


@functools.cache
def _side() -> Side:
    return Side("equinox", eqx.Module, list, lambda *m: list(m), lambda: _ZEROS, _array, jax)


class Library(Peer):
    def side(self) -> Side:
        return _side()

    def identity(self) -> Any:
        return Identity()

    def small(self) -> Any:
        return Small(_array(), _array(), _array(), Empty())

    def empty(self) -> Any:
        return Empty()

    def experts(self, blocks: int, experts: int, leaves: Any = None) -> Any:
        return ExpertTree(blocks, experts, leaves or _leaves())

    def resnet50(self) -> Any:
        return ResNet50()

    def chain(self, length: int) -> Any:
        child = None
        for _ in range(length):
            child = Link(_array(), child)
        return child

    def parameters(self, m: Any) -> Any:
        """`jax.tree.leaves(m)`"""
        return jax.tree.leaves(m)

    def named(self, m: Any) -> Any:
        """`jax.tree_util.tree_leaves_with_path(m)`, paths are tuples of keys"""
        return jax.tree_util.tree_leaves_with_path(m)

    def state(self, m: Any) -> Any:
        """`jax.tree.flatten(m)`, no names"""
        return jax.tree.flatten(m)

    def foreign(self, m: Any) -> Any:
        leaves, structure = jax.tree.flatten(m)
        return [_array() for _ in leaves], structure

    def load(self, m: Any, state: Any) -> Any:
        """`jax.tree.unflatten(structure, leaves)`, a new module"""
        leaves, structure = state
        return jax.tree.unflatten(structure, leaves)

    def apply(self, m: Any) -> Any:
        """`jax.tree.map(identity, m)`, a new module"""
        return jax.tree.map(identity, m)

    def cast(self, m: Any) -> Any:
        """`jax.tree.map(astype, m)` to float16, then back"""
        half = jax.tree.map(lambda a: a.astype(np.float16), m)
        return jax.tree.map(lambda a: a.astype(np.float32), half)
