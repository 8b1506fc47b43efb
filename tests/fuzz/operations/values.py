# SPDX-License-Identifier: BSD-3-Clause
"""Arguments as plain data, which both libraries build their own objects from."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
FLOATS = ("float32", "float64", "float16")
COMPLEX = ("complex64", "complex128")
DTYPES = (*FLOATS, *INTEGERS, "bool", *COMPLEX)

#: Where derivatives have corners, functions have poles, and numbers end.
CORNERS = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, 6.0, 20.0, 1e-20, 1e30, -1e30)
NOT_FINITE = (float("nan"), float("inf"), float("-inf"))


def is_floating(dtype: str) -> bool:
    return dtype in FLOATS or dtype in COMPLEX


@dataclass(frozen=True)
class TensorValue:
    """A tensor: its values, and whether it is a leaf that takes part in the gradient."""

    array: Any
    requires_grad: bool = False
    turned: bool = False  # in memory, the dimensions are in reverse order

    @property
    def dtype(self) -> str:
        return str(self.array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def build(self, mt: Any, leaves: list[Any]) -> Any:
        array = self.array.copy("F" if self.turned else "C")
        tensor = mt.from_numpy(array)
        leaves.append(tensor.requires_grad_() if self.requires_grad else tensor)
        return tensor

    def __repr__(self) -> str:
        if self.array.size > 64:
            return f"<{self.dtype} {self.shape}>"
        values = repr(self.array.tolist())
        if self.array.size == 0:
            values = f"np.empty({self.shape})"
        marks = ", requires_grad=True" if self.requires_grad else ""
        marks += ", turned=True" if self.turned else ""
        return f"tensor({values}, {self.dtype}{marks})"


@dataclass(frozen=True)
class Named:
    """Something that both libraries have under one name: a dtype."""

    name: str

    def build(self, mt: Any, leaves: list[Any]) -> Any:
        return getattr(mt, self.name)

    def __repr__(self) -> str:
        return self.name


def build(value: Any, mt: Any, leaves: list[Any]) -> Any:
    if isinstance(value, (TensorValue, Named)):
        return value.build(mt, leaves)
    if isinstance(value, (list, tuple)):
        return type(value)(build(v, mt, leaves) for v in value)
    return value


def tensors_of(value: Any) -> list[TensorValue]:
    if isinstance(value, TensorValue):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_of(v)]
    return []


@dataclass
class Draw:
    """What the arguments of one line have in common."""

    rng: random.Random
    name: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    mixed: bool = False  # operands of several dtypes
    odd: float = 0.0  # the share of values that are NaN, infinite, or on corners
    grad: bool = False
    given: dict[str, Any] = field(default_factory=dict)  # the arguments so far, by name

    @classmethod
    def start(cls, rng: random.Random, name: str) -> Draw:
        ndim = rng.choice((0, 1, 1, 1, 2, 2, 2, 3, 3, 4))
        shape = tuple(rng.choice((0, 1, 1, 2, 2, 3, 3, 4)) for _ in range(ndim))
        if rng.random() < 0.7:
            shape = tuple(max(n, 1) for n in shape)
        dtype = rng.choice(("float32",) * 6 + ("float64",) * 4 + DTYPES)
        odd = rng.choice((0.0, 0.0, 0.0, 0.3, 0.8))
        return cls(rng, name, shape, dtype, rng.random() < 0.2, odd, rng.random() < 0.6)

    @property
    def ndim(self) -> int:
        first = next((v for v in self.given.values() if isinstance(v, TensorValue)), None)
        return len(self.shape) if first is None else len(first.shape)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def numbers(self, shape: tuple[int, ...], dtype: str, low: int = -4, high: int = 4) -> Any:
        rng, count = self.rng, int(np.prod(shape, dtype=int))
        if dtype == "bool":
            flat: list[Any] = [rng.random() < 0.5 for _ in range(count)]
        elif dtype in INTEGERS:
            flat = [rng.randint(0 if dtype == "uint8" else low, high) for _ in range(count)]
            if self.odd and low == -4:
                info = np.iinfo(dtype)
                ends = (info.max, info.min, 0, 1)
                flat = [rng.choice(ends) if rng.random() < self.odd / 4 else v for v in flat]
        elif dtype in COMPLEX:
            flat = [complex(self._real(dtype), self._real(dtype)) for _ in range(count)]
        else:
            flat = [self._real(dtype) for _ in range(count)]
        with np.errstate(all="ignore"):
            return np.array(flat, dtype=dtype).reshape(shape)

    def _real(self, dtype: str) -> float:
        rng = self.rng
        if rng.random() >= self.odd:
            return round(rng.gauss(0, 2), 3)
        return rng.choice(NOT_FINITE) if rng.random() < 0.4 else rng.choice(CORNERS)

    def tensor(
        self, shape: tuple[int, ...] | None = None, dtype: str | None = None, **bounds: int
    ) -> TensorValue:
        """A tensor of this line; without a shape, one that broadcasts with the others."""
        rng = self.rng
        if shape is None:
            shape = self.broadcast()
        if dtype is None:
            dtype = rng.choice(DTYPES) if self.mixed and self.chance(0.5) else self.dtype
        grad = self.grad and is_floating(dtype) and rng.random() < 0.8
        turned = len(shape) > 1 and rng.random() < 0.15
        return TensorValue(self.numbers(shape, dtype, **bounds), grad, turned)

    def index(self, shape: tuple[int, ...], size: int) -> TensorValue:
        """Indices into a dimension of this size, seldom beyond its ends."""
        beyond = 1 if self.chance(0.04) else 0
        low = -size if self.chance(0.1) else 0
        array = [
            self.rng.randint(low - beyond, max(size - 1 + beyond, low - beyond))
            for _ in range(int(np.prod(shape, dtype=int)))
        ]
        dtype = self.rng.choice(INTEGERS) if self.chance(0.05) else "int64"
        return TensorValue(np.array(array).astype(dtype).reshape(shape))

    def broadcast(self) -> tuple[int, ...]:
        rng, shape = self.rng, self.shape
        kind = rng.random()
        if kind < 0.55:
            return shape
        if kind < 0.85:
            kept = shape[rng.randint(0, len(shape)) :] if rng.random() < 0.5 else shape
            return tuple(1 if rng.random() < 0.4 else n for n in kept)
        if kind < 0.93:
            return ()
        return tuple(rng.choice((0, 1, 2, 3)) for _ in range(rng.randint(0, 3)))
