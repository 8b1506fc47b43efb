# SPDX-License-Identifier: BSD-3-Clause
"""Operations, against torch: one expression on both libraries over shapes, layouts and dtypes."""

from __future__ import annotations

import numpy as np
import pytest

import modtree as mt

torch = pytest.importorskip("torch")

# torch says it with the name of the function alone.
pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")

ERRORS = (RuntimeError, TypeError, ValueError, IndexError)


def _compare(ours, theirs, what=""):
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, mt.Tensor), what
        assert tuple(ours.shape) == tuple(theirs.shape), what
        assert str(ours.dtype)[8:] == str(theirs.dtype)[6:], what
        tolerance = 2e-3 if theirs.dtype == torch.float16 else 2e-5
        np.testing.assert_allclose(
            ours.numpy(),
            theirs.resolve_conj().numpy(),
            rtol=tolerance,
            atol=tolerance / 10,
            err_msg=what,
        )
    elif isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs), what
        for a, b in zip(ours, theirs, strict=True):
            _compare(a, b, what)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-5, nan_ok=True), what
    else:
        assert ours == theirs, what


def _run(expression, lib, arrays):
    names = {"m": lib, **{k: lib.from_numpy(v) for k, v in arrays.items()}}
    try:
        return eval(expression, names)  # noqa: S307
    except ERRORS as error:
        return error


def _check(expression, arrays):
    ours, theirs = _run(expression, mt, arrays), _run(expression, torch, arrays)
    shapes = {k: (v.shape, v.dtype.name) for k, v in arrays.items()}
    what = f"{expression} on {shapes}"
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception), f"{what}: torch raises {theirs!r}, we give {ours}"
        same = isinstance(ours, type(theirs)) or isinstance(theirs, type(ours))
        assert same, f"{what}: torch raises {theirs!r}, we raise {ours!r}"
        return
    assert not isinstance(ours, Exception), f"{what}: we raise {ours!r}, torch gives {theirs}"
    _compare(ours, theirs, what)


def _array(shape, dtype="float32", seed=0, low=0.1, high=3.0):
    rng = np.random.default_rng(seed)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype)


UNARY = (
    "exp expm1 log log2 log10 log1p sqrt rsqrt sin cos tan atan sinh cosh tanh asinh "
    "sigmoid erf "
    "lgamma relu neg abs sign square ceil floor trunc round reciprocal isnan isinf isfinite "
    "logical_not"
).split()
SHAPES = [(), (0,), (3,), (2, 3), (2, 0, 3), (2, 3, 4)]


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    for shape in SHAPES:
        _check(f"m.{name}(x)", {"x": _array(shape, low=-2.0)})
        _check(f"x.{name}()", {"x": _array(shape)})
    _check(f"x.T.{name}()", {"x": _array((2, 3))})
    for dtype in ("float64", "int64", "uint8", "int8"):
        _check(f"x.{name}()", {"x": _array((4,), dtype, low=1, high=5)})


@pytest.mark.parametrize("name", ["asin", "acos", "atanh", "erfinv"])
def test_unary_inside_one(name):
    for dtype in ("float32", "float64"):
        _check(f"x.{name}()", {"x": _array((50,), dtype, low=-0.999, high=0.999)})


def test_erfinv_is_exact_in_double():
    x = np.linspace(-1, 1, 2001)
    np.testing.assert_allclose(
        mt.tensor(x).erfinv().numpy(), torch.tensor(x).erfinv().numpy(), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize(
    "name",
    "add sub mul div true_divide floor_divide remainder fmod pow atan2 maximum minimum "
    "eq ne lt le gt ge logical_and logical_or logical_xor".split(),
)
def test_binary(name):
    for a, b in [
        ((), ()),
        ((3,), ()),
        ((2, 3), (3,)),
        ((2, 1), (1, 3)),
        ((0, 3), (3,)),
        ((2, 3), (2, 3)),
    ]:
        _check(f"m.{name}(x, y)", {"x": _array(a, low=-2.0), "y": _array(b, seed=1)})
    _check(f"x.{name}(y)", {"x": _array((3,)), "y": _array((4,))})
    if name not in (
        "atan2",
        "maximum",
        "minimum",
        "logical_and",
        "logical_or",
        "logical_xor",
    ):
        _check(f"x.{name}(2)", {"x": _array((3,))})


REDUCTIONS = [
    "x.sum()",
    "x.sum(0)",
    "x.sum(dim=-1, keepdim=True)",
    "x.sum(dim=(0, 1))",
    "x.sum(dim=5)",
    "x.sum(dtype=m.float64)",
    "m.sum(x, 1)",
    "x.mean()",
    "x.mean(1)",
    "x.mean(dim=(0, -1), keepdim=True)",
    "x.prod()",
    "x.prod(1)",
    "x.std()",
    "x.std(0)",
    "x.var(1, keepdim=True)",
    "x.var(dim=0, unbiased=False)",
    "x.var(unbiased=False)",
    "x.std(dim=1, correction=0)",
    "m.var_mean(x, 0)",
    "x.max()",
    "x.min()",
    "x.max(1)",
    "x.max(dim=0, keepdim=True).values",
    "x.min(-1).indices",
    "x.amax(1)",
    "x.amin(dim=(0, 1))",
    "x.argmax()",
    "x.argmax(1)",
    "x.argmin(dim=0, keepdim=True)",
    "x.all()",
    "x.any(0)",
    "x.norm()",
    "x.norm(dim=1)",
    "x.norm(1)",
    "x.norm(p=3, dim=0, keepdim=True)",
    "x.norm(float('inf'))",
    "x.logsumexp(1)",
    "x.logsumexp(dim=0, keepdim=True)",
    "x.cumsum(0)",
    "x.cumprod(1)",
    "x.sort()",
    "x.sort(0, descending=True)",
    "x.argsort(dim=0)",
    "x.topk(2)",
    "x.topk(1, dim=0, largest=False)",
    "x.topk(99)",
    "m.count_nonzero(x)",
    "m.count_nonzero(x, dim=0)",
    "x.softmax(-1)",
    "m.softmax(x, dim=0)",
    "x.log_softmax(1)",
]


@pytest.mark.parametrize("expression", REDUCTIONS)
def test_reductions(expression):
    for shape in [(2, 3), (3, 1), (2, 3, 4)]:
        _check(expression, {"x": _array(shape)})
    for dtype in ("float64", "int64", "int32", "uint8", "bool"):
        if dtype not in ("float64",) and any(k in expression for k in ("sort", "topk")):
            continue  # the order of equal elements is not specified
        _check(expression, {"x": _array((3, 4), dtype, low=-3 if dtype != "uint8" else 0)})


@pytest.mark.parametrize(
    "expression", [e for e in REDUCTIONS if "(1" not in e and "=1" not in e and "(0, 1)" not in e]
)
def test_reductions_of_scalars(expression):
    if "topk(2)" in expression:
        return
    _check(expression, {"x": _array(())})


SHAPING = [
    "x.view(-1)",
    "x.view(4, -1)",
    "x.view((3, 8))",
    "x.view(5, 5)",
    "x.transpose(0, 1).view(-1)",
    "x.transpose(0, 1).reshape(-1)",
    "x.reshape(6, 4)",
    "m.reshape(x, (4, 6))",
    "x.reshape(7)",
    "x.permute(2, 0, 1)",
    "x.permute((1, 2, 0))",
    "x.permute(0, 1)",
    "x.transpose(-1, 0)",
    "x.transpose(0, 5)",
    "x[0].t()",
    "x[0].T",
    "x.mT",
    "x.flatten()",
    "x.flatten(1)",
    "x.flatten(0, 1)",
    "x.unflatten(2, (2, -1))",
    "x.unsqueeze(0)",
    "x.unsqueeze(-1)",
    "x.unsqueeze(9)",
    "x[:, :1].squeeze()",
    "x[:, :1].squeeze(1)",
    "x[:, :1].squeeze(0)",
    "x[:, :1].expand(-1, 5, -1)",
    "x.expand(2, 2, 3, 4)",
    "x.expand(3, 3)",
    "x[:, :1].expand_as(x)",
    "x.repeat(1, 2, 3)",
    "x.repeat(2)",
    "x.tile(2)",
    "x.chunk(2, dim=2)",
    "x.chunk(3, -1)",
    "x.chunk(5, 2)",
    "x.split(2, dim=1)",
    "x.split([1, 2], 1)",
    "x.split([1, 1], 1)",
    "m.split(x, 3, -1)",
    "x.unbind()",
    "x.unbind(1)",
    "m.cat([x, x], 1)",
    "m.cat([x, x[:1]])",
    "m.cat([x, x[:, :1]])",
    "m.cat([x, x.double()], dim=-1)",
    "m.stack([x, x])",
    "m.stack([x, x], -1)",
    "m.stack([x, x[0]])",
    "x.narrow(1, 1, 2)",
    "x.narrow(1, 2, 2)",
    "x.select(2, 1)",
    "x.movedim(0, -1)",
    "x.diagonal(0, 1, 2)",
    "x.flip(0, 2)",
    "x.roll(1, 1)",
    "x.roll((1, 2), (0, 1))",
    "x[0].tril()",
    "x.triu(1)",
    "m.diag(x[0, 0])",
    "m.diag(x[0])",
    "x.contiguous()",
    "x.transpose(0, 2).contiguous()",
    "x.repeat_interleave(2, dim=1)",
    "x.repeat_interleave(2)",
    "x.index_select(1, m.tensor([2, 0]))",
    "x.gather(2, m.tensor([[[0, 3], [1, 1], [2, 0]], [[0, 0], [1, 1], [2, 0]]]))",
    "x.gather(1, m.tensor([[[0, 1, 2, 0]]]))",
    "x.masked_fill(x > 1, 0.5)",
    "x.masked_fill(x[0] > 1, -1)",
    "x.masked_select(x > 1)",
    "m.where(x > 1, x, 0.0)",
    "m.where(x > 1, x, -x)",
    "m.where(x > 1, 1.0, 2.0)",
    "m.where(x > 1)",
    "x.where(x > 1, m.zeros(4))",
    "x.clamp(0.5, 1.5)",
    "x.clamp(min=1)",
    "x.clamp(max=m.ones(4))",
    "x.clamp()",
    "x.nonzero()",
    "m.broadcast_tensors(x, m.ones(4))[1]",
    "m.meshgrid(m.arange(2), m.arange(3), indexing='ij')",
    "m.lerp(x, x * 2, 0.25)",
    "m.addcmul(x, x, x, value=2)",
    "x.addcdiv(x, x + 1)",
    "m.allclose(x, x + 1e-9)",
    "m.equal(x, x)",
    "m.isclose(x, x)",
    "x.scatter(2, m.tensor([[[0, 1]]]), 9.0) if m.__name__ == 'torch' else x.scatter(2, "
    "m.tensor([[[0, 1]]]), value=9.0)",
    "x.scatter_add(2, m.tensor([[[0, 1, 1]]]), m.ones(1, 1, 3))",
    "x.index_add(1, m.tensor([0, 2]), m.ones(2, 2, 4))",
    "x.size()",
    "x.size(1)",
    "x.size(7)",
    "x.numel()",
    "x.stride()",
    "x.transpose(0, 1).stride()",
    "x[:, 1].storage_offset()",
    "x.unfold(2, 2, 1)",
    "x.tolist()",
    "x.type(m.float64)",
    "x.to(m.int32)",
    "x.half().float()",
    "x.bool()",
    "x.real",
    "list(x)[1]",
    "len(x)",
]


@pytest.mark.parametrize("expression", SHAPING)
def test_shaping(expression):
    _check(expression, {"x": _array((2, 3, 4), low=-1)})


INDEXING = [
    "x[0]",
    "x[-1]",
    "x[5]",
    "x[0, 1]",
    "x[0, 1, 2]",
    "x[0, 1, 2, 3]",
    "x[..., 0]",
    "x[:, None]",
    "x[None]",
    "x[1:, ::2]",
    "x[::-1]",
    "x[x > 1]",
    "x[[0, 1]]",
    "x[m.tensor([1, 0])]",
    "x[:, m.tensor([1, 0])]",
    "x[m.tensor([1, 0]), m.tensor([2, 1])]",
    "x[m.tensor(1)]",
    "x[m.tensor([True, False])]",
    "x[0][1][2]",
    "x[1, :, m.tensor([0, 0])]",
    "x[True]",
    "x[m.tensor([0.5])]",
    "x[0, 0, 0].item()",
    "float(x[0, 0, 0])",
    "int(x[0, 0, 1])",
    "bool(x)",
    "x[0, 0, 0][0]",
    "x.sum().tolist()",
    "x.item()",
]


@pytest.mark.parametrize("expression", INDEXING)
def test_indexing(expression):
    _check(expression, {"x": _array((2, 3, 4))})


LINEAR = [
    "a @ b",
    "a @ b[0]",
    "a[0] @ b",
    "m.matmul(a[0, 0], b[0, :, 0])",
    "m.bmm(a, b)",
    "m.mm(a[0], b[0])",
    "m.mm(a, b)",
    "a @ a",
    "a[0].mv(b[0, :, 0])",
    "m.dot(a[0, 0], b[0, :, 0])",
    "m.outer(a[0, 0], b[0, 0])",
    "m.einsum('bij,bjk->bik', a, b)",
    "m.einsum('bij->bji', a)",
    "m.einsum('bij, bjk, bjk -> i', a, b, b)",
    "m.addmm(m.ones(5), a[0], b[0], beta=0.5, alpha=2)",
    "m.baddbmm(m.ones(1), a, b)",
    "a @ b.double()",
    "m.tensordot(a, b, ([2], [1]))",
    "a[0, 0] @ b",
    "m.tensor(1.0) @ a",
]


@pytest.mark.parametrize("expression", LINEAR)
def test_linear_algebra(expression):
    _check(expression, {"a": _array((2, 3, 4)), "b": _array((2, 4, 5), seed=1)})


IN_PLACE = [
    "x.add_(1)",
    "x.add_(y, alpha=2)",
    "x.sub_(y)",
    "x.mul_(2.5)",
    "x.div_(y)",
    "x.div_(2, rounding_mode='floor')",
    "x.pow_(2)",
    "x.zero_()",
    "x.fill_(3)",
    "x.copy_(y)",
    "x.copy_(y[0])",
    "x.copy_(m.ones(5))",
    "x.clamp_(0.5, 1)",
    "x.clamp_(min=1)",
    "x.exp_()",
    "x.log_()",
    "x.sqrt_()",
    "x.rsqrt_()",
    "x.neg_()",
    "x.abs_()",
    "x.sigmoid_()",
    "x.tanh_()",
    "x.relu_()",
    "x.floor_()",
    "x.round_()",
    "x.erfinv_()",
    "x.masked_fill_(x > 1, 0)",
    "x.lerp_(y, 0.5)",
    "x.addcmul_(y, y, value=2)",
    "x.addcdiv_(y, y)",
    "x.tril_()",
    "x.scatter_(1, m.tensor([[0, 1], [1, 0]]), y)",
    "x.index_fill_(1, m.tensor([0]), 7)",
    "x.index_copy_(0, m.tensor([1, 0]), y)",
    "x.index_add_(0, m.tensor([0]), y[:1])",
    "x[:, 1].add_(1)",
    "x.view(-1).mul_(2)",
    "x.t().add_(1)",
    "x.add_(m.ones(2, 2, 3))",
    "x[0].add_(x[1])",
    "x[:, 1:].copy_(x[:, :-1].clone())",
    "x.__setitem__(0, 5.0)",
    "x.__setitem__((slice(None), 1), y[:, 0])",
    "x.__setitem__(x > 1, 0.0)",
    "x.__setitem__(0, y)",
    "x.__iadd__(y)",
    "x.logical_not_()",
    "x.eq_(y)",
    "x.detach().mul_(3)",
    "x.data.add_(1)",
]


@pytest.mark.parametrize("expression", IN_PLACE)
def test_in_place(expression):
    kept = {}
    results = {}
    for lib in (mt, torch):
        x, y = lib.from_numpy(_array((2, 3))), lib.from_numpy(_array((2, 3), seed=1))
        kept[lib] = x
        try:
            results[lib] = eval(expression, {"m": lib, "x": x, "y": y})  # noqa: S307
        except ERRORS as error:
            results[lib] = error
    if isinstance(results[torch], Exception):
        assert isinstance(results[mt], Exception), results
        return
    assert not isinstance(results[mt], Exception), results
    _compare(results[mt], results[torch])
    _compare(kept[mt], kept[torch])
    assert kept[mt]._version > 0 or ".data" in expression


CREATION = [
    "m.tensor(1)",
    "m.tensor(1.5)",
    "m.tensor(True)",
    "m.tensor([1, 2.5])",
    "m.tensor([[1, 2], [3, 4]])",
    "m.tensor([])",
    "m.tensor([[]])",
    "m.tensor([True, False])",
    "m.tensor([1, True])",
    "m.tensor([1.0, 2.0], dtype=m.float64)",
    "m.tensor([1.7], dtype=m.int64)",
    "m.tensor([[1], [2, 3]])",
    "m.tensor('a')",
    "m.tensor(['a'])",
    "m.tensor(None)",
    "m.tensor(1 + 2j)",
    "m.tensor([m.tensor(1), m.tensor(2)])",
    "m.as_tensor([1, 2])",
    "m.zeros(2, 3)",
    "m.zeros((2, 3))",
    "m.zeros([2, 3], dtype=m.int32)",
    "m.zeros(())",
    "m.zeros(size=(2,))",
    "m.zeros(-1)",
    "m.zeros(2.5)",
    "m.ones(2, dtype=m.bool)",
    "m.full((2, 2), 7)",
    "m.full((2,), 1.5)",
    "m.full((), True)",
    "m.arange(5)",
    "m.arange(1, 4)",
    "m.arange(0, 1, 0.25)",
    "m.arange(5, 0, -2)",
    "m.arange(1.5)",
    "m.arange(3, dtype=m.float32)",
    "m.arange(5, 1)",
    "m.linspace(0, 1, 5)",
    "m.linspace(3, -1, 4, dtype=m.float64)",
    "m.eye(3)",
    "m.eye(2, 4)",
    "m.zeros_like(m.ones(2, dtype=m.int64))",
    "m.ones_like(m.zeros(2, 3), dtype=m.float64)",
    "m.full_like(m.zeros(2), 3)",
    "m.empty(2, 0).shape[1]",
    "m.empty_like(m.ones(3, 2)).numel()",
    "m.rand(3).dtype == m.float32",
    "m.rand(2, 3, dtype=m.float64).numel()",
    "m.rand(3, dtype=m.int64)",
    "m.randn((2, 3)).dim()",
    "m.randint(5, (2, 3)).dtype == m.int64",
    "m.randint(3, 3, (2,))",
    "m.randperm(5).sort().values",
    "m.scalar_tensor(3)",
    "m.scalar_tensor(s=3)",
    "m.ones(2, requires_grad=True).requires_grad",
    "m.ones(2, dtype=m.int64, requires_grad=True)",
    "m.tensor([1.0]).new_zeros(2, 3)",
    "m.tensor([1]).new_ones((2,))",
    "m.tensor([1]).new_full((2,), 3)",
    "m.tensor([1.0]).new_tensor([1, 2])",
    "m.complex(m.ones(2), m.zeros(2))",
    "m.cat([])",
    "m.cat([m.tensor(1), m.tensor(2)])",
    "m.cat([m.tensor([]), m.ones(2, 3)], dim=1)",
]


@pytest.mark.parametrize("expression", CREATION)
def test_creation(expression):
    _check(expression, {})


REPRS = [
    "m.tensor([1., 2.])",
    "m.tensor([1, 2])",
    "m.tensor(1.5)",
    "m.tensor([])",
    "m.zeros(2, 0)",
    "m.tensor([True, False])",
    "m.tensor([1.5, 2.25, -3])",
    "m.tensor([1e-10, 1.0])",
    "m.tensor([1e10, 1.0])",
    "m.tensor([1.5, float('nan'), float('inf')])",
    "m.tensor([1.0, float('nan')])",
    "m.ones(2, 3)",
    "m.ones(2, 2, 2)",
    "m.arange(30)",
    "m.arange(2000)",
    "m.arange(2000.).reshape(40, 50) / 3",
    "m.ones(2, dtype=m.float64)",
    "m.ones(2, dtype=m.int32)",
    "m.ones(2, requires_grad=True)",
    "m.tensor([1 + 2j, 0.5 - 1j])",
    "m.tensor([0.0, 0.00001])",
    "m.tensor([100.5, 0.25])",
    "m.tensor([10000.5, 0.25])",
    "m.tensor([-1, 100])",
    "m.empty(2, 3, device='meta')",
    "m.empty(2, dtype=m.int64, device='meta')",
    "m.zeros(0, dtype=m.int64)",
    "m.zeros(3, 3, dtype=m.float16)",
    "m.arange(60.) * 1.5",
]


@pytest.mark.parametrize("expression", REPRS)
def test_repr(expression):
    ours, theirs = (repr(eval(expression, {"m": lib})) for lib in (mt, torch))  # noqa: S307
    assert ours.replace("modtree.", "torch.") == theirs


def test_random_expressions():
    """Chains of random operations end in the same values."""
    steps = [
        "x + y",
        "x * y - 1",
        "x.T.contiguous().T",
        "x.sum(0, keepdim=True) + y",
        "(x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1)",
        "x.softmax(-1) * 3",
        "m.cat([x, y], 1)[:, ::2]",
        "x.clamp(-1, 1)",
        "x.abs().sqrt()",
        "m.where(x > y, x, y)",
        "x.flip(0)",
        "(x @ y.T) @ y / 10",
        "m.stack([x, y]).mean(0)",
        "x.masked_fill(x > 2, 0)",
        "x[[1, 0, 2]]",
        "x / (y.abs() + 1)",
        "-x.tanh()",
        "x.roll(1, 0)",
        "x.reshape(-1).reshape(x.shape)",
        "x.sort(1).values",
    ]
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal((2, 3, 4))
        states = {lib: [lib.from_numpy(x.copy()), lib.from_numpy(y.copy())] for lib in (mt, torch)}
        chosen = [steps[i] for i in rng.integers(0, len(steps), 8)]
        for lib, state in states.items():
            for step in chosen:
                new = eval(step, {"m": lib, "x": state[0], "y": state[1]})  # noqa: S307
                state[:] = [new, state[0]]
        for a, b in zip(states[mt], states[torch], strict=True):
            _compare(a, b, f"seed {seed}: {chosen}")
