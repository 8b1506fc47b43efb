# SPDX-License-Identifier: BSD-3-Clause
"""Formats that a library reads, where it is installed: HDF5, ONNX, Orbax."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from modtree.core.strides import reach, strided_view
from modtree.files.checkpoint.base import (
    Checkpoint,
    CheckpointError,
    Entry,
    closed_on_error,
    natural,
    shortened,
)
from modtree.files.checkpoint.dtypes import DTYPES, MOST_DIMENSIONS, array_dtype
from modtree.files.checkpoint.mapped import MappedFiles
from modtree.files.checkpoint.other_files import not_damaged
from modtree.files.checkpoint.untrusted import as_text, file_beside, json_in, parsed_json
from modtree.files.pickled.stand_in import StandIn, in_words
from modtree.files.sources import archives
from modtree.files.sources.source import PathSource, Source


class LibraryArray(NamedTuple):
    """An array: its shape, NumPy's name of its dtype, its file, and what reads it."""

    shape: tuple[int, ...]
    dtype: str
    file: str
    read: Callable[[], np.ndarray]


def library(name: str, what: str, path: str) -> Any:
    """A package that reads a file.

    Raises:
        CheckpointError: It is not installed. The message says how to go on.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        error = CheckpointError(
            f"it is {what}: the package {name} reads it (pip install {name}), and then modtree "
            f"shows and converts its arrays",
            path,
        )
        raise not_damaged(error) from None


@contextlib.contextmanager
def _errors(what: str, path: str, key: str | None = None) -> Iterator[None]:
    """Whatever a library says of a damaged file, as an error of checkpoints."""
    try:
        yield
    except (CheckpointError, MemoryError):
        raise
    except Exception as error:
        text = f"{what}: {type(error).__name__}: {shortened(str(error))}"
        raise CheckpointError(text, path, key) from None


class LibraryCheckpoint(Checkpoint):
    """A checkpoint whose arrays a library reads."""

    is_read_to_verify = True

    def __init__(self, path: str) -> None:
        self.path = path
        self.metadata = {}
        self._arrays: dict[str, LibraryArray] = {}
        self._others: dict[str, StandIn] = {}
        self._others_at: dict[str, int] = {}
        self.values, self.places = self._others, self._others_at
        self._is_open = True

    def add(self, key: str, found: LibraryArray | StandIn) -> None:
        """Takes up an array, or what is said of something else.

        Raises:
            CheckpointError: There is one of this name.
        """
        if key in self._arrays or key in self._others:
            raise CheckpointError("two entries have this key", self.path, key)
        if isinstance(found, LibraryArray):
            if found.dtype in DTYPES:
                self._arrays[key] = found
                return
            found = described(f"array of {found.dtype} {list(found.shape)}")
        self._others_at[key] = len(self._arrays) + len(self._others)
        self._others[key] = found

    @functools.cached_property
    def entries(self) -> dict[str, Entry]:  # type: ignore[override]
        return {
            key: Entry(key, shape, dtype, math.prod(shape) * DTYPES[dtype].itemsize, file)
            for key, (shape, dtype, file, _) in self._arrays.items()
        }

    def array(self, key: str) -> np.ndarray:
        if not self._is_open:
            raise ValueError(f"the checkpoint {self.path} is closed")
        shape, dtype, file, read = self._arrays[key]
        with _errors("cannot be read", file, key):
            array = np.asarray(read())
        if array.shape != shape or array.dtype.name != dtype:
            raise CheckpointError(
                f"it is to be {dtype} {list(shape)}, and is {array.dtype.name} {list(array.shape)}",
                file,
                key,
            )
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def damages(self, advance: Callable[[int], Any]) -> Iterator[CheckpointError]:
        for key, entry in self.entries.items():
            try:
                self.array(key)
            except CheckpointError as error:
                yield error
            advance(entry.nbytes)

    def close(self) -> None:
        self._is_open = False


def described(text: str) -> StandIn:
    """Something that is not an array of numbers, in words."""
    return in_words("numpy.ndarray", text)


# -- HDF5 ------------------------------------------------------------------------------------------

_MOST = 1_000_000
_DEEPEST = 64


class Hdf5Checkpoint(LibraryCheckpoint):
    """An HDF5 file. Links, and data in other files, are named and not followed.

    Args:
        source: The file.
    """

    format = "hdf5"

    def __init__(self, source: Source) -> None:
        path = source.name
        super().__init__(path)
        self._h5py = library("h5py", "an HDF5 file, as Keras writes it", path)
        with closed_on_error(self), _errors("the file is damaged", path):
            self._file = self._h5py.File(
                path if isinstance(source, PathSource) else source.open(), "r"
            )
            self._count = 0
            self._walk(self._file, "", 0)

    def _walk(self, group: Any, prefix: str, depth: int) -> None:
        if depth > _DEEPEST:
            raise CheckpointError("groups are nested too deeply", self.path)
        self._take_attributes(group, prefix)
        self._count += 1
        for name in sorted(group, key=natural):
            key = f"{prefix}{name}"
            link = group.get(name, getlink=True)
            if not isinstance(link, self._h5py.HardLink):
                self.add(key, described(f"link {type(link).__name__}, which is not followed"))
                continue
            item = group[name]
            if isinstance(item, self._h5py.Group):
                self._walk(item, f"{key}.", depth + 1)
            elif isinstance(item, self._h5py.Dataset):
                self.add(key, self._dataset(item))
                self._take_attributes(item, f"{key}.")
            if self._count + len(self._arrays) + len(self.values) + len(self.metadata) > _MOST:
                text = f"it has more than {_MOST:,} arrays, groups and attributes"
                raise CheckpointError(text, self.path)

    def _take_attributes(self, item: Any, prefix: str) -> None:
        """Those of the root under their names, others under the key of their group or array."""
        for name in item.attrs:
            try:
                value = item.attrs[name]
            except TypeError as error:  # of a type that NumPy does not have
                value = f"not read: {error}"
            if isinstance(value, self._h5py.Empty):
                value = ""
            plain = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
            key = f"{prefix}{name}"
            if key in self.metadata:
                raise CheckpointError(f"two attributes have the name {shortened(key)}", self.path)
            self.metadata[key] = as_text(plain)

    def _dataset(self, item: Any) -> Any:
        if item.external or item.is_virtual:
            return described("array in other files, which are not opened")
        if item.shape is None or item.dtype.kind not in "biufc":
            return described(f"array of {shortened(str(item.dtype), 60)} {shortened(item.shape)}")
        shape = tuple(map(int, item.shape))
        return LibraryArray(shape, item.dtype.name, self.path, lambda: item[()])

    def close(self) -> None:
        super().close()
        if (file := vars(self).pop("_file", None)) is not None:
            file.close()


# -- ONNX ------------------------------------------------------------------------------------------

_EXTERNAL = 1  # where the values of a tensor are, as the format numbers it


class OnnxCheckpoint(LibraryCheckpoint):
    """An ONNX model: its initializers. Values in other files are read if those are beside it.

    Args:
        path: The file.
    """

    format = "onnx"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._onnx = library("onnx", "an ONNX model", path)
        self._files = MappedFiles()
        with _errors("the file is damaged", path):
            model = self._onnx.load(path, load_external_data=False)
        self.metadata = {
            "ir_version": str(model.ir_version),
            "producer": f"{model.producer_name} {model.producer_version}".strip(),
            "operations": str(len(model.graph.node)),
            **{item.key: item.value for item in model.metadata_props},
        }
        for tensor in model.graph.initializer:
            self.add(tensor.name, self._tensor(tensor))

    def _tensor(self, tensor: Any) -> Any:
        shape = tuple(tensor.dims)
        try:
            dtype = np.dtype(self._onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
        except (KeyError, TypeError, ValueError):
            return described(f"tensor of type {tensor.data_type} {list(shape)}")
        if any(n < 0 for n in shape) or dtype.kind == "O":
            return described(f"tensor of {dtype.name} {list(shape)}")
        if tensor.data_location != _EXTERNAL:
            read = self._onnx.numpy_helper.to_array
            return LibraryArray(shape, dtype.name, self.path, lambda: read(tensor))
        facts = {item.key: item.value for item in tensor.external_data}
        file = file_beside(facts.get("location"), self.path, "the model", tensor.name)
        place = self._external(facts, dtype, shape, file)
        return LibraryArray(shape, dtype.name, file, place)

    def _external(
        self, facts: dict[str, str], dtype: np.dtype, shape: tuple[int, ...], file: str
    ) -> Callable[[], np.ndarray]:
        numbers = (facts.get("offset", "0"), facts.get("length", ""))
        offset, length = (int(n) if n.isdecimal() and len(n) < 19 else None for n in numbers)
        expected = math.prod(shape) * dtype.itemsize
        if offset is None or (length is not None and length != expected):
            raise CheckpointError(
                f"its place is {shortened(facts)}, and it takes {expected} bytes", self.path
            )

        def read() -> np.ndarray:
            data = self._files.window(file, offset, expected).memory
            return np.frombuffer(bytes(data), dtype).reshape(shape)

        return read

    def let_go(self) -> None:
        self._files.let_go()

    def close(self) -> None:
        super().close()
        self._files.close()


# -- Orbax -----------------------------------------------------------------------------------------


class OrbaxCheckpoint(LibraryCheckpoint):
    """A folder of Orbax. Without the package tensorstore it says which arrays there are.

    Args:
        path: The folder.
        at: The part to read; there are none.
    """

    format = "orbax"

    def __init__(self, path: str, at: str | None = None) -> None:
        super().__init__(path)
        if at is not None:
            raise not_damaged(CheckpointError(f"it holds one tree, and no part {at!r:.100}", path))
        content = self._content(path)
        self._store: Any = None
        try:
            self._store = importlib.import_module("tensorstore")
        except ImportError:
            pass  # its JSON is read without it
        tree = content.get("tree_metadata")
        if type(tree) is not dict or len(tree) > _MOST:
            raise CheckpointError("its _METADATA does not say which arrays there are", path)
        self._is_ocdbt = content.get("use_ocdbt") is not False
        self._driver = "zarr3" if content.get("use_zarr3") is True else "zarr"
        for facts in tree.values():
            self._add_leaf(facts)

    def _content(self, path: str) -> dict[str, Any]:
        file = os.path.join(path, "_METADATA")
        if not os.path.exists(file):
            inside = [n for n in ("default", "state", "params") if self._has_tree(path, n)]
            more = f"open the folder {inside[0]} in it" if inside else "orbax.checkpoint reads it"
            raise CheckpointError(
                f"it is a step of Orbax, which has no _METADATA itself: {more}", path
            )
        return json_in(file)

    def _has_tree(self, path: str, name: str) -> bool:
        return os.path.exists(os.path.join(path, name, "_METADATA"))

    def _add_leaf(self, facts: Any) -> None:
        parts = facts.get("key_metadata") if type(facts) is dict else None
        named = parts if type(parts) is list else []
        names = [str(part.get("key")) for part in named if type(part) is dict]
        value = facts.get("value_metadata") if type(facts) is dict else None
        kind = value.get("value_type") if type(value) is dict else None
        if not names or len(names) != len(named):
            raise CheckpointError(f"its _METADATA names {shortened(facts)}", self.path)
        key = ".".join(names)
        shape = value.get("write_shape") if type(value) is dict else None
        text = f"{shortened(kind, 40)[1:-1]} {shape if type(shape) is list else ''}".strip()
        if type(value) is dict and value.get("skip_deserialize") is True:
            self.add(key, described(f"{text}, which Orbax does not store as an array"))
        elif self._store is None:
            self.add(key, described(f"{text}: pip install tensorstore to read it"))
        else:
            self.add(key, self._opened(names, text))

    def _opened(self, names: list[str], text: str) -> Any:
        name = ".".join(names)
        if any(set(part) & {"/", "\\", "\0"} or part in ("", "..") for part in names):
            raise CheckpointError(f"its _METADATA names {shortened(name)}", self.path)
        folder = os.path.abspath(self.path)
        kvstore: dict[str, Any] = {"driver": "file", "path": f"{os.path.join(folder, name)}/"}
        if self._is_ocdbt:
            kvstore = {
                "driver": "ocdbt",
                "base": {"driver": "file", "path": f"{folder}/"},
                "path": f"{name}/",
            }
        try:
            store = self._store.open(
                {"driver": self._driver, "kvstore": kvstore}, open=True, read=True
            ).result()
            dtype = np.dtype(store.dtype.numpy_dtype)
        except Exception as error:  # whatever the library says of a damaged folder
            return described(f"{text}: cannot be read: {shortened(str(error))}")
        shape = tuple(map(int, store.shape))
        return LibraryArray(shape, dtype.name, self.path, lambda: store.read().result())


# -- programs of torch.export ----------------------------------------------------------------------

#: torch's dtypes by the numbers that such programs have for them.
_DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32"}
_DTYPES |= {8: "float64", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16"}


class ExportCheckpoint(LibraryCheckpoint):
    """A program of torch.export (`.pt2`): its weights, which are files of the archive.

    Args:
        source: The file.
    """

    format = "export"

    def __init__(self, source: Source, members: Mapping[str, archives.Member]) -> None:
        super().__init__(source.name)
        for config in members:
            kind = _CONFIG.search(config)
            if kind is None:
                continue
            with archives.InsideSource(source, dict(members), config).open() as file:
                content = parsed_json(file.read(_LONGEST_CONFIG), "config", self.path)
            facts = content.get("config")
            for key, fact in facts.items() if isinstance(facts, dict) else ():
                self.add(key, self._weight(source, members, config, fact))

    def _weight(
        self, source: Source, members: Mapping[str, archives.Member], config: str, fact: Any
    ) -> Any:
        meta = fact.get("tensor_meta") if isinstance(fact, dict) else None
        if not isinstance(meta, dict) or fact.get("use_pickle"):
            return described("tensor that is pickled in the program")
        name = f"{os.path.dirname(config)}/{fact.get('path_name')}"
        sizes, strides = (_integers(meta.get(what)) for what in ("sizes", "strides"))
        offset = _integers([meta.get("storage_offset")])
        dtype = _DTYPES.get(meta.get("dtype"))  # type: ignore[arg-type]
        if dtype is None or sizes is None or strides is None or offset is None:
            return described(f"tensor of type {shortened(meta.get('dtype'), 40)}")
        if name not in members or len(sizes) != len(strides):
            raise CheckpointError(f"the program names {shortened(name)}", self.path)
        count = members[name].size // DTYPES[dtype].itemsize
        if offset[0] + reach(sizes, strides) > count:
            raise CheckpointError(f"{shortened(name)} has {count} elements", self.path)

        def read() -> np.ndarray:
            with archives.InsideSource(source, dict(members), name).open() as file:
                flat = np.frombuffer(file.read(members[name].size), array_dtype(dtype))
            steps = [stride * flat.itemsize for stride in strides]
            return np.array(strided_view(flat[offset[0] :], sizes, steps))

        return LibraryArray(sizes, dtype, self.path, read)


_CONFIG = re.compile(r"(?:^|/)model_(?:weights|constants)_config\.json$")
_LONGEST_CONFIG = 100_000_000


def _integers(value: Any) -> tuple[int, ...] | None:
    """Numbers as such programs write them; None of what are others."""
    if not isinstance(value, list) or len(value) > MOST_DIMENSIONS:
        return None
    found = tuple(item.get("as_int") if isinstance(item, dict) else None for item in value)
    fits = all(type(n) is int and 0 <= n < 1 << 60 for n in found)
    return found if fits else None  # type: ignore[return-value]
