# SPDX-License-Identifier: BSD-3-Clause
"""``Adamax``, under torch's path."""

from __future__ import annotations

from modtree.optim.adam_variants import Adamax

__all__ = ["Adamax"]
