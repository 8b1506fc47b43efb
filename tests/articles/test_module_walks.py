# SPDX-License-Identifier: BSD-3-Clause
"""Walks over modules, modes and conversions, as articles print them from torch's file (2020 and
2025): the code runs as overrides in a class of a user's.
"""

# ruff: noqa: UP006, UP028, UP035, UP037, UP045, N806, B007, PERF102
from __future__ import annotations

from typing import Iterator, Optional, Set, Tuple

import pytest
from helpers.article_names import names_of
from helpers.support import raises

from modtree import nn


def with_walks_of_2020(impl):
    names = names_of(impl)
    Module, Parameter, Tensor = names.Module, names.Parameter, names.Tensor

    class Written(Module):
        def _named_members(self, get_members_fn, prefix="", recurse=True):
            memo = set()
            modules = self.named_modules(prefix=prefix) if recurse else [(prefix, self)]
            for module_prefix, module in modules:
                members = get_members_fn(module)
                for k, v in members:
                    if v is None or v in memo:
                        continue
                    memo.add(v)
                    name = module_prefix + ("." if module_prefix else "") + k
                    yield name, v

        def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
            for name, param in self.named_parameters(recurse=recurse):
                yield param

        def named_parameters(
            self, prefix: str = "", recurse: bool = True
        ) -> Iterator[Tuple[str, Tensor]]:
            gen = self._named_members(
                lambda module: module._parameters.items(), prefix=prefix, recurse=recurse
            )
            for elem in gen:
                yield elem

        def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
            for name, buf in self.named_buffers(recurse=recurse):
                yield buf

        def named_buffers(
            self, prefix: str = "", recurse: bool = True
        ) -> Iterator[Tuple[str, Tensor]]:
            gen = self._named_members(
                lambda module: module._buffers.items(), prefix=prefix, recurse=recurse
            )
            for elem in gen:
                yield elem

        def children(self) -> Iterator["Module"]:
            for name, module in self.named_children():
                yield module

        def named_children(self) -> Iterator[Tuple[str, "Module"]]:
            memo = set()
            for name, module in self._modules.items():
                if module is not None and module not in memo:
                    memo.add(module)
                    yield name, module

        def modules(self) -> Iterator["Module"]:
            for name, module in self.named_modules():
                yield module

        # Code of today passes a third argument, which this version of 2020 did not have.
        def named_modules(
            self,
            memo: Optional[Set["Module"]] = None,
            prefix: str = "",
            remove_duplicate: bool = True,
        ):
            if memo is None:
                memo = set()
            if self not in memo:
                memo.add(self)
                yield prefix, self
                for name, module in self._modules.items():
                    if module is None:
                        continue
                    submodule_prefix = prefix + ("." if prefix else "") + name
                    for m in module.named_modules(memo, submodule_prefix):
                        yield m

    return Written


def with_walks_of_2025(impl):
    names = names_of(impl)
    Module, Parameter = names.Module, names.Parameter

    class Written(Module):
        def named_parameters(
            self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
        ) -> Iterator[tuple[str, Parameter]]:
            gen = self._named_members(
                lambda module: module._parameters.items(),
                prefix=prefix,
                recurse=recurse,
                remove_duplicate=remove_duplicate,
            )
            yield from gen

        def named_modules(
            self,
            memo: set["Module"] | None = None,
            prefix: str = "",
            remove_duplicate: bool = True,
        ):
            if memo is None:
                memo = set()
            if self not in memo:
                if remove_duplicate:
                    memo.add(self)
                yield prefix, self
                for name, module in self._modules.items():
                    if module is None:
                        continue
                    submodule_prefix = prefix + ("." if prefix else "") + name
                    yield from module.named_modules(memo, submodule_prefix, remove_duplicate)

        def train(self, mode: bool = True):
            if not isinstance(mode, bool):
                raise ValueError("training mode is expected to be boolean")
            self.training = mode
            for module in self.children():
                module.train(mode)
            return self

        def eval(self):
            return self.train(False)

    return Written


def tree(base, impl):
    """Modules of the class all over, with shared parts and empty places."""
    lib, nn = impl.lib, impl.nn
    root, a, b, c = base(), base(), base(), base()
    root.weight = a.weight = nn.Parameter(lib.ones(1))
    a.own = nn.Parameter(lib.ones(1))
    b.register_buffer("mean", lib.zeros(1))
    c.mean = nn.Buffer(b.mean)
    root.a, root.b, root.again = a, b, a
    root.nothing = None
    root.register_module("none", None)
    a.c, b.c = c, c
    return root


def walks(m):
    names = {id(v): k for k, v in reversed(list(m.named_modules()))}
    return {
        "parameters": [k for k, _ in m.named_parameters()],
        "own parameters": [k for k, _ in m.named_parameters("x", recurse=False)],
        "count": [len(list(m.parameters())), len(list(m.parameters(recurse=False)))],
        "buffers": [k for k, _ in m.named_buffers(prefix="y")],
        "buffer count": [len(list(m.buffers())), len(list(m.buffers(False)))],
        "children": [k for k, _ in m.named_children()],
        "child modules": [names[id(v)] for v in m.children()],
        "modules": [k for k, _ in m.named_modules()],
        "all": [names[id(v)] for v in m.modules()],
        "state": list(m.state_dict()),
    }


@pytest.mark.parametrize("written", [with_walks_of_2020, with_walks_of_2025], ids=["2020", "2025"])
def test_walks_as_written(impl, written):
    assert walks(tree(written(impl), impl)) == walks(tree(impl.nn.Module, impl))


def test_walks_as_written_serve_the_whole_tree(impl):
    m = tree(with_walks_of_2020(impl), impl)
    m.requires_grad_(False)
    assert not any(p.requires_grad for p in m.parameters())
    m.zero_grad()
    m.double()
    assert {p.dtype for p in m.parameters()} == {impl.lib.float64}


def test_duplicates_as_written(impl):
    m, ours = tree(with_walks_of_2025(impl), impl), tree(impl.nn.Module, impl)
    for walk in ("named_modules", "named_parameters"):
        found = [k for k, _ in getattr(m, walk)(remove_duplicate=False)]
        assert found == [k for k, _ in getattr(ours, walk)(remove_duplicate=False)]
    assert "again.c" in [k for k, _ in m.named_modules(remove_duplicate=False)]


def test_modes_as_written(impl):
    m = tree(with_walks_of_2025(impl), impl)
    assert m.eval() is m
    assert not any(c.training for c in m.modules())
    m.b.train()
    assert [c.training for c in (m, m.a, m.b, m.b.c)] == [False, False, True, True]
    with raises(ValueError, "training mode is expected to be boolean"):
        m.train(1)


def test_the_order_of_the_walk_that_an_article_draws():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
            self.classifier = nn.Sequential(nn.Linear(8, 4), nn.ReLU())

    model = Model()
    assert [name for name, child in model.named_children()] == ["features", "classifier"]
    assert [name for name, mod in model.named_modules()] == [
        "",
        "features",
        "features.0",
        "features.1",
        "features.2",
        "classifier",
        "classifier.0",
        "classifier.1",
    ]


# -- conversions -----------------------------------------------------------------------------------


def test_conversion_as_written(impl):
    names = names_of(impl)
    torch, Module, Parameter = names.torch, names.Module, names.Parameter

    class Written(Module):
        def to(self, *args, **kwargs):
            # The article leaves the arguments out.
            device, dtype = kwargs.get("device"), next(iter(args), None)
            non_blocking, convert_to_format = False, kwargs.get("memory_format")

            def convert(t):
                try:
                    if convert_to_format is not None and t.dim() in (4, 5):
                        return t.to(
                            device,
                            dtype if t.is_floating_point() or t.is_complex() else None,
                            non_blocking,
                            memory_format=convert_to_format,
                        )
                    return t.to(
                        device,
                        dtype if t.is_floating_point() or t.is_complex() else None,
                        non_blocking,
                    )
                except NotImplementedError as e:
                    raise NotImplementedError("no values to convert") from e

            return self._apply(convert)

        def _apply(self, fn, recurse=True):
            if recurse:
                for module in self.children():
                    module._apply(fn)

            for key, param in self._parameters.items():
                if param is None:
                    continue
                with torch.no_grad():
                    param_applied = fn(param)
                self._parameters[key] = Parameter(param_applied, param.requires_grad)

            for key, buf in self._buffers.items():
                if buf is not None:
                    self._buffers[key] = fn(buf)

            return self

    m = Written()
    m.weight = Parameter(impl.lib.ones(2))
    m.frozen = Parameter(impl.lib.ones(2), requires_grad=False)
    m.register_parameter("none", None)
    m.register_buffer("count", impl.lib.tensor(3))
    m.child = Written()
    m.child.image = Parameter(impl.lib.ones(1, 2, 3, 4))
    assert m.to(impl.lib.float64) is m
    assert [p.dtype for p in m.parameters()] == [impl.lib.float64] * 3
    assert [p.requires_grad for p in m.parameters()] == [True, False, True]
    assert all(isinstance(p, Parameter) for p in m.parameters())
    assert m.count.dtype == impl.lib.int64
    m.to(memory_format=impl.lib.channels_last)
    assert m.child.image.is_contiguous(memory_format=impl.lib.channels_last)
    m.float()
    assert [p.dtype for p in m.parameters()] == [impl.lib.float32] * 3
    m.to(device="meta")
    with raises(NotImplementedError, "no values to convert"):
        m.to(device="cpu")
