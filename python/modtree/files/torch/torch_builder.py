# SPDX-License-Identifier: BSD-3-Clause
"""The tensors of torch that records are made into: imported when a file of modtree.save() names the
first of them.
"""

from __future__ import annotations

from typing import Any

import torch
from modtree.files.pickled.builder import Builder
from modtree.files.pickled.plain import check_bools, set_attributes
from modtree.files.torch.records import TensorRecord
from modtree.files.torch.storages import InlineStorages


class TorchBuilder(Builder):
    """Makes tensors of torch.

    Args:
        storages: Give the bytes of their storages.
    """

    dtypes = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
    classes = {"Tensor": torch.Tensor}
    with_state = ()

    def __init__(self, storages: InlineStorages) -> None:
        self._storages = storages

    def tensor(self, record: TensorRecord) -> Any:
        _, size, stride = record.place
        if record.storage is None:
            made = torch.empty_strided(size, stride, dtype=record.dtype, device="meta")
        else:
            made = self._in_storage(record)
        return made.requires_grad_(record.requires_grad)

    def _in_storage(self, record: TensorRecord) -> Any:
        assert record.storage is not None
        data, dtype = self._storages.bytes(record.storage), record.dtype
        count = len(data) // dtype.itemsize
        if dtype is torch.bool:
            check_bools(data)
        used = memoryview(data)[: count * dtype.itemsize]
        whole = torch.frombuffer(used, dtype=torch.uint8).view(dtype) if count else torch.empty(0)
        offset, size, stride = record.place
        view = whole.to(dtype).as_strided(size, stride, offset)
        noted = record.noted or {}
        view = view.conj() if "conj" in noted else view
        return torch._neg_view(view) if "neg" in noted else view

    def is_tensor(self, value: Any) -> bool:
        return type(value) is torch.Tensor

    def parameter(self, tensor: Any, requires_grad: bool) -> Any:
        return torch.nn.Parameter(tensor, requires_grad)

    def set_attributes(self, target: Any, state: Any) -> None:
        set_attributes(target, state)

    def uninitialized(self, kind: str, arguments: dict[str, Any]) -> Any:
        raise NotImplementedError  # pickles of torch do not have them

    def size(self, sizes: tuple[int, ...]) -> Any:
        return torch.Size(sizes)

    def device(self, name: str, index: int | None) -> Any:
        return torch.device(name) if index is None else torch.device(name, index)
