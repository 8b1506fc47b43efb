# SPDX-License-Identifier: BSD-3-Clause
"""Where programs look for the parts of the loader."""

from __future__ import annotations

from modtree.utils.data._utils import collate

__all__ = ["collate"]
