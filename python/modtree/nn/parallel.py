# SPDX-License-Identifier: BSD-3-Clause
"""The path of torch's wrappers for several devices and processes, which programs import. There is
one process on one device here: nothing wraps a model.
"""

from __future__ import annotations

from modtree import _imports

_imports.answer_for_missing(__name__)
