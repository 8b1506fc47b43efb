# SPDX-License-Identifier: BSD-3-Clause
"""The version of modtree, and of what it is not built with."""

from __future__ import annotations

from modtree import _imports
from modtree._C import __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "xpu"]

cuda: str | None = None
debug = False
git_version = "unknown"
hip: str | None = None
xpu: str | None = None

_imports.answer_for_missing(__name__)
