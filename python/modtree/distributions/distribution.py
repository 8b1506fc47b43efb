# SPDX-License-Identifier: BSD-3-Clause
"""The base class of distributions."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from modtree.core.type_names import no_tensor
from modtree.distributions.utils import lazy_property
from modtree.numpy.tensor.grad_mode import no_grad
from modtree.numpy.tensor.size import Size
from modtree.numpy.tensor.tensor import Tensor


def _undefined(name: str, doc: str) -> Any:
    """A method that a class of distributions defines itself, or does not have."""

    def method(self: Distribution, *arguments: Any, **keywords: Any) -> Any:
        raise NotImplementedError(f"{type(self)} does not implement {name}")

    method.__name__, method.__doc__ = name, doc
    return method


class Distribution:
    """A probability distribution, or a batch of them.

    ``batch_shape`` is the shape of its parameters, ``event_shape`` that of one sample.

    Args:
        batch_shape: Shape of the batch.
        event_shape: Shape of one sample.
        validate_args: Check parameters and values; see ``set_default_validate_args``.
    """

    #: Samples have a derivative in the parameters.
    has_rsample: Any = False
    #: Names of what expand() makes larger: tensors and distributions.
    _batched: tuple[str, ...] = ()
    _validate_args: bool = __debug__

    batch_shape = property(attrgetter("_batch_shape"), doc="The shape of the batch.")
    event_shape = property(attrgetter("_event_shape"), doc="The shape of one sample.")

    #: Name -> which values that parameter may have.
    arg_constraints: Any = {}
    #: Which values a sample may have, a constraint; None: they are not checked.
    support: Any = None

    mean: Any = property(_undefined("mean", "The mean."))
    mode: Any = property(_undefined("mode", "The most probable value."))
    variance: Any = property(_undefined("variance", "The variance."))
    rsample = _undefined("rsample", "rsample(sample_shape=()): samples that have a gradient.")
    log_prob = _undefined("log_prob", "log_prob(value): the logarithm of the density.")
    cdf = _undefined("cdf", "cdf(value): the probability of values up to this one.")
    icdf = _undefined("icdf", "icdf(value): the inverse of cdf().")
    entropy = _undefined("entropy", "entropy(): the entropy, in nats.")

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Sets whether distributions check their arguments when they are not told."""
        if value not in (True, False):
            raise ValueError(f"validate_args must be True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if not self._validate_args:
            return
        for name, constraint in self.arg_constraints.items():
            # The other form of a parameter follows from the one given.
            if name in self.__dict__ or not isinstance(getattr(type(self), name), lazy_property):
                value = getattr(self, name)
                self._require(value, constraint, f"parameter {name}", "satisfy the constraint")

    def _require(self, value: Any, constraint: Any, what: str, does: str) -> None:
        with no_grad():
            valid = constraint.check(value)
        if not valid.all():
            raise ValueError(
                f"Expected {what} ({type(value).__name__} of shape {tuple(value.shape)}) of "
                f"distribution {self!r} to {does} {constraint!r}, but found invalid "
                f"values:\n{value}"
            )

    @property
    def stddev(self) -> Any:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Any:
        """Values of shape ``sample_shape + batch_shape + event_shape``, without a gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def perplexity(self) -> Any:
        """e to the power of the entropy."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        """The shape of what sample(sample_shape) returns."""
        return Size(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Any) -> None:
        """ValueError where a value cannot be a sample of this distribution; with validate_args."""
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError(
                f"The value argument to log_prob must be a Tensor, got {no_tensor(value)}"
            )
        have, event = tuple(value.shape), tuple(self._event_shape)
        expected = tuple(self._batch_shape) + event
        if len(have) < len(event) or have[len(have) - len(event) :] != event:
            raise ValueError(
                f"The right-most size of value must match event_shape: {have} vs {event}."
            )
        sizes = zip(reversed(have), reversed(expected), strict=False)
        if any(a != b and 1 not in (a, b) for a, b in sizes):
            raise ValueError(
                f"Value is not broadcastable with batch_shape+event_shape: {have} vs {expected}."
            )
        if self.support is not None:
            self._require(value, self.support, "value argument", "be within the support")

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """An object for expand() to fill."""
        if _instance is not None:
            return _instance
        if type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return self.__new__(type(self))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with a larger batch; its parameters are views."""
        owner: Any = next(cls for cls in type(self).__mro__ if "_batched" in vars(cls))
        if not owner._batched:
            raise NotImplementedError(f"{type(self)} does not implement expand")
        new = self._get_checked_instance(owner, _instance)
        new.__dict__ = {**vars(self), **vars(new), "_batch_shape": Size(batch_shape)}
        for name in self._batched:
            if name in self.__dict__:
                value = self.__dict__[name]
                shape = value.batch_shape if isinstance(value, Distribution) else value.shape
                own = shape[len(self._batch_shape) :]
                setattr(new, name, value.expand(new._batch_shape + own))
        return new

    def __repr__(self) -> str:
        known = {n: self.__dict__[n] for n in self.arg_constraints if n in self.__dict__}
        shown = (f"{n}: {v if v.numel() == 1 else v.size()}" for n, v in known.items())
        return f"{type(self).__name__}({', '.join(shown)})"
