# SPDX-License-Identifier: BSD-3-Clause
"""Helpers around training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modtree import _imports
from modtree.utils import _device as _device
from modtree.utils import checkpoint, data

if TYPE_CHECKING:
    from modtree.utils import hooks, model_zoo

__all__ = ["checkpoint", "data", "hooks", "model_zoo"]

_imports.answer_for_missing(__name__)
