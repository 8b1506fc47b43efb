# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: products and factorizations of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from .failures import Allowed, arrays, bare, is_empty, message


def triangle_that_is_not_read(f: Any) -> bool:
    names = ("cholesky_solve", "cholesky_inverse")
    return bare(f) in names and f.word in ("gradient value", "value")


def phases_of_vectors(f: Any) -> bool:
    """Values and sizes agree; gradients depend on the phases."""
    names = ("eig", "eigh", "eigvals", "svd", "qr")
    if bare(f) not in names or f.word not in ("value", "gradient value"):
        return False
    place = {"svd": 1, "qr": 1}.get(bare(f), 0)  # of what does not depend on phases
    pair = [o.results[place] for o in (f.theirs, f.ours)]
    if bare(f) in ("eig", "eigvals"):
        pair = [np.sort_complex(a) for a in pair]
    elif bare(f) == "qr":
        pair = [np.abs(a) for a in pair]
    return bool(np.allclose(*pair, rtol=1e-3, atol=1e-3, equal_nan=True))


def batch_of_vectors(f: Any) -> bool:
    first, *others = arrays(f) or [np.zeros(0)]
    words = ("shape", "accepted")
    return bare(f) == "lstsq" and f.word in words and others[0].ndim == first.ndim - 1


def near_to_singular(f: Any) -> bool:
    """Within what rounding the elements may change."""
    names = "inv inverse det logdet slogdet solve lstsq pinv pinverse cond tensorinv tensorsolve"
    first = arrays(f)[0] if arrays(f) else np.zeros(0)
    if bare(f) == "householder_product" and f.word == "gradient value":
        for a, b in zip(f.theirs.gradients, f.ours.gradients, strict=True):
            if a is not None and not np.allclose(a, b, 1e-3, 1e-3 * np.abs(a).max(initial=0)):
                return False
        return True
    if bare(f) not in names.split() or not f.word.endswith("value") or first.ndim < 2:
        return False
    if not first.size or first.shape[-1] != first.shape[-2] or first.dtype.kind not in "fc":
        return False
    return bool((np.linalg.cond(first) > 1e-2 / np.finfo(first.dtype).eps ** 0.5).any())


def rank_by_columns(f: Any) -> bool:
    names = [*f.line.values[2:3], f.line.keywords.get("rcond")]
    given = [v for v in names if isinstance(v, (int, float))]
    return bare(f) == "lstsq" and f.word.endswith("value") and bool(given) and given[0] > 1e-3


def exponential_of_halves(f: Any) -> bool:
    halves = any(a.dtype == np.float16 for a in arrays(f))
    return bare(f) == "matrix_exp" and f.word.endswith("value") and halves


def memory_of_factors(f: Any) -> bool:
    if bare(f) == "tensordot":
        bools = all(a.dtype == bool for a in arrays(f))
        return bools and f.word == "refused"
    return (
        bare(f) in ("kron", "matrix_exp", "conv_tbc")
        and f.word == "accepted"
        and "view size" in message(f)
    )


def nothing_times_a_vector(f: Any) -> bool:
    return bare(f) == "addmv" and f.word == "shape" and is_empty(f)


ALLOWED = [
    Allowed("gradients of `cholesky_solve` and `cholesky_inverse`", triangle_that_is_not_read),
    Allowed("signs and phases of vectors (", phases_of_vectors),
    Allowed("`lstsq` of batches with one right-hand side", batch_of_vectors),
    Allowed("inverses, determinants and solutions of matrices near", near_to_singular),
    Allowed("`lstsq` with an `rcond`", rank_by_columns),
    Allowed("`matrix_exp` of float16", exponential_of_halves),
    Allowed(
        "`kron`, `matrix_exp`, `conv_tbc` (and `tensordot` of bools) of tensors whose memory",
        memory_of_factors,
    ),
    Allowed("`addmv` of a matrix without elements", nothing_times_a_vector),
]
