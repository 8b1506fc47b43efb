# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: sums, extremes, orders, statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compare import close
from ..values import Named, TensorValue
from .failures import Allowed, arrays, bare, is_empty, message, our_message


def infinite_as_integer(f: Any) -> bool:
    dtypes = [v.name for v in f.line.keywords.values() if isinstance(v, Named)]
    return (
        bare(f) == "nansum"
        and f.word == "value"
        and any("int" in n for n in dtypes)
        and any(np.isinf(a).any() for a in arrays(f) if a.dtype.kind == "f")
    )


def equal_elements(f: Any) -> bool:
    """Which of several equal elements an index names; all that is not an index agrees."""
    if bare(f) == "quantile" and f.word == "gradient value":
        return True
    names = ("kthvalue", "mode", "median", "nanmedian", "sort", "argsort", "topk", "max", "min")
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


def mode_with_nan(f: Any) -> bool:
    """torch sorts them by an order in which NaN has no place."""
    differs = bare(f) == "mode" and f.word in ("value", "gradient value")
    return differs and arrays(f)[0].dtype.kind == "f" and bool(np.isnan(arrays(f)[0]).any())


def has_repetitions(a: Any) -> bool:
    return bool(np.unique(a).size < a.size)


def large_moments(f: Any) -> bool:
    with np.errstate(all="ignore"):
        return bare(f) in ("var", "std", "var_mean", "std_mean") and any(
            not (np.abs(a) < 1e15).all() for a in arrays(f)
        )


def unsorted_boundaries(f: Any) -> bool:
    if bare(f) not in ("bucketize", "searchsorted"):
        return False
    given = {**dict(enumerate(f.line.values)), **f.line.keywords}
    keys = (1, "boundaries") if bare(f) == "bucketize" else (0, "sorted_sequence")
    boundaries = next((given[key] for key in keys if key in given), None)
    if not isinstance(boundaries, TensorValue) or boundaries.array.ndim == 0:
        return False
    a = boundaries.array
    return not np.array_equal(np.sort(a, -1), a) or (
        a.dtype.kind in "fc" and bool(np.isnan(a).any())
    )


def unique_nan(f: Any) -> bool:
    return bare(f) in ("unique", "unique_consecutive", "isin") and any(
        np.isnan(a).any() for a in arrays(f) if a.dtype.kind in "fc"
    )


def trapezoids(f: Any) -> bool:
    words = ("value", "dtype", "shape", "requires_grad", "gradient is None")
    parts = ("must match the size", "dx as a real number")
    broadcast = f.word == "accepted" and is_empty(f) and any(p in message(f) for p in parts)
    nothing = f.word == "refused" and (is_empty(f) or "as dx" in our_message(f))
    return "trap" in bare(f) and (broadcast or nothing or f.word in words)


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


def changes_its_argument(f: Any) -> bool:
    alone = bool(arrays(f)) and arrays(f)[0].shape[-1:] in ((), (1,))
    return bare(f) == "cov" and alone and f.word in ("argument afterwards", "value")


def gradient_that_cancels(f: Any) -> bool:
    if bare(f) == "corrcoef" and f.word == "gradient value":
        sizes = [np.abs(g).max() for o in (f.theirs, f.ours) for g in o.gradients if g is not None]
        if max(sizes) < 1e-3 and any(a.dtype == np.float32 for a in arrays(f)):
            return True
    halves = any(a.dtype == np.float16 for a in arrays(f))
    names = ("renorm", "corrcoef", "cosine_similarity", "group_norm", "layer_norm")
    return bare(f) in names and f.word == "gradient value" and halves


ALLOWED = [
    Allowed("`nansum` of infinite values as integers", infinite_as_integer),
    Allowed("which of several equal elements", equal_elements),
    Allowed("`topk(sorted=False)`", unordered_topk),
    Allowed("`mode` beside NaN", mode_with_nan),
    Allowed("`var`, `std`, `var_mean`, `std_mean` of infinite", large_moments),
    Allowed("`bucketize`, `searchsorted` with boundaries", unsorted_boundaries),
    Allowed("`unique` of several NaN", unique_nan),
    Allowed("`trapezoid` of integers", trapezoids),
    Allowed("gradient of `var` and `std` over an empty list", moments_over_no_dimension),
    Allowed("`prod` of infinite values", order_of_factors),
    Allowed("`logsumexp` over an empty list", over_no_dimension),
    Allowed("`cov` of one observation with weights", changes_its_argument),
    Allowed("gradients of `renorm`, `corrcoef`, `group_norm`", gradient_that_cancels),
]
