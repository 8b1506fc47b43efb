# SPDX-License-Identifier: BSD-3-Clause
"""Lazy modules, under torch's path."""

from __future__ import annotations

from modtree.core.lazy import LazyModuleMixin

__all__ = ["LazyModuleMixin"]
