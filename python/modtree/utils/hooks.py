# SPDX-License-Identifier: BSD-3-Clause
"""Handles of hooks, and the hooks on gradients of one call of a module, under torch's path."""

from __future__ import annotations

from modtree import _imports
from modtree.core.hooks import BackwardHook, RemovableHandle

__all__ = ["BackwardHook", "RemovableHandle"]

_imports.answer_for_missing(__name__)
