# SPDX-License-Identifier: BSD-3-Clause
"""Mean 0 and variance 1 over some axes, and how gradients go through that.

The functions run on tensors, for derivatives that are derived themselves; on arrays there are kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._C import TensorBase, from_array

Axes = tuple[int, ...]


def normalized(x: Any, axes: Axes, eps: float) -> tuple[Any, Any]:
    """``(x - mean) * rstd`` over the axes, and ``rstd = 1 / sqrt(variance + eps)``."""
    centred = x - np.mean(x, axis=axes, keepdims=True)
    variance = np.mean(centred * centred, axis=axes, keepdims=True)
    rstd = 1.0 / np.sqrt(variance + eps)
    return centred * rstd, rstd


def through_normalized(g: Any, y: Any, rstd: Any, axes: Axes) -> Any:
    """The gradient of x, from the gradient of ``y, rstd = normalized(x)``: what changes mean and variance is taken out."""
    mean = np.mean(g, axis=axes, keepdims=True)
    along = np.mean(g * y, axis=axes, keepdims=True)
    return rstd * (g - mean - y * along)


def summed(g: Any, axes: Axes) -> Any:
    """The sum over the axes; itself when there are none, which to tensors would mean all."""
    return np.sum(g, axis=axes) if axes else g


def like(value: Any, g: Any) -> Any:
    """A saved array as a constant tensor where the gradient is a tensor."""
    return (
        from_array(value) if isinstance(g, TensorBase) and isinstance(value, np.ndarray) else value
    )
