# SPDX-License-Identifier: BSD-3-Clause
"""Helpers around training."""

from __future__ import annotations

from modtree.utils import _device as _device
from modtree.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]
