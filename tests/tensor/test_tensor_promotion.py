# SPDX-License-Identifier: BSD-3-Clause
"""Type promotion, against torch: every pair of dtypes, with dimensions, 0-d, and Python numbers."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import modtree as mt

torch = pytest.importorskip("torch")

DTYPES = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()
OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
NUMBERS = [True, 2, 2.5, 1 + 2j]


pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def _name(dtype) -> str:
    """The dtype's name; NumPy has no complex32, its place is taken by complex64."""
    return str(dtype).rpartition(".")[2].replace("complex32", "complex64")


def _outcome(function, a, b):
    """The result, or the class of the error."""
    try:
        return function(a, b)
    except (RuntimeError, TypeError, ZeroDivisionError, ValueError) as error:
        return type(error)


def _compare(symbol, ours, theirs, what):
    if isinstance(theirs, type):
        # torch lacks some kernels (float16 on cpu, complex floor division); where it has one we
        # have one.
        return
    assert not isinstance(ours, type), f"{what}: torch gives {theirs}, we raise {ours}"
    assert _name(ours.dtype) == _name(theirs.dtype), what
    assert tuple(ours.shape) == tuple(theirs.shape), what
    exact = theirs.dtype in (
        torch.bool,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
    )
    if theirs.dtype == torch.complex32:
        return
    if exact:
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=what)
    else:
        tolerance = 2e-3 if "float16" in _name(theirs.dtype) else 1e-5
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=tolerance, err_msg=what)


@pytest.mark.parametrize("symbol", OPERATORS)
@pytest.mark.parametrize("shapes", ["dims-dims", "dims-0d", "0d-dims", "0d-0d"])
def test_pairs_of_tensors(symbol, shapes):
    function = OPERATORS[symbol]
    values = {"dims": [1, 3, 5], "0d": 3}
    others = {"dims": [2, 1, 3], "0d": 2}
    left, right = shapes.split("-")
    for da in DTYPES:
        for db in DTYPES:
            what = f"{da} {symbol} {db} ({shapes})"
            ours = _outcome(
                function,
                mt.tensor(values[left], dtype=getattr(mt, da)),
                mt.tensor(others[right], dtype=getattr(mt, db)),
            )
            theirs = _outcome(
                function,
                torch.tensor(values[left], dtype=getattr(torch, da)),
                torch.tensor(others[right], dtype=getattr(torch, db)),
            )
            _compare(symbol, ours, theirs, what)


@pytest.mark.parametrize("symbol", OPERATORS)
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("value", [[1, 3, 5], 3], ids=["dims", "0d"])
def test_python_numbers(symbol, side, value):
    function = OPERATORS[symbol]
    for dtype in DTYPES:
        for number in NUMBERS:
            what = f"{dtype} {symbol} {number!r} ({side})"

            def apply(tensor, number=number):
                pair = (tensor, number) if side == "right" else (number, tensor)
                return function(*pair)

            ours = _outcome(lambda t, _: apply(t), mt.tensor(value, dtype=getattr(mt, dtype)), None)
            theirs = _outcome(
                lambda t, _: apply(t), torch.tensor(value, dtype=getattr(torch, dtype)), None
            )
            _compare(symbol, ours, theirs, what)


def test_result_type_agrees_for_every_combination():
    for da in DTYPES:
        for db in DTYPES:
            expected = torch.promote_types(getattr(torch, da), getattr(torch, db))
            assert _name(mt.promote_types(getattr(mt, da), getattr(mt, db))) == _name(expected)
            for sa in ((), (2,)):
                for sb in ((), (2,)):
                    ours = mt.result_type(
                        mt.zeros(sa, dtype=getattr(mt, da)), mt.zeros(sb, dtype=getattr(mt, db))
                    )
                    theirs = torch.result_type(
                        torch.zeros(sa, dtype=getattr(torch, da)),
                        torch.zeros(sb, dtype=getattr(torch, db)),
                    )
                    assert _name(ours) == _name(theirs), (da, sa, db, sb)


def test_numpy_numbers_count_as_python_numbers():
    t = mt.ones(2)
    for number in (np.float64(2), np.float32(2), np.int64(2), np.bool_(True)):
        assert (t * number).dtype is mt.float32
        assert (t + number).dtype is mt.float32
    assert (mt.ones(2, dtype=mt.int64) * np.float64(1.5)).dtype is mt.float32


def test_default_dtype_decides_for_numbers():
    try:
        mt.set_default_dtype(mt.float64)
        assert mt.tensor(1.5).dtype is mt.float64
        assert (mt.tensor([1, 2]) / 2).dtype is mt.float64
        assert (mt.tensor([1, 2]) * 1.5).dtype is mt.float64
        assert mt.tensor(1j).dtype is mt.complex128
    finally:
        mt.set_default_dtype(mt.float32)
    with pytest.raises(TypeError, match="only floating-point types are supported"):
        mt.set_default_dtype(mt.int64)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_integers_wrap_around(dtype):
    ours = mt.tensor([100, 120], dtype=getattr(mt, dtype))
    theirs = torch.tensor([100, 120], dtype=getattr(torch, dtype))
    for number in (300, -1, 70000):
        np.testing.assert_array_equal((ours + number).numpy(), (theirs + number).numpy())
        np.testing.assert_array_equal((ours * number).numpy(), (theirs * number).numpy())


def test_in_place_results_must_fit():
    t = mt.tensor([1, 2])
    with pytest.raises(
        RuntimeError, match="result type Float can't be cast to the desired output type Long"
    ):
        t += 1.5
    with pytest.raises(RuntimeError, match="result type Float can't be cast"):
        t /= 2
    t *= 3
    assert t.tolist() == [3, 6]
    f = mt.ones(2)
    f += mt.ones(2, dtype=mt.float64)
    assert f.dtype is mt.float32 and f.tolist() == [2, 2]


def test_integer_division_by_zero_is_an_error():
    for op in (operator.floordiv, operator.mod):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            op(mt.tensor([1]), 0)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            op(mt.tensor([1, 2]), mt.tensor([1, 0]))
