# SPDX-License-Identifier: BSD-3-Clause
"""Small helpers of the tests of whole-tree operations, calls and state dicts."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest


def as_named_here(text: str) -> str:
    """What a message says where torch names its classes: modtree's, as long as torch is not
    loaded.
    """
    if "torch" in sys.modules:
        return text
    names = r"torch(?=\.nn\.(?:Parameter|Module|Buffer)\b|[. ]Tensor or None)"
    return re.sub(names, "modtree", text)


@contextlib.contextmanager
def raises(kind: type[BaseException], *texts: str) -> Iterator[Any]:
    """``pytest.raises`` for exactly this type, with every text contained in the message."""
    with pytest.raises(kind) as info:
        yield info
    assert type(info.value) is kind, type(info.value)
    message = str(info.value.args[0]) if kind is KeyError else str(info.value)
    for text in map(as_named_here, texts):
        assert text in message, message


def nothing_to_delete(impl: Any, kind: str, name: str) -> str:
    """What ``del`` says of a name that a module of the class lacks. Torch asks object, which says
    the name alone before CPython 3.11.
    """
    is_short = impl.is_torch and sys.version_info < (3, 11)
    return name if is_short else f"'{kind}' object has no attribute '{name}'"


def warns(kind: type[Warning], text: str = "") -> Any:
    return pytest.warns(kind, match=re.escape(text))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def values(tensor: Any) -> Any:
    """The numbers of a tensor as nested lists."""
    return array(tensor).tolist()


def array(tensor: Any) -> np.ndarray:
    """The values, without a copy where that is possible."""
    return np.asarray(tensor.detach() if hasattr(tensor, "detach") else tensor)


def dtype(tensor: Any) -> str:
    """The dtype without the library's name."""
    return str(tensor.dtype).rpartition(".")[2]


def storage_shared(a: Any, b: Any) -> bool:
    return np.shares_memory(array(a), array(b))


def parameter_type(impl: Any) -> type:
    """The class of the parameters that ``impl.nn.Parameter`` makes of its library's tensors."""
    return impl.lib.nn.Parameter if impl.leaves == "torch" else impl.nn.Parameter


def same_shapes(text: str) -> str:
    """Shapes in messages, in one of the forms ``torch.Size([2])``, ``modtree.Size([2])``, ``(2,)``,
    as ``(2)``.
    """
    text = re.sub(r"\w+\.Size\(\[(.*?)\]\)|\[([\d, ]*)\]", r"(\1\2)", text)
    return text.replace(",)", ")")


def future(impl: Any) -> Any:
    return importlib.import_module("torch.__future__" if impl.is_torch else "modtree.__future__")


@contextlib.contextmanager
def class_attribute(cls: type, name: str, value: Any) -> Iterator[None]:
    """The class has this attribute of its own within the block."""
    had, old = name in vars(cls), vars(cls).get(name)
    setattr(cls, name, value)
    try:
        yield
    finally:
        if had:
            setattr(cls, name, old)
        else:
            delattr(cls, name)


@contextlib.contextmanager
def overwrite_mode(impl: Any) -> Iterator[None]:
    flags = future(impl)
    flags.set_overwrite_module_params_on_conversion(True)
    try:
        yield
    finally:
        flags.set_overwrite_module_params_on_conversion(False)


@contextlib.contextmanager
def swap_mode(impl: Any) -> Iterator[None]:
    flags = future(impl)
    flags.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        flags.set_swap_module_params_on_conversion(False)


def leaf(impl: Any, *params: str, **entries: Any) -> Any:
    """A plain module with float parameters of those names ([1, 2], [2, 3], ...) and the given
    attributes.
    """
    module = impl.nn.Module()
    for i, name in enumerate(params):
        start = float(i + 1)
        module.register_parameter(name, impl.nn.Parameter(impl.lib.tensor([start, start + 1])))
    for name, value in entries.items():
        setattr(module, name, value)
    return module


def tree(impl: Any) -> Any:
    """Three levels, parameters defined after buffers and children, so that orders differ."""
    lib, nn = impl.lib, impl.nn

    class Inner(nn.Module):
        def __init__(self, start: float) -> None:
            super().__init__()
            self.register_buffer("count", lib.tensor(3))
            self.register_buffer("mean", lib.tensor([start, start]))
            self.register_buffer("scratch", lib.tensor([9.0]), persistent=False)
            self.weight = nn.Parameter(lib.tensor([[start, start + 1.0]]))
            self.register_parameter("bias", None)

        def forward(self, x: Any) -> Any:
            return x

    class Middle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = Inner(1.0)
            self.gone = Inner(7.0)
            self.gone = None
            self.second = Inner(4.0)
            self.scale = nn.Parameter(lib.tensor(2.0))

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = Middle()
            self.register_buffer("offset", lib.tensor([1.0, 2.0, 3.0]))
            self.head = Inner(10.0)
            self.gain = nn.Parameter(lib.tensor([5.0]))

        def forward(self, x: Any) -> Any:
            return self.head(self.body(x))

    return Net()


def exposed(m):
    """The same module after somebody looked at its ``__dict__``."""
    m.__dict__  # noqa: B018
    return m


def modes(make):
    """A new module whose state is compact, and one whose state is in its ``__dict__``."""
    return make(), exposed(make())
