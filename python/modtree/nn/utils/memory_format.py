# SPDX-License-Identifier: BSD-3-Clause
"""Weights of convolutions in another order in memory."""

from __future__ import annotations

from typing import Any, TypeVar

from modtree.core.module import Module
from modtree.nn.convolution import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from modtree.nn.utils._library import family_of

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

M = TypeVar("M", bound=Module)


def _converted(module: M, kinds: tuple[type, ...], memory_format: Any) -> M:
    weights: list[Any] = [each.weight for each in module.modules() if isinstance(each, kinds)]
    # All of them before any is changed.
    converted = [
        family_of(weight).detach(weight).clone(memory_format=memory_format) for weight in weights
    ]
    for weight, data in zip(weights, converted, strict=True):
        family_of(weight).set_data(weight, data)
    return module


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Brings the weights of all 2-D convolutions in a module into an order in memory.

    Args:
        module: Changed in place and returned.
        memory_format: For example ``modtree.channels_last``.
    """
    return _converted(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Brings the weights of all 3-D convolutions in a module into an order in memory.

    Args:
        module: Changed in place and returned.
        memory_format: For example ``modtree.channels_last_3d``.
    """
    return _converted(module, (Conv3d, ConvTranspose3d), memory_format)
