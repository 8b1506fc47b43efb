# SPDX-License-Identifier: BSD-3-Clause
"""Modules that compute with the tensors of any library."""

from __future__ import annotations

from typing import Any

import numpy as np


def values(impl: Any, *shape: int, seed: int = 0, dtype: str = "float64") -> Any:
    """A tensor of random values, the same in all libraries."""
    array = np.random.default_rng(seed).standard_normal(shape)
    if dtype.startswith("complex"):
        array = array + 1j * np.random.default_rng(seed + 1).standard_normal(shape)
    return impl.lib.tensor(array.astype(dtype))


def linear(impl: Any, n_in: int = 3, n_out: int = 2, *, dtype: str = "float64") -> Any:
    """What ``Linear`` is, of any library, with the same values in all of them."""

    class Linear(impl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = impl.nn.Parameter(values(impl, n_out, n_in, dtype=dtype))
            self.bias = impl.nn.Parameter(values(impl, n_out, seed=1, dtype=dtype))
            self.register_buffer("scale", impl.lib.ones(n_out, dtype=getattr(impl.lib, dtype)))

        def forward(self, x: Any) -> Any:
            return (x @ self.weight.mT + self.bias) * self.scale

    return Linear()


def array(tensor: Any) -> Any:
    """The values of a tensor."""
    return tensor.detach().numpy()
