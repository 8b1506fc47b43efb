# SPDX-License-Identifier: BSD-3-Clause
"""Parameters and buffers, where ``from torch.nn.parameter import Parameter`` looks for them."""

from __future__ import annotations

from modtree.parameter import Buffer, Parameter

__all__ = ["Buffer", "Parameter"]
