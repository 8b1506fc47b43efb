# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: functions of layers: convolutions, normalizations, attention, images."""

from __future__ import annotations

from typing import Any

import numpy as np

from .failures import (
    Allowed,
    agree_where_finite,
    arrays,
    bare,
    is_empty,
    largest_of,
    message,
    our_message,
)


def other_order_of_batch_norm(f: Any) -> bool:
    turned = any(t.turned for t in f.line.tensors)
    return bare(f) == "batch_norm" and f.word == "gradient value" and turned


def statistics_of_another_dtype(f: Any) -> bool:
    names = ("batch_norm", "instance_norm", "layer_norm", "group_norm")
    if bare(f) not in names:
        return False
    graph = ("argument afterwards", "gradient is None", "requires_grad", "dtype")
    if is_empty(f) and f.word in graph:
        return True
    differ = len({a.dtype for a in arrays(f)}) > 1
    shaped = any(a.ndim != 1 for a in arrays(f)[1:])  # a matrix for a vector
    words = ("accepted", "refused", "error type", "argument afterwards")
    return f.word in words and (differ or shaped)


def parts_that_cancel(f: Any) -> bool:
    """Results that are 0 but for rounding."""
    others = ("normalize", "cosine_embedding_loss", "cosine_similarity")
    if not (bare(f).endswith("_norm") or bare(f) in others) or not f.word.endswith("value"):
        return False
    what = "results" if f.word == "value" else "gradients"
    least = {"e": 1e-2, "f": 1e-4, "d": 1e-12}
    size = max(1.0, largest_of(arrays(f)[0]))  # which eps divides
    for a, b in zip(getattr(f.theirs, what), getattr(f.ours, what), strict=True):
        if a is not None:
            near = least.get(a.dtype.char, 0.0)
            if not np.allclose(a, b, near, near * size, equal_nan=True):
                return False
    return True


def gradient_of_nothing(f: Any) -> bool:
    if bare(f) == "scaled_dot_product_attention" and f.word == "gradient is None":
        return is_empty(f)
    if bare(f) == "group_norm" and is_empty(f) and f.word == "gradient value":
        return True
    return bare(f) == "householder_product" and f.word == "gradient is None" and is_empty(f)


def width_of_nothing(f: Any) -> bool:
    text = "cannot reshape tensor of 0 elements"
    return bare(f) == "bilinear" and f.word == "accepted" and text in message(f)


def without_channels(f: Any) -> bool:
    names = ("conv1d", "conv2d", "conv3d")
    if bare(f) not in names or f.word != "shape":
        return False
    return arrays(f)[0].shape[-int(bare(f)[4]) - 1] == 0


def transposed_to_nothing(f: Any) -> bool:
    small = "Output size is too small" in our_message(f)
    return bare(f).startswith("conv_transpose") and f.word == "refused" and small


def parts_of_none(f: Any) -> bool:
    text = "Expected grad_output to have non-zero size"
    return f.word == "backward accepted" and text in message(f)


def unshuffled_nothing(f: Any) -> bool:
    return bare(f) == "pixel_unshuffle" and f.word == "shape" and is_empty(f)


def groups_of_nothing(f: Any) -> bool:
    return f.word == "backward accepted" and "Number of groups to divide" in message(f)


def is_result_empty(f: Any) -> bool:
    return f.theirs.results[0].size == 0


def negative_circles(f: Any) -> bool:
    values = [
        v for v in (*f.line.values, *f.line.keywords.values()) if isinstance(v, (list, tuple))
    ]
    modes = [*f.line.values, *f.line.keywords.values()]
    turned = "circular" in modes or "reflect" in modes
    overlaps = f.word == "accepted" and "single memory location" in message(f)
    differs = overlaps or f.word in ("value", "gradient value", "refused")
    short = "replicate" in modes and f.word == "refused" and is_result_empty(f)
    return (
        bare(f) == "pad" and (turned and differs or short) and bool(values) and min(values[0]) < 0
    )


def copied_axis(f: Any) -> bool:
    """An axis keeps (of the nearest pixels, or doubles) its size, while its factor is another."""
    if bare(f) != "interpolate" or f.word != "gradient value":
        return False
    values, keywords = f.line.values + [None] * 7, f.line.keywords
    mode = keywords.get("mode", values[3] or "nearest")
    antialias = keywords.get("antialias", values[6])
    before, after = arrays(f)[0].shape[2:], f.theirs.results[0].shape[2:]
    sizes = list(zip(before, after, strict=True))
    if mode == "nearest":
        return any(m in (n, 2 * n) for n, m in sizes)
    if mode == "bicubic" and all(n == m for n, m in sizes):
        return True
    return bool(antialias) and any(m == n for n, m in sizes)


def width_of_one(f: Any) -> bool:
    """torch's kernel gives the first row for all."""
    if bare(f) != "interpolate" or f.word != "value":
        return False
    antialias = f.line.keywords.get("antialias", (f.line.values + [False] * 7)[6])
    first = arrays(f)[0]
    several = first.dtype == np.uint8 and first.shape[1] > 4
    return (bool(antialias) or several) and f.theirs.results[0].shape[-1] == 1


def negative_causality(f: Any) -> bool:
    """torch's kernel makes the scores of what is masked infinite, and then scales them."""
    if bare(f) != "scaled_dot_product_attention" or not f.word.endswith("value"):
        return False
    scale = f.line.keywords.get("scale")
    causal = f.line.keywords.get("is_causal", (f.line.values + [False] * 6)[5])
    return causal is True and scale is not None and not scale > 0


def attention_of_nothing(f: Any) -> bool:
    """torch gives the shape of the query, and gradients of zeros whatever the values are."""
    words = ("shape", "gradient value")
    return bare(f) == "scaled_dot_product_attention" and f.word in words and is_result_empty(f)


def dense_gradients(f: Any) -> bool:
    """torch's sparse ones are refused for some tables."""
    if bare(f) == "embedding_bag":
        words = {
            "accepted": "does not support sparse weights",
            "backward accepted": "scale_grad_by_freq not supported with sparse",
        }
        return f.word in words and words[f.word] in message(f)
    sparse = f.line.keywords.get("sparse", (f.line.values + [False] * 7)[6])
    by_frequency = "scale_grad_by_freq not supported with sparse" in message(f)
    refused = bare(f) == "embedding" and f.word == "backward accepted"
    return refused and (sparse is True or by_frequency)


def frequency_in_bags(f: Any) -> bool:
    scaled = f.line.keywords.get("scale_grad_by_freq", (f.line.values + [False] * 6)[5])
    return bare(f) == "embedding_bag" and f.word == "gradient value" and scaled is True


def one_part_of_nothing(f: Any) -> bool:
    """torch's mean over all pixels, which is NaN."""
    return (
        bare(f).startswith(("adaptive_avg_pool", "interpolate"))
        and f.word == "refused"
        and is_empty(f)
        and "non-zero size" in our_message(f)
    )


def states_of_several_dtypes(f: Any) -> bool:
    names = ("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell")
    named = any(part in our_message(f) for part in ("same dtype", "one dtype"))
    return bare(f) in names and f.word == "refused" and named


def bias_of_another_dtype(f: Any) -> bool:
    """Some of torch's kernels take it, by dtype, sizes and order in memory."""
    words = ("refused", "error type")
    differs = "bias type" in our_message(f)
    if bare(f) == "linear" and len(arrays(f)) == 3:
        x, weight, bias = arrays(f)
        differs = f.line.tensors[0].turned and x.dtype == weight.dtype != bias.dtype
    return (bare(f) == "linear" or bare(f).startswith("conv")) and f.word in words and differs


#: What multiplies matrices, in an order of its own.
PRODUCTS = (
    *("mm", "bmm", "addmm", "baddbmm", "mv", "matmul", "multi_dot"),
    *("einsum", "cross", "tensordot", "outer"),
)


def not_finite_in_a_layer(f: Any) -> bool:
    """Layers whose kernels meet NaN and infinities in another order, or in what is padded."""
    part = (
        "conv",
        "norm",
        "loss",
        "attention",
        "interpolate",
        "grid_sample",
        "dist",
        "kl_div",
        "entropy",
        "softplus",
        "_pool",
        "RNN",
        "LSTM",
        "GRU",
        "embedding",
        "similarity",
        "normalize",
        "linear",
    )
    given = list(arrays(f))
    if f.word == "gradient value":
        found = (*f.theirs.results, *f.theirs.gradients)
        given += [a for a in found if isinstance(a, np.ndarray)]

    def odd(a: Any) -> bool:
        with np.errstate(all="ignore"):
            size = np.abs(a.astype(float)) if a.dtype.kind in "iu" else np.abs(a)
            tiny = a.dtype.kind == "f" and ((size > 0) & (size < 1e-18)).any()
            return bool(tiny) or not (size < 1e9).all()

    return (
        (f.word.endswith("value") or f.word == "argument afterwards")
        and (bare(f) in PRODUCTS or any(p in bare(f) for p in part))
        and any(odd(a) for a in given if a.dtype.kind in "fciu")
        and agree_where_finite(f)
    )


ALLOWED = [
    Allowed("gradient of `batch_norm` of memory", other_order_of_batch_norm),
    Allowed("running statistics and weights of `batch_norm` and", statistics_of_another_dtype),
    Allowed("normalizations and condition numbers whose parts cancel", parts_that_cancel),
    Allowed(
        "gradients of `householder_product`, `group_norm` and attention of no", gradient_of_nothing
    ),
    Allowed("gradients of `pixel_shuffle` and", width_of_nothing),
    Allowed("a convolution of 0 channels", without_channels),
    Allowed("a transposed convolution to a size of 0", transposed_to_nothing),
    Allowed("gradient of `adaptive_avg_pool1d`", parts_of_none),
    Allowed("`pixel_unshuffle` of nothing", unshuffled_nothing),
    Allowed("gradients of `pixel_shuffle` and", groups_of_nothing),
    Allowed("`pad` in circles and reflections by", negative_circles),
    Allowed("`interpolate(antialias=True)` to a width of 1", width_of_one),
    Allowed("`sparse=True` of embeddings", dense_gradients),
    Allowed("attention of values without a batch element", attention_of_nothing),
    Allowed("causal attention with a negative `scale`", negative_causality),
    Allowed("`scale_grad_by_freq` of bags", frequency_in_bags),
    Allowed("`adaptive_avg_pool` of nothing to one part", one_part_of_nothing),
    Allowed("gradient of `interpolate` with a `scale_factor` that keeps", copied_axis),
    Allowed("convolutions, and `linear` of memory in another order", bias_of_another_dtype),
    Allowed("recurrent layers with states or parameters", states_of_several_dtypes),
    Allowed("layers, losses and products of infinite, NaN", not_finite_in_a_layer),
]
