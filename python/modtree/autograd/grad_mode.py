# SPDX-License-Identifier: BSD-3-Clause
"""Whether gradients are recorded, under torch's path."""

from __future__ import annotations

from modtree._tensor.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]
