# SPDX-License-Identifier: BSD-3-Clause
"""Parameters of which some values are zero: a mask of 0 and 1 for each, applied before each call.

Pruning ``weight`` makes the parameter ``weight_orig``, the buffer ``weight_mask`` and the plain
attribute ``weight``, their product.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from modtree.nn.utils._library import library_of
from modtree.nn.utils._pruning import (
    BasePruningMethod,
    PruningContainer,
    channels,
    contiguous_copy,
    hooks_of,
    ones_like,
    pruning_undone_on_error,
)
from modtree.nn.utils.vectors import parameters_to_vector

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]

# -- what all methods check ------------------------------------------------------------------------

# Methods of users call these too, under the names that torch has.


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    whole = isinstance(amount, numbers.Integral)
    if not 0 <= float(amount) <= (math.inf if whole else 1.0):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            f"integer"
        )


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    if isinstance(amount, numbers.Integral) and int(amount) > tensor_size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to "
            f"prune={tensor_size}"
        )


def _validate_structured_pruning(t: Any) -> None:
    if t.ndim <= 1:
        raise ValueError(
            f"Structured pruning can only be applied to multidimensional tensors. Found tensor of "
            f"shape {t.shape} with {t.ndim} dims"
        )


def _validate_pruning_dim(t: Any, dim: int) -> None:
    if not -t.ndim <= dim < t.ndim:
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _compute_norm(t: Any, n: Any, dim: int) -> Any:
    """The norm of each channel."""
    return t.norm(p=n, dim=[d for d in range(t.ndim) if d != dim % t.ndim])


def _count(amount: Any, size: int) -> int:
    """How many of ``size`` an amount is.

    Raises:
        ValueError: more than there are.
    """
    count = _compute_nparams_toprune(amount, size)
    _validate_pruning_amount(count, size)
    return count


def _count_of_channels(amount: Any, t: Any, dim: int) -> int:
    """How many of the channels of a tensor an amount is.

    Raises:
        ValueError: more than there are, or there is one dimension only.
        IndexError: there is no such dimension.
    """
    _validate_structured_pruning(t)
    _validate_pruning_dim(t, dim)
    return _count(amount, t.shape[dim])


# -- masks -----------------------------------------------------------------------------------------


def _without_elements(default_mask: Any, places: Any) -> Any:
    mask = contiguous_copy(default_mask)
    mask.view(-1)[places] = 0
    return mask


def _of_channels(t: Any, default_mask: Any, dim: int, kept: Any) -> Any:
    mask = library_of(t).zeros_like(t)
    mask[channels(t, dim, kept)] = 1
    return mask * default_mask.to(dtype=mask.dtype)


# -- methods ---------------------------------------------------------------------------------------


class Identity(BasePruningMethod):
    """Prunes nothing; only makes the parameter one with a mask."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask as it is."""
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> Any:  # type: ignore[override]
        """See :func:`identity`."""
        return super().apply(module, name)


class RandomUnstructured(BasePruningMethod):
    """Prunes values at random.

    Args:
        amount: How many, or a part between 0.0 and 1.0.
    """

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask without a random choice."""
        count = _count(self.amount, t.numel())
        if not count:
            return contiguous_copy(default_mask)
        lots = library_of(t).rand_like(t).reshape(-1)
        return _without_elements(default_mask, lots.topk(count).indices)

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any) -> Any:  # type: ignore[override]
        """See :func:`random_unstructured`."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(BasePruningMethod):
    """Prunes the values that are nearest to 0.

    Args:
        amount: How many, or a part between 0.0 and 1.0.
    """

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask without the smallest."""
        count = _count(self.amount, t.numel())
        if not count:
            return contiguous_copy(default_mask)
        sizes = t.abs().reshape(-1)
        return _without_elements(default_mask, sizes.topk(count, largest=False).indices)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, importance_scores: Any = None
    ) -> Any:
        """See :func:`l1_unstructured`."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class RandomStructured(BasePruningMethod):
    """Prunes channels at random.

    Args:
        amount: How many, or a part between 0.0 and 1.0.
        dim: The dimension of the channels.
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask without a random choice of channels."""
        count = _count_of_channels(self.amount, t, self.dim)
        if not count:
            return default_mask
        lots = library_of(t).rand(t.shape[self.dim])
        kept = lots.topk(t.shape[self.dim] - count).indices.to(t.device)
        return _of_channels(t, default_mask, self.dim, kept)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, dim: int = -1
    ) -> Any:
        """See :func:`random_structured`."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(BasePruningMethod):
    """Prunes the channels with the smallest norms.

    Args:
        amount: How many, or a part between 0.0 and 1.0.
        n: The order of the norm, as ``Tensor.norm`` takes it.
        dim: The dimension of the channels.
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.n = n
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask without the channels with the smallest norms."""
        count = _count_of_channels(self.amount, t, self.dim)
        norms = _compute_norm(t, self.n, self.dim)
        if not count:
            return default_mask
        kept = norms.topk(t.shape[self.dim] - count).indices
        return _of_channels(t, default_mask, self.dim, kept)

    @classmethod
    def apply(  # type: ignore[override]
        cls,
        module: Any,
        name: str,
        amount: Any,
        n: Any,
        dim: int,
        importance_scores: Any = None,
    ) -> Any:
        """See :func:`ln_structured`."""
        return super().apply(
            module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores
        )


class CustomFromMask(BasePruningMethod):
    """Prunes where a mask is 0.

    Args:
        mask: A tensor of the parameter's shape.
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The product of both masks."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape "
                f"{self.mask.shape}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Any) -> Any:  # type: ignore[override]
        """See :func:`custom_from_mask`."""
        return super().apply(module, name, mask=mask)


# -- functions -------------------------------------------------------------------------------------


def identity(module: Any, name: str) -> Any:
    """Makes a parameter one with a mask, of which nothing is pruned; returns the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prunes values of a parameter at random.

    Args:
        module: Changed in place and returned.
        name: The parameter's name.
        amount: How many, or a part between 0.0 and 1.0.
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:
    """Prunes the values of a parameter that are nearest to 0.

    Args:
        module: Changed in place and returned.
        name: The parameter's name.
        amount: How many, or a part between 0.0 and 1.0.
        importance_scores: What decides in place of the values; of the same shape.

    Example:
        >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(4, 5), "weight", amount=0.25)
        >>> int((layer.weight == 0).sum())
        5
        >>> sorted(layer.state_dict())
        ['bias', 'weight_mask', 'weight_orig']
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prunes channels of a parameter at random.

    Args:
        module: Changed in place and returned.
        name: The parameter's name.
        amount: How many, or a part between 0.0 and 1.0.
        dim: The dimension of the channels.
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
) -> Any:
    """Prunes the channels of a parameter with the smallest norms.

    Args:
        module: Changed in place and returned.
        name: The parameter's name.
        amount: How many, or a part between 0.0 and 1.0.
        n: The order of the norm.
        dim: The dimension of the channels.
        importance_scores: What decides in place of the values; of the same shape.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Any) -> Any:
    """Prunes a parameter where a mask is 0.

    Args:
        module: Changed in place and returned.
        name: The parameter's name.
        mask: A tensor of the parameter's shape.
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Any, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Any, str], Any] | None = None,
    **kwargs: Any,
) -> None:
    """Prunes several parameters as if they were one: the amount is that of all together.

    Args:
        parameters: Pairs of a module and the name of a parameter.
        pruning_method: A class of unstructured pruning.
        importance_scores: (module, name) -> what decides in place of the values.
        **kwargs: Arguments of the class.

    Raises:
        TypeError: The parameters are no iterable, the scores no dict, or the class is not one of
            unstructured pruning.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs = list(parameters)
    tensors = [getattr(module, name) for module, name in pairs]
    importance = parameters_to_vector(
        [scores.get(pair, tensor) for pair, tensor in zip(pairs, tensors, strict=True)]
    )
    masks = parameters_to_vector(
        [
            getattr(module, name + "_mask", ones_like(tensor))
            for (module, name), tensor in zip(pairs, tensors, strict=True)
        ]
    )
    method: Any = pruning_method(**kwargs)
    method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    mask = PruningContainer(method).compute_mask(importance, masks)
    start = 0
    with ExitStack() as undo:
        for module, name in pairs:
            undo.enter_context(pruning_undone_on_error(module, name))
        for (module, name), tensor in zip(pairs, tensors, strict=True):
            stop = start + tensor.numel()
            custom_from_mask(module, name, mask[start:stop].view_as(tensor))
            start = stop


def remove(module: Any, name: str) -> Any:
    """Makes the pruning of a parameter permanent: it is a plain parameter again, with zeros.

    Raises:
        ValueError: It is not pruned.
    """
    for key in hooks_of(module, name):
        module._forward_pre_hooks[key].remove(module)
        del module._forward_pre_hooks[key]
        return module
    raise ValueError(
        f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
    )


def is_pruned(module: Any) -> bool:
    """Whether a parameter of the module, or of one within it, is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for _, each in module.named_modules()
        for hook in each._forward_pre_hooks.values()
    )
