# SPDX-License-Identifier: BSD-3-Clause
"""The adaptive softmax, under torch's path."""

from __future__ import annotations

from modtree.nn.adaptive_softmax import AdaptiveLogSoftmaxWithLoss

__all__ = ["AdaptiveLogSoftmaxWithLoss"]
