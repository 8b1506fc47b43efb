# SPDX-License-Identifier: BSD-3-Clause
"""Functions of the extension read their arguments as Python's own do, and say what is wrong."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

from modtree import _C
from modtree._C import kernels

X = np.ones((4, 4), np.float32)


class Raises:
    def __index__(self):
        raise KeyError("index")

    def __bool__(self):
        raise KeyError("bool")

    def __float__(self):
        raise KeyError("float")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: kernels.gelu(), TypeError, "missing required argument: 'x'"),
        (lambda: kernels.gelu([1.0]), TypeError, "x must be a NumPy array, got list"),
        (lambda: kernels.gelu(X, False, None, 1), TypeError, "at most 3 positional arguments"),
        (lambda: kernels.gelu(X, tanh=[]), TypeError, "tanh must be a bool, got list"),
        (lambda: kernels.gelu(X, x=X), TypeError, "multiple values for argument 'x'"),
        (lambda: kernels.gelu(X, nope=1), TypeError, "unexpected keyword argument 'nope'"),
        (lambda: kernels.gelu(X, **{"\udc80": 1}), TypeError, "unexpected keyword argument"),
        (lambda: kernels.scan(X, 1.0), TypeError, "axis must be an integer, got float"),
        (lambda: kernels.scan(X, 1 << 70), OverflowError, "axis is too large"),
        (lambda: kernels.clamp(X, "a"), TypeError, "a must be a number, got str"),
        (lambda: kernels.max_pool(X, (1, 2, 3)), TypeError, "kernel must have 2 items, got 3"),
        (lambda: kernels.max_pool(X, (1, 2.0)), TypeError, "an item of kernel must be an integer"),
        (lambda: kernels.max_pool(X, "ab"), TypeError, "kernel must be a sequence, got str"),
        (lambda: kernels.grid_sample(X, X, b"a", "b", True), TypeError, "mode must be a str"),
        (lambda: kernels.col2im(X, [1] * 99, (1, 1)), ValueError, "shape has 99 axes"),
        (lambda: kernels.sgd_step(X, X, None, 0.1), TypeError, "at most 3 positional"),
        (lambda: kernels.sgd_step(X, X, None), TypeError, "missing required argument: 'lr'"),
        (lambda: _C.as_dtype(value="f4"), TypeError, "unexpected keyword argument 'value'"),
        (lambda: _C.run_backward([], (), None, 0, 0, 0, 0), TypeError, "roots must be a tuple"),
        (lambda: _C.as_subclass(1, 2), TypeError, "cls must be a class, got int"),
        (lambda: _C._result_type(a=1), TypeError, "takes no keyword arguments"),
        (lambda: _C._install(1), TypeError, "takes no positional arguments"),
    ],
)
def test_wrong_arguments_are_named(call, error, text):
    with pytest.raises(error, match=text.replace("(", r"\(")):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: kernels.scan(X, Raises()),
        lambda: kernels.gelu(X, Raises()),
        lambda: kernels.clamp(X, Raises()),
        lambda: kernels.max_pool(X, (1, Raises())),
    ],
)
def test_an_error_of_the_arguments_own_code_comes_through(call):
    with pytest.raises(KeyError):
        call()


def test_items_that_change_their_sequence():
    sizes = [1, 1]

    class Clears:
        def __index__(self):
            sizes.clear()
            return 1

    sizes[0] = Clears()
    out, _ = kernels.max_pool(X, sizes)
    np.testing.assert_array_equal(out, X)
    assert sizes == []


def test_numbers_of_numpy_count_as_numbers():
    np.testing.assert_array_equal(kernels.scan(X, np.int64(-1)), X.cumsum(1))
    np.testing.assert_array_equal(kernels.clamp(X, np.float32(2), True), X)


def test_signatures_names_and_pickles():
    signature = inspect.signature(kernels.max_pool)
    assert str(signature) == (
        "(x, kernel, stride=None, padding=(0, 0), dilation=(1, 1), output=None)"
    )
    assert kernels.max_pool.__module__ == "modtree._C.kernels"
    assert pickle.loads(pickle.dumps(kernels.max_pool)) is kernels.max_pool
    for function in vars(kernels).values():
        if inspect.isbuiltin(function):
            assert function.__doc__ and inspect.signature(function)


def test_functions_say_the_types_of_their_parameters_and_result():
    array = "np.ndarray[Any, Any]"
    found = _C._annotations(kernels.fmod).split("\n")
    assert found == [array] * 3  # without the name of the function, which C++ gets too
    found = _C._annotations(kernels.scatter_add_rows).split("\n")
    assert found == ["Any", array, "int", "int | None", "Any"]
    assert _C._annotations(_C._set_torch_to) == "Any\nNone"


def test_other_objects_say_no_types():
    assert {_C._annotations(other) for other in (None, len, _C._has_torch_function)} == {""}
