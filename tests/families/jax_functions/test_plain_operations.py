# SPDX-License-Identifier: BSD-3-Clause
"""modtree's plain functions, called with jax arrays and torch tensors: ``modtree.exp(array)``."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from helpers.support import raises

import modtree as mt
import modtree.nn.functional as F
from modtree import nn

jax = pytest.importorskip("jax")
jax_functions = pytest.importorskip("modtree.jax_arrays.functions")
torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)


def of(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(np.float32)


def ids(count: int, *shape: int) -> np.ndarray:
    return RNG.integers(count, size=shape)


X, Y, Z = of(3, 4), of(3, 4), of(4, 5)
POSITIVE, UNIT = of(3, 4, low=0.1, high=3), of(3, 4, low=-0.9, high=0.9)
WHOLE, OTHERS = ids(9, 3, 4) + 1, ids(5, 3, 4) + 1
MASK = X > 0
CUBES, MORE = of(2, 3, 4), of(2, 4, 3)

UNARY = """abs asinh atan ceil conj cos cosh erf exp expm1 floor
isfinite isinf isnan logical_not neg reciprocal sgn sign sin sinh sqrt square
tan trunc""".split()
OF_POSITIVE = "acosh digamma lgamma log log10 log1p log2 rsqrt".split()
OF_UNIT = "acos asin atanh erfinv".split()
BINARY = """add atan2 div eq floor_divide fmod ge gt isclose le logaddexp
logical_and logical_or logical_xor lt maximum minimum mul ne remainder sub
true_divide""".split()
OF_WHOLE = "bitwise_and bitwise_or bitwise_xor bitwise_left_shift".split()
REDUCTIONS = """sum mean prod amax amin all any argmax argmin var std var_mean
std_mean count_nonzero""".split()

CALLS: dict[str, Any] = {}
CALLS |= {name: ((X,), {}) for name in UNARY}
CALLS |= {name: ((POSITIVE + 1,), {}) for name in OF_POSITIVE}
CALLS |= {name: ((UNIT,), {}) for name in OF_UNIT}
CALLS |= {name: ((X, Y), {}) for name in BINARY}
CALLS |= {name: ((WHOLE, OTHERS), {}) for name in OF_WHOLE}
CALLS |= {name: ((X,), {}) for name in REDUCTIONS}
CALLS |= {f"{name}:dim": ((X, 1), {}) for name in REDUCTIONS}
CALLS |= {
    f"{name}:keepdim": ((X, 1), {"keepdim": True}) for name in REDUCTIONS if name != "count_nonzero"
}
CALLS |= {
    "sum:axis": ((X,), {"axis": 1}),
    "mean:dims": ((CUBES, (0, 2)), {}),
    "var:biased": ((X, 1, False), {}),
    "var:bool": ((X, False), {}),
    "std:correction": ((X, 0), {"correction": 0}),
    "add:alpha": ((X, Y), {"alpha": 2}),
    "add:number": ((X, 2.5), {}),
    "sub:alpha": ((X, Y), {"alpha": 0.5}),
    "div:floor": ((X, Y), {"rounding_mode": "floor"}),
    "div:trunc": ((X, Y), {"rounding_mode": "trunc"}),
    "pow": ((POSITIVE, Y), {}),
    "pow:number": ((X, 2), {}),
    "bitwise_not": ((WHOLE,), {}),
    "bitwise_right_shift": ((WHOLE, OTHERS), {}),
    "round:decimals": ((X,), {"decimals": 2}),
    "clamp": ((X, -0.5, 0.7), {}),
    "clamp:min": ((X,), {"min": 0.1}),
    "clip": ((X,), {"max": 0.1}),
    "clamp_min": ((X, 0.2), {}),
    "clamp_max": ((X, 0.2), {}),
    "lerp": ((X, Y, 0.3), {}),
    "addcmul": ((X, Y, Y), {"value": 2}),
    "addcdiv": ((X, Y, POSITIVE), {"value": 2}),
    "logit": ((np.abs(UNIT),), {"eps": 0.1}),
    "nan_to_num": ((np.array([np.nan, np.inf, 1], np.float32), 2.0), {"posinf": 3.0}),
    "max": ((X,), {}),
    "max:dim": ((X, 1), {}),
    "min:keepdim": ((X, 0, True), {}),
    "min:other": ((X, Y), {}),
    "sort": ((X, 0, True), {}),
    "argsort": ((X, 1), {}),
    "topk": ((X, 2), {"largest": False}),
    "logsumexp": ((X, 1), {}),
    "logcumsumexp": ((X, -1), {}),
    "cumsum": ((X, 1), {}),
    "cumprod": ((X, 1), {}),
    "norm": ((X,), {}),
    "norm:dim": ((X, 1, 1), {}),
    "trace": ((of(4, 4),), {}),
    "allclose": ((X, X), {}),
    "equal": ((X, Y), {}),
    "matmul": ((X, Z), {}),
    "mm": ((X, Z), {}),
    "bmm": ((CUBES, MORE), {}),
    "mv": ((X, Z[:, 0]), {}),
    "dot": ((X[0], Y[0]), {}),
    "vdot": ((X[0], Y[0]), {}),
    "outer": ((X[0], Y[1]), {}),
    "addmm": ((of(5), X, Z), {"beta": 2, "alpha": 0.5}),
    "baddbmm": ((of(2, 3, 3), CUBES, MORE), {"beta": 0}),
    "cross": ((of(2, 3), of(2, 3)), {"dim": 1}),
    "tensordot": ((X, Z, 1), {}),
    "einsum": (("ij,jk->ik", X, Z), {}),
    "matrix_exp": ((of(3, 3),), {}),
    "reshape": ((X, (2, 6)), {}),
    "flatten": ((CUBES, 1), {}),
    "unflatten": ((X, 1, (2, 2)), {}),
    "transpose": ((CUBES, 0, 2), {}),
    "permute": ((CUBES, (2, 0, 1)), {}),
    "movedim": ((CUBES, 0, 2), {}),
    "squeeze": ((of(1, 2, 1), 0), {}),
    "unsqueeze": ((X, 1), {}),
    "broadcast_to": ((X, (2, 3, 4)), {}),
    "cat": (([X, Y], 1), {}),
    "concat": (([X, Y],), {}),
    "stack": (([X, Y],), {}),
    "split": ((X, 3, 1), {}),
    "chunk": ((X, 2), {}),
    "unbind": ((X, 1), {}),
    "t": ((X,), {}),
    "ravel": ((X,), {}),
    "tile": ((X, (2, 1)), {}),
    "hstack": (([X, Y],), {}),
    "vstack": (([X, Y],), {}),
    "broadcast_tensors": ((X, X[:1]), {}),
    "meshgrid": ((X[0], Y[0]), {"indexing": "ij"}),
    "flip": ((X, (0, 1)), {}),
    "roll": ((X, 1, 0), {}),
    "repeat_interleave": ((X, 2, 1), {}),
    "gather": ((X, 1, ids(4, 2, 3)), {}),
    "scatter": ((X, 1, np.array([[0, 2], [3, 1]]), Y), {}),
    "scatter:value": ((X, 0, np.array([[0, 2, 1]]), 1.5), {}),
    "scatter_add": ((X, 1, ids(4, 3, 2), Y), {}),
    "index_add": ((X, 1, np.array([0, 2, 0]), of(3, 3)), {"alpha": 2}),
    "index_select": ((X, 1, np.array([0, 2])), {}),
    "take_along_dim": ((X, ids(4, 3, 2), 1), {}),
    "select": ((X, 1, 2), {}),
    "narrow": ((X, 1, 1, 2), {}),
    "where": ((MASK, X, Y), {}),
    "nonzero": ((MASK,), {}),
    "masked_fill": ((X, MASK, 0.5), {}),
    "masked_select": ((X, MASK), {}),
    "tril": ((X,), {}),
    "triu": ((X, 1), {}),
    "diag": ((X[0],), {}),
    "diagonal": ((X,), {"offset": 1}),
    "zeros_like": ((X,), {}),
    "ones_like": ((X,), {}),
    "full_like": ((X, 2.0), {}),
    "detach": ((X,), {}),
    "clone": ((X,), {}),
    "real": ((X + 1j * Y,), {}),
    "imag": ((X + 1j * Y,), {}),
    "numel": ((X,), {}),
    "is_floating_point": ((X,), {}),
    "is_complex": ((X,), {}),
}


def converted(value: Any, make: Any) -> Any:
    if isinstance(value, np.ndarray):
        return make(value)
    return [make(x) for x in value] if isinstance(value, list) else value


def results(value: Any) -> list[np.ndarray]:
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return [np.asarray(part) for part in parts]


@pytest.mark.parametrize("key", CALLS)
def test_a_plain_function_runs_in_the_library_of_its_arguments(key):
    name = key.partition(":")[0]
    args, kwargs = CALLS[key]
    function = getattr(mt, name)
    expected = getattr(torch, name)(*(converted(a, torch.tensor) for a in args), **kwargs)
    on_torch = function(*(converted(a, torch.tensor) for a in args), **kwargs)
    on_jax = function(*(converted(a, jax.numpy.asarray) for a in args), **kwargs)
    for a, b, c in zip(results(expected), results(on_torch), results(on_jax), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.shape == c.shape and a.dtype.kind == c.dtype.kind
        np.testing.assert_allclose(a, c, rtol=2e-5, atol=2e-6)


def test_every_plain_function_for_jax_is_compared_with_torch():
    apart = {
        "arange",
        "asarray",
        "empty_like",
        "full",
        "keys",
        "hold_key",
        "multinomial",
        "ones",
        "zeros",
    }
    apart |= {"batch_norm_and_statistics", "instance_norm_and_statistics", "new_zeros"}
    apart |= {"bernoulli", "rand_like", "randn_like", "recurrence", "swapaxes"}
    plain = set(jax_functions.__all__) - set(F.__all__) - apart
    assert plain == {key.partition(":")[0] for key in CALLS} - {"clip", "concat"}


# Parameters that arrays of jax leave without meaning, or that only they have.
NOT_COMPARED = {"out", "key", "layout", "pin_memory", "requires_grad", "memory_format", "inplace"}
NOT_COMPARED |= {"options", "divisor_override", "sparse_grad", "out_int32", "reduce", "threshold_"}


@pytest.mark.parametrize("name", jax_functions.__all__)
def test_functions_for_jax_have_the_parameters_of_those_of_modtree(name):
    ours = getattr(F, name, None) if name in F.__all__ else getattr(mt, name, None)
    if ours is None or name in (
        "arange",
        "asarray",
        "full",
        "ones",
        "zeros",
        "dot",
    ):
        return

    def parameters(function: Any) -> list[str]:
        found = inspect.signature(function).parameters
        return [p for p in found if p not in NOT_COMPARED and p != "threshold"]

    assert parameters(getattr(jax_functions, name)) == parameters(ours)


def test_a_function_that_a_library_lacks_is_named_with_the_path():
    class Gamma(nn.Module):
        def forward(self, x):
            return mt.linalg.svd(x)

    with raises(NotImplementedError, "0: linalg.svd() is not available for tensors of jax"):
        nn.Sequential(Gamma())(jax.numpy.ones((2, 2)))
    with raises(NotImplementedError, "slogdet() is not available for tensors of jax"):
        mt.slogdet(jax.numpy.ones((3, 3)))


def test_the_third_argument_of_softmax_is_a_dtype():
    array = jax.numpy.ones(2)
    assert mt.softmax(array, 0, jax.numpy.bfloat16).dtype == jax.numpy.bfloat16
    assert mt.log_softmax(array, 0, jax.numpy.bfloat16).dtype == jax.numpy.bfloat16


def test_functions_of_linalg_run_in_that_of_torch():
    x = torch.rand(3, 3)
    assert torch.equal(mt.linalg.norm(x, 1), torch.linalg.norm(x, 1))
    assert torch.equal(mt.linalg.inv(x), torch.linalg.inv(x))


def test_tensors_of_two_libraries_meet_in_an_error_that_names_both():
    array, tensor, own = jax.numpy.ones(2), torch.ones(2), mt.ones(2)
    with raises(TypeError, "add(): expected tensors of one library", "of jax and other of torch"):
        mt.add(array, tensor)
    with raises(TypeError, "cat(): expected tensors of one library", "of torch and tensors of mod"):
        mt.cat([tensor, own])
    with raises(TypeError, "mul(): expected", "got input (torch.Tensor) of torch"):
        mt.mul(tensor, own)
    with raises(TypeError, "expected a modtree.Tensor or a number", "torch.Tensor"):
        mt.mul(own, tensor)


def test_random_arrays_like_others_take_keys():
    from modtree.jax_arrays.functions import keys

    array = jax.numpy.full((2000,), 0.25)
    with keys(jax.random.key(0)):
        uniform, normal, drawn = mt.rand_like(array), mt.randn_like(array), mt.bernoulli(array)
    assert abs(uniform.mean() - 0.5) < 0.05 and 0 <= uniform.min() and uniform.max() < 1
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1
    assert set(drawn.tolist()) == {0, 1} and abs(drawn.mean() - 0.25) < 0.05


def test_functions_that_make_tensors_of_values_take_those_of_other_libraries():
    assert isinstance(mt.tensor(torch.ones(2)), mt.Tensor)
    assert isinstance(mt.as_tensor(np.ones(2)), mt.Tensor)


def test_a_mode_sees_calls_with_tensors_of_other_libraries_first():
    seen = []

    class Watch(mt.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Watch():
        result = mt.exp(torch.zeros(2))
    assert seen == ["exp"] and torch.equal(result, torch.ones(2))


def test_classes_that_register_after_a_call_are_met():
    class Late:
        pass

    class LateFamily(mt.families.TensorFamily):
        name = "late"
        tensor_type = parameter_type = Late
        functions = ("modtree.jax_arrays.functions",)

    with raises(TypeError, "exp()"):
        mt.exp(Late())
    try:
        mt.families.register(__name__.partition(".")[0], LateFamily())
        with raises(NotImplementedError, "slogdet() is not available for tensors of late"):
            mt.slogdet(Late())
    finally:
        mt.core.families._families.pop(__name__.partition(".")[0])
        mt._C._forget_families()
