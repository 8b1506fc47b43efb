# SPDX-License-Identifier: BSD-3-Clause
"""Differentiable functions whose change of volume is known, to make distributions of others."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

from modtree.distributions import constraints
from modtree.nn.functional import softplus
from modtree.numpy.ops import functions as ops
from modtree.numpy.tensor.creation import full_like
from modtree.numpy.tensor.from_data import as_tensor
from modtree.numpy.tensor.tensor import Tensor


class Transform:
    """A differentiable function of single numbers, of ``domain`` into ``codomain``: constraints.

    A subclass defines ``_call``, ``_inverse`` and ``log_abs_det_jacobian(x, y)``, the logarithm of
    the change of volume from x to y.

    Args:
        cache_size: 1 keeps the last argument with its result, so that the inverse of the result is
            that argument, exactly and at no cost.
    """

    #: What two equal transforms of one class have in common; without, each is equal to itself.
    _parameters: tuple[str, ...] | None = None
    bijective: Any = False
    domain: Any
    codomain: Any
    _call: Any
    _inverse: Any
    log_abs_det_jacobian: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"cache_size must be 0 or 1, got {cache_size}")
        self._cache_size = cache_size
        self._cached: tuple[Any, Any] = (None, None)

    @property
    def inv(self) -> Transform:
        """The inverse."""
        return _InverseTransform(self)

    def __call__(self, x: Any) -> Any:
        if not self._cache_size:
            return self._call(x)
        if x is not self._cached[0]:
            self._cached = x, self._call(x)
        return self._cached[1]

    def _inv_call(self, y: Any) -> Any:
        if not self._cache_size:
            return self._inverse(y)
        if y is not self._cached[1]:
            self._cached = self._inverse(y), y
        return self._cached[0]

    def __eq__(self, other: object) -> bool:
        if self._parameters is None or type(self) is not type(other):
            return self is other
        pairs = ((getattr(self, name), getattr(other, name)) for name in self._parameters)
        return all(bool(as_tensor(a == b).all()) for a, b in pairs)

    __hash__ = object.__hash__

    def forward_shape(self, shape: Any) -> Any:
        """The shape of the result for an argument of this shape."""
        return shape

    def __repr__(self) -> str:
        return type(self).__name__ + "()"


class _InverseTransform(Transform):
    """The inverse of a transform."""

    _parameters = ("_inv",)
    inv = property(attrgetter("_inv"))
    domain = property(attrgetter("_inv.codomain"))
    codomain = property(attrgetter("_inv.domain"))
    bijective = property(attrgetter("_inv.bijective"))
    forward_shape = property(attrgetter("_inv.forward_shape"))

    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self._inv = transform

    def _call(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def _inverse(self, y: Any) -> Any:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"


class TanhTransform(Transform):
    """y = tanh(x); of y near the ends rounding leaves little of x, which a cache keeps."""

    _parameters = ()
    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return ops.atanh(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        # log(1 - tanh(x) ** 2), without the difference of nearly equal numbers.
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class AffineTransform(Transform):
    """y = loc + scale * x, with tensors or numbers."""

    _parameters = ("loc", "scale")
    domain = codomain = constraints.real
    bijective = True

    def __init__(self, loc: Any, scale: Any, *, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc = loc
        self.scale = scale

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        scale = self.scale if isinstance(self.scale, Tensor) else full_like(x, self.scale)
        return scale.abs().log().expand(x.shape)

    def forward_shape(self, shape: Any) -> Any:
        own = (tuple(getattr(v, "shape", ())) for v in (self.loc, self.scale))
        return ops.broadcast_shapes(shape, *own)
