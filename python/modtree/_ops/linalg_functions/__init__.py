# SPDX-License-Identifier: BSD-3-Clause
"""Linear algebra under torch's names, most of it made of the operations of ``linalg.py`` and
``decompositions.py``. Matrices are the last two dimensions, those before them a batch.
"""

from __future__ import annotations

from modtree._ops.decompositions import LinAlgError
from modtree._ops.linalg_functions.equations import (
    det,
    inv,
    pinv,
    slogdet,
    solve,
)
from modtree._ops.linalg_functions.factors import (
    cholesky,
    eigh,
    qr,
    svd,
)
from modtree._ops.linalg_functions.norms import matrix_norm, norm, vector_norm
from modtree._ops.linalg_functions.products import (
    matrix_exp,
    matrix_power,
    multi_dot,
)

__all__ = [
    "LinAlgError",
    "cholesky",
    "det",
    "eigh",
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
