# SPDX-License-Identifier: BSD-3-Clause
"""Calls of operations on batched tensors; native code comes here."""

from __future__ import annotations

from typing import Any

from modtree import _C
from modtree._batching.level import Level
from modtree._batching.rules import RULES
from modtree._batching.tensor import BatchedTensor, batched
from modtree._tensor.batch_levels import levels
from modtree._tensor.random import default_generator

__all__ = ["batched_call", "batched_inplace"]

#: Operations that draw random numbers themselves.
_DRAWS = frozenset(("scaled_dot_product_attention", "rnn", "lstm", "gru"))


def _batched_among(values: Any) -> Any:
    for value in values:
        if type(value) is BatchedTensor:
            yield value
        elif type(value) in (tuple, list):
            yield from _batched_among(value)


def _innermost(op: Any, values: Any) -> Level:
    entered = levels()
    found = {id(v._level): v._level for v in _batched_among(values)}
    for level in found.values():
        if level not in entered:
            raise RuntimeError(
                f"vmap: {op.__name__} got a tensor of a vmap that has ended, or is outside of "
                f"it: a function must hand over what it computes inside of vmap as its result"
            )
    return max(found.values(), key=entered.index)


def batched_call(op: Any, *args: Any, **kwargs: Any) -> Any:
    """op(*args, **kwargs), where an argument has the batch of a level."""
    level = _innermost(op, (*args, *kwargs.values()))
    rule = RULES.get(op.__name__)
    if rule is not None:
        result = rule(level, op, args, kwargs)
        if result is not NotImplemented:
            return _wrapped(result, level)
    return by_sample(level, op, args, kwargs)


def _wrapped(result: Any, level: Level) -> Any:
    if isinstance(result, _C.TensorBase):
        return batched(result, level)
    if isinstance(result, (tuple, list)):
        return tuple(_wrapped(part, level) for part in result)
    return result


def by_sample(level: Level, op: Any, args: Any, kwargs: Any) -> Any:
    """Calls the operation for each sample: right for every operation."""
    names = tuple(kwargs)
    state = None
    if op.__name__ in _DRAWS and level.randomness == "same":
        state = default_generator.get_state()

    def one(*sample: Any) -> Any:
        if state is not None:
            default_generator.set_state(state)
        positional, named = sample[: len(args)], sample[len(args) :]
        return op(*positional, **dict(zip(names, named, strict=True)))

    # Inside of the level: an operation that draws random numbers asks how.
    return level.map(one, (*args, *kwargs.values()), op.__name__, leave=False)


def _rank(dtype: Any) -> int:
    """Bools go into whole numbers, these into floating ones, these into complex ones."""
    return {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}[dtype.dtype.kind]


def batched_inplace(op: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """self = op(self, *args, **kwargs), written into self."""
    level = _innermost(op, (self, *args, *kwargs.values()))
    if not level.holds(self):
        raise RuntimeError(
            f"vmap: {op.__name__}_(self, *extra_args) is not possible because there exists a "
            f"Tensor `other` in extra_args that has more elements than `self`: self is the same "
            f"for the whole batch. Use {op.__name__}(), which makes a new tensor, or write into "
            f"a clone of a tensor that has the batch"
        )
    result = batched_call(op, self, *args, **kwargs)
    if result.shape != self.shape:
        raise RuntimeError(
            f"output with shape {list(self.shape)} doesn't match the broadcast shape "
            f"{list(result.shape)}"
        )
    if _rank(result.dtype) > _rank(self.dtype):
        raise RuntimeError(
            f"result type {result.dtype} can't be cast to the desired output type {self.dtype} "
            f"(in {op.__name__}_)"
        )
    self.copy_(result)


_C._install(BatchedTensor=BatchedTensor, batched_call=batched_call, batched_inplace=batched_inplace)
