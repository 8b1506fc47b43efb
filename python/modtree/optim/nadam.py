# SPDX-License-Identifier: BSD-3-Clause
"""``NAdam``, under torch's path."""

from __future__ import annotations

from modtree.optim.adam_variants import NAdam

__all__ = ["NAdam"]
