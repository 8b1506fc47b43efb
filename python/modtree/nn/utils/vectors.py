# SPDX-License-Identifier: BSD-3-Clause
"""All parameters as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from modtree.core import families
from modtree.core.type_names import no_tensor


def parameters_to_vector(parameters: Iterable[Any]) -> Any:
    """Joins the parameters, each flattened, into one vector; gradients flow back through it.

    Args:
        parameters: tensors of one library on one device, for example ``module.parameters()``.

    Raises:
        ValueError: there are none.
        TypeError: one is no tensor, or they are of several libraries or on different devices.
        RuntimeError: one is not contiguous, or only some are on the ``meta`` device.

    Example:
        >>> nn.utils.parameters_to_vector(nn.Linear(3, 2).parameters()).shape
        modtree.Size([8])
    """
    tensors = list(parameters)
    if not tensors:
        raise ValueError("parameters_to_vector: expected a non-empty list of tensors")
    family = _family_of(tensors[0], "parameters_to_vector")
    for i, tensor in enumerate(tensors):
        other = _family_of(tensor, "parameters_to_vector")
        if other is not family:
            raise TypeError(
                f"parameters_to_vector: tensor 0 is of {family.name}, tensor {i} of {other.name}; "
                f"one vector cannot hold both"
            )
        if _device(tensor) != _device(tensors[0]):
            kinds = {_device(tensor)[0], _device(tensors[0])[0]}
            raise (RuntimeError if "meta" in kinds else TypeError)(
                f"parameters_to_vector: tensors are on different devices ({tensors[0].device} and, "
                f"tensor {i}, {tensor.device}), this is not supported; move them to one first"
            )
    return family.library("parameters_to_vector").cat([tensor.view(-1) for tensor in tensors])


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Makes every parameter a view of its piece of ``vec``, in order; the parameters stay the same
    objects.

    The storage is shared: writing to ``vec`` later changes the parameters. What is left over at the
    end of ``vec`` is ignored.

    Args:
        vec: a vector with at least as many elements as the parameters have together.
        parameters: the parameters to change.

    Raises:
        TypeError: ``vec`` is no tensor.
        RuntimeError: it is too short. Nothing has changed.

    Example:
        >>> net = nn.Linear(3, 2)
        >>> nn.utils.vector_to_parameters(mt.arange(8.0), net.parameters())
        >>> net.bias.tolist()
        [6.0, 7.0]
    """
    family = families.family_of(vec)
    if family is None:
        raise TypeError(f"vector_to_parameters: expected a tensor, but got: {no_tensor(vec)}")
    params = list(parameters)
    owners = [_family_of(p, "vector_to_parameters") for p in params]
    shapes = [tuple(owner.shape(p)) for owner, p in zip(owners, params, strict=True)]
    needed = sum(map(math.prod, shapes))
    shape = tuple(family.shape(vec))
    if len(shape) == 1 and shape[0] < needed:
        raise RuntimeError(
            f"vector_to_parameters: the parameters have {needed} elements, the vector {shape[0]}"
        )
    values = family.detach(vec)
    start = 0
    for owner, param, size in zip(owners, params, shapes, strict=True):
        stop = start + math.prod(size)
        owner.set_data(param, values[start:stop].view(size))
        start = stop


def _family_of(tensor: Any, caller: str) -> Any:
    family = families.family_of(tensor)
    if family is None:
        raise TypeError(f"{caller}: expected tensors, got {no_tensor(tensor)}")
    return family


def _device(tensor: Any) -> tuple[str, Any]:
    device = tensor.device
    return (getattr(device, "type", device), getattr(device, "index", None))
