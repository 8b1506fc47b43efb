# SPDX-License-Identifier: BSD-3-Clause
"""``out=`` of every function that takes it in torch: dtypes, shapes, gradients, errors."""

from __future__ import annotations

import inspect
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from helpers.needs import needs

import modtree
from modtree.numpy.ops.out import FUNCTIONS, LINALG

_rng = np.random.default_rng(11)
X, Y = (_rng.uniform(0.1, 0.9, (2, 3)).astype(np.float32) for _ in range(2))
M = (_rng.uniform(0, 1, (3, 3)) + 3 * np.eye(3)).astype(np.float32)
S = M @ M.T
V, W = (_rng.uniform(0.1, 0.9, 3).astype(np.float32) for _ in range(2))
I, B = np.array([[0, 1, 2], [2, 0, 1]]), X > 0.5  # noqa: E741

_UNARY = """abs absolute acos acosh asin asinh
    atan atanh ceil cos cosh digamma erf erfinv exp expm1 floor
    lgamma log log10 log1p log2 logical_not logit nan_to_num neg negative
    reciprocal round rsqrt sgn sigmoid sign sin sinh sqrt square tan tanh trunc"""
_BINARY = """add atan2 div divide eq floor_divide fmod ge
    greater greater_equal gt le less less_equal logaddexp
    logical_and logical_or logical_xor lt maximum minimum mul multiply ne
    not_equal pow remainder sub subtract true_divide"""
_WHOLE = """bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift"""
_ALONG = """all amax amin any argmax argmin cumprod cumsum log_softmax logcumsumexp
    logsumexp max mean min prod softmax std sum var"""
_JOINING = "cat concat concatenate hstack stack vstack"

#: Function -> arguments; NumPy arrays stand for tensors.
CALLS: dict[str, tuple[Any, ...]] = {
    **{name: (X,) for name in _UNARY.split()},
    **{name: (X, Y) for name in _BINARY.split()},
    **{name: (I, I) for name in _WHOLE.split()},
    **{name: (X, 1) for name in _ALONG.split()},
    **{name: ([X, Y],) for name in _JOINING.split()},
    "acosh": (X + 1,),
    "addcdiv": (X, X, Y),
    "addcmul": (X, X, Y),
    "addmm": (M, M, M),
    "baddbmm": (M[None], M[None], M[None]),
    "bitwise_not": (I,),
    "bmm": (M[None], M[None]),
    "clamp": (X, 0.3, 0.5),
    "clamp_max": (X, 0.5),
    "clamp_min": (X, 0.5),
    "clip": (X, 0.3, 0.5),
    "cross": (X, Y, 1),
    "diag": (M,),
    "dot": (V, W),
    "gather": (X, 1, I),
    "index_add": (X, 1, np.array([0, 2, 1]), Y),
    "index_copy": (X, 1, np.array([0, 2, 1]), Y),
    "index_select": (X, 1, np.array([0, 2])),
    "inverse": (M,),
    "lerp": (X, Y, 0.3),
    "masked_select": (X, B),
    "matmul": (M, S),
    "matrix_power": (M, 2),
    "mm": (M, S),
    "mv": (M, V),
    "nonzero": (B,),
    "norm": (X, 2, 1),
    "outer": (V, W),
    "polar": (X, Y),
    "scatter": (X, 1, I, Y),
    "scatter_add": (X, 1, I, Y),
    "scatter_reduce": (X, 1, I, Y, "sum"),
    "slogdet": (M,),
    "sort": (X,),
    "take_along_dim": (X, I, 1),
    "tensordot": (M, S, 1),
    "topk": (X, 2),
    "tril": (M,),
    "triu": (M,),
    "vdot": (V, W),
    "where": (B, X, Y),
}
LINALG_CALLS: dict[str, tuple[Any, ...]] = {
    **{f"linalg.{n}": (S,) for n in "cholesky det eigh inv".split()},
    **{f"linalg.{n}": (S,) for n in "matrix_norm norm pinv qr slogdet svd".split()},
    "linalg.vector_norm": (S,),
    "linalg.matrix_power": (M, 2),
    "linalg.multi_dot": ([M, S, M],),
    "linalg.solve": (M, S),
}
ALL = {**CALLS, **LINALG_CALLS}
DTYPES = ("float64", "int32", "float16", "complex64", "bool")
#: Functions whose gradient torch loses without a word (docs/compat.md).
SILENT = {
    *("diag", "floor_divide", "log_softmax", "softmax"),
    *("tensordot", "linalg.matrix_norm", "linalg.norm"),
}
#: (function, dtype of out) that torch has no kernel for, or computes another dtype in.
OTHERWISE = {
    ("cumprod", "bool"),
    ("cumsum", "bool"),
    ("std", "complex64"),
    ("var", "complex64"),
}

each = pytest.mark.parametrize("name", ALL)


def call(lib: Any, name: str, out: Any = None, requires_grad: bool = False) -> Any:
    function = lib
    for part in name.split("."):
        function = getattr(function, part)

    def tensors(value: Any) -> Any:
        if isinstance(value, list):
            return [tensors(v) for v in value]
        if not isinstance(value, np.ndarray):
            return value
        made = lib.tensor(value)
        return made.requires_grad_() if requires_grad and value.dtype.kind == "f" else made

    arguments = [tensors(a) for a in ALL[name]]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*deprecated in favor|.*is deprecated and will")
        return function(*arguments) if out is None else function(*arguments, out=out)


def parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,)


def empties(lib: Any, name: str, dtype: str | None = None, shape: Any = (0,)) -> Any:
    like = call(lib, name)
    made = tuple(
        lib.empty(shape, dtype=p.dtype if dtype is None else getattr(lib, dtype))
        for p in parts(like)
    )
    return made if isinstance(like, tuple) else made[0]


def same_values(a: Any, b: Any) -> None:
    for x, y in zip(parts(a), parts(b), strict=True):
        assert tuple(x.shape) == tuple(y.shape)
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=2e-3, atol=1e-3)


def test_every_function_is_here():
    assert set(CALLS) == set(FUNCTIONS)
    assert set(LINALG_CALLS) == {f"linalg.{n}" for n in LINALG}


@each
def test_the_result_is_in_out(lib, name):
    out = empties(lib, name)
    result = call(lib, name, out)
    for given, returned in zip(parts(out), parts(result), strict=True):
        assert returned is given or lib is not modtree  # torch wraps those of a tuple anew
    same_values(out, call(lib, name))
    if isinstance(out, tuple):
        assert type(result).__name__.removesuffix("_out") == type(call(lib, name)).__name__


@needs("torch")
@each
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(name, dtype):
    import torch

    if (name, dtype) in OTHERWISE:
        return
    results = []
    for lib in (modtree, torch):
        out = empties(lib, name, dtype)
        try:
            call(lib, name, out)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            results.append(error)
        else:
            results.append(out)
    ours, theirs = results
    assert isinstance(ours, Exception) == isinstance(theirs, Exception), results
    if isinstance(ours, Exception):
        assert isinstance(ours, RuntimeError), ours  # a NotImplementedError is one
    else:
        for a, b in zip(parts(ours), parts(theirs), strict=True):
            assert str(a.dtype).partition(".")[2] == str(b.dtype).partition(".")[2] == dtype
        same_values(ours, theirs)


@each
def test_another_shape_is_resized_with_a_warning(lib, name):
    out = empties(lib, name, shape=(7, 1, 2))
    with pytest.warns(UserWarning, match="An output with one or more elements was resized since"):
        call(lib, name, out)
    same_values(out, call(lib, name))


@each
def test_gradients_are_refused(lib, name):
    needs = any(p.requires_grad for p in parts(call(lib, name, requires_grad=True)))
    out = empties(lib, name)
    if not needs:
        call(lib, name, out, requires_grad=True)
        return
    if name in SILENT and lib is not modtree:
        return
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        call(lib, name, out, requires_grad=True)
    with lib.no_grad():
        call(lib, name, out, requires_grad=True)
    assert not any(p.requires_grad for p in parts(out))
    same_values(out, call(lib, name))


@pytest.mark.parametrize("name", sorted(SILENT))
def test_no_gradient_is_lost_without_a_word(name):
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        call(modtree, name, empties(modtree, name), requires_grad=True)


def test_an_out_that_needs_a_gradient(lib):
    x, out = lib.ones(3), lib.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        lib.exp(x, out=out)
    with lib.no_grad():
        assert lib.exp(x, out=out) is out
    assert out.requires_grad and out.is_leaf


def test_what_is_no_tensor(lib):
    with pytest.raises(TypeError):
        lib.exp(lib.ones(3), out=[1.0, 2.0, 3.0])
    with pytest.raises(TypeError):
        lib.sort(lib.ones(3), out=lib.empty(3))
    with pytest.raises(TypeError):
        lib.sort(lib.ones(3), out=(lib.empty(3), lib.empty(3), lib.empty(3)))
    assert lib.exp(lib.zeros(1), out=None).item() == 1.0


def test_memory_of_all_kinds(lib):
    base = lib.zeros(2, 3)
    assert lib.add(lib.ones(3, 2), 1, out=base.T).tolist() == [[2.0, 2.0]] * 3
    assert base.tolist() == [[2.0] * 3] * 2
    row = lib.zeros(2, 3)
    lib.mul(lib.ones(3), 5, out=row[1])
    assert row.tolist() == [[0.0] * 3, [5.0] * 3]
    lib.add(base, base, out=base)
    assert base.tolist() == [[4.0] * 3] * 2
    with pytest.raises(RuntimeError, match="single memory location"):
        lib.add(lib.ones(3), 1, out=lib.zeros(1).expand(3))


def test_the_version_of_out_counts(lib):
    x = lib.ones(3, requires_grad=True)
    held = lib.zeros(3)
    result = (x * held).sum()
    lib.exp(lib.ones(3), out=held)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_nothing_is_written_when_one_of_several_does_not_fit():
    values, indices = modtree.zeros(3), modtree.zeros(3)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype modtree.int64"):
        modtree.sort(modtree.ones(3), out=(values, indices))
    assert values.tolist() == [0.0] * 3


def test_the_warning_names_the_line_of_the_call():
    calls = (
        lambda out: modtree.exp(modtree.ones(3), out=out),
        lambda out: modtree.sum(modtree.ones(3, 3), 0, out=out),
        lambda out: modtree.bernoulli(modtree.ones(3), out=out),
        lambda out: modtree.linalg.inv(modtree.eye(3), out=out),
    )
    for function in calls:
        with pytest.warns(UserWarning, match="was resized") as caught:
            function(modtree.empty(7))
        assert caught[0].filename == __file__


def test_meta(lib):
    out = lib.empty(5, device="meta")
    with pytest.warns(UserWarning, match="was resized"):
        lib.exp(lib.empty(3, device="meta"), out=out)
    assert tuple(out.shape) == (3,)
    for x, out in (
        (lib.ones(3), lib.empty(3, device="meta")),
        (lib.empty(3, device="meta"), lib.empty(3)),
    ):
        with pytest.raises(RuntimeError, match="device"):
            lib.add(x, 1, out=out)


def test_sums_are_computed_in_the_dtype_of_out(lib):
    big = lib.full((3,), 2**24 + 1, dtype=lib.int32)
    out = lib.empty((), dtype=lib.float64)
    lib.sum(big, 0, out=out)
    assert out.item() == 3 * (2**24 + 1)
    half = lib.full((4096,), 16.5, dtype=lib.float32)
    assert lib.sum(half, 0, out=lib.empty((), dtype=lib.float64)).item() == 16.5 * 4096
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
        lib.sum(half, 0, dtype=lib.float64, out=lib.empty(()))


def test_other_forms(lib):
    x = lib.tensor([[3.0, 1.0], [2.0, 5.0]])
    assert lib.max(x, out=lib.empty(())).item() == 5.0
    assert lib.max(x, x + 1, out=lib.empty(2, 2)).tolist() == (x + 1).tolist()
    values, indices = lib.empty(0), lib.empty(0, dtype=lib.int64)
    lib.max(x, dim=1, out=(values, indices))
    assert values.tolist() == [3.0, 5.0] and indices.tolist() == [0, 1]
    lib.sort(x, descending=True, out=[values.resize_(0), indices.resize_(0)])
    assert values.tolist() == [[3.0, 1.0], [5.0, 2.0]]
    assert lib.add(x, x, alpha=2, out=lib.empty(2, 2)).tolist() == (3 * x).tolist()
    assert lib.exp(input=lib.zeros(1)).item() == 1.0
    assert lib.clamp(x, max=2.0, out=lib.empty(2, 2)).tolist() == [[2.0, 1.0], [2.0, 2.0]]


def test_what_makes_tensors(lib):
    out = lib.empty(7)
    for name, arguments in (
        ("zeros", (2, 3)),
        ("ones", (2, 3)),
        ("empty", (2, 3)),
        ("full", ((2, 3), 1.5)),
        ("linspace", (0, 1, 3)),
        ("eye", (3,)),
        ("rand", (3,)),
        ("randn", (3,)),
        ("randint", (3, (4,))),
        ("randperm", (3,)),
        ("normal", (0.0, 1.0, (3,))),
    ):
        result = getattr(lib, name)(*arguments, out=out.resize_(0))
        assert result is out and out.numel() > 0
    with pytest.warns(UserWarning, match="The number of elements in the out tensor"):
        lib.arange(3, out=lib.empty(7))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        lib.zeros(3, out=lib.ones(3, requires_grad=True))


def test_what_draws(lib):
    chances = lib.tensor([0.0, 1.0, 1.0])
    out = lib.empty(0)
    assert lib.bernoulli(chances, out=out) is out and out.tolist() == [0.0, 1.0, 1.0]
    indices = lib.empty(0, dtype=lib.int64)
    assert lib.multinomial(chances, 2, out=indices) is indices
    assert sorted(indices.tolist()) == [1, 2]
    assert lib.normal(chances, chances, out=out).numel() == 3
    parts = lib.empty(0, dtype=lib.complex64)
    assert lib.complex(chances, chances, out=parts).tolist() == [0j, 1 + 1j, 1 + 1j]
    with pytest.raises(RuntimeError):
        lib.multinomial(chances, 2, out=lib.empty(0))


def test_parts_of_the_input_may_be_written():
    """The result is complete before anything is written."""
    base = modtree.arange(4.0)
    modtree.add(base[:3], 1, out=base[1:])
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_say_so(name):
    function = getattr(modtree, name)
    parameter = inspect.signature(function).parameters["out"]
    assert parameter.kind is parameter.KEYWORD_ONLY and parameter.default is None
    assert "    out: " in function.__doc__
    assert pickle.loads(pickle.dumps(function)) is function


def test_methods_take_out_too():
    x, out = modtree.ones(3), modtree.zeros(3)
    assert x.exp(out=out) is out and out.tolist() == x.exp().tolist()
    assert x.add(x, out=out) is out and out.tolist() == [2.0] * 3
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.exp(out=modtree.zeros(3, dtype=modtree.int64))
