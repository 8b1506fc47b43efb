# SPDX-License-Identifier: BSD-3-Clause
"""Switches of libraries that are not used here: programs may set them, ``is_available()`` says
False.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modtree import _imports

if TYPE_CHECKING:
    from modtree.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]

_imports.answer_for_missing(__name__, tuple(__all__))
