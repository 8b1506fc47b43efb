# SPDX-License-Identifier: BSD-3-Clause
"""Making batches of samples, under torch's path."""

from __future__ import annotations

from modtree.utils.data.collate import (
    collate,
    default_collate,
    default_collate_fn_map,
    default_convert,
)

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]
