# SPDX-License-Identifier: BSD-3-Clause
"""Complex numbers of their parts, or of their sizes and angles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor


def _empty(a: Any, b: Any) -> Any:
    shape = np.broadcast_shapes(a.shape, b.shape)
    return np.empty(shape, np.result_type(a.dtype, np.complex64))


def _complex(real: Any, imag: Any) -> Any:
    # Not real + 1j * imag: an infinite part would make the other one NaN.
    result = _empty(real, imag)
    result.real, result.imag = real, imag
    return result


def _polar(size: Any, angle: Any) -> Any:
    return _complex(size * np.cos(angle), size * np.sin(angle))


for _name, _forward in (("complex", _complex), ("polar", _polar)):
    define(
        _name,
        _forward,
        promote="same",
        operands=2,
        meta=lambda a, b: (np.broadcast_shapes(a.shape, b.shape), _empty(a, b).dtype),
    )


def polar(abs: Tensor, angle: Tensor) -> Tensor:  # noqa: A002
    """Complex numbers of their sizes and angles."""
    return ops["polar"](abs, angle)


export("polar", polar, method=False)


# -- derivatives -----------------------------------------------------------------------------------

derive(
    "complex",
    lambda g, _out, _real, _imag: g.real,
    lambda g, _out, _real, _imag: g.imag,
)
derive(
    "polar",
    lambda g, _out, _size, angle: g.real * np.cos(angle) + g.imag * np.sin(angle),
    lambda g, _out, size, angle: size * (g.imag * np.cos(angle) - g.real * np.sin(angle)),
)
