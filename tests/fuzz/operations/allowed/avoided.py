# SPDX-License-Identifier: BSD-3-Clause
"""Lines that stop the process in torch, or take more memory than there is."""

from __future__ import annotations

from typing import Any

import numpy as np

from .failures import Avoided


def has_no_rows(line: Any) -> bool:
    return any(t.array.size == 0 for t in line.tensors)


def not_finite(line: Any) -> bool:
    kinds = [t.array for t in line.tensors if t.array.dtype.kind in "fc"]
    with np.errstate(all="ignore"):
        return any(not (np.abs(a) < 1e6).all() for a in kinds)


#: Names of what divides integers, without "_" at the end.
QUOTIENTS = tuple(
    "div divide floor_divide fmod remainder Tensor.div Tensor.divide Tensor.floor_divide "
    "Tensor.fmod Tensor.remainder operator.floordiv operator.mod operator.ifloordiv "
    "operator.imod".split()
)


def smallest_integer(line: Any) -> bool:
    arrays = [t.array for t in line.tensors if t.array.dtype.kind == "i" and t.array.size]
    return any((a == np.iinfo(a.dtype).min).any() for a in arrays)


def half_in_another_order(line: Any) -> bool:
    halves = any(t.array.dtype == np.float16 for t in line.tensors)
    return halves and any(t.turned for t in line.tensors)


def dilated_into_the_padding(line: Any) -> bool:
    """A window of pooling may lie in the padding as a whole where it is dilated."""
    given = [*line.values[2:], *line.keywords.values()]
    numbers = [n for v in given for n in (v if isinstance(v, (list, tuple)) else [v])]
    wide = any(isinstance(n, int) and n > 1 for n in numbers)
    sizes = [n for t in line.tensors for n in t.shape[1:]]
    return wide and bool(sizes) and min(sizes) < 3


CONVOLUTIONS = tuple(
    f"{where}{name}{n}d"
    for where in ("", "F.")
    for name in ("conv", "conv_transpose")
    for n in "123"
)


MAX_POOLS = tuple(
    f"{where}max_pool{n}d{end}"
    for where in ("", "F.", "F.adaptive_")
    for n in "123"
    for end in ("", "_with_indices")
)


def drops_out(line: Any) -> bool:
    """At random, in each library by its own numbers."""
    return bool(line.keywords.get("dropout_p", (*line.values, *(0,) * 5)[4]))


AVOIDED: list[Avoided] = [
    Avoided(("F.scaled_dot_product_attention",), "random numbers", drops_out),
    Avoided(CONVOLUTIONS, "convolutions of float16", half_in_another_order),
    Avoided(MAX_POOLS, "`max_pool` with a dilated window", dilated_into_the_padding),
    Avoided(("F.grid_sample",), "`grid_sample` at NaN, infinite and enormous places", not_finite),
    Avoided(QUOTIENTS, "quotients of the smallest integer by -1", smallest_integer),
]


def is_avoided(line: Any) -> bool:
    name = line.operation.name.rstrip("_")
    given = [*line.values, *line.keywords.values()]
    if name.rpartition(".")[2] in ("arange", "tensor_split", "repeat_interleave"):
        numbers = [v for v in given if isinstance(v, (int, float))]
        numbers += [abs(t.array.item()) for t in line.tensors[1:] if t.array.size == 1]
        if any(abs(n) > 1e6 for n in numbers):
            return True  # more numbers, or pieces, than memory
    if name.startswith("operator.") and not line.tensors:
        return True  # Python's numbers
    return any(name in entry.names and entry.applies(line) for entry in AVOIDED)
