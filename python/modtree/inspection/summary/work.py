# SPDX-License-Identifier: BSD-3-Clause
"""What a call of a module computes and makes: multiply-adds, and bytes of its results."""

from __future__ import annotations

import math
from typing import Any

from modtree.core.families import family_of
from modtree.editing.walking import registry
from modtree.inspection.forward import Call, bytes_of, tensors_of


def count_work(call: Call, args: Any, output: Any) -> None:
    """Adds what one call of a module did to what is known of its calls.

    Layers are told by the names of their classes and of those before them, so that layers of torch,
    of modtree and of quantized models count alike.
    """
    made = list(tensors_of(output))
    call.nbytes += sum(map(bytes_of, made))
    bases = type(call.module).__mro__
    names = {c.__name__ for c in bases if c.__module__.partition(".")[0] in ("modtree", "torch")}
    given = list(tensors_of(args))
    kind = next((kind for kind in _COUNTS if not names.isdisjoint(kind)), None)
    if kind is not None and given and made:
        call.multiply_adds += _COUNTS[kind](call.module, list(map(_shape, given)), _shape(made[0]))


def _shape(tensor: Any) -> tuple[int, ...]:
    family = family_of(tensor)
    assert family is not None  # as tensors_of found it
    return tuple(family.shape(tensor))


def _matrices(module: Any) -> int:
    """The elements of all weights of a module that are matrices."""
    shapes = [_shape(v) for v in registry(module, "_parameters").values() if v is not None]
    return sum(math.prod(shape) for shape in shapes if len(shape) > 1)


def _linear(module: Any, given: list[tuple[int, ...]], made: tuple[int, ...]) -> int:
    return math.prod(made) * module.in_features


def _bilinear(module: Any, given: list[tuple[int, ...]], made: tuple[int, ...]) -> int:
    return math.prod(made) * module.in1_features * (module.in2_features + 1)


def _convolution(module: Any, given: list[tuple[int, ...]], made: tuple[int, ...]) -> int:
    each = module.in_channels // module.groups * math.prod(module.kernel_size)
    return math.prod(made) * each


def _transposed(module: Any, given: list[tuple[int, ...]], made: tuple[int, ...]) -> int:
    each = module.out_channels // module.groups * math.prod(module.kernel_size)
    return math.prod(given[0]) * each


def _recurrent(module: Any, given: list[tuple[int, ...]], made: tuple[int, ...]) -> int:
    return math.prod(given[0][:-1]) * _matrices(module)


def _attention(module: Any, given: list[tuple[int, ...]], made: tuple[int, ...]) -> int:
    """Projections of query, key, value and output, and the two products of attention."""
    width = module.embed_dim
    query, key = given[0], given[min(1, len(given) - 1)]
    is_batched = len(query) == 3
    batch = query[0 if module.batch_first else 1] if is_batched else 1
    queries, keys = math.prod(query[:-1]) // batch, math.prod(key[:-1]) // batch
    projected = 2 * queries * width + keys * (module.kdim + module.vdim)
    return batch * width * (projected + 2 * queries * keys)


_COUNTS: dict[tuple[str, ...], Any] = {
    ("MultiheadAttention",): _attention,
    ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"): _transposed,
    ("Conv1d", "Conv2d", "Conv3d"): _convolution,
    ("RNNBase", "RNNCellBase"): _recurrent,
    ("Bilinear",): _bilinear,
    ("Linear",): _linear,
}
