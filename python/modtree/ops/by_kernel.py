# SPDX-License-Identifier: BSD-3-Clause
"""When the native kernels can be used: for arrays of float32 or float64, all of one dtype.

What is not of these dtypes, and tensors in a backward pass that is recorded itself, takes the way through NumPy's functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def native(first: Any, *others: Any) -> bool:
    """Do kernels take these values together?"""
    if type(first) is not np.ndarray or first.dtype.char not in "fd":
        return False
    return all(type(x) is np.ndarray and x.dtype == first.dtype for x in others)
