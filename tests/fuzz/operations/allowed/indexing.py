# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: indices, masks and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .failures import Allowed, arrays, bare, is_empty, message


def dimension_of_nothing(f: Any) -> bool:
    names = ("roll", "cat", "concat", "concatenate", "index_fill")
    return (
        bare(f) in names
        and is_empty(f)
        and f.word == "refused"
        and ("out of range" in f.ours.error[1])
    )


def index_into_nothing(f: Any) -> bool:
    """An index array beside what chooses nothing."""
    results = [a for a in f.theirs.results if isinstance(a, np.ndarray)]
    nothing = is_empty(f) or bare(f) == "setitem" or any(a.size == 0 for a in results)
    names = ("index_put", "getitem", "setitem")
    return (
        bare(f) in names
        and f.word in ("refused", "error type")
        and nothing
        and ("out of bounds" in f.ours.error[1])
    )


def not_viewable(f: Any) -> bool:
    return bare(f) == "take_along_dim" and f.word == "accepted" and "view size is not" in message(f)


def bytes_of_nothing(f: Any) -> bool:
    one = any(a.ndim and (a.shape[-1] == 1 or 1 in a.shape and a.ndim > 1) for a in arrays(f))
    return (
        bare(f) == "view"
        and f.word == "accepted"
        and "stride" in message(f)
        and (one or is_empty(f))
    )


def mask_without_dimensions(f: Any) -> bool:
    """index_put() of torch passes over it."""
    masks = [t.array for t in f.line.tensors[1:] if t.array.dtype in (bool, np.uint8)]
    return bare(f) == "index_put" and any(a.ndim == 0 for a in masks)


def list_as_a_tuple(f: Any) -> bool:
    """torch says that this will change."""
    names = ("getitem", "setitem")
    return bare(f) in names and len(f.line.values) > 1 and isinstance(f.line.values[1], list)


def same_place_twice(f: Any) -> bool:
    names = ("put", "index_copy", "scatter", "index_put", "setitem", "max_unpool")
    words = ("value", "gradient value", "argument afterwards")
    indices = [t.array for t in f.line.tensors[1:] if t.array.dtype.kind in "iu"]
    values = [v for v in f.line.values[1:2] if isinstance(v, (list, tuple))]  # lists of numbers
    twice = any((a < 0).any() or np.unique(a).size < a.size for a in indices)
    return bare(f).startswith(names) and f.word in words and (twice or bool(values))


def factors_beyond_the_index(f: Any) -> bool:
    """Factors of a product that the index does not reach have a gradient in torch."""
    first, index, source = (*arrays(f), None, None, None)[:3]
    gradients = "prod" in [*f.line.values, *f.line.keywords.values()] and index is not None
    short = gradients and source is not None and index.shape != source.shape
    return bare(f) == "scatter_reduce" and f.word == "gradient value" and short


def same_dtype_view(f: Any) -> bool:
    return bare(f) == "view" and f.word == "requires_grad"


def bytes_as_a_mask(f: Any) -> bool:
    return f.word == "accepted" and "only supports boolean masks" in message(f)


def wraps_around(f: Any) -> bool:
    return bare(f) == "take_along_dim" and f.word == "refused"


ALLOWED = [
    Allowed("a list of lists or tensors as an index", list_as_a_tuple),
    Allowed("`index_put` by a mask without dimensions", mask_without_dimensions),
    Allowed("a dimension, or an index, out of range of", dimension_of_nothing),
    Allowed("a dimension, or an index, out of range of", index_into_nothing),
    Allowed("`take_along_dim` without a dim of what is not contiguous", not_viewable),
    Allowed("`view(dtype)` of a tensor without elements", bytes_of_nothing),
    Allowed("several values for one place", same_place_twice),
    Allowed("gradient of `scatter_reduce` by products", factors_beyond_the_index),
    Allowed("`view(dtype)` to the dtype that a tensor has", same_dtype_view),
    Allowed("a number assigned by a mask of uint8", bytes_as_a_mask),
    Allowed("`take_along_dim` with an index beyond", wraps_around),
]
