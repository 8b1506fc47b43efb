# SPDX-License-Identifier: BSD-3-Clause
"""Tensor families: what the module tree knows of the tensors of a library.

Those of modtree's own tensors and of torch's are here; :func:`register` announces others.
"""

from __future__ import annotations

from modtree.core import family as base  # noqa: F401  # where TensorFamily was
from modtree.core.families import TensorFamily, family_of, find, functions_of, register

__all__ = ["TensorFamily", "family_of", "find", "functions_of", "register"]
