# SPDX-License-Identifier: BSD-3-Clause
"""Files of objects with tensors in them: ``save``, and ``load``, which reads torch's files too."""

from __future__ import annotations

import collections
import os
import pickle
from typing import Any

from modtree import _C
from modtree._serialization.names import safe_unpickler
from modtree._serialization.torch_archive import load_archive
from modtree._serialization.unpickle import UnpicklingError
from modtree._tensor.devices import as_device

__all__ = ["load", "save"]

#: The first value in a file of torch before 1.6.
_OLD_TORCH = 0x1950A86A20F9469CFC6C


def save(obj: Any, f: Any, pickle_module: Any = pickle, pickle_protocol: int = 5) -> None:
    """Writes an object, such as a dict of state dicts, as a pickle with the tensors in it.

    Args:
        obj: Anything that can be pickled. Tensors that share memory are written as tensors of their
            own.
        f: A path, or a file open for writing bytes.
        pickle_module: The module whose ``dump`` writes.
        pickle_protocol: The version of pickle's format.
    """
    if isinstance(f, (str, os.PathLike)):
        with open(f, "wb") as file:
            pickle_module.dump(obj, file, protocol=pickle_protocol)
    else:
        pickle_module.dump(obj, f, protocol=pickle_protocol)


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Reads what :func:`save` wrote, or a file that torch.save() wrote, without torch.

    Tensors of torch come as modtree's, bfloat16 ones as float32 where the package ml_dtypes is not
    installed.

    Args:
        f: A path, or a file open for reading bytes that can seek.
        map_location: "meta" or "cpu"; tensors are in main memory anyway.
        pickle_module: With ``weights_only=False``, the module whose ``load`` reads.
        weights_only: Refuse everything but tensors, arrays of numbers or text, numbers, text and
            containers of them. The default is True: a file from anywhere can be read, in memory and
            time that its size bounds. With False, a file can run any code.
        mmap: Accepted; the file is read.
        pickle_load_args: For the unpickler, ``encoding`` for example.

    Raises:
        pickle.UnpicklingError: With ``weights_only``: the file is damaged, or contains something
            else.
    """
    everything = weights_only is False
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            result = _load_file(file, everything, pickle_module, pickle_load_args)
    else:
        result = _load_file(f, everything, pickle_module, pickle_load_args)
    if map_location is None or callable(map_location) or isinstance(map_location, dict):
        return result
    device = as_device(map_location)
    if device.type == "cpu":
        return result
    try:
        return _moved(result, device, {})
    except RecursionError:
        raise UnpicklingError("the file has containers nested too deeply to move them") from None


def _load_file(file: Any, everything: bool, pickle_module: Any, options: Any) -> Any:
    start = file.tell()
    head = file.read(9)
    is_zip = head.startswith(b"PK\x03\x04")
    if head[4:] == b"\0\0\0\0{":
        raise UnpicklingError(
            "the file is a safetensors file: read it with modtree.load_file(path)"
        )
    file.seek(start)
    if is_zip:
        return load_archive(file, everything, options)
    if everything:
        return (pickle if pickle_module is None else pickle_module).load(file, **options)
    result = safe_unpickler(file, options).load()
    if type(result) is int and result == _OLD_TORCH:
        raise UnpicklingError(
            "the file was written by torch before 1.6, or in its form of then: load it with "
            "torch, and save it again"
        )
    return result


def _moved(value: Any, device: Any, memo: dict[int, Any]) -> Any:
    """What shares an object goes on sharing it."""
    known = memo.get(id(value))
    if known is not None:
        return known
    if isinstance(value, _C.TensorBase):
        result = value.to(device)  # type: ignore[attr-defined]  # Tensor's
    elif isinstance(value, (dict, collections.OrderedDict)):
        result = memo[id(value)] = type(value)()
        result.update((k, _moved(v, device, memo)) for k, v in value.items())
    elif type(value) is list:
        result = memo[id(value)] = []
        result.extend(_moved(v, device, memo) for v in value)
    elif type(value) is tuple:
        result = tuple([_moved(v, device, memo) for v in value])
    else:
        return value
    memo[id(value)] = result
    return result
