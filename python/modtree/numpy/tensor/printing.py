# SPDX-License-Identifier: BSD-3-Clause
"""How tensors are printed: torch's layout, numbers aligned, big tensors shortened."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree.numpy.tensor import dtypes

PRECISION = 4
THRESHOLD = 1000
EDGE = 3
WIDTH = 80
_FIRST_STORED = 256  # NumPy's number for the first dtype of another package
SCIENTIFIC: bool | None = None  # None: as the numbers need it


class _Numbers:
    """How the numbers of one tensor are written: one form and one width for all."""

    def __init__(self, values: np.ndarray) -> None:
        self.is_float = values.dtype.kind == "f"
        self.whole = self.scientific = False
        if not self.is_float:
            self.width = max((len(str(v)) for v in values.tolist()), default=1)
            return
        finite = values[np.isfinite(values) & (values != 0)]
        if finite.size:
            with np.errstate(all="ignore"):
                sizes = np.abs(finite.astype(np.float64))
                low, high = float(sizes.min()), float(sizes.max())
                self.whole = bool((finite == np.ceil(finite)).all())
            wide = high / low > 1000.0
            if self.whole:
                self.scientific = high > 1e8
            else:
                self.scientific = wide or high > 1e8 or low < 1e-4
        else:
            self.whole = values.size > 0
        if SCIENTIFIC is not None:
            self.scientific = SCIENTIFIC
        # NaN, infinities and zeros do not widen a column.
        self.width = max((len(self._text(v)) for v in finite.tolist()), default=1)

    def _text(self, value: Any) -> str:
        if not self.is_float:
            return str(value)
        if self.scientific:
            return f"{value:.{PRECISION}e}"
        if self.whole:
            text = f"{value:.0f}"
            return text + "." if math.isfinite(value) else text
        return f"{value:.{PRECISION}f}"

    def __call__(self, value: Any) -> str:
        return self._text(value).rjust(self.width)


class _Complex:
    def __init__(self, values: np.ndarray) -> None:
        self.real, self.imag = _Numbers(values.real), _Numbers(values.imag)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value: Any) -> str:
        imag = self.imag._text(value.imag)
        sign = "" if imag.startswith("-") else "+"
        return f"{self.real(value.real)}{sign}{imag}j"


def numbers(array: np.ndarray) -> np.ndarray:
    """The array itself, or of a dtype for storing only its values in float32, which holds them."""
    return array if array.dtype.num < _FIRST_STORED else array.astype(np.float32)


def _shown(array: np.ndarray, shorten: bool) -> np.ndarray:
    """The elements that will be printed."""
    if not shorten:
        return array.reshape(-1)
    for axis, size in enumerate(array.shape):
        if size > 2 * EDGE:
            keep = [*range(EDGE), *range(size - EDGE, size)]
            array = np.take(array, keep, axis)
    return array.reshape(-1)


def _row(array: np.ndarray, write: Any, indent: int, shorten: bool) -> str:
    per_line = max(1, (WIDTH - indent) // (write.width + 2))
    if shorten and len(array) > 2 * EDGE:
        items = [write(v) for v in array[:EDGE].tolist()]
        items += [" ..."]
        items += [write(v) for v in array[-EDGE:].tolist()]
    else:
        items = [write(v) for v in array.tolist()]
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _body(array: np.ndarray, write: Any, indent: int, shorten: bool) -> str:
    if array.ndim == 0:
        return write(array.item())
    if array.ndim == 1:
        return _row(array, write, indent, shorten)
    if shorten and len(array) > 2 * EDGE:
        parts = [_body(array[i], write, indent + 1, shorten) for i in range(EDGE)]
        parts.append("...")
        parts += [
            _body(array[i], write, indent + 1, shorten)
            for i in range(len(array) - EDGE, len(array))
        ]
    else:
        parts = [_body(row, write, indent + 1, shorten) for row in array]
    separator = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return "[" + separator.join(parts) + "]"


# Tensor and Parameter, which import this module.
_PLAIN = {("modtree", "Tensor"), ("modtree.nn.parameter", "Parameter")}


def tensor_text(tensor: Any) -> str:
    """What repr() of a tensor is."""
    cls = type(tensor)
    name = cls.__name__
    is_plain = (cls.__module__, name) in _PLAIN
    start = "tensor(" if is_plain else f"{name}("
    suffixes = []
    array = tensor._array
    usual = tensor.dtype in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool)
    if tensor.is_meta:
        body = "..."
        suffixes += ["device='meta'", f"size={_sizes(array.shape)}"]
        if tensor.dtype != dtypes.get_default_dtype():
            suffixes.append(f"dtype={tensor.dtype}")
    elif array.size == 0:
        body = "[]"
        if array.ndim != 1:
            suffixes.append(f"size={_sizes(array.shape)}")
        if tensor.dtype != dtypes.get_default_dtype():
            suffixes.append(f"dtype={tensor.dtype}")
    else:
        shorten = array.size > THRESHOLD
        array = numbers(array)
        shown = _shown(array, shorten)
        write = _Complex(shown) if array.dtype.kind == "c" else _Numbers(shown)
        body = _body(array, write, len(start), shorten)
        if not usual and not (
            array.dtype.kind == "c"
            and array.dtype.itemsize == 2 * dtypes.get_default_dtype().itemsize
        ):
            suffixes.append(f"dtype={tensor.dtype}")
    if tensor.grad_fn is not None:
        suffixes.append(f"grad_fn=<{tensor.grad_fn.name()}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    text = _joined(start + body, suffixes, len(start))
    return f"Parameter({text})" if not is_plain and tensor.__dict__.get("_is_param") else text


def _sizes(shape: Any) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def _joined(text: str, suffixes: list[str], indent: int) -> str:
    """The suffixes behind the numbers, on a line of their own where they do not fit."""
    last = len(text) - text.rfind("\n") - 1
    parts = [text]
    for suffix in suffixes:
        if last + len(suffix) + 2 > WIDTH:
            parts.append(",\n" + " " * indent + suffix)
            last = indent + len(suffix)
        else:
            parts.append(", " + suffix)
            last += len(suffix) + 2
    return "".join(parts) + ")"
