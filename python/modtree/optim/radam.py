# SPDX-License-Identifier: BSD-3-Clause
"""``RAdam``, under torch's path."""

from __future__ import annotations

from modtree.optim.adam_variants import RAdam

__all__ = ["RAdam"]
