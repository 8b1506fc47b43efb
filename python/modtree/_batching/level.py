# SPDX-License-Identifier: BSD-3-Clause
"""One ``vmap`` at work: its size, and how random numbers are drawn inside of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from modtree import _C
from modtree._batching.tensor import BatchedTensor, batched
from modtree._ops.registry import ops
from modtree._pytree import broadcast, flatten, unflatten
from modtree._tensor.batch_levels import levels, refuse_random
from modtree._tensor.creation import ones_like, zeros_like
from modtree._tensor.random import default_generator

__all__ = ["Level", "materialized", "plain"]


class VmapInfo(NamedTuple):
    """What the ``vmap`` of an autograd.Function gets first."""

    batch_size: int
    randomness: str


class Level:
    """A level of ``vmap``; those entered stand in ``levels()``."""

    def __init__(self, size: int, randomness: str) -> None:
        self.size = size
        self.randomness = randomness

    def __enter__(self) -> Level:
        levels().append(self)
        _C.change_batching(1)
        return self

    def __exit__(self, *exception: Any) -> None:
        _C.change_batching(-1)
        levels().remove(self)

    @contextmanager
    def left(self) -> Iterator[None]:
        """Outside of this level and of those inside it, for a while."""
        entered = levels()
        place = entered.index(self)
        inner = entered[place:]
        del entered[place:]
        try:
            yield
        finally:
            entered += inner

    # -- samples -----------------------------------------------------------------------------------

    def holds(self, value: Any) -> bool:
        """Is it a tensor that has the batch of this level?"""
        return type(value) is BatchedTensor and value._level is self

    def samples_of(self, value: Any) -> Any:
        """A sequence of what the samples have in the place of ``value``."""
        if self.holds(value):
            return ops["unbind"](value._full, 0)
        return [value] * self.size

    def full_of(self, value: Any) -> Any:
        """The tensor with the batch as dimension 0; the batch of a tensor without is made by
        repeating it.
        """
        if self.holds(value):
            return value._full
        return ops["expand"](value.unsqueeze(0), (self.size, *value.shape))

    def map(self, function: Callable[..., Any], args: Any, name: str, *, leave: bool = True) -> Any:
        """Calls the function for each sample, outside of this level unless ``leave`` is False, and
        puts the results together.
        """
        if self.size == 0:
            raise RuntimeError(f"vmap: {name} cannot be called for a batch of no samples")
        flat, structure = flatten(args)
        columns = [self.samples_of(value) for value in flat]
        results = []
        with self.left() if leave else nullcontext():
            for row in zip(*columns, strict=True) if columns else [()] * self.size:
                results.append(flatten(function(*unflatten(row, structure))))
        parts = zip(*(leaves for leaves, _ in results), strict=True)
        return unflatten([self.joined(list(part), name) for part in parts], results[0][1])

    def each(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """function(*args, **kwargs) outside of this level, for each sample where these differ."""
        flat, structure = flatten((args, kwargs))
        if not any(map(self.holds, flat)):
            with self.left():
                return function(*args, **kwargs)

        def one(*sample: Any) -> Any:
            positional, named = unflatten(sample, structure)
            return function(*positional, **named)

        return self.map(one, tuple(flat), getattr(function, "__name__", "a function"))

    def custom(self, function: Any, args: Any, kwargs: Any) -> Any:
        """function.apply(*args, **kwargs) of an autograd.Function: by its own rule for batches, or
        for each sample.
        """
        rule = getattr(function, "vmap", None)
        if rule is None or not any(map(self.holds, args)):
            return self.each(function.apply, args, kwargs)
        dims = tuple(0 if self.holds(a) else None for a in args)
        with self.left():
            info = VmapInfo(self.size, self.randomness)
            found, out_dims = rule(info, dims, *[a._full if self.holds(a) else a for a in args])
        flat, structure = flatten(found)
        placed = broadcast(out_dims, structure, lambda d: d is None or isinstance(d, int))
        if placed is None:
            raise RuntimeError(
                f"{function.__name__}.vmap(): the dimensions {out_dims!r} do not go with results "
                f"of the structure {structure}"
            )
        return unflatten(
            [
                v if d is None else batched(v if d == 0 else ops["movedim"](v, d, 0), self)
                for v, d in zip(flat, placed, strict=True)
            ],
            structure,
        )

    def joined(self, samples: list[Any], name: str) -> Any:
        """The results of all samples as one value."""
        first = samples[0]
        if not isinstance(first, _C.TensorBase):
            return first
        if any(s.shape != first.shape for s in samples):
            raise RuntimeError(
                f"vmap: {name} gives results of different shapes for different samples (got "
                f"{sorted({tuple(s.shape) for s in samples})}): it cannot be batched. Call it "
                f"outside of vmap, or for each sample in a loop"
            )
        return batched(ops["stack"](samples, 0), self)

    # -- random numbers ----------------------------------------------------------------------------

    def draw(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """function(*args, **kwargs), which makes random tensors."""
        refuse_random()
        if self.randomness == "different":
            flat, structure = flatten((args, kwargs))

            def other(*sample: Any) -> Any:
                positional, named = unflatten(sample, structure)
                return function(*positional, **named)

            return self.map(other, tuple(flat), getattr(function, "__name__", "a function"))
        generator = kwargs.get("generator") or default_generator
        state = generator.get_state()

        def same(*positional: Any, **named: Any) -> Any:
            generator.set_state(state)
            return function(*positional, **named)

        return self.each(same, args, kwargs)

    def draw_into(self, draw: Callable[..., Any], target: Any, *args: Any) -> Any:
        """draw(target, ...), which fills a tensor with random numbers."""
        refuse_random()
        if not self.holds(target):
            if self.randomness == "different":
                raise RuntimeError(
                    "vmap: a tensor that is the same for the whole batch cannot be filled with "
                    "random numbers that are different for each sample: make it inside of vmap "
                    "from a tensor that has the batch (empty_like), or use randomness='same'"
                )
            with self.left():
                return draw(target, *args)
        generator = args[-1] or default_generator
        state = generator.get_state()
        with self.left():
            for i in range(self.size):
                if self.randomness == "same":
                    generator.set_state(state)
                draw(target._full[i], *args)
        return target

    # -- gradients ---------------------------------------------------------------------------------

    def grad(
        self, grad: Callable[..., Any], outputs: Any, inputs: Any, weights: Any, options: Any
    ) -> Any:
        """autograd.grad() of tensors of which some have the batch of this level."""
        given = [w for w in weights if w is not None]
        if not any(map(self.holds, (*outputs, *inputs, *given))):
            with self.left():
                return grad(outputs, inputs, weights, **options)
        if all(map(self.holds, inputs)):
            outputs = [self.full_of(o) for o in outputs]
            weights = [
                ones_like(o) if w is None and o.ndim == 1 else w if w is None else self.full_of(w)
                for o, w in zip(outputs, weights, strict=True)
            ]
            with self.left():
                found = grad(outputs, [x._full for x in inputs], weights, **options)
            return tuple(None if g is None else batched(g, self) for g in found)
        return self._grad_by_sample(grad, outputs, inputs, weights, options)

    def _grad_by_sample(
        self, grad: Callable[..., Any], outputs: Any, inputs: Any, weights: Any, options: Any
    ) -> Any:
        """Of an input without a batch each sample has a gradient of its own."""
        columns = [self.samples_of(w) for w in weights]
        fulls = [o._full if self.holds(o) else o for o in outputs]
        rows = []
        with self.left():
            for i in range(self.size):
                own = [
                    self._weight_of(full, i, column[i]) if self.holds(o) else column[i]
                    for o, full, column in zip(outputs, fulls, columns, strict=True)
                ]
                last = i == self.size - 1
                keep = options["retain_graph"] or options["create_graph"] or not last
                found = grad(
                    fulls,
                    [x._full if self.holds(x) else x for x in inputs],
                    own,
                    **{**options, "retain_graph": keep},
                )
                rows.append(
                    [
                        g[i] if g is not None and self.holds(x) else g
                        for g, x in zip(found, inputs, strict=True)
                    ]
                )
        return tuple(
            None if column[0] is None else self.joined(list(column), "grad")
            for column in zip(*rows, strict=True)
        )

    @staticmethod
    def _weight_of(full: Any, i: int, weight: Any) -> Any:
        """A weight for all samples that is zero but for one of them."""
        if weight is None:
            weight = ones_like(full[i])
        before = zeros_like(full[:i])
        after = zeros_like(full[i + 1 :])
        return ops["cat"]([before, weight.unsqueeze(0), after], 0)


def materialized(value: Any) -> Any:
    """The tensor with the batches of all levels that this thread is in."""
    for level in levels():
        if not _has_level(value, level):
            value = _with_level(value, level)
    return value


def _has_level(value: Any, level: Level) -> bool:
    while type(value) is BatchedTensor:
        if value._level is level:
            return True
        value = value._full
    return False


def _with_level(value: Any, level: Level) -> Any:
    """The batch goes below those of the levels inside of this one."""
    if type(value) is BatchedTensor and levels().index(value._level) > levels().index(level):
        inner = _with_level(value._full, level)
        return batched(inner, value._level)
    return batched(level.full_of(value), level)


def plain(value: Any) -> Any:
    """The tensor behind all batches."""
    while type(value) is BatchedTensor:
        value = value._full
    return value
