# SPDX-License-Identifier: BSD-3-Clause
"""What is left where modtree does not know the inside of CPython (docs/lifetime.md)."""

from __future__ import annotations

import pytest

from modtree import _C

needs_object_methods = pytest.mark.skipif(
    not _C._exchange_object_methods(True), reason="this CPython keeps object's methods from modules"
)
