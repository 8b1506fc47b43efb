# SPDX-License-Identifier: BSD-3-Clause
"""The base class of distributions."""

from __future__ import annotations

import warnings
from typing import Any

from modtree._tensor.grad_mode import no_grad
from modtree._tensor.size import Size
from modtree._tensor.tensor import Tensor
from modtree._type_names import no_tensor
from modtree.distributions import constraints
from modtree.distributions.constraints import is_dependent
from modtree.distributions.utils import lazy_property

__all__ = ["Distribution"]


class Distribution:
    """A probability distribution, or a batch of them.

    ``batch_shape`` is the shape of its parameters, ``event_shape`` that of one sample. What a
    method cannot say for a distribution is a NotImplementedError.

    Args:
        batch_shape: Shape of the batch.
        event_shape: Shape of one sample.
        validate_args: Check parameters and values; by default as ``set_default_validate_args``
            says.
    """

    #: Samples have a derivative in the parameters.
    has_rsample = False
    #: All values that a sample can have can be listed.
    has_enumerate_support = False
    _validate_args: bool = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Sets whether distributions check their arguments when they are not told."""
        if value not in (True, False):
            raise ValueError(f"validate_args must be True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Any = (),
        event_shape: Any = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _check_parameters(self) -> None:
        try:
            known = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`, so its parameters are not "
                f"checked: define them, or pass validate_args=False",
                stacklevel=4,
            )
            return
        for name, constraint in known.items():
            if is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue  # the other form of the parameters, which follows from the one given
            value = getattr(self, name)
            with no_grad():
                valid = constraint.check(value)
            if not valid.all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{constraint!r}, but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with a larger batch; its parameters are views.

        Args:
            batch_shape: The shape of the batch, to which the present one is broadcast.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define expand()")

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """Name -> what values that parameter may have."""
        raise NotImplementedError(f"{type(self).__name__} does not define arg_constraints")

    @property
    def support(self) -> Any:
        """What values a sample may have; a constraint."""
        raise NotImplementedError(f"{type(self).__name__} does not define support")

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError(f"{type(self).__name__} does not define mean")

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError(f"{type(self).__name__} does not define variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Random values of shape ``sample_shape + batch_shape + event_shape``, without a
        gradient.
        """
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """The same with a gradient in the parameters."""
        raise NotImplementedError(
            f"{type(self).__name__} has no rsample(): its samples have no gradient in its "
            f"parameters; see has_rsample"
        )

    def sample_n(self, n: int) -> Tensor:
        """n samples; deprecated: ``sample((n,))``."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.",
            FutureWarning,
            stacklevel=2,
        )
        return self.sample(Size((n,)))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, of values."""
        raise NotImplementedError(f"{type(self).__name__} does not define log_prob()")

    def cdf(self, value: Any) -> Tensor:
        """The probability of values up to ``value``."""
        raise NotImplementedError(f"{type(self).__name__} does not define cdf()")

    def icdf(self, value: Any) -> Tensor:
        """The inverse of cdf(): the value below which lies the probability ``value``."""
        raise NotImplementedError(f"{type(self).__name__} does not define icdf()")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values that a sample can have, in a new first dimension.

        Args:
            expand: Repeat them for each distribution of the batch; False leaves sizes of 1.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define enumerate_support()")

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        raise NotImplementedError(f"{type(self).__name__} does not define entropy()")

    def perplexity(self) -> Tensor:
        """e to the power of the entropy."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        """The shape of what sample(sample_shape) returns."""
        return Size(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Any) -> None:
        """ValueError where a value cannot be a sample of this distribution."""
        if not isinstance(value, Tensor):
            raise ValueError(
                f"The value argument to log_prob must be a Tensor, got {no_tensor(value)}"
            )
        start = value.dim() - len(self._event_shape)
        if start < 0 or tuple(value.shape[start:]) != tuple(self._event_shape):
            raise ValueError(
                f"The right-most size of value must match event_shape: "
                f"{tuple(value.shape)} vs {tuple(self._event_shape)}."
            )
        expected = self._batch_shape + self._event_shape
        for have, want in zip(
            reversed(tuple(value.shape)), reversed(tuple(expected)), strict=False
        ):
            if have not in (1, want) and want != 1:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: "
                    f"{tuple(value.shape)} vs {tuple(expected)}."
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support`, so values are not checked: define it, "
                f"or pass validate_args=False",
                stacklevel=3,
            )
            return
        if support is None:
            raise AssertionError(f"the support of {self!r} is None")
        with no_grad():
            valid = support.check(value)
        if not valid.all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape "
                f"{tuple(value.shape)}) to be within the support ({support!r}) of the "
                f"distribution {self!r}, but found invalid values:\n{value}"
            )

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """An empty object for expand() to fill; a class with a constructor of its own needs an
        expand() of its own.
        """
        if _instance is not None:
            return _instance
        if type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                f"method must also define a custom .expand() method."
            )
        return self.__new__(type(self))

    def _expanded(
        self, cls: type, instance: Any, batch_shape: Any, *names: str, event_shape: Any = None
    ) -> Any:
        """What expand() of most distributions returns: with those of the named parameters that
        there are expanded, whose first dimensions are those of the batch.
        """
        new = self._get_checked_instance(cls, instance)
        batch_shape = Size(batch_shape)
        for name in names:
            if name in self.__dict__:
                value = self.__dict__[name]
                own = tuple(value.shape[len(self._batch_shape) :])
                setattr(new, name, value.expand(batch_shape + own))
        new._batch_shape = batch_shape
        new._event_shape = self._event_shape if event_shape is None else event_shape
        new._validate_args = self._validate_args
        return new

    def __repr__(self) -> str:
        shown = []
        for name in self.arg_constraints:
            if name in self.__dict__:
                value = self.__dict__[name]
                one = not isinstance(value, Tensor) or value.numel() == 1
                shown.append(f"{name}: {value if one else value.size()}")
        return f"{type(self).__name__}({', '.join(shown)})"
