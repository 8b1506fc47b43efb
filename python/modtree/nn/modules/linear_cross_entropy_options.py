# SPDX-License-Identifier: BSD-3-Clause
"""What a fused linear layer and cross entropy may do, under torch's path."""

from __future__ import annotations

from modtree.nn.linear_loss import LinearCrossEntropyOptions

__all__ = ["LinearCrossEntropyOptions"]
