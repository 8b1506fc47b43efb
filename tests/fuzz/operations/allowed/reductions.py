# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: sums, extremes, orders, statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compare import close
from .failures import Allowed, arrays, bare, message


def equal_elements(f: Any) -> bool:
    """Which of several equal elements an index names; all that is not an index agrees."""
    names = ("sort", "argsort", "topk", "max", "min")
    if bare(f) not in names or f.word not in ("value", "gradient value"):
        return False
    if not has_repetitions(arrays(f)[0]):
        return False
    values = list(zip(f.theirs.results, f.ours.results, strict=True))
    differ = [a for a, b in values if isinstance(a, np.ndarray) and not close(a, b)]
    return f.word == "gradient value" or all(a.dtype == np.int64 for a in differ)


def unordered_topk(f: Any) -> bool:
    """The largest elements in any order."""
    ordered = f.line.keywords.get("sorted", (f.line.values + [True] * 5)[4])
    if bare(f) != "topk" or f.word not in ("value", "gradient value") or ordered is not False:
        return False
    a, b = (np.sort(o.results[0], axis=None) for o in (f.theirs, f.ours))
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))


def has_repetitions(a: Any) -> bool:
    return bool(np.unique(a).size < a.size)


def large_moments(f: Any) -> bool:
    with np.errstate(all="ignore"):
        return bare(f) in ("var", "std", "var_mean", "std_mean") and any(
            not (np.abs(a) < 1e15).all() for a in arrays(f)
        )


def moments_over_no_dimension(f: Any) -> bool:
    return bare(f) in ("var", "std", "var_mean", "std_mean") and [] in [
        *f.line.values,
        *f.line.keywords.values(),
    ]


def order_of_factors(f: Any) -> bool:
    return (
        bare(f) == "prod"
        and f.word == "value"
        and (
            any(not np.isfinite(a).all() for a in arrays(f))
            or any(getattr(v, "name", "") == "float16" for v in f.line.keywords.values())
        )
    )


def over_no_dimension(f: Any) -> bool:
    return bare(f) == "logsumexp" and f.word == "accepted" and "broadcast shape" in message(f)


def gradient_that_cancels(f: Any) -> bool:
    halves = any(a.dtype == np.float16 for a in arrays(f))
    names = ("cosine_similarity", "group_norm", "layer_norm")
    return bare(f) in names and f.word == "gradient value" and halves


ALLOWED = [
    Allowed("which of several equal elements", equal_elements),
    Allowed("`topk(sorted=False)`", unordered_topk),
    Allowed("`var`, `std`, `var_mean`, `std_mean` of infinite", large_moments),
    Allowed("gradient of `var` and `std` over an empty list", moments_over_no_dimension),
    Allowed("`prod` of infinite values", order_of_factors),
    Allowed("`logsumexp` over an empty list", over_no_dimension),
    Allowed("gradients of `group_norm`, `layer_norm`", gradient_that_cancels),
]
