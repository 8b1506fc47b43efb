# SPDX-License-Identifier: BSD-3-Clause
"""The operations that ``bench.bench_operations`` measures: what they get, how they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Random = np.random.Generator


@dataclass(frozen=True)
class Case:
    """One operation.

    Attributes:
        make: ``make(random, n, dtype)`` gives the arrays; n * n is the size of the input.
        run: ``run(library, functional)`` gives the function of tensors that is timed.
        backward: Is there a gradient to measure?
        largest: The largest n; a larger one takes too long or too much memory.
    """

    name: str
    inputs: Callable[[Random, int, Any], list[np.ndarray]]
    run: Callable[[Any, Any], Callable[..., Any]]
    backward: bool = True
    largest: int = 1000


def _normal(random: Random, shape: Any, dtype: Any) -> np.ndarray:
    return random.standard_normal(shape).astype(dtype)


def square(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [_normal(random, (n, n), dtype)]


def positive(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [(random.random((n, n)) * 0.9 + 0.05).astype(dtype)]


def two(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [_normal(random, (n, n), dtype), _normal(random, (n, n), dtype)]


def near_one(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [(1 + 0.01 * random.standard_normal((n, n))).astype(dtype)]


def with_index(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [_normal(random, (n, n), dtype), random.integers(0, n, (n, n))]


def with_index_and_source(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [*with_index(random, n, dtype), _normal(random, (n, n), dtype)]


def with_vector_index(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [_normal(random, (n, n), dtype), random.integers(0, n, n)]


def with_vector_index_and_source(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [*with_vector_index(random, n, dtype), _normal(random, (n, n), dtype)]


def with_mask(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [_normal(random, (n, n), dtype), random.random((n, n)) < 0.5]


def two_with_mask(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [*two(random, n, dtype), random.random((n, n)) < 0.5]


def images(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    """(N, C, H, W) with n * n elements, about."""
    channels = {8: 1, 100: 4}.get(n, 16)
    side = max(4, int((n * n / (2 * channels)) ** 0.5))
    return [_normal(random, (2, channels, side, side), dtype)]


def signals(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    channels = {8: 2, 100: 8}.get(n, 32)
    return [_normal(random, (2, channels, max(8, n * n // (2 * channels))), dtype)]


def volumes(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    channels = {8: 1, 100: 4}.get(n, 16)
    side = max(4, round((n * n / (2 * channels)) ** (1 / 3)))
    return [_normal(random, (2, channels, side, side, side), dtype)]


def images_and_grid(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    (x,) = images(random, n, dtype)
    return [x, (random.random((x.shape[0], *x.shape[2:], 2)) * 2.2 - 1.1).astype(dtype)]


def volumes_and_grid(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    (x,) = volumes(random, n, dtype)
    return [x, (random.random((x.shape[0], *x.shape[2:], 3)) * 2.2 - 1.1).astype(dtype)]


def points(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    """Two sets of points whose distances are n * n numbers."""
    return [_normal(random, (n, 16), dtype), _normal(random, (n, 16), dtype)]


def sequences(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    steps, batch, classes = {8: (8, 2, 4), 100: (50, 10, 20)}.get(n, (150, 32, 200))
    labels = random.integers(1, classes, (batch, steps // 4))
    return [_normal(random, (steps, batch, classes), dtype), labels]


def tokens(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [random.integers(0, n, n), _normal(random, (n, n), dtype)]


def classes_of(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [random.integers(0, n, n)]


def logits(random: Random, n: int, dtype: Any) -> list[np.ndarray]:
    return [_normal(random, (n, n), dtype), random.integers(0, n, n)]


CASES: list[Case] = []


def case(name: str, inputs: Any, run: Any, **options: Any) -> None:
    CASES.append(Case(name, inputs, run, **options))


def _of_tensor(name: str) -> Any:
    return lambda lib, F: getattr(lib, name)


def _functional(name: str) -> Any:
    return lambda lib, F: getattr(F, name)


# -- element by element ----------------------------------------------------------------------------

for _name in (
    *("exp", "expm1", "sin", "cos", "tan", "atan", "sinh", "tanh", "sigmoid", "erf"),
    *("abs", "neg", "square", "sign", "floor", "round", "relu"),
):
    case(_name, square, _of_tensor(_name))
for _name in ("log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal", "asin", "acos", "atanh"):
    case(_name, positive, _of_tensor(_name))
for _name in ("erfinv", "lgamma", "digamma", "logit"):
    case(_name, positive, _of_tensor(_name))
for _name in (
    *("gelu", "silu", "mish", "softplus", "logsigmoid", "softsign", "hardtanh", "leaky_relu"),
    *("elu", "selu", "celu", "hardswish", "hardsigmoid", "hardshrink", "softshrink", "relu6"),
    *("tanhshrink",),
):
    case(_name, square, _functional(_name))
case("threshold", square, lambda lib, F: lambda x: F.threshold(x, 0.1, 2.0))
case("gelu_tanh", square, lambda lib, F: lambda x: F.gelu(x, approximate="tanh"))
case("glu", square, lambda lib, F: lambda x: F.glu(x, 1))
for _name in ("add", "mul", "div", "maximum", "atan2", "fmod", "remainder", "logaddexp"):
    case(_name, two, _of_tensor(_name))
case("pow_number", positive, lambda lib, F: lambda x: lib.pow(x, 2.5))
case("pow_square", square, lambda lib, F: lambda x: x**2)
case("pow_cube", square, lambda lib, F: lambda x: x**3)
case("lerp", two, lambda lib, F: lambda x, y: lib.lerp(x, y, 0.3))
case("addcmul", two, lambda lib, F: lambda x, y: lib.addcmul(x, x, y))
case("clamp", square, lambda lib, F: lambda x: lib.clamp(x, -0.5, 0.5))
case("clamp_min", square, lambda lib, F: lambda x: lib.clamp(x, min=0.1))
case("where", two_with_mask, lambda lib, F: lambda x, y, m: lib.where(m, x, y))
case("masked_fill", with_mask, lambda lib, F: lambda x, m: x.masked_fill(m, -1.0))
case("masked_select", with_mask, lambda lib, F: lambda x, m: x.masked_select(m))
case("nan_to_num", square, lambda lib, F: lambda x: lib.nan_to_num(x))
case("isnan", square, lambda lib, F: lambda x: lib.isnan(x), backward=False)
case("greater", two, lambda lib, F: lambda x, y: x > y, backward=False)
case("tril", square, lambda lib, F: lambda x: lib.tril(x))
case(
    "to_double",
    square,
    lambda lib, F: lambda x: x.to(lib.float64 if x.dtype == lib.float32 else lib.float32),
)
case("contiguous", square, lambda lib, F: lambda x: x.t().contiguous())

# -- reductions and scans --------------------------------------------------------------------------

for _name in ("sum", "mean", "var", "std", "amax", "prod", "logsumexp"):
    for _dim in (-1, 0):
        case(
            f"{_name}_dim{_dim}",
            near_one if _name == "prod" else square,
            lambda lib, F, name=_name, dim=_dim: lambda x: getattr(lib, name)(x, dim),
        )
for _name in ("sum", "mean", "var", "max", "norm"):
    case(f"{_name}_all", square, _of_tensor(_name))
for _dim in (-1, 0):
    for _name in ("cumsum", "cumprod", "logcumsumexp", "softmax", "log_softmax"):
        case(
            f"{_name}_dim{_dim}",
            near_one if _name == "cumprod" else square,
            lambda lib, F, name=_name, dim=_dim: lambda x: getattr(lib, name)(x, dim),
        )
    for _name in ("max", "min", "sort"):
        case(
            f"{_name}_dim{_dim}",
            square,
            lambda lib, F, name=_name, dim=_dim: lambda x: getattr(lib, name)(x, dim),
        )
    for _name in ("argsort", "argmax", "any", "all"):
        case(
            f"{_name}_dim{_dim}",
            square,
            lambda lib, F, name=_name, dim=_dim: lambda x: getattr(lib, name)(x, dim),
            backward=False,
        )
    case(f"topk_dim{_dim}", square, lambda lib, F, d=_dim: lambda x: lib.topk(x, 5, d))
    case(
        f"topk_smallest_dim{_dim}",
        square,
        lambda lib, F, d=_dim: lambda x: lib.topk(x, max(1, x.shape[0] // 4), d, largest=False),
    )
    case(f"norm_dim{_dim}", square, lambda lib, F, d=_dim: lambda x: lib.norm(x, dim=d))
    case(f"norm1_dim{_dim}", square, lambda lib, F, d=_dim: lambda x: lib.norm(x, 1, d))
    case(f"normalize_dim{_dim}", square, lambda lib, F, d=_dim: lambda x: F.normalize(x, dim=d))
    case(f"gather_dim{_dim}", with_index, lambda lib, F, d=_dim: lambda x, i: lib.gather(x, d, i))
    case(
        f"take_along_dim{_dim}",
        with_index,
        lambda lib, F, d=_dim: lambda x, i: lib.take_along_dim(x, i, d),
    )
    for _name in ("scatter", "scatter_add"):
        case(
            f"{_name}_dim{_dim}",
            with_index_and_source,
            lambda lib, F, n=_name, d=_dim: lambda x, i, s: getattr(lib, n)(x, d, i, s),
        )
    case(
        f"scatter_reduce_dim{_dim}",
        with_index_and_source,
        lambda lib, F, d=_dim: lambda x, i, s: lib.scatter_reduce(x, d, i, s, "amax"),
    )
    case(
        f"index_select_dim{_dim}",
        with_vector_index,
        lambda lib, F, d=_dim: lambda x, i: lib.index_select(x, d, i),
    )
    case(
        f"index_add_dim{_dim}",
        with_vector_index_and_source,
        lambda lib, F, d=_dim: lambda x, i, s: lib.index_add(x, d, i, s),
    )
case("getitem_index", with_vector_index, lambda lib, F: lambda x, i: x[i])
case("getitem_mask", with_mask, lambda lib, F: lambda x, m: x[m])
case("one_hot", classes_of, lambda lib, F: lambda i: F.one_hot(i, i.shape[0]), backward=False)
case("embedding", tokens, lambda lib, F: lambda i, w: F.embedding(i, w))

# -- shapes ----------------------------------------------------------------------------------------

case("cat", two, lambda lib, F: lambda x, y: lib.cat([x, y], 1))
case("stack", two, lambda lib, F: lambda x, y: lib.stack([x, y], 0))
case("flip", square, lambda lib, F: lambda x: lib.flip(x, (0,)))
case("roll", square, lambda lib, F: lambda x: lib.roll(x, 3, 1))
case("repeat", square, lambda lib, F: lambda x: x.repeat(2, 1))
case("repeat_interleave", square, lambda lib, F: lambda x: x.repeat_interleave(2, 1))
for _mode in ("constant", "reflect", "replicate", "circular"):
    case(f"pad_{_mode}", images, lambda lib, F, m=_mode: lambda x: F.pad(x, (1, 2, 2, 1), mode=m))

# -- matrices --------------------------------------------------------------------------------------

case("matmul", two, lambda lib, F: lambda x, y: x @ y)
case("linear", two, lambda lib, F: lambda x, y: F.linear(x, y))
case("einsum", two, lambda lib, F: lambda x, y: lib.einsum("ij,kj->ik", x, y))
case("einsum_trace", two, lambda lib, F: lambda x, y: lib.einsum("ij,ij->i", x, y))
case("outer", square, lambda lib, F: lambda x: lib.outer(x[0], x[1]))
case("cdist", points, lambda lib, F: lambda x, y: lib.cdist(x, y))
case("cdist1", points, lambda lib, F: lambda x, y: lib.cdist(x, y, p=1.0))
case("cosine_similarity", two, lambda lib, F: lambda x, y: F.cosine_similarity(x, y))
case("pairwise_distance", two, lambda lib, F: lambda x, y: F.pairwise_distance(x, y))

# -- layers ----------------------------------------------------------------------------------------


def _conv1d(lib: Any, F: Any) -> Any:
    weights: dict[Any, Any] = {}

    def run(x: Any) -> Any:
        c = x.shape[1]
        if (c, x.dtype) not in weights:
            weights[c, x.dtype] = lib.ones((c, c, 3), dtype=x.dtype)
        return F.conv1d(x, weights[c, x.dtype], padding=1)

    return run


def _batch_norm(training: bool) -> Any:
    def build(lib: Any, F: Any) -> Any:
        def run(x: Any) -> Any:
            c = x.shape[1]
            mean, var = lib.zeros(c, dtype=x.dtype), lib.ones(c, dtype=x.dtype)
            return F.batch_norm(x, mean, var, training=training)

        return run

    return build


case("conv1d", signals, _conv1d)
case("batch_norm_train", images, _batch_norm(True))
case("batch_norm_eval", images, _batch_norm(False))
case("instance_norm", images, lambda lib, F: lambda x: F.instance_norm(x))
case("group_norm", images, lambda lib, F: lambda x: F.group_norm(x, x.shape[1] // 2 or 1))
case("layer_norm", square, lambda lib, F: lambda x: F.layer_norm(x, x.shape[-1:]))
case("rms_norm", square, lambda lib, F: lambda x: F.rms_norm(x, x.shape[-1:]))
case("local_response_norm", images, lambda lib, F: lambda x: F.local_response_norm(x, 2))
case("softmax_channels", images, lambda lib, F: lambda x: F.softmax(x, 1))
case("log_softmax_channels", images, lambda lib, F: lambda x: F.log_softmax(x, 1))
case("max_pool1d", signals, lambda lib, F: lambda x: F.max_pool1d(x, 2))
case("max_pool2d", images, lambda lib, F: lambda x: F.max_pool2d(x, 2))
case("max_pool3d", volumes, lambda lib, F: lambda x: F.max_pool3d(x, 2))
case("avg_pool2d", images, lambda lib, F: lambda x: F.avg_pool2d(x, 2))
case("avg_pool3d", volumes, lambda lib, F: lambda x: F.avg_pool3d(x, 2))
case("adaptive_avg_pool2d", images, lambda lib, F: lambda x: F.adaptive_avg_pool2d(x, 3))
case("adaptive_max_pool2d", images, lambda lib, F: lambda x: F.adaptive_max_pool2d(x, 3))
for _mode in ("nearest", "bilinear", "bicubic"):
    case(
        f"interpolate_{_mode}",
        images,
        lambda lib, F, m=_mode: lambda x: F.interpolate(x, scale_factor=2, mode=m),
    )
case(
    "interpolate_down",
    images,
    lambda lib, F: lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"),
)
case(
    "interpolate_trilinear",
    volumes,
    lambda lib, F: lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"),
)
case(
    "pixel_shuffle",
    square,
    lambda lib, F: lambda x: F.pixel_shuffle(x.reshape(1, 4, -1, x.shape[1] // 2), 2),
)
case("unfold", images, lambda lib, F: lambda x: F.unfold(x, 3))
for _mode in ("bilinear", "nearest", "bicubic"):
    case(
        f"grid_sample_{_mode}",
        images_and_grid,
        lambda lib, F, m=_mode: lambda x, g: F.grid_sample(x, g, mode=m, align_corners=False),
    )
case(
    "grid_sample_border",
    images_and_grid,
    lambda lib, F: lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True),
)
case(
    "grid_sample_volumes",
    volumes_and_grid,
    lambda lib, F: lambda x, g: F.grid_sample(x, g, align_corners=False),
)

# -- losses ----------------------------------------------------------------------------------------


def _ctc(lib: Any, F: Any) -> Any:
    def run(x: Any, labels: Any) -> Any:
        steps, batch, _ = x.shape
        used, lengths = [steps] * batch, [labels.shape[1]] * batch
        return F.ctc_loss(F.log_softmax(x, -1), labels, tuple(used), tuple(lengths))

    return run


case("ctc_loss", sequences, _ctc)
case("cross_entropy", logits, lambda lib, F: lambda x, y: F.cross_entropy(x, y))
case("nll_loss", logits, lambda lib, F: lambda x, y: F.nll_loss(x, y))
for _name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"):
    case(_name, two, lambda lib, F, n=_name: lambda x, y: getattr(F, n)(x, y.detach()))
case(
    "bce_with_logits",
    two,
    lambda lib, F: lambda x, y: F.binary_cross_entropy_with_logits(x, y.detach()),
)
case("bce", positive, lambda lib, F: lambda x: F.binary_cross_entropy(x, x.detach()))
case("kl_div", two, lambda lib, F: lambda x, y: F.kl_div(x, y.detach(), reduction="sum"))
case("gaussian_nll", positive, lambda lib, F: lambda x: F.gaussian_nll_loss(x, x.detach(), x))
case("dropout", square, lambda lib, F: lambda x: F.dropout(x, 0.5, True))
case(
    "sdpa",
    two,
    lambda lib, F: lambda x, y: F.scaled_dot_product_attention(x[None], y[None], y[None]),
)
