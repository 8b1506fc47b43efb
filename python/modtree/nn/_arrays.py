# SPDX-License-Identifier: BSD-3-Clause
"""The array side of :mod:`modtree.nn.functional`: each function takes and returns ndarrays.

Beside each stands ``<name>_meta``: the same arguments, giving ``(shape, dtype)`` for tensors without values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._C import kernels

Array = NDArray[Any]
Spec = tuple[tuple[int, ...], Any]


def _in_kernel_dtype(kernel: Callable[[Array], Array], x: Array) -> Array:
    """Runs a kernel for float32 and float64 also on float16."""
    if x.dtype == np.float16:
        return kernel(x.astype(np.float32)).astype(np.float16)
    return kernel(x)


def _need_arrays(name: str, *arguments: Any) -> None:
    """Tensors have become arrays before they come here; what has not is no tensor of ours."""
    for x in arguments:
        if not isinstance(x, np.ndarray):
            kind = f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")
            raise TypeError(
                f"{name}: expected a modtree.Tensor, got {kind}. The layers of modtree.nn compute on "
                "NumPy tensors: convert with modtree.tensor(...) or modtree.from_numpy(...), or use the "
                "functions of the library that the tensor comes from"
            )


def _need_floating(name: str, x: Array) -> None:
    _need_arrays(name, x)
    if x.dtype.kind != "f":
        raise NotImplementedError(
            f'"{name}" not implemented for {x.dtype}: expected a floating dtype'
        )


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Can a tensor of ``shape`` be repeated to fill ``target``?"""
    tail = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))


# -- linear --------------------------------------------------------------------------------------


# Up to so many rows, OpenBLAS multiplies weight by input.T up to 1.8 times faster than input by weight.T (measured with 16
# and 128 rows and the sizes of MiniLM), which pays for the transposed copy.
_FEW_ROWS = 128


def _check_linear(x: Array, weight: Array, bias: Array | None) -> None:
    _need_arrays("linear", x, weight, *(() if bias is None else (bias,)))
    if x.ndim == 0 or weight.ndim == 0:
        raise RuntimeError(
            "both arguments to linear need to be at least 1D, "
            f"but they are {x.ndim}D and {weight.ndim}D"
        )
    if weight.ndim > 2:
        raise RuntimeError(f"linear: the weight must be 1-D or 2-D, got shape {weight.shape}")
    if x.shape[-1] != weight.shape[-1]:
        rows = math.prod(x.shape[:-1])
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{x.shape[-1]} and "
            f"{_sizes(weight.shape[::-1])}): linear got an input whose last axis has "
            f"{x.shape[-1]} values, its weight takes {weight.shape[-1]}"
        )
    if x.dtype != weight.dtype or (bias is not None and bias.dtype != x.dtype):
        dtypes = f"{x.dtype}, {weight.dtype}" + (f" and {bias.dtype}" if bias is not None else "")
        raise RuntimeError(
            f"mat1 and mat2 must have the same dtype, but linear got {dtypes}. Convert the input "
            "or the module with .to(dtype)"
        )


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    _check_linear(x, weight, bias)
    # One matrix product instead of one for each entry of the leading axes.
    rows = x if x.ndim < 2 else x.reshape(-1, x.shape[-1])
    shape = x.shape[:-1] + weight.shape[:-1]
    if (
        bias is not None
        and bias.shape != weight.shape[:-1]
        and not _broadcasts_to(bias.shape, shape)
    ):
        raise RuntimeError(
            f"linear: a bias of shape {bias.shape} does not fit an output of {shape}"
        )
    if (
        rows.ndim == weight.ndim == 2
        and len(rows) <= _FEW_ROWS
        and (bias is None or bias.ndim == 1)
    ):
        y = np.matmul(weight, rows.T).T
        y = np.ascontiguousarray(y) if bias is None else np.add(y, bias, order="C")
        return y.reshape(shape)
    y = np.matmul(rows, weight.T)
    if bias is None:
        return y.reshape(shape)
    if bias.ndim > 1:
        return y.reshape(shape) + bias
    y += bias
    return y.reshape(shape)


def linear_meta(x: Array, weight: Array, bias: Array | None = None) -> Spec:
    _check_linear(x, weight, bias)
    return x.shape[:-1] + weight.shape[:-1], x.dtype


# -- embedding -----------------------------------------------------------------------------------


def _check_embedding(indices: Array, weight: Array) -> None:
    _need_arrays("embedding", indices, weight)
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, got shape {weight.shape}")
    if indices.dtype not in (np.int64, np.int32):
        raise RuntimeError(
            "embedding: expected indices of one of the following scalar types: Long, Int; "
            f"but got {indices.dtype} instead"
        )


def embedding(indices: Array, weight: Array) -> Array:
    _check_embedding(indices, weight)
    if indices.size:
        low, high = indices.min(), indices.max()
        if low < 0 or high >= weight.shape[0]:
            raise IndexError(
                f"index out of range in self: embedding got index {low if low < 0 else high}, "
                f"its table has {weight.shape[0]} rows"
            )
    return weight.take(indices, axis=0)


def embedding_meta(indices: Array, weight: Array) -> Spec:
    _check_embedding(indices, weight)
    return indices.shape + weight.shape[1:], weight.dtype


# -- layer norm ----------------------------------------------------------------------------------


def _check_layer_norm(
    x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...]
) -> None:
    _need_arrays("layer_norm", x, *(v for v in (weight, bias) if v is not None))
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
            "one element, but got normalized_shape = []"
        )
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.shape != shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of "
                f"shape {list(value.shape)} and normalized_shape = {list(shape)}"
            )
        if value is not None and value.dtype != x.dtype:
            raise RuntimeError(
                f"layer_norm: all inputs must share same datatype, got {x.dtype} and a {name} of {value.dtype}"
            )
    if x.shape[max(x.ndim - len(shape), 0) :] != shape:
        expected = ", ".join(["*", *map(str, shape)])
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [{expected}], "
            f"but got input of size{list(x.shape)}"
        )
    _need_floating("layer_norm", x)


def layer_norm(
    x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...], eps: float
) -> Array:
    _check_layer_norm(x, weight, bias, shape)
    axes = len(shape)
    return _in_kernel_dtype(lambda v: kernels.layer_norm(v, axes, weight, bias, eps), x)


def layer_norm_meta(
    x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...], eps: float
) -> Spec:
    _check_layer_norm(x, weight, bias, shape)
    return x.shape, x.dtype


# -- pointwise -----------------------------------------------------------------------------------


def gelu(x: Array, tanh: bool = False) -> Array:
    _need_floating("gelu", x)
    return _in_kernel_dtype(lambda v: kernels.gelu(v, tanh), x)


def silu(x: Array) -> Array:
    _need_floating("silu", x)
    return x / (1 + np.exp(-x))


def same_meta(x: Array, *args: Any) -> Spec:
    """Shape and dtype of the first argument: for everything pointwise."""
    return x.shape, x.dtype


# -- attention -----------------------------------------------------------------------------------


def _check_attention(
    query: Array, key: Array, value: Array, mask: Array | None, causal: bool
) -> None:
    masks = () if mask is None else (mask,)
    _need_arrays("scaled_dot_product_attention", query, key, value, *masks)
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be at least 2 dimensional, but got query.dim: "
            f"{query.ndim} key.dim: {key.ndim} and value.dim: {value.ndim} instead."
        )
    if not query.dtype == key.dtype == value.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype} key.dtype: {key.dtype} and value.dtype: {value.dtype} instead."
        )
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            "scaled_dot_product_attention: query and key must agree in their last axis, key and "
            f"value in the one before; got {query.shape}, {key.shape} and {value.shape}"
        )
    if mask is None:
        return
    if causal:
        raise RuntimeError(
            "scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
        )
    if mask.dtype != np.bool_ and mask.dtype != np.float32 and mask.dtype != query.dtype:
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {mask.dtype} and query.dtype: {query.dtype} instead."
        )


def _attention_shape(query: Array, key: Array, value: Array) -> tuple[int, ...]:
    batch = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    return batch + (query.shape[-2], value.shape[-1])


def _mask_scores(scores: Array, mask: Array | None, causal: bool) -> Array | None:
    """Adds the mask in place; returns which rows have no key left, or None when none can be."""
    if causal:
        shape = scores.shape[-2:]
        np.copyto(scores, -np.inf, where=~np.tri(*shape, dtype=np.bool_))
        return None
    if mask is None:
        return None
    if mask.dtype == np.bool_:
        np.copyto(scores, -np.inf, where=~mask)
        dead: Array = ~np.any(mask, axis=-1, keepdims=True)
    else:
        scores += mask.astype(scores.dtype, copy=False)
        dead = np.all(np.isneginf(mask), axis=-1, keepdims=True)
    return dead if dead.any() else None


def attention(
    query: Array, key: Array, value: Array, mask: Array | None, causal: bool, scale: float | None
) -> Array:
    """softmax(query key^T scale + mask) value; a row whose keys are all masked gives 0."""
    _check_attention(query, key, value, mask, causal)
    _need_floating("scaled_dot_product_attention", query)
    if query.dtype == np.float16:
        if mask is not None and mask.dtype == np.float16:
            mask = mask.astype(np.float32)
        q, k, v = (a.astype(np.float32) for a in (query, key, value))
        return attention(q, k, v, mask, causal, scale).astype(np.float16)
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    scores = np.matmul(query * query.dtype.type(scale), key.swapaxes(-1, -2))
    if mask is not None:
        shape = np.broadcast_shapes(scores.shape, mask.shape)
        if shape != scores.shape:
            scores = np.broadcast_to(scores, shape).copy()
    dead = _mask_scores(scores, mask, causal)
    weights = kernels.softmax(scores, out=scores)
    if dead is not None:
        np.copyto(weights, 0, where=dead)
    if query.ndim != 4 or weights.shape[:-2] != value.shape[:-2]:
        return np.matmul(weights, value)
    # (batch, heads, length, width) stored as (batch, length, heads, width): what callers reshape it to next.
    batch, heads, length, _ = weights.shape
    out = np.empty((batch, length, heads, value.shape[-1]), value.dtype).transpose(0, 2, 1, 3)
    return np.matmul(weights, value, out=out)


def attention_meta(
    query: Array, key: Array, value: Array, mask: Array | None, causal: bool, scale: float | None
) -> Spec:
    _check_attention(query, key, value, mask, causal)
    return _attention_shape(query, key, value), query.dtype
