# SPDX-License-Identifier: BSD-3-Clause
"""vmap of every operation equals a loop over the samples, whichever arguments have the batch; so do
its gradients. Where torch has the same vmap, both agree.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from helpers.needs import needs

import modtree
from modtree import func

BATCH = 3


def F(lib: Any) -> Any:  # noqa: N802
    return importlib.import_module(f"{lib.__name__}.nn.functional")


def sdpa(lib: Any, q: Any, k: Any, v: Any) -> Any:
    return F(lib).scaled_dot_product_attention(q, k, v)


I = np.int64  # noqa: E741
B = np.bool_
#: name -> (function of the library and tensors, shapes (or (shape, dtype, bound)) of the tensors)
CASES: dict[str, tuple[Any, list[Any]]] = {
    "exp": (lambda m, a: a.exp(), [(2, 3)]),
    "of_a_number": (lambda m, a: m.sin(a) * 2 + 1, [()]),
    "add": (lambda m, a, b: a + b, [(2, 3), (3,)]),
    "sub_numbers": (lambda m, a, b: 2 - a * b, [(), (2, 3)]),
    "pow": (lambda m, a, b: (a.abs() + 0.1) ** b, [(2, 3), (2, 1)]),
    "where": (lambda m, a, b: m.where(a > 0, a, b), [(2, 3), (3,)]),
    "clamp": (lambda m, a, b: m.clamp(a, max=b), [(2, 3), (3,)]),
    "lerp": (lambda m, a, b, c: m.lerp(a, b, c), [(2, 3), (2, 3), (3,)]),
    "addcmul": (lambda m, a, b, c: m.addcmul(a, b, c, value=0.5), [(2, 3), (3,), (2, 1)]),
    "maximum": (lambda m, a, b: m.maximum(a, b), [(2, 3), (3,)]),
    "comparison": (lambda m, a, b: (a < b).to(a.dtype) * a, [(2, 3), (3,)]),
    "masked_fill": (lambda m, a, b: a.masked_fill(b, 2.0), [(2, 3), ((3,), B, 2)]),
    "sum": (lambda m, a: a.sum(), [(2, 3)]),
    "sum_dim": (lambda m, a: a.sum(-1, keepdim=True), [(2, 3)]),
    "sum_dims": (lambda m, a: a.sum((0, 2)), [(2, 3, 4)]),
    "mean": (lambda m, a: a.mean(0), [(2, 3)]),
    "mean_of_a_number": (lambda m, a: a.mean(), [()]),
    "var": (lambda m, a: a.var(1), [(2, 3)]),
    "std_all": (lambda m, a: a.std(), [(2, 3)]),
    "prod": (lambda m, a: a.prod(0), [(2, 3)]),
    "logsumexp": (lambda m, a: a.logsumexp(0), [(2, 3)]),
    "norm": (lambda m, a: a.norm(), [(2, 3)]),
    "norm_dim": (lambda m, a: a.norm(dim=1), [(2, 3)]),
    "amax": (lambda m, a: a.amax(1), [(2, 3)]),
    "max_all": (lambda m, a: a.max(), [(2, 3)]),
    "max_dim": (lambda m, a: a.max(1).values, [(2, 3)]),
    "min_indices": (lambda m, a: a.min(0).indices, [(2, 3)]),
    "argmax": (lambda m, a: a.argmax(), [(2, 3)]),
    "argmax_dim": (lambda m, a: a.argmax(1), [(2, 3)]),
    "any": (lambda m, a: (a > 0).any(), [(2, 3)]),
    "all": (lambda m, a: (a > 0).all(1), [(2, 3)]),
    "cumsum": (lambda m, a: a.cumsum(1), [(2, 3)]),
    "softmax": (lambda m, a: a.softmax(-1), [(2, 3)]),
    "log_softmax": (lambda m, a: a.log_softmax(0), [(2, 3)]),
    "sort": (lambda m, a: a.sort(1).values, [(2, 3)]),
    "topk": (lambda m, a: a.topk(2).values, [(2, 3)]),
    "median": (lambda m, a: a.median(), [(2, 3)]),
    "view": (lambda m, a: a.view(3, 2), [(2, 3)]),
    "reshape": (lambda m, a: a.t().reshape(-1), [(2, 3)]),
    "flatten": (lambda m, a: a.flatten(1), [(2, 3, 2)]),
    "transpose": (lambda m, a: a.transpose(0, 1), [(2, 3)]),
    "permute": (lambda m, a: a.permute(2, 0, 1), [(2, 3, 4)]),
    "movedim": (lambda m, a: a.movedim(0, -1), [(2, 3, 4)]),
    "squeeze": (lambda m, a: a.squeeze(), [(1, 3, 1)]),
    "squeeze_dim": (lambda m, a: a.squeeze(0), [(1, 3, 1)]),
    "squeeze_nothing": (lambda m, a: a.squeeze(1), [(1, 3, 1)]),
    "unsqueeze": (lambda m, a: a.unsqueeze(-1), [(2, 3)]),
    "expand": (lambda m, a: a.expand(2, 2, 3) * 2, [(1, 3)]),
    "repeat": (lambda m, a: a.repeat(2, 1, 2), [(2, 3)]),
    "flip": (lambda m, a: a.flip(1), [(2, 3)]),
    "roll": (lambda m, a: a.roll(1, 0), [(2, 3)]),
    "roll_all": (lambda m, a: a.roll(1), [(2, 3)]),
    "tril": (lambda m, a: a.tril(), [(3, 3)]),
    "diagonal": (lambda m, a: a.diagonal(), [(3, 3)]),
    "diag": (lambda m, a: a.diag(), [(3,)]),
    "split": (lambda m, a: a.split(2, 1)[1], [(2, 3)]),
    "chunk": (lambda m, a: a.chunk(2, 0)[0], [(2, 3)]),
    "unbind": (lambda m, a: a.unbind(1)[1], [(2, 3)]),
    "unfold": (lambda m, a: a.unfold(0, 2, 1), [(3, 2)]),
    "cat": (lambda m, a, b: m.cat([a, b], -1), [(2, 3), (2, 1)]),
    "stack": (lambda m, a, b: m.stack([a, b], 1), [(2, 3), (2, 3)]),
    "pad": (lambda m, a: F(m).pad(a, (1, 2)), [(2, 3)]),
    "pad_reflect": (lambda m, a: F(m).pad(a, (1, 1), "reflect"), [(2, 3)]),
    "int_index": (lambda m, a: a[1], [(2, 3)]),
    "slices": (lambda m, a: a[:, 1:], [(2, 3)]),
    "none_index": (lambda m, a: a[None, ..., 0], [(2, 3)]),
    "index": (lambda m, a, i: a[i], [(4, 3), ((2,), I, 4)]),
    "index_after": (lambda m, a, i: a[:, i], [(2, 4), ((3,), I, 4)]),
    "index_number": (lambda m, a, i: a[i], [(4, 3), ((), I, 4)]),
    "two_indices": (lambda m, a, i, j: a[i, j], [(4, 3), ((2,), I, 4), ((2,), I, 3)]),
    "indices_apart": (lambda m, a, i, j: a[i, :, j], [(4, 2, 3), ((2,), I, 4), ((2,), I, 3)]),
    "gather": (lambda m, a, i: a.gather(1, i), [(2, 3), ((2, 2), I, 3)]),
    "scatter_add": (
        lambda m, a, i, s: a.scatter_add(0, i, s),
        [(4, 3), ((2, 3), I, 4), (2, 3)],
    ),
    "index_select": (lambda m, a, i: a.index_select(0, i), [(4, 3), ((2,), I, 4)]),
    "index_add": (lambda m, a, i, s: a.index_add(0, i, s), [(4, 3), ((2,), I, 4), (2, 3)]),
    "take_along": (lambda m, a, i: m.take_along_dim(a, i, 0), [(4, 3), ((2, 3), I, 4)]),
    "one_hot": (lambda m, i: F(m).one_hot(i, 4), [((2,), I, 4)]),
    "matmul": (lambda m, a, b: a @ b, [(2, 3), (3, 4)]),
    "matmul_vectors": (lambda m, a, b: a @ b, [(3,), (3,)]),
    "vector_matrix": (lambda m, a, b: a @ b, [(3,), (3, 4)]),
    "matrix_vector": (lambda m, a, b: a @ b, [(2, 3), (3,)]),
    "matmul_batches": (lambda m, a, b: a @ b, [(2, 3, 4), (4, 2)]),
    "vector_batches": (lambda m, a, b: a @ b, [(3,), (2, 3, 4)]),
    "dot": (lambda m, a, b: m.dot(a, b), [(3,), (3,)]),
    "outer": (lambda m, a, b: m.outer(a, b), [(3,), (2,)]),
    "einsum": (lambda m, a, b: m.einsum("ij,kj->ik", a, b), [(2, 3), (4, 3)]),
    "trace": (lambda m, a: a.trace(), [(3, 3)]),
    "det": (lambda m, a: m.linalg.det(a), [(3, 3)]),
    "inverse": (lambda m, a: m.linalg.inv(a + 4 * m.eye(3, dtype=a.dtype)), [(3, 3)]),
    "solve": (
        lambda m, a, b: m.linalg.solve(a + 4 * m.eye(3, dtype=a.dtype), b),
        [(3, 3), (3, 2)],
    ),
    "solve_vector": (
        lambda m, a, b: m.linalg.solve(a + 4 * m.eye(3, dtype=a.dtype), b),
        [(3, 3), (3,)],
    ),
    "linear": (lambda m, x, w, b: F(m).linear(x, w, b), [(2, 3), (4, 3), (4,)]),
    "linear_of_a_vector": (lambda m, x, w: F(m).linear(x, w), [(3,), (4, 3)]),
    "relu": (lambda m, a: F(m).relu(a), [(2, 3)]),
    "gelu": (lambda m, a: F(m).gelu(a), [(2, 3)]),
    "softplus": (lambda m, a: F(m).softplus(a), [(2, 3)]),
    "leaky_relu": (lambda m, a: F(m).leaky_relu(a, 0.2), [(2, 3)]),
    "elu": (lambda m, a: F(m).elu(a), [(2, 3)]),
    "hardswish": (lambda m, a: F(m).hardswish(a * 4), [(2, 3)]),
    "prelu": (lambda m, a, w: F(m).prelu(a, w), [(2, 3), (3,)]),
    "prelu_one": (lambda m, a, w: F(m).prelu(a, w), [(2, 3), (1,)]),
    "layer_norm": (
        lambda m, x, w, b: F(m).layer_norm(x, (3,), w, b),
        [(2, 3), (3,), (3,)],
    ),
    "rms_norm": (lambda m, x, w: F(m).rms_norm(x, (3,), w), [(2, 3), (3,)]),
    "group_norm": (
        lambda m, x, w, b: F(m).group_norm(x, 2, w, b),
        [(2, 4, 3), (4,), (4,)],
    ),
    "batch_norm": (
        lambda m, x, w, b: F(m).batch_norm(x, None, None, w, b, training=True),
        [(4, 2), (2,), (2,)],
    ),
    "instance_norm": (lambda m, x: F(m).instance_norm(x), [(2, 2, 4)]),
    "conv1d": (lambda m, x, w, b: F(m).conv1d(x, w, b), [(2, 2, 6), (3, 2, 3), (3,)]),
    "conv2d": (
        lambda m, x, w, b: F(m).conv2d(x, w, b, stride=2, padding=1),
        [(2, 2, 5, 5), (4, 2, 3, 3), (4,)],
    ),
    "conv2d_groups": (
        lambda m, x, w: F(m).conv2d(x, w, groups=2),
        [(2, 4, 4, 4), (4, 2, 3, 3)],
    ),
    "conv2d_of_one_image": (lambda m, x, w: F(m).conv2d(x, w), [(2, 4, 4), (3, 2, 2, 2)]),
    "conv_transpose": (
        lambda m, x, w: F(m).conv_transpose2d(x, w),
        [(2, 2, 3, 3), (2, 3, 2, 2)],
    ),
    "max_pool2d": (lambda m, x: F(m).max_pool2d(x, 2), [(2, 2, 4, 4)]),
    "avg_pool1d": (lambda m, x: F(m).avg_pool1d(x, 2), [(2, 2, 4)]),
    "adaptive_avg_pool": (lambda m, x: F(m).adaptive_avg_pool2d(x, 2), [(2, 2, 4, 4)]),
    "interpolate": (lambda m, x: F(m).interpolate(x, scale_factor=2.0), [(2, 2, 3)]),
    "embedding": (lambda m, i, w: F(m).embedding(i, w), [((2,), I, 4), (4, 3)]),
    "attention": (sdpa, [(2, 4, 3), (2, 5, 3), (2, 5, 3)]),
    "mse_loss": (lambda m, a, b: F(m).mse_loss(a, b), [(2, 3), (2, 3)]),
    "l1_loss_sum": (lambda m, a, b: F(m).l1_loss(a, b, reduction="sum"), [(2, 3), (2, 3)]),
    "bce_with_logits": (
        lambda m, a, b: F(m).binary_cross_entropy_with_logits(a, b.sigmoid()),
        [(2, 3), (2, 3)],
    ),
    "kl_div": (
        lambda m, a, b: F(m).kl_div(a, b.softmax(1), reduction="batchmean"),
        [(2, 3), (2, 3)],
    ),
    "cross_entropy": (lambda m, a, t: F(m).cross_entropy(a, t), [(4, 3), ((4,), I, 3)]),
    "cross_entropy_of_one": (lambda m, a, t: F(m).cross_entropy(a, t), [(3,), ((), I, 3)]),
    "cross_entropy_ignoring": (
        lambda m, a, t: F(m).cross_entropy(a, t, ignore_index=1, label_smoothing=0.1),
        [(4, 3), ((4,), I, 3)],
    ),
    "cross_entropy_weighted": (
        lambda m, a, t, w: F(m).cross_entropy(a, t, w.exp().detach()),
        [(4, 3), ((4,), I, 3), (3,)],
    ),
    "nll_loss": (
        lambda m, a, t: F(m).nll_loss(a.log_softmax(1), t, reduction="none"),
        [(4, 3), ((4,), I, 3)],
    ),
    "gaussian_nll_loss": (
        lambda m, a, b, v: F(m).gaussian_nll_loss(a, b, v.exp()),
        [(2, 3), (2, 3), (2, 3)],
    ),
    "grid_sample": (
        lambda m, a, g: F(m).grid_sample(a, g.tanh(), align_corners=False),
        [(1, 2, 4, 4), (1, 3, 3, 2)],
    ),
    "matrix_rank": (lambda m, a: m.linalg.matrix_rank(a), [(3, 3)]),
    "cosine_similarity": (lambda m, a, b: F(m).cosine_similarity(a, b, -1), [(2, 3), (2, 3)]),
    "cdist": (lambda m, a, b: m.cdist(a, b), [(2, 3), (4, 3)]),
    "normalize": (lambda m, a: F(m).normalize(a), [(2, 3)]),
    "new_zeros": (lambda m, a: a.new_zeros(2) + a.sum(), [(2, 3)]),
    "ones_like": (lambda m, a: m.ones_like(a) * a, [(2, 3)]),
    "clone_and_write": (lambda m, a: a.clone().mul_(2).add_(a), [(2, 3)]),
    "convert": (lambda m, a: a.float().double(), [(2, 3)]),
    "iterate": (lambda m, a: sum(row * i for i, row in enumerate(a)), [(2, 3)]),
    "T": (lambda m, a: a.T @ a.mT.T, [(3, 3)]),
}


def make(spec: Any, with_batch: bool, rng: Any) -> Any:
    shape, dtype, bound = spec if len(spec) == 3 and isinstance(spec[0], tuple) else (spec, None, 0)
    shape = (BATCH, *shape) if with_batch else shape
    if dtype is None:
        return rng.standard_normal(shape)
    return rng.integers(0, bound, shape).astype(dtype)


def batches(count: int) -> Any:
    """Which arguments have the batch: all ways with at least one."""
    return [c for c in itertools.product([True, False], repeat=count) if any(c)]


PLACES = [
    pytest.param(name, which, id=f"{name}-{''.join('01'[w] for w in which)}")
    for name, (_, specs) in CASES.items()
    for which in batches(len(specs))
]


def arguments(name: str, which: Any) -> list[Any]:
    rng = np.random.default_rng(len(name) * 8 + sum(which))
    return [make(spec, w, rng) for spec, w in zip(CASES[name][1], which, strict=True)]


def dims_of(which: Any) -> tuple[Any, ...]:
    return tuple(0 if w else None for w in which)


def is_float(array: Any) -> bool:
    return array.dtype.kind == "f"


@pytest.mark.parametrize(("name", "which"), PLACES)
def test_equals_a_loop(name, which):
    function, arrays = CASES[name][0], arguments(name, which)
    tensors = [modtree.tensor(a).requires_grad_(is_float(a)) for a in arrays]
    found = func.vmap(lambda *ts: function(modtree, *ts), in_dims=dims_of(which))(*tensors)
    rows = [
        function(modtree, *[t[i] if w else t for t, w in zip(tensors, which, strict=True)])
        for i in range(BATCH)
    ]
    expected = modtree.stack(rows)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-10, atol=1e-12)
    if not expected.requires_grad:
        return
    weight = modtree.tensor(np.random.default_rng(5).standard_normal(tuple(expected.shape)))
    wanted = [t for t in tensors if t.requires_grad]
    both = [
        modtree.autograd.grad((result * weight).sum(), wanted, allow_unused=True)
        for result in (found, expected)
    ]
    for ours, theirs in zip(*both, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


@needs("torch")
@pytest.mark.parametrize(("name", "which"), PLACES)
def test_equals_torch(name, which):
    torch = importlib.import_module("torch")
    function, arrays = CASES[name][0], arguments(name, which)
    results = []
    for lib, vmap in ((torch, torch.func.vmap), (modtree, func.vmap)):
        tensors = [lib.tensor(a) for a in arrays]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of torch, about speed
                result = vmap(functools.partial(function, lib), in_dims=dims_of(which))(*tensors)
        except RuntimeError as error:
            assert lib is torch, error
            pytest.skip(f"torch: {str(error)[:80]}")
        results.append(result.numpy())
    theirs, ours = results
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-10)


FLOATS = [
    n for n, (_, specs) in CASES.items() if not isinstance(specs[0][0] if specs[0] else 0, tuple)
]


@pytest.mark.parametrize("name", FLOATS)
def test_gradients_of_each_sample(name):
    """vmap(grad) with the same first argument for all samples, and with one for each."""
    function, specs = CASES[name]
    rng = np.random.default_rng(3)
    first = modtree.tensor(make(specs[0], False, rng))
    rest = [modtree.tensor(make(s, True, rng)) for s in specs[1:]]
    scale = modtree.tensor(rng.standard_normal(BATCH))

    def value(a, c, *others):
        out = function(modtree, a, *others)
        return (out.to(modtree.float64) * c).sum() + (a * a).sum() * c

    each = func.grad(value)
    found = func.vmap(each, in_dims=(None, 0, *[0] * len(rest)))(first, scale, *rest)
    expected = modtree.stack([each(first, scale[i], *[r[i] for r in rest]) for i in range(BATCH)])
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
    many = modtree.stack([first, first * 2, first - 1])
    found = func.vmap(each, in_dims=(0, 0, *[0] * len(rest)))(many, scale, *rest)
    expected = modtree.stack([each(many[i], scale[i], *[r[i] for r in rest]) for i in range(BATCH)])
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
