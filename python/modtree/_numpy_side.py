# SPDX-License-Identifier: BSD-3-Clause
"""All that a NumPy tensor needs at run time, in the one order in which it can be imported."""

from importlib import import_module

from modtree import _imports

for _part in ("_ops.groups", "_batching", "autograd", "families.numpy"):
    import_module(f"modtree.{_part}")

_imports.is_complete = True
_imports.remember()
