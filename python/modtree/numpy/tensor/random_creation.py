# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of random numbers: rand, randn, randint, randperm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree.numpy.tensor.creation import AS_INPUT, factory, like_factory, make_at, sizes_of
from modtree.numpy.tensor.factory_arguments import PLACE, checked
from modtree.numpy.tensor.random import bits_of, normal, uniform

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Device, DType, Generator, Sizes, Tensor

__all__ = ["rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm"]


def _float_only(name: str, dtype: np.dtype) -> None:
    if dtype.kind not in "fc":
        raise NotImplementedError(
            f"\"{name}\" not implemented for '{dtype}': ask for a floating dtype"
        )


def _rand(shape: Any, dtype: Any, generator: Any) -> Any:
    _float_only("rand", dtype)
    return uniform(bits_of(generator), shape, dtype)


def _randn(shape: Any, dtype: Any, generator: Any) -> Any:
    _float_only("randn", dtype)
    return normal(bits_of(generator), shape, dtype)


rand = factory("rand", _rand, "Random numbers, uniform in [0, 1).", "generator")
randn = factory(
    "randn", _randn, "Random numbers from the standard normal distribution.", "generator"
)
rand_like = like_factory(rand, "rand_like", f"rand() {AS_INPUT}", "generator")
randn_like = like_factory(randn, "randn_like", f"randn() {AS_INPUT}", "generator")


@checked("low", "high", "size", "generator", "out", *PLACE)
def randint(
    low: int,
    high: Any = None,
    size: Sizes | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Random integers in [low, high).

    Args:
        low: Lower end; the upper one where ``high`` is not given.
        high: Upper end, not included.
        size: The shape.
        generator: Where random numbers come from; the default generator without.
        dtype: The dtype; int64 without.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    if size is None:
        low, high, size = 0, low, high
    if high <= low:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )

    def make(shape: Any, kind: Any) -> Any:
        return bits_of(generator).integers(low, high, shape, dtype=np.int64).astype(kind)

    return make_at(
        make, sizes_of((size,)), "int64" if dtype is None else dtype, device, requires_grad
    )


randint_like = like_factory(
    lambda size, low, high=None, **kwargs: (
        randint(0, low, size, **kwargs) if high is None else randint(low, high, size, **kwargs)
    ),
    "randint_like",
    f"randint() {AS_INPUT}",
    "generator",
    "low",
    "high",
)


@checked("n", "generator", "out", *PLACE)
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The numbers 0..n-1 in random order.

    Args:
        n: How many numbers.
        generator: Where random numbers come from; the default generator without.
        dtype: The dtype; int64 without.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    return make_at(
        lambda shape, kind: bits_of(generator).permutation(shape[0]).astype(kind),
        (n,),
        "int64" if dtype is None else dtype,
        device,
        requires_grad,
    )
