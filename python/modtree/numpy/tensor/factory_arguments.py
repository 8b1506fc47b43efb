# SPDX-License-Identifier: BSD-3-Clause
"""The keywords that functions which make tensors have in common: checked in one place, so that none
is accepted without effect.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from modtree import _C
from modtree.core.type_names import no_tensor
from modtree.numpy.tensor.devices import as_device, device_in_force
from modtree.numpy.tensor.layouts import layout

#: What most factories take.
PLACE: tuple[str, ...] = ("dtype", "layout", "device", "requires_grad", "pin_memory")
#: Keywords with something to be checked or done before a factory is called; it judges the others.
_CHECKED = frozenset(("layout", "out", "pin_memory", "requires_grad"))


#: Types of keywords that a factory need not have as parameters of its own; others are bools.
_TYPES = {
    "device": "Device | None",
    "dtype": "DType | None",
    "generator": "Generator | None",
    "layout": "layout | None",
    "memory_format": "memory_format | None",
    "out": "Tensor | None",
}


def _check_bool(name: str, keyword: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name}(): argument '{keyword}' must be bool, not {type(value).__name__}")


def checked_arguments(
    name: str, allowed: frozenset[str], kwargs: dict[str, Any], or_none: bool = True
) -> None:
    """Takes `layout` and `pin_memory` away, and what is None where that means the default."""
    for keyword in kwargs:
        if keyword not in allowed:
            raise TypeError(f"{name}() got an unexpected keyword argument '{keyword}'")
    kind = kwargs.pop("layout", None)
    if kind is not None and not isinstance(kind, layout):
        raise TypeError(
            f"{name}(): argument 'layout' must be modtree.layout, not {type(kind).__name__}"
        )
    for keyword in ("requires_grad", "pin_memory"):
        if keyword in kwargs:
            if kwargs[keyword] is None and or_none:
                del kwargs[keyword]
            else:
                _check_bool(name, keyword, kwargs[keyword])
    if kwargs.pop("pin_memory", False):
        raise RuntimeError(
            "pin_memory=True requires an accelerator, and NumPy tensors live in main memory "
            "only: leave it out"
        )


def checked(*keywords: str, or_none: bool = True) -> Callable[[Any], Any]:
    """Decorates a factory: of the keywords in `keywords`, it is given those that it has parameters
    for, after they were checked.

    The result has the keyword `out` if that is among them: the tensor to write to.
    """
    allowed = frozenset(keywords)
    passed_on = allowed - _CHECKED

    def decorate(make: Any) -> Any:
        name = make.__name__

        @functools.wraps(make)
        def create(*args: Any, **kwargs: Any) -> Any:
            if not kwargs:
                return make(*args)
            if passed_on.issuperset(kwargs):
                return make(*args, **kwargs)
            checked_arguments(name, allowed, kwargs, or_none)
            out = kwargs.pop("out", None)
            if out is None:
                return make(*args, **kwargs)
            return _into(name, out, make, args, kwargs)

        create.__signature__ = parameters_of(make, keywords)  # type: ignore[attr-defined]
        return create

    return decorate


def parameters_of(make: Callable[..., Any], keywords: tuple[str, ...]) -> inspect.Signature:
    """What a factory takes: its own parameters, and those of `keywords` that are looked at before
    it is called.
    """
    own = inspect.signature(make).parameters.values()
    taken = [
        p
        for p in own
        if p.kind is not p.VAR_KEYWORD and (p.kind is not p.KEYWORD_ONLY or p.name in keywords)
    ]
    names = {p.name for p in taken}
    taken += [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if name in ("requires_grad", "pin_memory") else None,
            annotation=_TYPES.get(name, "bool"),
        )
        for name in keywords
        if name not in names
    ]
    return inspect.Signature(taken, return_annotation="Tensor")


def _into(name: str, out: Any, make: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if not isinstance(out, _C.TensorBase):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {no_tensor(out)}")
    if out.requires_grad and _C.is_grad_enabled():
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic "
            f"differentiation, but out requires grad"
        )
    dtype, device = kwargs.get("dtype"), kwargs.pop("device", None)
    if device is None:
        device = device_in_force()
    if dtype is not None and _C.as_dtype(dtype) is not out.dtype:
        raise RuntimeError(
            f"dtype {_C.as_dtype(dtype)} does not match dtype of out parameter ({out.dtype})"
        )
    if device is not None and as_device(device).type != out.device.type:
        raise RuntimeError(
            f"device {as_device(device)} does not match device of out parameter ({out.device})"
        )
    wants_grad = kwargs.pop("requires_grad", False)
    result = make(*args, **{**kwargs, "dtype": out.dtype, "device": out.device})
    if result.shape != out.shape:
        if name == "arange" and out.numel() not in (0, result.numel()):
            warnings.warn(
                f"The number of elements in the out tensor of shape {list(out.shape)} is "
                f"{out.numel()} which does not match the computed number of elements "
                f"{result.numel()}; it is resized. Pass an empty tensor as out.",
                stacklevel=3,
            )
        out.resize_(result.shape)  # type: ignore[attr-defined]  # Tensor's, a layer above
    out.copy_(result)
    return out.requires_grad_(True) if wants_grad else out
