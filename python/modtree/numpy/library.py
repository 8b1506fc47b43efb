# SPDX-License-Identifier: BSD-3-Clause
"""What the package hands out of the NumPy side: tensors, operations, files and layers' functions.

Imported when the first of these names is asked of ``modtree``; all of them enter its namespace
then.
"""

from __future__ import annotations

import sys
from importlib import import_module

from modtree import _imports
from modtree.numpy import tensor as _tensor
from modtree.numpy.ops.overridable import overridable_makers
from modtree.numpy.tensor.tensor import Tensor

#: The modules that the names are from, each of which lists its own; a later one is asked first.
_HOMES = (
    "nn.functional",
    "numpy.ops.functions",
    "numpy.tensor.creation",
    "numpy.tensor.devices",
    "numpy.tensor.dtypes",
    "numpy.tensor.from_data",
    "numpy.tensor.grad_mode",
    "numpy.tensor.layouts",
    "numpy.tensor.random",
    "numpy.tensor.random_creation",
    "numpy.tensor.ranges",
    "numpy.tensor.sampling",
    "numpy.tensor.settings",
    "numpy.tensor.tensor",
    "numpy.tensor.typed",
    "autograd.anomaly_mode",
    "nn.functional.at_top",
    "serialization",
)


#: Names that are called otherwise, or that come alone.
_OTHERS = {
    "GradScaler": ("modtree.numpy.absent", "GradScaler"),
    "OutOfMemoryError": ("modtree.numpy.absent", "OutOfMemoryError"),
    "autocast": ("modtree.numpy.absent", "autocast"),
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
