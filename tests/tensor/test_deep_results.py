# SPDX-License-Identifier: BSD-3-Clause
"""Results that user code nests without end: a RecursionError, and never the end of the stack."""

from __future__ import annotations

import sys

import pytest

import modtree as mt
from modtree import _C
from modtree.numpy.ops import registry


def _in_itself():
    items = []
    items.append(items)
    return items


def _deep():
    items = ()
    for _ in range(200_000):
        items = (items,)
    return items


@pytest.fixture(params=[_in_itself, _deep], ids=["in-itself", "deep"])
def nested(request):
    return request.param()


@pytest.fixture(params=[None, 1_000_000], ids=["usual", "raised"])
def recursion_limit(request):
    """Also one that is higher than the stack of C bears."""
    old = sys.getrecursionlimit()
    sys.setrecursionlimit(request.param or old)
    yield
    sys.setrecursionlimit(old)


class _Own(mt.Tensor):
    pass


@pytest.mark.usefixtures("recursion_limit")
def test_a_result_that_is_converted_to_a_subclass(nested):
    with pytest.raises(RecursionError):
        _Own.__torch_function__(lambda: nested, (_Own,), (), {})


@pytest.mark.usefixtures("recursion_limit")
def test_a_result_that_is_wrapped(nested):
    with pytest.raises(RecursionError):
        _C.wrap(nested)


@pytest.fixture
def operation():
    """Makes an operation that is in no table."""

    def make(forward, **options):
        return _C.Op("nested", forward, **{"promote": "none", **options})

    yield make
    registry.ops.pop("nested", None)


@pytest.mark.usefixtures("recursion_limit")
@pytest.mark.parametrize("view", [True, False])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_result_of_an_operation(operation, nested, view, device):
    spec = nested if isinstance(nested, list) else [nested]
    op = operation(lambda x: nested, view=view, meta=lambda x: spec)
    expected = RecursionError
    if device == "meta" and not view and type(nested) is tuple:
        expected = TypeError  # a tuple is a shape and a dtype
    with pytest.raises(expected):
        op(mt.ones(2, device=device))


def test_nested_results_that_have_an_end_are_converted_whole():
    t = mt.ones(2)
    items = [t]
    for _ in range(100):
        items = [items, (t,)]
    result = _Own.__torch_function__(lambda: items, (_Own,), (), {})
    for _ in range(100):
        assert type(result[1][0]) is _Own
        result = result[0]
    assert type(result[0]) is _Own
