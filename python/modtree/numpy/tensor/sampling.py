# SPDX-License-Identifier: BSD-3-Clause
"""Random numbers of given distributions: new tensors, and tensors filled in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree import _C
from modtree.numpy.ops.generic import rows_of
from modtree.numpy.ops.independent import independent
from modtree.numpy.ops.out import write
from modtree.numpy.ops.registry import export
from modtree.numpy.tensor import dtypes
from modtree.numpy.tensor.creation import empty, empty_like
from modtree.numpy.tensor.random import bits_of, uniform
from modtree.numpy.tensor.random import normal as draw_normal

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Device, DType, Generator, Sizes, Tensor, layout

__all__ = ["bernoulli", "multinomial", "normal", "poisson"]

# -- in place --------------------------------------------------------------------------------------


def _draw(self: Any, needs_float: str | None, make: Any, generator: Any) -> Any:
    """Random values in place; none are drawn for a meta tensor."""
    _C.check_inplace(self)
    if needs_float and not (self.is_floating_point() or self.is_complex()):
        raise NotImplementedError(
            f"\"{needs_float}\" not implemented for '{self.dtype}': it needs a floating dtype"
        )
    if not self.is_meta:
        array = self._array
        array[...] = make(bits_of(generator), array.shape, array.dtype)
    _C.overwritten(self)
    return self


def uniform_(
    self: Tensor,
    from_: float = 0.0,
    to: float = 1.0,
    *,
    generator: Generator | None = None,
    **kwargs: Any,
) -> Tensor:
    """Fills with numbers uniform in [from, to).

    Args:
        from_: Lower end.
        to: Upper end.
        generator: Where random numbers come from; the default generator without.
        kwargs: ``from``, torch's name of ``from_``.
    """
    low, high = kwargs.pop("from", from_), kwargs.pop("a", to)
    if low > high:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}"
        )
    return _draw(self, "uniform", lambda bits, s, d: uniform(bits, s, d, low, high), generator)


def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fills with normally distributed numbers.

    Args:
        mean: Mean.
        std: Standard deviation.
        generator: Where random numbers come from; the default generator without.
    """
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    return _draw(self, "normal", lambda bits, s, d: draw_normal(bits, s, d, mean, std), generator)


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills with exponentially distributed numbers."""
    return _draw(
        self,
        "exponential",
        lambda bits, s, d: (bits.standard_exponential(s) / lambd).astype(d),
        generator,
    )


def bernoulli_(
    self: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None
) -> Tensor:
    """Fills with ones, of probability p, and zeros."""
    if isinstance(p, _C.TensorBase) and p.requires_grad:
        drawn = bernoulli_(self.detach().clone(), p.detach(), generator=generator)
        return self.copy_(independent(drawn, p))
    chance = p._array if isinstance(p, _C.TensorBase) else p
    return _draw(self, None, lambda bits, s, d: (bits.random(s) < chance).astype(d), generator)


def random_(
    self: Tensor, from_: int = 0, to: int | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Fills with random integers in [from, to).

    Args:
        from_: Lower end; with this argument alone the upper one.
        to: Upper end; what the dtype can hold without.
        generator: Where random numbers come from; the default generator without.
    """
    low, high = (0, from_) if to is None and from_ else (from_, to)
    if high is None:
        high = 2**24 if self.is_floating_point() else int(dtypes.iinfo(self.dtype).max)
    return _draw(self, None, lambda bits, s, d: bits.integers(low, high, s).astype(d), generator)


# -- new tensors -----------------------------------------------------------------------------------


def normal(
    mean: Tensor | float,
    std: Tensor | float = 1.0,
    size: Sizes | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    layout: layout | None = None,
    pin_memory: bool = False,
) -> Tensor:
    """Normally distributed numbers: of one mean and deviation with ``size``, or one for each
    element of tensors.

    Args:
        mean: A number or a tensor.
        std: A number or a tensor.
        size: The shape, where both are numbers.
        generator: Where random numbers come from; the default generator without.
        out: A tensor that the result is written into.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    given = [v for v in (mean, std) if isinstance(v, _C.TensorBase)]
    if size is None and not given:
        raise TypeError("normal() needs a size when mean and std are numbers")
    if isinstance(std, _C.TensorBase):
        low = 0 if std.is_meta or not std.numel() else std._array.min()
        if low < 0:
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if not given:
        place = "cpu" if device is None else device  # whatever device is in force
        shape: Any = size
        numbers: Any = (mean, std)
        result = normal_(empty(shape, dtype=dtype, device=place), *numbers, generator=generator)
    else:
        plain = [v.detach() if isinstance(v, _C.TensorBase) else v for v in (mean, std)]
        like = plain[0] + plain[1]
        result = normal_(empty_like(like), generator=generator).mul_(plain[1]).add_(plain[0])
        result = independent(result, mean, std)
    if out is not None:
        return write("normal", "cast", result, out)
    return result.requires_grad_() if requires_grad else result


def _chances(input: Any) -> np.ndarray:
    chances = input._array
    if chances.size and not ((chances >= 0) & (chances <= 1)).all():
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    return chances


def bernoulli(
    input: Tensor,
    p: float | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Zeros and ones: 1 with the probability that input (or p) says.

    Args:
        p: One probability for all, in place of those in ``input``.
        generator: Where random numbers come from; the default generator without.
        out: A tensor that the result is written into.
    """
    result = empty_like(input)
    if not input.is_meta:
        chances = _chances(input) if p is None else p
        result._array[...] = bits_of(generator).random(tuple(input.shape)) < chances
    result = independent(result, input)
    return result if out is None else write("bernoulli", "cast", result, out)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Counts from Poisson distributions with these means, in the dtype of the means."""
    result = empty_like(input)
    if not input.is_meta:
        result._array[...] = bits_of(generator).poisson(input._array)
    return independent(result, input)


def _draws(input: Any, num_samples: int, replacement: bool, generator: Any) -> Any:
    if input.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input.is_floating_point():
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {input.dtype}"
        )
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > input.shape[-1]:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        )
    shape = (*tuple(input.shape)[:-1], num_samples)
    if input.is_meta:
        return empty(shape, dtype="int64", device="meta")
    weights = rows_of(input._array).astype(np.float64)
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if not (weights.sum(1) > 0).all():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    bits = bits_of(generator)
    if replacement or num_samples == 1:
        sums = weights.cumsum(1)
        points = bits.random((len(weights), num_samples)) * sums[:, -1:]
        found = [np.searchsorted(s, p, "right") for s, p in zip(sums, points, strict=True)]
        last = [np.flatnonzero(row)[-1] for row in weights]  # where rounding reached the end
        picks = np.minimum(np.asarray(found), np.asarray(last)[:, None])
    else:
        # The largest of log(weight) + Gumbel noise, in order, are draws without replacement.
        with np.errstate(divide="ignore"):
            keys = np.log(weights) + bits.gumbel(size=weights.shape)
        picks = np.argsort(-keys, axis=1)[:, :num_samples]
    return _C.from_array(np.asarray(picks, np.int64).reshape(shape))


def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Indices drawn with the probabilities in the last dimension, which need not sum to 1.

    Args:
        input: Weights, (n) or (rows, n), of a floating dtype.
        num_samples: Draws for each row.
        replacement: An index may be drawn again.
        generator: The source of random numbers.
        out: A tensor that the result is written into.

    Raises:
        RuntimeError: A weight is negative, infinite or NaN, a row sums to 0, or has fewer indices
            than are to be drawn.
    """
    drawn = _draws(input, num_samples, replacement, generator)
    return drawn if out is None else write("multinomial", "same", drawn, out)


_methods: tuple[Any, ...] = (
    uniform_,
    normal_,
    exponential_,
    bernoulli_,
    random_,
    bernoulli,
    multinomial,
)
for _function in _methods:
    export(_function.__name__, _function, function=False)
