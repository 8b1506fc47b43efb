# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: products and factorizations of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from .failures import Allowed, arrays, bare, message


def phases_of_vectors(f: Any) -> bool:
    """Values and sizes agree; gradients depend on the phases."""
    names = ("eigh", "svd", "qr")
    if bare(f) not in names or f.word not in ("value", "gradient value"):
        return False
    place = {"svd": 1, "qr": 1}.get(bare(f), 0)  # of what does not depend on phases
    pair = [o.results[place] for o in (f.theirs, f.ours)]
    if bare(f) == "qr":
        pair = [np.abs(a) for a in pair]
    return bool(np.allclose(*pair, rtol=1e-3, atol=1e-3, equal_nan=True))


def near_to_singular(f: Any) -> bool:
    """Within what rounding the elements may change."""
    names = "inv inverse det slogdet solve pinv"
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


def exponential_of_halves(f: Any) -> bool:
    halves = any(a.dtype == np.float16 for a in arrays(f))
    return bare(f) == "matrix_exp" and f.word.endswith("value") and halves


def memory_of_factors(f: Any) -> bool:
    if bare(f) == "tensordot":
        bools = all(a.dtype == bool for a in arrays(f))
        return bools and f.word == "refused"
    return bare(f) == "matrix_exp" and f.word == "accepted" and "view size" in message(f)


ALLOWED = [
    Allowed("signs and phases of vectors (", phases_of_vectors),
    Allowed("inverses, determinants and solutions of matrices near", near_to_singular),
    Allowed("`matrix_exp` of float16", exponential_of_halves),
    Allowed(
        "`matrix_exp` (and `tensordot` of bools) of tensors whose memory",
        memory_of_factors,
    ),
]
