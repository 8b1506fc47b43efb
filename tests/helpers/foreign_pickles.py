# SPDX-License-Identifier: BSD-3-Clause
"""Pickles that name classes which need not be there, and folders of torch.distributed.checkpoint
made of them by the layout of its files.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np

import modtree as mt


class Made:
    """Stands for an object of a class: what a pickle says of it."""

    def __init__(self, kind, state=None, args=(), number=0):
        self.kind, self.state, self.args, self.number = kind, state, args, number


class Named:
    """Stands for a name."""

    def __init__(self, kind):
        self.kind = kind


class _Pickler(pickle._Pickler):
    def save(self, obj, save_persistent_id=True):
        if type(obj) is Named:
            self._name(obj.kind)
        elif type(obj) is Made:
            self._name(obj.kind)
            self.save(tuple(obj.args))
            self.write(pickle.REDUCE if obj.args else pickle.NEWOBJ)
            if obj.state is not None:
                self.save(obj.state)
                self.write(pickle.BUILD)
        else:
            super().save(obj, save_persistent_id)

    def _name(self, kind):
        module, _, name = kind.rpartition(".")
        self.write(f"c{module}\n{name}\n".encode())


def pickled(obj):
    """The bytes of an object with such parts."""
    file = io.BytesIO()
    _Pickler(file, 2).dump(obj)
    return file.getvalue()


META = "torch.distributed.checkpoint.metadata"


def size(*sizes):
    return Made("torch.Size", args=(sizes,))


def tensor_metadata(shape, dtype, boxes):
    properties = Made(
        f"{META}.TensorProperties",
        (Named(f"torch.{dtype}"), Named("torch.strided"), False, Named("torch.preserve"), False),
    )
    chunks = [
        Made(f"{META}.ChunkStorageMetadata", {"offsets": size(*at), "sizes": size(*sizes)})
        for at, sizes in boxes
    ]
    parts = {"properties": properties, "size": size(*shape), "chunks": chunks}
    return Made(f"{META}.TensorStorageMetadata", parts)


def torch_file(value):
    file = io.BytesIO()
    mt.save(value, file, format="torch")
    return file.getvalue()


def distributed_folder(folder, tensors, values=None, change=None):
    """Writes a folder of torch.distributed.checkpoint with two files.

    Args:
        folder: Where.
        tensors: By key, the array and the boxes: (offsets, sizes) of each.
        values: Other values by key.
        change: Changes the parts of the .metadata before it is written.
    """
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    files = {"__0_0.distcp": b"", "__1_0.distcp": b""}
    entries, storage = {}, {}

    def add(key, at, content, number):
        name = f"__{number % 2}_0.distcp"
        index = Made(f"{META}.MetadataIndex", {"fqn": key, "index": number, "offset": at})
        place = {"relative_path": name, "offset": len(files[name]), "length": len(content)}
        storage[index] = Made("torch.distributed.checkpoint.filesystem._StorageInfo", place)
        files[name] += content

    for key, (array, boxes) in tensors.items():
        entries[key] = tensor_metadata(array.shape, array.dtype.name, boxes)
        for number, (at, sizes) in enumerate(boxes):
            part = array[tuple(slice(a, a + n) for a, n in zip(at, sizes, strict=True))]
            content = torch_file(mt.from_numpy(np.array(part)))
            add(key, size(*at), content, number)
    for key, value in (values or {}).items():
        entries[key] = Made(f"{META}.BytesStorageMetadata", {})
        add(key, None, torch_file(value), 0)
    places = {key: tuple(key.split("/")) for key in entries}
    parts = {"state_dict_metadata": entries, "planner_data": places, "storage_data": storage}
    if change is not None:
        change(parts)
    (folder / ".metadata").write_bytes(pickled(Made(f"{META}.Metadata", parts)))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
