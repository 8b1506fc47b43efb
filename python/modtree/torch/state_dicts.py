# SPDX-License-Identifier: BSD-3-Clause
"""``to_torch`` and ``from_torch``: tensors and state dicts between modtree and torch, over the same
memory.
"""

from __future__ import annotations

import collections
import copy
import importlib
from collections.abc import Callable
from typing import Any

from modtree import _C
from modtree.core.state_dict import StateDict

_Convert = Callable[[Any, str], Any]


def to_torch(x: Any) -> Any:
    """A tensor, or a state dict or other container of tensors, as torch's, without copying.

    Tensors of both libraries then share memory: what is written to one is seen in the other.
    Tensors that share memory among themselves share a storage in torch.
    Parameters become ``torch.nn.Parameter``, ``requires_grad`` and attributes stay, gradients and
    the graph are left behind. What was one object is one object afterwards. Dicts keep their class,
    order and ``_metadata`` (state dicts become plain OrderedDicts, as torch makes them); values
    that are not tensors, torch's tensors among them, are passed on. Arrays of jax, which never
    change, share their memory too: do not write to it.

    Args:
        x: A tensor, or dicts, lists and tuples with tensors in them.

    Raises:
        ImportError: torch is not installed.
        TypeError: A tensor is of a class of its own or without a shape; or ``x`` is a module.
        ValueError: torch cannot share the memory of a tensor: it may not be written to, or it has
            negative strides. The message names its key.
    """
    return _Walk("to_torch", _half("ToTorch")()).convert(x)


def from_torch(x: Any) -> Any:
    """The way back of :func:`to_torch`: torch's tensors as modtree's, without copying.

    Args:
        x: A tensor, or dicts, lists and tuples with tensors in them.

    Raises:
        ImportError: torch is not installed.
        TypeError: NumPy has no such dtype (bfloat16 and float8 take the package ml_dtypes), or a
            tensor is of a class of its own; or ``x`` is a module.
        ValueError: A tensor is not in main memory as NumPy could read it: on another device,
            sparse, quantized, or only noted as conjugated or negated. The message names its key.
    """
    return _Walk("from_torch", _half("tensor_from_torch")).convert(x)


def _half(name: str) -> Any:
    """What converts, of the file that imports torch."""
    try:
        return vars(importlib.import_module("modtree.numpy.torch_exchange"))[name]
    except ImportError as error:
        raise ImportError(
            f"modtree.to_torch() and from_torch() need torch (pip install torch): {error}"
        ) from error


class _Walk:
    """Converts the tensors of a container, each object once."""

    def __init__(self, function: str, convert: _Convert) -> None:
        self._function = function
        self._convert = convert
        self._done: dict[int, tuple[Any, Any]] = {}  # address -> (the object, what became of it)

    def convert(self, x: Any) -> Any:
        if isinstance(x, _C.ModuleBase) or (hasattr(x, "state_dict") and hasattr(x, "modules")):
            raise TypeError(
                f"{self._function}() takes tensors and containers of them, got the module "
                f"{type(x).__name__}: pass its state_dict()"
            )
        return self._value(x, "x")

    def _value(self, x: Any, place: str) -> Any:
        known = self._done.get(id(x))
        if known is not None:
            return known[1]
        if isinstance(x, dict):
            return self._dict(x, place)
        if type(x) is list:
            result = self._remember(x, [])
            result.extend(self._value(item, f"{place}[{i}]") for i, item in enumerate(x))
            return result
        if isinstance(x, tuple):
            return self._tuple(x, place)
        result = self._convert(x, place)
        if result is x:
            return x
        self._remember(x, result)
        # Those of other libraries are their marks.
        attributes = (
            vars(x) if isinstance(x, _C.TensorBase) or self._function == "from_torch" else {}
        )
        if attributes:
            new = {k: self._value(v, f"{place}.{k}") for k, v in attributes.items()}
            vars(result).update(new)
        return result

    def _remember(self, x: Any, result: Any) -> Any:
        self._done[id(x)] = x, result
        return result

    def _dict(self, x: dict[Any, Any], place: str) -> Any:
        if isinstance(x, StateDict):
            getattr(x, "_metadata", None)  # which is made when it is first asked for
            result: Any = collections.OrderedDict(x)
            vars(result).update(vars(x))
        else:
            result = copy.copy(x)
        self._remember(x, result)
        for key, value in x.items():
            result[key] = self._value(value, f"{place}[{key!r}]")
        return result

    def _tuple(self, x: tuple[Any, ...], place: str) -> Any:
        items = [self._value(item, f"{place}[{i}]") for i, item in enumerate(x)]
        if all(new is old for new, old in zip(items, x, strict=True)):
            return x
        if hasattr(type(x), "_make"):  # a named tuple
            return self._remember(x, type(x)._make(items))  # type: ignore[attr-defined]
        return self._remember(x, tuple(items))
