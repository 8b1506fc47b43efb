# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions of jax arrays and their transposes, by ``lax.conv_general_dilated``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from modtree.jax_arrays.functions._common import Array, Ints, batched, each

_AXES = ("", "W", "HW", "DHW")


def _run(n: int, x: Array, weight: Array, **options: Any) -> Array:
    layout = "NC" + _AXES[n], "OI" + _AXES[n], "NC" + _AXES[n]
    return jax.lax.conv_general_dilated(x, weight, dimension_numbers=layout, **options)


def _with_bias(n: int, y: Array, bias: Array | None, has_batch: bool) -> Array:
    y = y if bias is None else y + bias.reshape(1, -1, *(1,) * n)
    return y if has_batch else y[0]


def _make_conv(n: int) -> Any:
    def conv(
        input: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Ints = 1,
        padding: str | Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
    ) -> Array:
        x, has_batch = batched(f"conv{n}d", input, n)
        strides, dilations = each(stride, n), each(dilation, n)
        pads: Any
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise RuntimeError(
                    f"Invalid padding string: '{padding}', should be 'valid' or 'same'"
                )
            if padding == "same" and max(strides) > 1:
                raise RuntimeError("padding='same' is not supported for strided convolutions")
            totals = [d * (k - 1) for d, k in zip(dilations, weight.shape[2:], strict=True)]
            # The odd element goes to the end.
            pads = [(t // 2, t - t // 2) if padding == "same" else (0, 0) for t in totals]
        else:
            pads = [(p, p) for p in each(padding, n)]
        y = _run(
            n,
            x,
            weight,
            window_strides=strides,
            padding=pads,
            rhs_dilation=dilations,
            feature_group_count=groups,
        )
        return _with_bias(n, y, bias, has_batch)

    return conv


def _make_conv_transpose(n: int) -> Any:
    def conv_transpose(
        input: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        dilation: Ints = 1,
    ) -> Array:
        x, has_batch = batched(f"conv_transpose{n}d", input, n)
        strides, dilations = each(stride, n), each(dilation, n)
        kernel = weight.shape[2:]
        # (C, O / groups, *kernel) as the weight (O, C / groups, *kernel) of a convolution of the
        # input with zeros between its elements.
        channels, outputs = weight.shape[:2]
        w = weight.reshape(groups, channels // groups, outputs, *kernel)
        w = jnp.flip(jnp.swapaxes(w, 1, 2), tuple(range(3, 3 + n)))
        w = w.reshape(groups * outputs, channels // groups, *kernel)
        reach = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        both = zip(reach, each(padding, n), each(output_padding, n), strict=True)
        y = _run(
            n,
            x,
            w,
            window_strides=(1,) * n,
            padding=[(r - p, r - p + extra) for r, p, extra in both],
            lhs_dilation=strides,
            rhs_dilation=dilations,
            feature_group_count=groups,
        )
        return _with_bias(n, y, bias, has_batch)

    return conv_transpose


conv1d, conv2d, conv3d = map(_make_conv, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_make_conv_transpose, (1, 2, 3))
