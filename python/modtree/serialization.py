# SPDX-License-Identifier: BSD-3-Clause
"""Files of objects with tensors in them: ``save``, and ``load``, which reads torch's files too."""

from __future__ import annotations

import collections
import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from modtree import _C
from modtree.devices import as_device
from modtree.ops.strided import reach
from modtree.parameter import Parameter

__all__ = ["load", "save"]

#: What a file may name without weights_only=False: nothing here runs code of the file's choice.
_HARMLESS = {
    "_codecs": {"encode"},
    "builtins": {"bytearray", "complex", "frozenset", "range", "set", "slice"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "modtree.devices": {"device"},
    "modtree.dtypes": {"_dtype_by_name"},
    "modtree.parameter": {"Buffer", "Parameter", "_rebuild_buffer", "_rebuild_parameter"},
    "modtree.tensor": {"Size", "Tensor", "_rebuild", "_rebuild_meta"},
    "numpy": {"dtype", "ndarray"},
    **{
        f"numpy.{core}.{module}": {"_frombuffer", "_reconstruct", "scalar"}
        for core in ("_core", "core")
        for module in ("multiarray", "numeric")
    },
}


class _Unpickler(pickle.Unpickler):
    """Makes nothing but tensors, arrays, numbers, text and containers, unless everything is allowed."""

    def __init__(self, file: Any, everything: bool, **options: Any) -> None:
        super().__init__(file, **options)
        self._everything = everything

    def find_class(self, module: str, name: str) -> Any:
        if self._everything or name in _HARMLESS.get(module, ()):
            return super().find_class(module, name)
        if module.split(".")[0] == "numpy" and name.endswith("DType"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(
            f"Weights only load failed: the file contains {module}.{name}, which is neither a tensor nor a plain container. "
            "Only if you trust where the file comes from, load it with weights_only=False: it can run any code"
        )


# -- torch's files -----------------------------------------------------------------------------------------------------

_STORAGES = {
    "BoolStorage": np.bool_,
    "ByteStorage": np.uint8,
    "CharStorage": np.int8,
    "ComplexDoubleStorage": np.complex128,
    "ComplexFloatStorage": np.complex64,
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "IntStorage": np.int32,
    "LongStorage": np.int64,
    "ShortStorage": np.int16,
}


def _tensor_of(
    storage: np.ndarray, offset: int, size: Any, stride: Any, requires_grad: bool, *_: Any
) -> Any:
    if min(stride, default=0) < 0 or offset < 0 or offset + reach(size, stride) > storage.size:
        raise pickle.UnpicklingError(
            f"a tensor of size {tuple(size)} and strides {tuple(stride)} does not fit the {storage.size} values it is to be made of"
        )
    steps = [s * storage.itemsize for s in stride]
    view = np.lib.stride_tricks.as_strided(storage[offset:], size, steps)
    return _C.from_array(view, requires_grad)


def _parameter_of(data: Any, requires_grad: bool, *_: Any) -> Any:
    return Parameter(data, requires_grad)


class _TorchUnpickler(_Unpickler):
    """Reads the pickle inside a file that torch.save() wrote; the values lie beside it."""

    def __init__(
        self, file: Any, read: Callable[[str], bytes], everything: bool, **options: Any
    ) -> None:
        super().__init__(file, everything, **options)
        self._read = read
        self._storages: dict[str, np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor_of
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return _parameter_of
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch" and name == "BFloat16Storage":
            return "bfloat16"
        if (module, name) == ("torch", "Size"):
            return super().find_class("modtree.tensor", "Size")
        if (module, name) == ("torch", "device"):
            return as_device
        if module == "torch" and name in _C._dtypes:
            return _C._dtypes[name]
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        _, kind, key, _, count = pid
        if key not in self._storages:
            data = self._read(key)
            if kind == "bfloat16":  # the upper halves of float32 numbers
                halves = np.frombuffer(data, np.uint16, count).astype(np.uint32)
                self._storages[key] = (halves << 16).view(np.float32)
            else:
                self._storages[key] = np.frombuffer(bytearray(data), kind, count)
        return self._storages[key]


def _load_zip(file: Any, everything: bool, options: Any) -> Any:
    import zipfile  # takes a while, and few programs need it

    with zipfile.ZipFile(file) as archive:
        pickled = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
        if len(pickled) != 1:
            raise RuntimeError("the file is a zip archive, but not one that torch.save() wrote")
        folder = pickled[0].rpartition("/")[0]

        def read(key: str) -> bytes:
            return archive.read(f"{folder}/data/{key}")

        with archive.open(pickled[0]) as stream:
            return _TorchUnpickler(stream, read, everything, **options).load()


# -- public ------------------------------------------------------------------------------------------------------------


def save(obj: Any, f: Any, pickle_module: Any = pickle, pickle_protocol: int = 5) -> None:
    """Writes an object, such as a dict of state dicts, as a pickle with the tensors in it.

    Args:
        obj: Anything that can be pickled. Tensors that share memory are written as tensors of their own.
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

    Tensors of torch come as modtree's, bfloat16 ones as float32.

    Args:
        f: A path, or a file open for reading bytes that can seek.
        map_location: "meta" or "cpu"; tensors are in main memory anyway.
        pickle_module: With ``weights_only=False``, the module whose ``load`` reads.
        weights_only: Refuse everything but tensors, numbers, text and containers of them. The default is True: with False, a file can run
            any code.
        mmap: Accepted; the file is read.
        pickle_load_args: For the unpickler, ``encoding`` for example.

    Raises:
        pickle.UnpicklingError: With ``weights_only``, the file contains something else.
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
    return result if device.type == "cpu" else _moved(result, device)


def _load_file(file: Any, everything: bool, pickle_module: Any, options: Any) -> Any:
    start = file.tell()
    is_zip = file.read(4) == b"PK\x03\x04"
    file.seek(start)
    if is_zip:
        return _load_zip(file, everything, options)
    if everything and pickle_module is not None:
        return pickle_module.load(file, **options)
    return _Unpickler(file, everything, **options).load()


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, _C.TensorBase):
        return value.to(device)
    if isinstance(value, (dict, collections.OrderedDict)):
        return type(value)((k, _moved(v, device)) for k, v in value.items())
    if type(value) in (list, tuple):
        return type(value)(_moved(v, device) for v in value)
    return value
