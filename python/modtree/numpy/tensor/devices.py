# SPDX-License-Identifier: BSD-3-Clause
"""Where values live: ``cpu``, or ``meta`` for tensors that have a shape and a dtype but no values;
and the device where tensors are made that are given none.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

from modtree import _C, _imports

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Device

__all__ = [
    "as_device",
    "contexts",
    "device",
    "device_in_force",
    "get_default_device",
    "set_default_device",
]

_imports.refuse_second(__name__)

_missing: Any = object()
_NAME = re.compile(r"([^:]*)(?::(0|[1-9][0-9]*))?", re.ASCII)


def _parse(value: Any) -> tuple[str, int | None]:
    """The type and index of a device, of its name, or of the device of another library."""
    if isinstance(value, device):
        return value.type, value.index
    if isinstance(value, int) and not isinstance(value, bool):
        raise RuntimeError(
            f"device {value} is an accelerator's number: NumPy tensors know cpu and meta"
        )
    if not isinstance(value, str):
        if type(value).__name__ != "device":
            what = "nothing" if value is _missing else f"{type(value).__name__}: {value!r:.80}"
            raise TypeError(f"device() takes a device, or its name as a str, got {what}")
        value = str(value)
    match = _NAME.fullmatch(value)
    if match is None or not value:
        raise RuntimeError(f"Invalid device string: {value!r:.80}; expected cpu, cpu:0 or meta")
    if match[1] not in ("cpu", "meta"):
        raise RuntimeError(
            f"Expected one of the device types cpu, meta, got {value!r:.80}. NumPy tensors live "
            f"in main memory only"
        )
    return match[1], None if match[2] is None else int(match[2])


def _checked_index(index: Any) -> int:
    if not isinstance(index, int) or isinstance(index, bool):
        raise TypeError(
            f"device(): argument 'index' (position 2) must be int, not {type(index).__name__}"
        )
    if index < 0:
        raise RuntimeError(f"Device index must not be negative, got {index}")
    return index


class device:
    """A place for the values of tensors: ``device("cpu")`` or ``device("meta")``.

    A device is no text: ``tensor.device == "cpu"`` is False, ``tensor.device.type == "cpu"`` is
    what such a program means.

    In a ``with`` block, tensors that are given no device are made on this one: a model that is
    built in ``with device("meta"):`` takes no memory. Blocks nest, and hold for their thread.

    Args:
        type: ``"cpu"``, ``"meta"``, either with an index (``"cpu:0"``), or a device.
        index: The index, where ``type`` has none.
        device: ``type`` under its other name.
    """

    __module__ = "modtree"  # the name in pickles and in repr

    __slots__ = ("type", "index")
    if TYPE_CHECKING:  # read by nobody else: where the class says it is from, `int` is a dtype
        type: str
        index: int | None

    def __new__(
        cls, type: Any = _missing, index: int | None = None, *, device: Any = _missing
    ) -> Any:
        if device is not _missing:
            if type is not _missing or index is not None:
                raise TypeError("device() takes a device, or a type with an index, not both")
            type = device
        kind, number = _parse(type)
        if index is not None:
            if not isinstance(type, str):
                raise TypeError(f"device() takes an index beside a name only, got {type!r}")
            index = _checked_index(index)
            if number is not None:
                raise RuntimeError(
                    f"type (string) must not include an index because index was passed "
                    f"explicitly: {type}"
                )
        else:
            index = number
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
        return NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (str(self),)

    def __enter__(self) -> device:
        contexts.append(None)
        _here.blocks.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        if not _here.blocks:
            raise RuntimeError(f"{self!r} is left, but no device is in force in this thread")
        _here.blocks.pop()
        _here.older = min(_here.older, len(_here.blocks))
        contexts.pop()

    def __copy__(self) -> device:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> device:
        return self


_known: dict[str, device] = {}
_known.update(cpu=device("cpu"), meta=device("meta"))


class _Here(threading.local):
    """What is in force in this thread."""

    def __init__(self) -> None:
        #: The devices of the `with` blocks that are open.
        self.blocks: list[device] = []
        self.default: device | None = None
        #: How many of the open blocks are older than the default, which comes before them.
        self.older = 0


_here = _Here()
#: One entry for each open block and each default, of any thread: while it is empty, no device is in
#: force anywhere, and factories need not ask.
contexts: list[None] = []


def device_in_force() -> device | None:
    """The device for tensors that are given none: that of the innermost ``with`` block or what
    :func:`set_default_device` said, whichever came last; None where there is neither.
    """
    if _here.default is not None and len(_here.blocks) == _here.older:
        return _here.default
    return _here.blocks[-1] if _here.blocks else None


def set_default_device(device: Device) -> None:
    """Sets the device where this thread makes tensors that are given none; None goes back to
    ``"cpu"``.

    In a ``with device(...):`` block it holds at once, and goes on to hold after the block.
    """
    place = None if device is None else _device(device)
    if _here.default is not None:
        contexts.pop()
    if place is not None:
        contexts.append(None)
    _here.default = place
    _here.older = len(_here.blocks)


def get_default_device() -> device:
    """The device where tensors are made that are given none."""
    return device_in_force() or _known["cpu"]


_device = device  # where a parameter has the name


def as_device(value: Any) -> device:
    """A device for a device, its name, or the device of another library; None means cpu."""
    if value is None:
        return _known["cpu"]
    return device(value)


_C._install(cpu_device=_known["cpu"], meta_device=_known["meta"], as_device=as_device)
