# SPDX-License-Identifier: BSD-3-Clause
"""All that a NumPy tensor needs at run time, in the one order in which it can be imported."""

import sys
from importlib import import_module

from modtree import _imports

for _part in ("numpy.ops.groups", "numpy.tensor.ranges", "autograd", "numpy.family"):
    import_module(f"modtree.{_part}")

# What annotations name, for typing.get_type_hints(), which looks in a function's own module. These
# modules are below the types, and cannot import them.
_types = vars(import_module("modtree.numpy.argument_types"))
for _name, _module in [*sys.modules.items()]:
    if _name.startswith(("modtree.numpy.ops.", "modtree.numpy.tensor.")):
        for _type in _types["__all__"]:
            vars(_module).setdefault(_type, _types[_type])

_imports.is_complete = True
