# SPDX-License-Identifier: BSD-3-Clause
"""Operations: one file per group, each with its forward functions, rules for dtype and meta
tensors, and derivatives.
"""

from modtree import _imports

_imports.complete_numpy_side()
