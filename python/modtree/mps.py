# SPDX-License-Identifier: BSD-3-Clause
"""What programs ask and tell Metal: nothing is there, and nothing to do."""

from __future__ import annotations

from modtree import _imports
from modtree.cuda import device_count, empty_cache, is_available, manual_seed, seed, synchronize

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "seed", "synchronize"]

_imports.answer_for_missing(__name__)
