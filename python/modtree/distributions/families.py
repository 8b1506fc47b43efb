# SPDX-License-Identifier: BSD-3-Clause
"""The distributions."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

from modtree.distributions import constraints
from modtree.distributions.distribution import Distribution
from modtree.distributions.transforms import Transform
from modtree.distributions.utils import (
    HALF_LOG_2PI,
    broadcast_all,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
    sum_rightmost,
)
from modtree.nn.functional import binary_cross_entropy_with_logits
from modtree.numpy.ops import functions as ops
from modtree.numpy.ops.generic import rows_of
from modtree.numpy.tensor.creation import full, full_like
from modtree.numpy.tensor.dtypes import finfo
from modtree.numpy.tensor.grad_mode import no_grad
from modtree.numpy.tensor.random_creation import rand, randn
from modtree.numpy.tensor.sampling import bernoulli, multinomial
from modtree.numpy.tensor.size import Size


class Normal(Distribution):
    """The normal distribution of mean ``loc`` and standard deviation ``scale``."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: self.scale)
    variance = property(lambda self: self.scale.pow(2))
    _batched = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any, validate_args: Any = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.size(), validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = tuple(self._extended_shape(sample_shape))
        return self.loc + randn(shape, dtype=self.loc.dtype, device=self.loc.device) * self.scale

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        distance = (value - self.loc) / self.scale
        return -0.5 * distance * distance - self.scale.log() - HALF_LOG_2PI

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return 0.5 * (1 + ops.erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Any) -> Any:
        return self.loc + self.scale * ops.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Any:
        return 0.5 + HALF_LOG_2PI + self.scale.log()


class Uniform(Distribution):
    """The uniform distribution over [low, high), of density ``1 / (high - low)``."""

    has_rsample = True
    support = property(lambda self: constraints.interval(self.low, self.high))
    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: self.high * math.nan)
    stddev = property(lambda self: (self.high - self.low) / 12**0.5)
    variance = property(lambda self: (self.high - self.low).pow(2) / 12)
    _batched = ("low", "high")

    def __init__(self, low: Any, high: Any, validate_args: Any = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.size(), validate_args=validate_args)

    @property
    def arg_constraints(self) -> Any:
        low, high = constraints.less_than(self.high), constraints.greater_than(self.low)
        return {"low": low, "high": high}

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = tuple(self._extended_shape(sample_shape))
        u = rand(shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        inside = self.low.le(value) & self.high.gt(value)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Any) -> Any:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Any:
        return (self.high - self.low).log()


class _Discrete(Distribution):
    """Outcomes with ``probs``, or ``logits`` instead: one is given, the other follows from it."""

    #: One chance stands for two outcomes.
    _is_binary = False
    _param: Any

    def _given(self, probs: Any, logits: Any) -> tuple[str, Any]:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        return ("logits", logits) if probs is None else ("probs", probs)

    @lazy_property
    def logits(self) -> Any:
        """The logits of the probabilities."""
        return probs_to_logits(self.probs, self._is_binary)

    @lazy_property
    def probs(self) -> Any:
        """The probabilities."""
        return logits_to_probs(self.logits, self._is_binary)


class Bernoulli(_Discrete):
    """The distribution of 0 and 1: ``probs`` is the probability of 1, ``logits`` its logit."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))
    _is_binary = True
    _batched = ("probs", "logits", "_param")

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        name, given = self._given(probs, logits)
        (self._param,) = broadcast_all(given)
        setattr(self, name, self._param)
        super().__init__(self._param.size(), validate_args=validate_args)

    @property
    def mode(self) -> Any:
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return ops.where(self.probs == 0.5, math.nan, mode)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Any:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")


class Categorical(_Discrete):
    """The distribution of the numbers 0 to n - 1: ``probs`` in the last dimension, which need not
    sum to 1, or ``logits``, their logarithms, of which a constant may be missing.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = property(lambda self: constraints.integer_interval(0, self._num_events - 1))
    mean = variance = property(lambda self: full_like(self.mode, math.nan, dtype=self.probs.dtype))
    mode = property(lambda self: self.probs.argmax(-1))
    _batched = ("probs", "logits", "_param")

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        name, self._param = self._given(probs, logits)
        if self._param.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is None:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        else:
            self.probs = probs / probs.sum(-1, keepdim=True)
        self._num_events = self._param.size(-1)
        super().__init__(self._param.size()[:-1], validate_args=validate_args)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            rows = rows_of(self.probs)
            if not shape.numel():
                return full(shape, 0, dtype="int64", device=rows.device)
            return multinomial(rows, Size(sample_shape).numel(), True).T.reshape(shape)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        value, logits = ops.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Any:
        # No category with a probability of 0 may add 0 * inf.
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)


class Independent(Distribution):
    """A distribution whose last ``reinterpreted_batch_ndims`` batch dimensions belong to its
    samples: the parts of a sample are independent of each other.
    """

    arg_constraints: Any = {}
    has_rsample = property(attrgetter("base_dist.has_rsample"))
    mean = property(attrgetter("base_dist.mean"))
    mode = property(attrgetter("base_dist.mode"))
    variance = property(attrgetter("base_dist.variance"))
    sample = property(attrgetter("base_dist.sample"))
    rsample = property(attrgetter("base_dist.rsample"))
    _batched = ("base_dist",)

    def __init__(
        self, base_distribution: Any, reinterpreted_batch_ndims: int, validate_args: Any = None
    ) -> None:
        cut = len(base_distribution.batch_shape) - reinterpreted_batch_ndims
        if cut < 0:
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {len(base_distribution.batch_shape)}"
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        shape = base_distribution.batch_shape + base_distribution.event_shape
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    @property
    def support(self) -> Any:
        own, more = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(own, more) if more else own

    def log_prob(self, value: Any) -> Any:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The distribution of the samples of another after a transform, or a list of them, of which the
    first is applied first.
    """

    arg_constraints: Any = {}
    has_rsample = property(attrgetter("base_dist.has_rsample"))
    _batched = ("base_dist",)

    def __init__(self, base_distribution: Any, transforms: Any, validate_args: Any = None) -> None:
        parts = [transforms] if isinstance(transforms, Transform) else transforms
        if not (isinstance(parts, list) and all(isinstance(part, Transform) for part in parts)):
            raise ValueError(
                f"transforms must be a Transform or a list of Transforms, but was {transforms}"
            )
        if any(part.domain.event_dim or part.codomain.event_dim for part in parts):
            raise NotImplementedError("transforms of vectors are not implemented")
        self.transforms = parts
        event_dim = len(base_distribution.event_shape)
        shape = base_distribution.batch_shape + base_distribution.event_shape
        for part in parts:
            shape = Size(part.forward_shape(shape))
        cut = len(shape) - event_dim
        wider = shape[:cut] != base_distribution.batch_shape
        self.base_dist = base_distribution.expand(shape[:cut]) if wider else base_distribution
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    @property
    def support(self) -> Any:
        own = self.transforms[-1].codomain if self.transforms else self.base_dist.support
        more = len(self.event_shape) - own.event_dim
        return constraints.independent(own, more) if more else own

    def _forward(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        change: Any = 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(value)
            logarithm = transform.log_abs_det_jacobian(x, value)
            change = change + sum_rightmost(logarithm, len(self.event_shape))
            value = x
        return self.base_dist.log_prob(value) - change
