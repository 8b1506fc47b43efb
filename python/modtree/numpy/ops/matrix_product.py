# SPDX-License-Identifier: BSD-3-Clause
"""The products of matrices that operations are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree._C import kernels


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    """``np.matmul(a, b, out)``, by the native kernel where it has the dtypes and layouts. Tensors
    give a tensor.

    The kernel's threads are those of the other kernels, while OpenBLAS's wait actively after each
    product and take the cores from what comes next; with AVX-512 it is also faster than OpenBLAS
    where that takes AVX2 (on AMD).
    """
    product = kernels.matmul(a, b, None, out)
    return np.matmul(a, b, out=out) if product is None else product


def turned_for_products(weight: Any) -> Any:
    """``weight.T`` for many products with a few rows each: the native kernel reads the weight where
    it is, while OpenBLAS is up to 1.7 times faster with a transposed copy.
    """
    turned = weight.T
    return turned if kernels.has_wide_products() else np.ascontiguousarray(turned)
