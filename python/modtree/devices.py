# SPDX-License-Identifier: BSD-3-Clause
"""Where values live: ``cpu``, or ``meta`` for tensors that have a shape and a dtype but no values."""

from __future__ import annotations

from typing import Any

from modtree import _C

__all__ = ["as_device", "device"]


class device:
    """A place for the values of tensors: ``device("cpu")`` or ``device("meta")``.

    A device equals its name: ``tensor.device == "cpu"``.
    """

    __slots__ = ("type", "index")
    type: str
    index: int | None

    def __new__(cls, type: Any, index: int | None = None) -> device:
        if isinstance(type, device):
            return type
        if not isinstance(type, str):
            type = str(type)  # a device of another library
        kind, _, number = type.partition(":")
        if kind not in ("cpu", "meta") or (number and not number.isdigit()):
            raise RuntimeError(
                f"Expected one of the device types cpu, meta, got {type!r}. "
                "NumPy tensors live in main memory only"
            )
        if number:
            index = int(number)
        if index is None and kind in _known:
            return _known[kind]
        self = object.__new__(cls)
        object.__setattr__(self, "type", kind)
        object.__setattr__(self, "index", index)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a device cannot be changed (tried to set '{name}')")

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, device):
            return self.type == other.type and self.index == other.index
        if isinstance(other, str):
            return str(self) == other
        return NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (str(self),)

    def __copy__(self) -> device:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> device:
        return self


_known: dict[str, device] = {}
_known.update(cpu=device("cpu"), meta=device("meta"))


def as_device(value: Any) -> device:
    """A device for a device, its name, or the device of another library; None means cpu."""
    if value is None:
        return _known["cpu"]
    if isinstance(value, int):
        raise RuntimeError(
            f"device {value} is an accelerator's number: NumPy tensors know cpu and meta"
        )
    return device(value)


_C._set_devices(_known["cpu"], _known["meta"], as_device)
