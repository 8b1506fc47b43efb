# SPDX-License-Identifier: BSD-3-Clause
"""``AdamW``, under torch's path."""

from __future__ import annotations

from modtree.optim.adam import AdamW

__all__ = ["AdamW"]
