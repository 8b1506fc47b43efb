# SPDX-License-Identifier: BSD-3-Clause
"""Changing and observing a tree: find modules by pattern, put others in their place, read and
replace what they return.

Works on modules of modtree and of torch. Imports the core alone.
"""

from __future__ import annotations

from modtree.editing.edits import Edit, edit
from modtree.editing.grouping import ParamGroups
from modtree.editing.intervening import Intervention, intervene
from modtree.editing.observing import Call, Capture, capture
from modtree.editing.receipts import Change, Receipt
from modtree.editing.selections import (
    Selection,
    TensorSelection,
    find,
    find_parameters,
    param_groups,
)
from modtree.editing.ties import Tie

__all__ = [
    "Call",
    "Capture",
    "Change",
    "Edit",
    "Intervention",
    "ParamGroups",
    "Receipt",
    "Selection",
    "TensorSelection",
    "Tie",
    "capture",
    "edit",
    "find",
    "find_parameters",
    "intervene",
    "param_groups",
]
