# SPDX-License-Identifier: BSD-3-Clause
"""Arguments of layers' functions and of linear algebra: sizes that fit, targets, indices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .shapes import rule, sizes
from .values import Draw, TensorValue


def constant(draw: Draw, shape: tuple[int, ...], dtype: str | None = None) -> TensorValue:
    """A tensor that takes no part in the gradient."""
    return replace(draw.tensor(shape, dtype), requires_grad=False)


def or_none(draw: Draw, shape: tuple[int, ...]) -> TensorValue | None:
    return draw.tensor(shape) if draw.chance(0.5) else None


def integers(draw: Draw, shape: tuple[int, ...], low: int, high: int) -> TensorValue:
    count = int(np.prod(shape, dtype=int))
    flat = [draw.rng.randint(low, max(low, high)) for _ in range(count)]
    return TensorValue(np.array(flat, np.int64).reshape(shape))


def axes(draw: Draw) -> int:
    """The number in the name of a function: of conv2d, 2."""
    return next((int(c) for c in draw.name if c in "123"), 1)


def lead(draw: Draw, channels: int) -> tuple[int, ...]:
    return (channels,) if draw.chance(0.2) else (draw.rng.choice((0, 1, 1, 2)), channels)


def spatial(draw: Draw, n: int, most: int = 5) -> tuple[int, ...]:
    return tuple(0 if draw.chance(0.03) else draw.rng.randint(1, most) for _ in range(n))


def numbers(draw: Draw, n: int, *choices: Any) -> Any:
    """One number for all axes, or one for each."""
    if draw.chance(0.6):
        return draw.rng.choice(choices)
    return tuple(draw.rng.choice(choices) for _ in range(n))


# -- convolution and pooling -----------------------------------------------------------------------


@rule("conv1d", "conv2d", "conv3d")
def _conv(draw: Draw) -> dict[str, Any]:
    n, groups = axes(draw), draw.rng.choice((1, 1, 2))
    a, b = (draw.rng.choice((1, 1, 2, 0 if draw.chance(0.1) else 3)) for _ in range(2))
    padding = draw.rng.choice(("same", "valid")) if draw.chance(0.2) else numbers(draw, n, 0, 1, 2)
    return {
        "input": draw.tensor((*lead(draw, a * groups), *spatial(draw, n))),
        "weight": draw.tensor((b * groups, a, *spatial(draw, n, 3))),
        "bias": or_none(draw, (b * groups,)),
        "stride": numbers(draw, n, 1, 1, 2, 3),
        "padding": padding,
        "dilation": numbers(draw, n, 1, 1, 2),
        "groups": groups,
    }


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(draw: Draw) -> dict[str, Any]:
    n, groups = axes(draw), draw.rng.choice((1, 1, 2))
    a, b = (draw.rng.choice((1, 1, 2, 3)) for _ in range(2))
    return {
        "input": draw.tensor((*lead(draw, a * groups), *spatial(draw, n, 3))),
        "weight": draw.tensor((a * groups, b, *spatial(draw, n, 3))),
        "bias": or_none(draw, (b * groups,)),
        "stride": numbers(draw, n, 1, 1, 2, 3),
        "padding": numbers(draw, n, 0, 0, 1),
        "output_padding": numbers(draw, n, 0, 0, 0, 1),
        "dilation": numbers(draw, n, 1, 1, 2),
        "groups": groups,
    }


def _image(draw: Draw, n: int) -> TensorValue:
    return draw.tensor((*lead(draw, draw.rng.choice((1, 2, 2, 3))), *spatial(draw, n)))


@rule(*(f"{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)))
@rule(*(f"max_pool{n}d_with_indices" for n in (1, 2, 3)))
def _pool(draw: Draw) -> dict[str, Any]:
    n = axes(draw)
    return {
        "self": (x := _image(draw, n)),
        "input": x,
        "norm_type": draw.rng.choice((1, 2, 2.0, 3, 0.5, float("inf"))),
        "kernel_size": numbers(draw, n, 1, 2, 2, 3),
        "stride": None if draw.chance(0.4) else numbers(draw, n, 1, 2, 3),
        "padding": numbers(draw, n, 0, 0, 1),
        "dilation": numbers(draw, n, 1, 1, 2),
        "divisor_override": draw.rng.choice((None, None, 1, 3, -2)),
    }


@rule(*(f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3)))
@rule(*(f"adaptive_max_pool{n}d_with_indices" for n in (1, 2, 3)))
def _adaptive_pool(draw: Draw) -> dict[str, Any]:
    n = axes(draw)
    parts = (1, 1, 2, 3, 4, 5) if "max" in draw.name else (1, 2, 3, 4, 5)
    x = _image(draw, n)
    return {"self": x, "input": x, "output_size": numbers(draw, n, *parts)}


@rule("max_unpool1d", "max_unpool2d", "max_unpool3d")
def _unpool(draw: Draw) -> dict[str, Any]:
    n = axes(draw)
    x = _image(draw, n)
    count = int(np.prod([2 * s for s in x.shape[-n:]]))
    index = draw.index(x.shape, max(count, 1))
    return {"input": x, "indices": index, "kernel_size": 2, "stride": 2, "padding": 0} | {
        "output_size": None
    }


# -- normalization, attention, tables --------------------------------------------------------------


@rule("batch_norm", "instance_norm")
def _batch_norm(draw: Draw) -> dict[str, Any]:
    n, c = draw.rng.choice((0, 1, 2, 3)), draw.rng.choice((1, 2, 3))
    statistics = draw.chance(0.5)
    variance = constant(draw, (c,))
    if variance.array.dtype.kind in "fiu":
        with np.errstate(all="ignore"):
            variance = replace(variance, array=np.abs(variance.array))
    return {
        "input": draw.tensor((draw.rng.choice((0, 1, 2, 3)), c, *spatial(draw, n, 3))),
        "running_mean": constant(draw, (c,)) if statistics else None,
        "running_var": variance if statistics else None,
        "weight": or_none(draw, (c,)),
        "bias": or_none(draw, (c,)),
        "momentum": draw.rng.choice((0.1, 0.5, 1.0)),
        "eps": draw.rng.choice((1e-5, 0.1)),
    }


@rule("layer_norm", "rms_norm")
def _layer_norm(draw: Draw) -> dict[str, Any]:
    kept = draw.rng.randint(1, max(len(draw.shape), 1))
    shape = draw.shape[-kept:] or (2,)
    x = draw.tensor(draw.shape or (2,))
    given = {"input": x, "normalized_shape": shape, "eps": draw.rng.choice((1e-5, 0.1))}
    return given | {name: or_none(draw, shape) for name in ("weight", "bias")}


@rule("group_norm")
def _group_norm(draw: Draw) -> dict[str, Any]:
    groups = draw.rng.choice((1, 2, 3))
    c = groups * draw.rng.choice((1, 1, 2))
    x = draw.tensor((draw.rng.choice((0, 1, 2)), c, *spatial(draw, draw.rng.randint(0, 2), 3)))
    given = {"input": x, "num_groups": groups, "eps": draw.rng.choice((1e-5, 0.1))}
    return given | {name: or_none(draw, (c,)) for name in ("weight", "bias")}


@rule("local_response_norm")
def _local_response(draw: Draw) -> dict[str, Any]:
    return {"input": _image(draw, 2), "size": draw.rng.choice((1, 2, 3))}


@rule("scaled_dot_product_attention")
def _attention(draw: Draw) -> dict[str, Any]:
    q, s, e, v = sizes(draw, 4)
    before = tuple(sizes(draw, draw.rng.choice((0, 1, 2))))
    mask = draw.tensor((q, s), draw.rng.choice(("bool", None))) if draw.chance(0.4) else None
    return {
        "query": draw.tensor((*before, q, e)),
        "key": draw.tensor((*before, s, e)),
        "value": draw.tensor((*before, s, v)),
        "attn_mask": mask,
        "dropout_p": 0.0,
        "is_causal": mask is None and draw.chance(0.5),
        "scale": draw.rng.choice((None, None, 0.5, -1.0)),
        "enable_gqa": False,
    }


@rule("embedding", "embedding_bag")
def _embedding(draw: Draw) -> dict[str, Any]:
    rows, width = draw.rng.choice((1, 2, 3, 4)), draw.rng.choice((0, 1, 2, 3))
    bags = "bag" in draw.name
    shape = tuple(sizes(draw, 2 if bags else draw.rng.randint(0, 2)))
    index = draw.index(shape, rows)
    given = {"input": index, "weight": draw.tensor((rows, width)), "indices": index}
    return given | {
        "padding_idx": draw.rng.choice((None, 0, -1, 1)) if draw.chance(0.5) else None,
        "sparse": False,
        "max_norm": None,
        "offsets": None,
        "mode": draw.rng.choice(("sum", "mean", "max")),
        "per_sample_weights": None,
        "include_last_offset": False,
    }


@rule("linear")
def _linear(draw: Draw) -> dict[str, Any]:
    n, m = sizes(draw, 2)
    x = draw.tensor((*sizes(draw, draw.rng.randint(0, 2)), n))
    return {"input": x, "weight": draw.tensor((m, n)), "bias": or_none(draw, (m,))}


@rule("bilinear")
def _bilinear(draw: Draw) -> dict[str, Any]:
    n, m, k = sizes(draw, 3)
    before = sizes(draw, draw.rng.randint(0, 2))
    given = {"input1": draw.tensor((*before, n)), "input2": draw.tensor((*before, m))}
    return given | {"weight": draw.tensor((k, n, m)), "bias": or_none(draw, (k,))}


# -- recurrent layers ------------------------------------------------------------------------------


def _gates(draw: Draw) -> int:
    return 4 if "LSTM" in draw.name else 3 if "GRU" in draw.name else 1


def _start(draw: Draw, shapes: list[tuple[int, ...]]) -> Any:
    """States to begin with, or none; seldom of a wrong size."""
    if draw.chance(0.4):
        return None
    if draw.chance(0.05):
        shapes = [tuple(n + draw.rng.choice((0, 1)) for n in shape) for shape in shapes]
    return tuple(draw.tensor(shape) for shape in shapes)


@rule("nn.RNN", "nn.LSTM", "nn.GRU")
def _recurrent(draw: Draw) -> dict[str, Any]:
    width, hidden = draw.rng.choice((0, 1, 2, 3)), draw.rng.choice((1, 2, 3))
    layers, both = draw.rng.choice((1, 1, 2)), draw.chance(0.4)
    bias, first = draw.chance(0.7), draw.chance(0.4)
    lstm, directions = "LSTM" in draw.name, 2 if both else 1
    projected = draw.rng.randint(1, hidden - 1) if lstm and hidden > 1 and draw.chance(0.3) else 0
    options = {"num_layers": layers, "bias": bias, "batch_first": first, "bidirectional": both}
    if lstm:
        options["proj_size"] = projected
    elif "RNN" in draw.name:
        options["nonlinearity"] = draw.rng.choice(("tanh", "relu"))
    out, rows = projected or hidden, _gates(draw) * hidden
    shapes: list[tuple[int, ...]] = []
    for layer in range(layers):
        inner = width if layer == 0 else out * directions
        own = [(rows, inner), (rows, out), *([(rows,), (rows,)] if bias else [])]
        shapes += (own + ([(projected, hidden)] if projected else [])) * directions
    steps, batch = draw.rng.choice((0, 1, 2, 3, 4)), draw.rng.choice((0, 1, 2, 3))
    lone = draw.chance(0.2)
    order = (batch, steps) if first else (steps, batch)
    places = (layers * directions,) if lone else (layers * directions, batch)
    states = [(*places, out), (*places, hidden)][: 2 if lstm else 1]
    return {
        "input": draw.tensor((steps, width) if lone else (*order, width)),
        "states": _start(draw, states),
        "parameters": tuple(draw.tensor(shape) for shape in shapes),
        "sizes": (width, hidden),
        "options": options,
    }


@rule("nn.RNNCell", "nn.LSTMCell", "nn.GRUCell")
def _cell(draw: Draw) -> dict[str, Any]:
    width, hidden = draw.rng.choice((0, 1, 2, 3)), draw.rng.choice((1, 2, 3))
    rows, bias = _gates(draw) * hidden, draw.chance(0.7)
    batch = () if draw.chance(0.2) else (draw.rng.choice((0, 1, 2, 3)),)
    options: dict[str, Any] = {"bias": bias}
    if "RNN" in draw.name:
        options["nonlinearity"] = draw.rng.choice(("tanh", "relu"))
    shapes = [(rows, width), (rows, hidden), *([(rows,), (rows,)] if bias else [])]
    return {
        "input": draw.tensor((*batch, width)),
        "states": _start(draw, [(*batch, hidden)] * (2 if "LSTM" in draw.name else 1)),
        "parameters": tuple(draw.tensor(shape) for shape in shapes),
        "sizes": (width, hidden),
        "options": options,
    }


# -- losses ----------------------------------------------------------------------------------------


def _words(draw: Draw) -> dict[str, Any]:
    word = draw.rng.choice(("mean", "sum", "none"))
    return {"reduction": word, "reduce": None, "size_average": None}


@rule("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss")
def _pair(draw: Draw) -> dict[str, Any]:
    return {
        "input": draw.tensor(draw.shape),
        "target": draw.tensor(draw.shape),
        "weight": None,
        **_words(draw),
    }


@rule("gaussian_nll_loss")
def _gaussian(draw: Draw) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        spread = draw.tensor(draw.shape)
        spread = replace(spread, array=np.abs(spread.array).astype(spread.dtype))
    given = {"input": draw.tensor(draw.shape), "target": draw.tensor(draw.shape), "var": spread}
    return given | _words(draw)


@rule("binary_cross_entropy", "binary_cross_entropy_with_logits")
def _binary(draw: Draw) -> dict[str, Any]:
    def shares() -> TensorValue:
        t = draw.tensor(draw.shape)
        if t.array.dtype.kind == "f":
            with np.errstate(all="ignore"):
                t = replace(t, array=(np.abs(t.array) / (1 + np.abs(t.array))).astype(t.dtype))
        return t

    x = draw.tensor(draw.shape) if "logits" in draw.name else shares()
    given = {"input": x, "target": shares(), "weight": or_none(draw, draw.shape)}
    return given | {"pos_weight": or_none(draw, draw.shape[-1:]), **_words(draw)}


@rule("cross_entropy", "nll_loss", "multi_margin_loss")
def _classes(draw: Draw) -> dict[str, Any]:
    c, n = draw.rng.choice((1, 2, 3, 4)), draw.rng.choice((0, 1, 2, 3))
    rest = spatial(draw, draw.rng.choice((0, 0, 0, 1, 2)), 3) if "multi" not in draw.name else ()
    one = not rest and draw.chance(0.2)
    return {
        "input": draw.tensor((c,) if one else (n, c, *rest)),
        "target": draw.index(() if one else (n, *rest), c),
        "weight": constant(draw, (c,)) if draw.chance(0.4) else None,
        "ignore_index": draw.rng.choice((-100, 0, 1)),
        "label_smoothing": draw.rng.choice((0.0, 0.0, 0.3, 1.0)),
        "p": draw.rng.choice((1, 2)),
        **_words(draw),
    }


@rule("hinge_embedding_loss", "soft_margin_loss", "margin_ranking_loss")
def _signs(draw: Draw) -> dict[str, Any]:
    signs = integers(draw, draw.shape, 0, 1)
    signs = replace(signs, array=(signs.array * 2 - 1).astype(draw.dtype))
    names = ("input", "input1", "input2")
    return {name: draw.tensor(draw.shape) for name in names} | {"target": signs, **_words(draw)}


@rule("cosine_embedding_loss")
def _cosine(draw: Draw) -> dict[str, Any]:
    n, d = sizes(draw, 2)
    signs = integers(draw, (n,), 0, 1)
    given = {name: draw.tensor((n, d)) for name in ("input1", "input2")}
    return given | {"target": replace(signs, array=signs.array * 2 - 1), **_words(draw)}


@rule("triplet_margin_loss")
def _triplet(draw: Draw) -> dict[str, Any]:
    shape = tuple(sizes(draw, draw.rng.choice((1, 2, 3))))
    names = ("anchor", "positive", "negative")
    given = {name: draw.tensor(shape) for name in names}
    return given | {"p": draw.rng.choice((1.0, 2.0, 3.0)), "eps": 1e-6, **_words(draw)}


@rule("ctc_loss")
def _ctc(draw: Draw) -> dict[str, Any]:
    t, n, c = draw.rng.choice((1, 3, 5)), draw.rng.choice((1, 2, 3)), draw.rng.choice((2, 3, 4))
    s = draw.rng.choice((0, 1, 2))
    return {
        "log_probs": draw.tensor((t, n, c)),
        "targets": integers(draw, (n, s), 1, c - 1),
        "input_lengths": integers(draw, (n,), 1, t),
        "target_lengths": integers(draw, (n,), 0, s),
        "blank": 0,
        **_words(draw),
    }


@rule("pairwise_distance", "cosine_similarity", "cdist")
def _vectors(draw: Draw) -> dict[str, Any]:
    if "dist" not in draw.name or "pair" in draw.name:
        return {"x1": draw.tensor(draw.shape), "x2": draw.tensor()}
    n, m, d = sizes(draw, 3)
    before = sizes(draw, draw.rng.randint(0, 1))
    given = {"x1": draw.tensor((*before, n, d)), "x2": draw.tensor((*before, m, d))}
    x = draw.tensor((n, d))
    return given | {"input": x, "self": x, "p": draw.rng.choice((0, 1, 2, 2.0, 3, 0.5, 1e400))}


# -- images ----------------------------------------------------------------------------------------


@rule("interpolate")
def _interpolate(draw: Draw) -> dict[str, Any]:
    n = draw.rng.choice((1, 2, 3))
    modes = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}[n]
    mode = draw.rng.choice((*modes, "nearest", "area", "nearest-exact"))
    size = numbers(draw, n, 1, 2, 3, 5) if draw.chance(0.5) else None
    return {
        "input": draw.tensor((*sizes(draw, 2), *spatial(draw, n))),
        "size": size,
        "scale_factor": None if size is not None else numbers(draw, n, 0.5, 1.3, 2.0, 2.3),
        "mode": mode,
        "align_corners": draw.chance(0.5) if mode in modes and draw.chance(0.6) else None,
        "recompute_scale_factor": None,
        "antialias": mode in ("bilinear", "bicubic") and draw.chance(0.3),
    }


@rule("grid_sample")
def _grid_sample(draw: Draw) -> dict[str, Any]:
    n, b, c = draw.rng.choice((2, 2, 3)), draw.rng.choice((0, 1, 2)), draw.rng.choice((1, 2))
    return {
        "input": draw.tensor((b, c, *spatial(draw, n, 4))),
        "grid": draw.tensor((b, *spatial(draw, n, 3), n)),
        "mode": draw.rng.choice(("bilinear", "nearest", "bicubic")),
        "padding_mode": draw.rng.choice(("zeros", "border", "reflection")),
        "align_corners": draw.chance(0.5),
    }


@rule("affine_grid")
def _affine_grid(draw: Draw) -> dict[str, Any]:
    n, b = draw.rng.choice((2, 2, 3)), draw.rng.choice((1, 2))
    size = (b, draw.rng.choice((1, 2)), *spatial(draw, n, 3))
    return {"theta": draw.tensor((b, n, n + 1)), "size": size, "align_corners": draw.chance(0.5)}


@rule("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
def _pixels(draw: Draw) -> dict[str, Any]:
    r = draw.rng.choice((1, 2, 2, 3))
    names = ("upscale_factor", "downscale_factor", "groups")
    before, sides = sizes(draw, draw.rng.randint(0, 2)), sizes(draw, 3)
    shape = (*before, sides[0] * r * r, sides[1] * r, sides[2] * r)
    x = draw.tensor(shape)
    return {"input": x, "self": x} | dict.fromkeys(names, r)


@rule("F.unfold")
def _unfold(draw: Draw) -> dict[str, Any]:
    return {
        "input": _image(draw, 2),
        "kernel_size": numbers(draw, 2, 1, 2, 3),
        "dilation": numbers(draw, 2, 1, 1, 2),
        "padding": numbers(draw, 2, 0, 0, 1),
        "stride": numbers(draw, 2, 1, 1, 2),
    }


@rule("fold")
def _fold(draw: Draw) -> dict[str, Any]:
    c, h, w = draw.rng.choice((1, 2)), draw.rng.choice((2, 3, 4)), draw.rng.choice((2, 3, 4))
    blocks = (h - 1) * (w - 1)
    x = draw.tensor((*lead(draw, c * 4), blocks))
    return {"input": x, "output_size": (h, w), "kernel_size": 2} | {
        "dilation": 1,
        "padding": 0,
        "stride": 1,
    }


@rule("F.pad")
def _pad(draw: Draw) -> dict[str, Any]:
    n = draw.rng.randint(1, 3)
    mode = draw.rng.choice(("constant", "reflect", "replicate", "circular"))
    pad = [draw.rng.choice((0, 0, 1, 1, 2, -1)) for _ in range(2 * n)]
    return {"input": _image(draw, n), "pad": pad, "mode": mode} | {
        "value": draw.rng.choice((None, 0, 1, -2.5)) if mode == "constant" else None
    }


@rule("one_hot")
def _one_hot(draw: Draw) -> dict[str, Any]:
    return {"tensor": draw.index(draw.shape, 3)}


# -- linear algebra --------------------------------------------------------------------------------


def _square(draw: Draw) -> tuple[int, ...]:
    n = draw.rng.choice((0, 1, 2, 2, 3, 3))
    return (*(sizes(draw, 1) if draw.chance(0.3) else ()), n, n)


def _hermitian(draw: Draw, definite: bool = False) -> TensorValue:
    x = draw.tensor(_square(draw))
    a = x.array
    if a.dtype.kind in "fc" and a.dtype != np.float16:
        turned = a.swapaxes(-1, -2).conj()
        whole = a @ turned + 2 * np.eye(a.shape[-1]) if definite else (a + turned) / 2
        x = replace(x, array=whole.astype(a.dtype))
    return x


@rule("det", "slogdet", "inv", "inverse", "matrix_exp", "matrix_power")
def _matrix(draw: Draw) -> dict[str, Any]:
    x = draw.tensor(_square(draw))
    return {"self": x, "A": x, "input": x, "n": draw.rng.choice((0, 1, 2, 3, -1))}


@rule("cholesky", "eigh")
def _symmetric(draw: Draw) -> dict[str, Any]:
    return {"self": _hermitian(draw, "cholesky" in draw.name), "UPLO": draw.rng.choice("LU")}


@rule("svd", "qr", "pinv", "matrix_norm")
def _rectangle(draw: Draw) -> dict[str, Any]:
    n, m = sizes(draw, 2)
    x = draw.tensor((*(sizes(draw, 1) if draw.chance(0.3) else ()), n, m))
    given = {"self": x, "A": x, "input": x, "hermitian": False, "driver": None, "dim": (-2, -1)}
    return given | {"mode": draw.rng.choice(("reduced", "complete", "r"))}


@rule("solve")
def _solve(draw: Draw) -> dict[str, Any]:
    a = _hermitian(draw, definite=True)
    *before, n, _ = a.shape
    b = draw.tensor((*before, n, draw.rng.choice((0, 1, 2))))
    return {"A": a, "B": b, "left": draw.chance(0.8)}


@rule("householder_product")
def _householder(draw: Draw) -> dict[str, Any]:
    n, k = sizes(draw, 2)
    n, k = max(n, k), min(n, k)
    return {"input": draw.tensor((n, k)), "tau": draw.tensor((k,))}


@rule("multi_dot")
def _chain(draw: Draw) -> dict[str, Any]:
    widths = sizes(draw, draw.rng.randint(3, 4))
    matrices = [draw.tensor(pair) for pair in zip(widths, widths[1:], strict=False)]
    return {"tensors": matrices}


@rule("cross")
def _cross(draw: Draw) -> dict[str, Any]:
    shape = (*draw.shape, 3)
    x, y = draw.tensor(shape), draw.tensor(shape)
    return {"self": x, "input": x, "other": y, "dim": -1}
