# SPDX-License-Identifier: BSD-3-Clause
"""Helpers around training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modtree import _imports
from modtree.utils import _device as _device
from modtree.utils import checkpoint, data, hooks

if TYPE_CHECKING:
    from modtree.utils import cpp_extension, model_zoo, tensorboard

__all__ = ["checkpoint", "cpp_extension", "data", "hooks", "model_zoo", "tensorboard"]

_imports.answer_for_missing(__name__, ("cpp_extension", "model_zoo", "tensorboard"))
