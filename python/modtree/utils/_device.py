# SPDX-License-Identifier: BSD-3-Clause
"""Functions that make their tensors on a device, where
``from torch.utils._device import set_device`` looks for them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from modtree.numpy.tensor.context_decorator import decorate
from modtree.numpy.tensor.devices import device

__all__ = ["device_decorator", "set_device"]

F = TypeVar("F", bound=Callable[..., Any])


def set_device(device: Any) -> Callable[[F], F]:
    """Decorates functions and generators, which then run in ``with modtree.device(device):``.

    Example:
        >>> @mt.utils._device.set_device("meta")
        ... def weights(n):
        ...     return mt.ones(n, n)
        >>> weights(4).device
        device(type='meta')
    """
    place = _device(device)
    return lambda function: device_decorator(place, function)


def device_decorator(device: Any, function: F) -> F:
    """The function, running in ``with modtree.device(device):``."""
    if inspect.isclass(function):
        raise RuntimeError(
            f"Cannot decorate classes, got {function.__name__}: it is not clear whether its "
            f"constructor or all of its methods are meant. Decorate these methods"
        )
    place = _device(device)
    return decorate(lambda: place, function)


_device = device  # where a parameter has the name
