# SPDX-License-Identifier: BSD-3-Clause
"""Linear algebra under torch's names: det, inv, solve, cholesky, qr, svd, eigh, norm, ..."""

from __future__ import annotations

from typing import Any

from modtree import _imports
from modtree.numpy.ops.householder import householder_product
from modtree.numpy.ops.linalg_functions import (
    LinAlgError,
    cholesky,
    det,
    eigh,
    inv,
    matrix_exp,
    matrix_norm,
    matrix_power,
    multi_dot,
    norm,
    pinv,
    qr,
    slogdet,
    solve,
    svd,
    vector_norm,
)
from modtree.numpy.ops.out import LINALG, taking_out
from modtree.numpy.ops.overridable import overridable_all

__all__ = [
    "LinAlgError",
    "cholesky",
    "det",
    "eigh",
    "householder_product",
    "inv",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "vector_norm",
]

_here: dict[str, Any] = globals()
for _name, _rule in LINALG.items():
    _here[_name] = taking_out(_here[_name], _rule)
overridable_all(globals(), __all__, elsewhere="linalg.")
_imports.name_by_public_path(__name__, __all__)

_imports.answer_for_missing(__name__)
