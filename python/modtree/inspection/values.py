# SPDX-License-Identifier: BSD-3-Clause
"""Values of tensors as arrays, for a look that leaves the tensors as they were."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["memory_of", "values_of"]


def values_of(tensor: Any, family: Any) -> Any:
    """The values as an array. Of a torch tensor it is a copy: torch never resizes memory again that
    an array was made of, which observers of quantization do in their next forward.
    """
    if family.name == "torch":
        tensor = tensor.detach().clone()
    return np.asarray(family.to_numpy(tensor))


def memory_of(tensor: Any) -> Any:
    """An array over the memory of a tensor, by which nothing is to be read: it does not keep the
    memory alive. None where that is not in this process.
    """
    try:
        if str(tensor.device) != "cpu" or not tensor.data_ptr():
            return None
        size = tensor.element_size()
        interface = {
            "data": (tensor.data_ptr(), True),
            "shape": tuple(tensor.shape),
            "strides": tuple(step * size for step in tensor.stride()),
            "typestr": f"|V{size}",
            "version": 3,
        }
    except Exception:  # sparse, quantized, wrapped, of another library
        return None
    return np.asarray(SimpleNamespace(__array_interface__=interface))
