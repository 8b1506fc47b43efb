# SPDX-License-Identifier: BSD-3-Clause
"""Modules as functions of their parameters."""

from __future__ import annotations

from modtree.nn.utils.stateless import functional_call

__all__ = ["functional_call"]
