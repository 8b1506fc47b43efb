# SPDX-License-Identifier: BSD-3-Clause
"""Batches of distributions as distributions of larger samples."""

from __future__ import annotations

from typing import Any

from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.distribution import Distribution
from modtree.distributions.utils import sum_rightmost

__all__ = ["Independent"]


class Independent(Distribution):
    """A distribution whose last batch dimensions belong to its samples: the parts of a sample are
    independent of each other.

    Args:
        base_distribution: The distribution.
        reinterpreted_batch_ndims: The number of dimensions.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        base_distribution: Any,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        have = len(base_distribution.batch_shape)
        if reinterpreted_batch_ndims > have:
            raise ValueError(
                f"Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {have}"
            )
        shape = base_distribution.batch_shape + base_distribution.event_shape
        event_dim = reinterpreted_batch_ndims + len(base_distribution.event_shape)
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        cut = len(shape) - event_dim
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(Independent, _instance, batch_shape)
        moved = self.event_shape[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand(Size(batch_shape) + moved)
        new.reinterpreted_batch_ndims = self.reinterpreted_batch_ndims
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        result = self.base_dist.support
        if self.reinterpreted_batch_ndims:
            result = constraints.independent(result, self.reinterpreted_batch_ndims)
        return result

    @property
    def mean(self) -> Any:
        return self.base_dist.mean

    @property
    def mode(self) -> Any:
        return self.base_dist.mode

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Any:
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError(
                "Enumeration over cartesian product is not implemented: enumerate base_dist"
            )
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
