# SPDX-License-Identifier: BSD-3-Clause
"""The one list of the groups of operations; importing this file enters all of them into the
registry. A file may take operations of those before it out of the registry while it is imported.
"""

from __future__ import annotations

from importlib import import_module

GROUPS = (
    # of tensors
    "unary",
    "arithmetic",
    "comparison",
    "conditional",
    "independent",
    "reduce",
    "variance",
    "scan",
    "softmax",
    "shape",
    "permute",
    "broadcast",
    "slices",
    "strided",
    "copy",
    "join",
    "pad",
    "repeat",
    "flip",
    "diagonal",
    "gather",
    "index_select",
    "index",
    "masked",
    "scatter_reduce",
    "sort",
    "special",
    "complex_parts",
    "distance",
    "linalg",
    "einsum",
    "decompositions",
    "linalg_functions",
    "householder",
    "inplace_views",
    "methods",
    # of layers
    "activation",
    "linear",
    "norm",
    "conv",
    "pool",
    "fold",
    "resample",
    "embedding",
    "attention",
    "loss",
    "ctc",
    "grid_sample",
    "recurrent",
    "lstm",
    "gru",
)

for _group in GROUPS:
    import_module(f"modtree.numpy.ops.{_group}")
