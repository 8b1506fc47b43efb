# SPDX-License-Identifier: BSD-3-Clause
"""Linear algebra under torch's names, most of it made of the operations of ``linalg.py`` and
``decompositions.py``. Matrices are the last two dimensions, those before them a batch.
"""

from __future__ import annotations

from modtree._ops.decompositions import LinAlgError
from modtree._ops.linalg_functions.equations import (
    det,
    inv,
    lstsq,
    pinv,
    slogdet,
    solve,
    solve_triangular,
    tensorinv,
    tensorsolve,
)
from modtree._ops.linalg_functions.factors import (
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    matrix_rank,
    qr,
    svd,
    svdvals,
)
from modtree._ops.linalg_functions.norms import cond, matrix_norm, norm, vector_norm
from modtree._ops.linalg_functions.products import (
    cross,
    diagonal,
    matmul,
    matrix_exp,
    matrix_power,
    multi_dot,
    vander,
    vecdot,
)

__all__ = [
    "LinAlgError",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]
