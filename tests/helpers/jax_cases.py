# SPDX-License-Identifier: BSD-3-Clause
"""Calls of functions of nn.functional, for the comparison of jax arrays with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = tuple[tuple[Any, ...], dict[str, Any]]


class Draw:
    """Random arguments."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def int(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def x(self, *shape: int, low: float | None = None, high: float = 1.0) -> np.ndarray:
        if low is None:
            return self.rng.standard_normal(shape).astype(np.float32)
        return self.rng.uniform(low, high, shape).astype(np.float32)

    def ids(self, count: int, *shape: int) -> np.ndarray:
        return self.rng.integers(count, size=shape).astype(np.int64)

    def signs(self, *shape: int) -> np.ndarray:
        return (self.rng.integers(2, size=shape) * 2 - 1).astype(np.float32)

    def mask(self, *shape: int) -> np.ndarray:
        return self.rng.random(shape) < 0.7

    def any(self) -> np.ndarray:
        return self.x(*(self.int(1, 5) for _ in range(self.int(1, 4))))

    def sizes(self, n: int, low: int = 6, high: int = 10) -> tuple[int, ...]:
        return tuple(self.int(low, high) for _ in range(n))

    def one_of(self, *values: Any) -> Any:
        return values[self.int(0, len(values) - 1)]


CASES: dict[str, Callable[[Draw], Case]] = {}


def case(*names: str) -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        for name in names:
            CASES[name] = (
                (lambda d, name=name: make(d, name)) if make.__code__.co_argcount == 2 else make
            )
        return make

    return add


@case(
    *"celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6"
    " selu sigmoid silu softplus softshrink softsign tanh tanhshrink rrelu".split()
)
def _plain(d: Draw) -> Case:
    return (d.any() * 3,), {}


CASES["gelu:tanh"] = lambda d: ((d.any(),), {"approximate": "tanh"})
CASES["celu:alpha"] = lambda d: ((d.any(),), {"alpha": 0.7})
CASES["elu:alpha"] = lambda d: ((d.any(),), {"alpha": 1.3})
CASES["hardtanh:bounds"] = lambda d: ((d.any(),), {"min_val": -0.3, "max_val": 0.4})
CASES["leaky_relu:slope"] = lambda d: ((d.any(),), {"negative_slope": 0.3})
CASES["softplus:beta"] = lambda d: ((d.any() * 20,), {"beta": 2, "threshold": 5})
CASES["threshold"] = lambda d: ((d.any(), 0.1, 2.0), {})
CASES["glu"] = lambda d: ((d.x(3, 2 * d.int(1, 4), 2), 1), {})
CASES["prelu"] = lambda d: ((d.x(2, 3, d.int(1, 4)), d.x(d.one_of(1, 3))), {})


@case("softmax", "softmin", "log_softmax")
def _along(d: Draw) -> Case:
    x = d.x(2, d.int(1, 5), 3)
    return (x, d.int(-3, 2)), {}


@case("linear")
def _linear(d: Draw) -> Case:
    i, o = d.int(1, 6), d.int(1, 6)
    lead = d.sizes(d.int(0, 3), 1, 4)
    return (d.x(*lead, i), d.x(o, i), d.one_of(None, d.x(o))), {}


@case("bilinear")
def _bilinear(d: Draw) -> Case:
    a, b, o = d.sizes(3, 1, 5)
    return (d.x(4, a), d.x(4, b), d.x(o, a, b), d.x(o)), {}


CASES["embedding"] = lambda d: (
    (d.ids(7, 2, d.int(1, 4)), d.x(7, 3)),
    {"padding_idx": d.one_of(None, 2)},
)
CASES["embedding_bag"] = lambda d: (
    (d.ids(7, 3, d.int(1, 4)), d.x(7, 3)),
    {"mode": d.one_of("sum", "mean", "max"), "padding_idx": d.one_of(None, 2)},
)
CASES["embedding_bag:offsets"] = lambda d: (
    (d.ids(7, 6), d.x(7, 3), np.array([0, 2, 2, 5])),
    {"mode": "sum", "per_sample_weights": d.x(6)},
)
CASES["one_hot"] = lambda d: ((d.ids(5, 2, 3), 5), {})
CASES["normalize"] = lambda d: (
    (d.x(3, d.int(2, 5)),),
    {"p": d.one_of(1.0, 2.0, 3.0), "dim": d.int(0, 1)},
)
CASES["cosine_similarity"] = lambda d: ((d.x(3, 4), d.x(3, 4)), {"dim": d.int(0, 1)})
CASES["pairwise_distance"] = lambda d: (
    (d.x(3, 4), d.x(3, 4)),
    {"p": d.one_of(1.0, 2.0), "keepdim": d.one_of(True, False)},
)


@case("conv1d", "conv2d", "conv3d")
def _conv(d: Draw, name: str) -> Case:
    n, groups = int(name[4]), d.one_of(1, 2)
    i, o = groups * d.int(1, 2), groups * d.int(1, 2)
    kernel = d.sizes(n, 1, 3)
    same = d.one_of(True, False, False)
    more: dict[str, Any] = {"dilation": d.int(1, 2), "groups": groups}
    more |= {"padding": "same"} if same else {"padding": d.int(0, 2), "stride": d.sizes(n, 1, 2)}
    lead = d.one_of((), (2,))
    return (d.x(*lead, i, *d.sizes(n)), d.x(o, i // groups, *kernel), d.one_of(None, d.x(o))), more


@case("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(d: Draw, name: str) -> Case:
    n, groups = int(name[14]), d.one_of(1, 2)
    i, o = groups * d.int(1, 2), groups * d.int(1, 2)
    more = {
        "stride": 2,
        "output_padding": d.int(0, 1),
        "padding": d.int(0, 1),
        "dilation": d.int(1, 2),
        "groups": groups,
    }
    return (d.x(2, i, *d.sizes(n, 3, 5)), d.x(i, o // groups, *d.sizes(n, 2, 3)), d.x(o)), more


@case("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(d: Draw, name: str) -> Case:
    n = int(name[8])
    more = {
        "stride": d.one_of(None, 2),
        "padding": d.int(0, 1),
        "ceil_mode": d.one_of(True, False),
        "dilation": d.int(1, 2),
    }
    return (d.x(*d.one_of((), (2,)), 2, *d.sizes(n)), d.int(2, 3)), more


@case("max_pool1d_with_indices", "max_pool2d_with_indices")
def _max_pool_with_indices(d: Draw, name: str) -> Case:
    return _max_pool(d, name)


@case("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(d: Draw, name: str) -> Case:
    n = int(name[8])
    more = {
        "stride": d.one_of(None, 2),
        "padding": d.int(0, 1),
        "ceil_mode": d.one_of(True, False),
        "count_include_pad": d.one_of(True, False),
    }
    return (d.x(2, 2, *d.sizes(n)), d.int(2, 3)), more


CASES["avg_pool2d:divisor"] = lambda d: ((d.x(2, 2, 6, 6), 2), {"divisor_override": 3})


@case(*(f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3)))
def _adaptive(d: Draw, name: str) -> Case:
    n = int(name[-2])
    return (d.x(2, 2, *d.sizes(n)), d.sizes(n, 1, 7)), {}


CASES["adaptive_max_pool2d:indices"] = lambda d: (
    (d.x(2, 2, 7, 5), (3, 2)),
    {"return_indices": True},
)


def _statistics(d: Draw, c: int) -> tuple[Any, ...]:
    return d.x(c), d.x(c, low=0.5, high=2), d.x(c), d.x(c)


CASES["batch_norm"] = lambda d: ((d.x(4, 3, *d.sizes(d.int(0, 2), 2, 4)), *_statistics(d, 3)), {})
CASES["batch_norm:training"] = lambda d: ((d.x(4, 3, 5), None, None, d.x(3), d.x(3), True), {})
CASES["instance_norm"] = lambda d: (
    (d.x(2, 3, *d.sizes(d.int(1, 2), 2, 4)), None, None, d.x(3), d.x(3)),
    {},
)
CASES["group_norm"] = lambda d: ((d.x(2, 6, d.int(2, 4)), d.one_of(1, 2, 3), d.x(6), d.x(6)), {})
CASES["layer_norm"] = lambda d: ((d.x(2, 3, 4), (3, 4), d.x(3, 4), d.one_of(None, d.x(3, 4))), {})
CASES["rms_norm"] = lambda d: ((d.x(2, 3, 4), (4,), d.x(4)), {"eps": d.one_of(None, 1e-3)})
CASES["local_response_norm"] = lambda d: ((d.x(2, 6, 3), d.int(2, 4)), {})


@case("scaled_dot_product_attention")
def _attention(d: Draw) -> Case:
    q, s, e = d.sizes(3, 1, 5)
    kind = d.int(0, 3)
    mask = (None, d.mask(q, s), d.x(q, s), None)[kind]
    return (d.x(2, 3, q, e), d.x(2, 3, s, e), d.x(2, 3, s, 4), mask), {"is_causal": kind == 3}


CASES["scaled_dot_product_attention:gqa"] = lambda d: (
    (d.x(2, 4, 3, 5), d.x(2, 2, 3, 5), d.x(2, 2, 3, 5)),
    {"enable_gqa": True, "scale": 0.3},
)


@case("multi_head_attention_forward")
def _heads(d: Draw) -> Case:
    e, h, s = 6, d.one_of(1, 2, 3), d.int(2, 4)
    x = d.x(3, 2, e)
    kv = d.x(s, 2, e)
    padding = np.zeros((2, s), bool)
    padding[0, -1] = True
    more = {
        "need_weights": d.one_of(True, False),
        "average_attn_weights": d.one_of(True, False),
        "key_padding_mask": d.one_of(None, padding),
        "attn_mask": d.one_of(None, d.x(3, s)),
    }
    biases = d.one_of((None, None), (d.x(1, 1, e), d.x(1, 1, e)))
    weights = d.x(3 * e, e), d.x(3 * e)
    return (
        x,
        kv,
        kv + 1,
        e,
        h,
        *weights,
        *biases,
        d.one_of(True, False),
        0.0,
        d.x(e, e),
        d.x(e),
    ), more


def _reduction(d: Draw) -> dict[str, Any]:
    return {"reduction": d.one_of("none", "mean", "sum")}


@case("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div")
def _pairs(d: Draw, name: str) -> Case:
    x = d.any()
    y = d.x(*x.shape, low=0.1) if name == "kl_div" else d.x(*x.shape)
    return (x, y), _reduction(d)


CASES["kl_div:log"] = lambda d: (
    (d.x(3, 4), d.x(3, 4)),
    {"log_target": True, "reduction": "batchmean"},
)
CASES["smooth_l1_loss:beta"] = lambda d: ((d.x(3, 4), d.x(3, 4)), {"beta": 0.3})
CASES["huber_loss:delta"] = lambda d: ((d.x(3, 4), d.x(3, 4)), {"delta": 0.3})
CASES["binary_cross_entropy"] = lambda d: (
    (d.x(3, 4, low=0.05, high=0.95), d.x(3, 4, low=0), d.one_of(None, d.x(4, low=0))),
    _reduction(d),
)
CASES["binary_cross_entropy_with_logits"] = lambda d: (
    (d.x(3, 4) * 5, d.x(3, 4, low=0)),
    {"pos_weight": d.one_of(None, d.x(4, low=0.5)), **_reduction(d)},
)


@case("cross_entropy", "nll_loss")
def _classes(d: Draw, name: str) -> Case:
    more = {**_reduction(d), "weight": d.one_of(None, d.x(5, low=0.1)), "ignore_index": 1}
    if name == "cross_entropy":
        more["label_smoothing"] = d.one_of(0.0, 0.2)
    rest = d.sizes(d.int(0, 2), 1, 3)
    return (d.x(4, 5, *rest), d.ids(5, 4, *rest)), more


CASES["cross_entropy:probabilities"] = lambda d: (
    (d.x(4, 5), d.x(4, 5, low=0)),
    {
        "weight": d.one_of(None, d.x(5, low=0.1)),
        "label_smoothing": d.one_of(0.0, 0.2),
        **_reduction(d),
    },
)
CASES["gaussian_nll_loss"] = lambda d: (
    (d.x(3, 4), d.x(3, 4), d.x(3, 4, low=0.1)),
    {"full": True, **_reduction(d)},
)
CASES["poisson_nll_loss"] = lambda d: (
    (d.x(3, 4), d.x(3, 4, low=0.5, high=4)),
    {"full": True, **_reduction(d)},
)
CASES["margin_ranking_loss"] = lambda d: (
    (d.x(5), d.x(5), d.signs(5)),
    {"margin": 0.3, **_reduction(d)},
)
CASES["hinge_embedding_loss"] = lambda d: ((d.x(5), d.signs(5)), _reduction(d))
CASES["soft_margin_loss"] = lambda d: ((d.x(5, 2), d.signs(5, 2)), _reduction(d))
CASES["multi_margin_loss"] = lambda d: (
    (d.x(5, 4), d.ids(4, 5)),
    {"p": d.one_of(1, 2), "weight": d.one_of(None, d.x(4, low=0.1)), **_reduction(d)},
)
CASES["cosine_embedding_loss"] = lambda d: (
    (d.x(5, 4), d.x(5, 4), d.signs(5)),
    {"margin": 0.1, **_reduction(d)},
)
CASES["triplet_margin_loss"] = lambda d: (
    (d.x(5, 4), d.x(5, 4), d.x(5, 4)),
    {"swap": d.one_of(True, False), **_reduction(d)},
)


@case("pad")
def _pad(d: Draw) -> Case:
    mode = d.one_of("constant", "reflect", "replicate", "circular")
    low = -1 if mode == "constant" else 0
    widths = [d.int(low, 2) for _ in range(4)]
    return (d.x(2, 2, *d.sizes(2, 4, 6)), widths, mode), {
        "value": 0.5
    } if mode == "constant" else {}


@case("interpolate")
def _interpolate(d: Draw) -> Case:
    mode = d.one_of("nearest", "nearest-exact", "bilinear", "bicubic", "area")
    more: dict[str, Any] = {"mode": mode}
    more |= d.one_of({"size": d.sizes(2, 2, 9)}, {"scale_factor": (1.7, 0.8)})
    if mode.startswith("bi"):
        more["align_corners"] = d.one_of(True, False)
    return (d.x(2, 2, *d.sizes(2, 4, 6)),), more


CASES["interpolate:linear"] = lambda d: ((d.x(2, 2, 5),), {"size": d.int(2, 9), "mode": "linear"})
CASES["interpolate:trilinear"] = lambda d: (
    (d.x(2, 2, 4, 3, 5),),
    {"scale_factor": 2.0, "mode": "trilinear"},
)
CASES["affine_grid"] = lambda d: ((d.x(2, 2, 3), [2, 3, 4, d.int(1, 5)], d.one_of(True, False)), {})
CASES["unfold"] = lambda d: (
    (d.x(2, 3, 7, 6), d.sizes(2, 1, 3)),
    {"padding": d.int(0, 1), "stride": d.int(1, 2), "dilation": d.int(1, 2)},
)
CASES["fold"] = lambda d: ((d.x(2, 12, 12), (4, 5), 2), {})
CASES["pixel_shuffle"] = lambda d: ((d.x(2, 8, 3, 2), 2), {})
CASES["pixel_unshuffle"] = lambda d: ((d.x(2, 2, 4, 6), 2), {})
CASES["channel_shuffle"] = lambda d: ((d.x(2, 6, 3, 2), d.one_of(2, 3)), {})


@case("grid_sample")
def _grid_sample(d: Draw) -> Case:
    n = d.one_of(2, 2, 3)
    modes = ("bilinear", "nearest", "bicubic")[: 5 - n]
    grid = d.x(2, *d.sizes(n, 1, 4), n, low=-1.6, high=1.6)
    return (d.x(2, 3, *d.sizes(n, 1, 5)), grid), {
        "mode": d.one_of(*modes),
        "padding_mode": d.one_of("zeros", "border", "reflection"),
        "align_corners": d.one_of(True, False),
    }


for _mode in ("bilinear", "nearest", "bicubic"):
    for _padding in ("zeros", "border", "reflection"):
        CASES[f"grid_sample:{_mode}_{_padding}"] = lambda d, mode=_mode, padding=_padding: (
            (d.x(2, 2, 4, 5), d.x(2, 3, 4, 2, low=-2.5, high=2.5)),
            {"mode": mode, "padding_mode": padding, "align_corners": d.one_of(True, False)},
        )
CASES["affine_grid:volume"] = lambda d: ((d.x(2, 3, 4), [2, 1, 3, 1, 4], False), {})


@case("max_unpool1d", "max_unpool2d", "max_unpool3d")
def _max_unpool(d: Draw, name: str) -> Case:
    n = int(name[10])
    sizes = d.sizes(n, 2, 4)
    # Different places in each plane: the last of several at one place is not defined.
    count, total = int(np.prod(sizes)), int(np.prod([2 * s for s in sizes]))
    planes = [d.rng.permutation(total)[:count] for _ in range(2 * 3)]
    indices = np.stack(planes).reshape(2, 3, *sizes).astype(np.int64)
    wanted = d.one_of(None, tuple(2 * s + d.int(0, 1) for s in sizes))
    return (d.x(2, 3, *sizes), indices, 2), {"output_size": wanted}


CASES["triplet_margin_with_distance_loss"] = lambda d: (
    (d.x(5, 4), d.x(5, 4), d.x(5, 4)),
    {"swap": d.one_of(True, False), "margin": 0.7, **_reduction(d)},
)


@case("embedding:max_norm", "embedding_bag:max_norm")
def _max_norm(d: Draw, name: str) -> Case:
    more: dict[str, Any] = {"max_norm": 1.5, "norm_type": d.one_of(1.0, 2.0)}
    if "bag" not in name:  # torch takes other rows' numbers there
        more["scale_grad_by_freq"] = True
    return (d.ids(6, 3, 4), d.x(6, 3)), more


@case("interpolate:antialias")
def _antialias(d: Draw) -> Case:
    more: dict[str, Any] = {"mode": d.one_of("bilinear", "bicubic"), "antialias": True}
    more |= d.one_of({"size": d.sizes(2, 1, 9)}, {"scale_factor": (1.7, 0.4)})
    return (d.x(2, 2, *d.sizes(2, 4, 9)),), more | {"align_corners": d.one_of(True, False)}
