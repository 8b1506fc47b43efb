# SPDX-License-Identifier: BSD-3-Clause
"""Reading the weights of an ONNX model with the package onnx."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import CheckpointError, shortened
from modtree.files.checkpoint.beside import file_beside
from modtree.files.checkpoint.mapped import MappedFiles
from modtree.files.libraries.base import LibraryArray, LibraryCheckpoint, described, library

__all__ = ["OnnxCheckpoint"]

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
        try:
            model = self._onnx.load(path, load_external_data=False)
        except Exception as error:  # whatever the library says of a damaged file
            text = f"the file is damaged: {type(error).__name__}: {shortened(str(error))}"
            raise CheckpointError(text, path) from None
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
