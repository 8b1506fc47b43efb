# SPDX-License-Identifier: BSD-3-Clause
"""What the package hands out of the NumPy side: tensors, operations, files and layers' functions.

Imported when the first of these names is asked of ``modtree``; all of them enter its namespace
then.
"""

from __future__ import annotations

import sys
from importlib import import_module

from modtree import _imports, _tensor
from modtree._ops.overridable import overridable_makers
from modtree._tensor.tensor import Tensor

__all__ = ["origins"]

#: The modules that the names are from, each of which lists its own; a later one is asked first.
_HOMES = (
    "_ops.functions",
    "_tensor.creation",
    "_tensor.devices",
    "_tensor.dtypes",
    "_tensor.from_data",
    "_tensor.grad_mode",
    "_tensor.layouts",
    "_tensor.random",
    "_tensor.random_creation",
    "_tensor.ranges",
    "_tensor.sampling",
    "_tensor.settings",
    "_tensor.tensor",
    "_tensor.typed",
    "autograd.anomaly_mode",
    "nn.functional.at_top",
    "serialization",
)


#: Names that are called otherwise, or that come alone.
_OTHERS = {
    "GradScaler": ("modtree._absent", "GradScaler"),
    "OutOfMemoryError": ("modtree._absent", "OutOfMemoryError"),
    "autocast": ("modtree._absent", "autocast"),
    "promote_types": ("modtree._C", "_promote_types"),
    "result_type": ("modtree._C", "_result_type"),
}


def origins() -> dict[str, tuple[str, str]]:
    """Public name -> the module that it is from, and its name there."""
    found = dict(_OTHERS)
    for home in (f"modtree.{name}" for name in _HOMES):
        found |= {name: (home, name) for name in import_module(home).__all__}
    return {name: found[name] for name in sys.modules["modtree"].__all__ if name in found}


def _public_names() -> dict[str, object]:
    found = {
        name: getattr(import_module(home), written) for name, (home, written) in origins().items()
    }
    overridable_makers(found)
    return found


vars(sys.modules["modtree"]).update(_public_names())
_imports.name_by_public_path("modtree", sys.modules["modtree"].__all__)
setattr(_tensor, "Tensor", Tensor)  # noqa: B010  # where torch has the class, unknown to checkers
