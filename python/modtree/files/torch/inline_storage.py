# SPDX-License-Identifier: BSD-3-Clause
"""The bytes of a storage as torch pickles them: a file of its own, in the form that torch.save()
had before its archives.
"""

from __future__ import annotations

import io
import struct
import sys
from typing import Any

from modtree.files.pickled.plain import BUILDERS, MAKERS, NAMES
from modtree.files.pickled.unpickle import Unpickler, UnpicklingError
from modtree.files.torch.storages import BYTES, STORAGES, StorageKind, storage_of

__all__ = ["OLD_TORCH", "storage_in"]

#: The first value in a file of torch before 1.6.
OLD_TORCH = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_COUNT = struct.Struct("<q")
_NAMES = {
    **NAMES,
    **{("torch", name): kind for name, kind in STORAGES.items()},
    ("torch.storage", "UntypedStorage"): BYTES,
}


def storage_in(data: Any) -> tuple[StorageKind, bytearray]:
    """The kind of a storage and its bytes.

    Raises:
        UnpicklingError: It is not what torch writes of one.
    """
    _require(type(data) is bytes)
    file = io.BytesIO(data)
    magic, version, system, pid, keys = (
        Unpickler(file, _NAMES, MAKERS, BUILDERS, lambda pid: pid).load() for _ in range(5)
    )
    _require(magic == OLD_TORCH and version == _VERSION and type(system) is dict)
    _require(type(pid) is tuple and len(pid) == 6 and pid[0] == "storage" and pid[5] is None)
    kind, key, count = storage_of(pid[1], pid[2], pid[4])
    _require(keys == [key])
    if system.get("little_endian") is not (sys.byteorder == "little"):
        raise UnpicklingError("the file has a tensor of torch in another byte order")
    start = file.tell() + _COUNT.size
    _require(len(data) >= start and _COUNT.unpack(data[start - 8 : start]) == (count,))
    if len(data) - start != count * kind.stored.itemsize:
        raise UnpicklingError(
            f"the storage of a tensor is to have {count} values of {kind.stored}, but "
            f"{len(data) - start} bytes follow"
        )
    return kind, bytearray(data[start:])


def _require(condition: bool) -> None:
    if not condition:
        raise UnpicklingError("the file is damaged: the storage of a tensor of torch")
