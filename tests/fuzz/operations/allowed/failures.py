# SPDX-License-Identifier: BSD-3-Clause
"""What entries say of failures, and how they read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..compare import TOLERANCE


class Allowed(NamedTuple):
    row: str
    applies: Callable[[Any], bool]  # to a Failure


class Avoided(NamedTuple):
    """Lines that stop the process in torch."""

    names: tuple[str, ...]
    row: str
    applies: Callable[[Any], bool]  # to a Line


def bare(failure: Any) -> str:
    return failure.line.operation.name.rpartition(".")[2].rstrip("_")


def message(failure: Any) -> str:
    """What torch says."""
    error = failure.theirs.error or failure.theirs.backward_error
    return "" if error is None else error[1]


def our_message(failure: Any) -> str:
    """What modtree says."""
    error = failure.ours.error or failure.ours.backward_error
    return "" if error is None else error[1]


def beyond(array: Any, limit: float) -> bool:
    """Has it elements beyond a limit? NaN are none."""
    return bool((np.abs(array.astype(complex if array.dtype.kind == "c" else float)) > limit).any())


#: What of an outcome a word is about.
OUTCOMES = {"value": "results", "gradient value": "gradients", "argument afterwards": "arguments"}


def largest_of(array: Any) -> float:
    """The largest finite size of an element."""
    with np.errstate(all="ignore"):
        sizes = np.abs(array if array.dtype.kind in "fc" else array.astype(float))
    return float(sizes[np.isfinite(sizes)].max(initial=0))


def agree_where_finite(f: Any) -> bool:
    """True if what is finite in both differs by rounding, also of terms that cancel."""
    what = OUTCOMES[f.word]
    for a, b in zip(getattr(f.theirs, what), getattr(f.ours, what), strict=True):
        if not isinstance(a, np.ndarray) or a.dtype.kind not in "fc":
            if not np.array_equal(a, b):
                return False
            continue
        finite = np.isfinite(a) & np.isfinite(b)
        largest = max(map(largest_of, (*arrays(f), a)))
        near = TOLERANCE[str(a.dtype)]
        with np.errstate(all="ignore"):
            if not np.allclose(a[finite], b[finite], 8 * near, near * largest):
                return False
    return True


def is_empty(failure: Any) -> bool:
    return any(t.array.size == 0 for t in failure.line.tensors)


def arrays(failure: Any) -> list[Any]:
    return [t.array for t in failure.line.tensors]


def given(f: Any) -> list[Any]:
    """The numbers of a line."""
    numbers = [*f.line.values, *f.line.keywords.values()]
    return [v for v in numbers if isinstance(v, (int, float, complex))]
