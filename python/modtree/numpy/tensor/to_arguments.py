# SPDX-License-Identifier: BSD-3-Clause
"""The arguments of ``Tensor.to``."""

from __future__ import annotations

from typing import Any

from modtree import _C
from modtree.numpy.tensor.devices import as_device, device

_FLAGS = ("non_blocking", "copy")


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool]:
    """(dtype, device, copy); dtype and device may be None."""
    given = _by_name(_form_of(args, kwargs), args, kwargs)
    for name in _FLAGS:
        if not isinstance(given.get(name, False), bool):
            raise TypeError(f"to() expected a bool as {name}, got {given[name]!r:.80}")
    copy = given.get("copy", False)
    if "tensor" not in given:
        return given.get("dtype"), _checked_device(given.get("device")), copy
    other = given["tensor"]
    if not isinstance(other, _C.TensorBase):
        raise TypeError(f"to() expected a Tensor, got {type(other).__name__}")
    return other.dtype, other.device, copy


def _form_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
    """The names of the arguments in the form that is called."""
    if "other" in kwargs:
        raise TypeError("to() got an unexpected keyword argument 'other'; pass the tensor as it is")
    if "tensor" in kwargs or (args and isinstance(args[0], _C.TensorBase)):
        return ("tensor", *_FLAGS)
    if args and _is_dtype(args[0]):
        return ("dtype", *_FLAGS)
    return ("device", "dtype", *_FLAGS)


def _by_name(
    names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    if len(args) > len(names):
        raise TypeError(
            f"to() takes at most {len(names)} arguments ({', '.join(names)}), got {len(args)}"
        )
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names or name in given:
            raise TypeError(
                f"to() received an invalid combination of arguments: {name} beside "
                f"{', '.join(given)}"
            )
        given[name] = value
    return given


def _checked_device(value: Any) -> Any:
    if value is None:
        return None
    try:
        return as_device(value)
    except TypeError:
        raise TypeError(
            f"to() received an invalid argument {value!r:.80} (expected a dtype, a device or a "
            f"Tensor)"
        ) from None


def _is_dtype(value: Any) -> bool:
    if isinstance(value, _C.dtype):
        return True
    if value is None or isinstance(value, (bool, int, str, device)):
        return False
    try:
        _C.as_dtype(value)
    except TypeError:
        if str(value).rpartition(".")[2] in _C._stored_dtypes:
            raise
        return False
    return True
