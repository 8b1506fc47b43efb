# SPDX-License-Identifier: BSD-3-Clause
"""Cycles through every reference that a native object of the tensors holds are found by the
collector. Those of modules and walks: ``tests/module/test_gc.py``.
"""

from __future__ import annotations

import functools
import gc
import weakref

import pytest

import modtree as mt
from modtree import _C


class Token:
    """Something that can be watched."""


class Text(str):
    """A str with attributes."""


class Rule:
    """A callable with attributes."""

    def __call__(self, *args, **kwargs):
        return None


def dies(make):
    """``make(token)`` gives an object in a cycle that holds the token; both are gone after a
    collection.
    """
    token = Token()
    obj = make(token)
    assert gc.is_tracked(obj)
    watch = weakref.ref(token)
    del token, obj
    assert watch() is not None, "no cycle: it died at once"
    gc.collect()
    assert watch() is None


def leaf():
    return mt.ones(2, requires_grad=True)


TENSORS = {
    "attribute": lambda t, holder: setattr(t, "holder", holder),
    "hook": lambda t, holder: t.register_hook(functools.partial(id, holder)),
    "post-accumulate hook": lambda t, holder: t.register_post_accumulate_grad_hook(
        functools.partial(id, holder)
    ),
    "grad": lambda t, holder: (setattr(t, "grad", g := mt.ones(2)), setattr(g, "h", holder)),
}


@pytest.mark.parametrize("put", TENSORS.values(), ids=TENSORS)
def test_tensor(put):
    def make(token):
        t, holder = leaf(), Token()
        holder.token, holder.tensor = token, t
        put(t, holder)
        return t

    dies(make)


def test_base_of_a_view():
    def make(token):
        base = mt.ones(2)
        base.token, base.view = token, base[:1]
        return base.view

    dies(make)


@pytest.mark.parametrize("pre", [False, True])
def test_hook_of_a_node(pre):
    def make(token):
        y, holder = leaf() * 2, Token()
        holder.token, holder.y = token, y
        register = y.grad_fn.register_prehook if pre else y.grad_fn.register_hook
        register(functools.partial(id, holder))
        return y.grad_fn

    dies(make)


def test_hook_of_a_result():
    def make(token):
        y, holder = leaf() * 2, Token()
        holder.token, holder.node = token, y.grad_fn
        y.register_hook(functools.partial(id, holder))
        return holder.node

    dies(make)


def test_metadata_of_a_node():
    def make(token):
        y = leaf() * 2
        y.grad_fn.metadata.update(token=token, y=y)
        return y.grad_fn

    dies(make)


def test_edge_of_a_node():
    def make(token):
        x = leaf()
        y = x.exp()
        x.token, x.node = token, y.grad_fn
        return x

    dies(make)


def test_saved_argument_of_a_node():
    def make(token):
        x, size = leaf(), Token()
        with mt.autograd.graph.saved_tensors_hooks(lambda t: size, lambda s: mt.ones(2)):
            y = x * x
        size.token, size.y = token, y
        return y

    dies(make)


def test_saved_result_of_a_node():
    def make(token):
        packed = Token()
        with mt.autograd.graph.saved_tensors_hooks(lambda t: packed, lambda s: mt.ones(2)):
            y = leaf().exp()
        packed.token, packed.y = token, y
        return y

    dies(make)


def doubling(name=None, function=None, joint=None):
    """An operation of ours with a derivative, whose call takes a keyword."""
    op = _C.Op("double", lambda a, factor=2: a * factor)
    name, function = name or "DoubleBackward", function or Rule()
    op._set_derivative(name, (function,), ((1, 0, False),), joint, None, True)
    return op


def test_keyword_names_of_a_node():
    def make(token):
        name = Text("factor")
        y = doubling()(leaf(), **{name: 3})
        name.token, name.y = token, y
        return y

    dies(make)


@pytest.mark.parametrize("part", ["name", "function", "joint"])
def test_derivative_of_an_operation(part):
    def make(token):
        held = Text("Name") if part == "name" else Rule()
        op = doubling(**{part: held})
        held.token, held.op = token, op
        return op

    dies(make)


def test_operation_of_a_node():
    def make(token):
        op = doubling()
        op.token, op.node = token, op(leaf(), factor=2).grad_fn
        return op

    dies(make)


def test_name_of_a_node_of_a_function():
    watch = None
    for _ in range(2):
        x, name = leaf(), Text("TextBackward")
        with mt.no_grad():
            y = x * 2
        _C.record_python(name, (x,), (y,), Rule())
        assert repr(y.grad_fn).startswith("<TextBackward")
        name.y = y
        watch = weakref.ref(name)
        del name, y
        gc.collect()
        assert watch() is None


OPS = {
    "name": lambda x: _C.Op(x, lambda a: a),
    "forward": lambda x: _C.Op("double", x),
    "meta": lambda x: _C.Op("double", lambda a: a, meta=x),
    "doc": lambda x: _C.Op("double", lambda a: a, doc=x),
}


@pytest.mark.parametrize("make_op", OPS.values(), ids=OPS)
def test_operation(make_op):
    def make(token):
        part = Rule() if make_op in (OPS["forward"], OPS["meta"]) else Text("text")
        op = make_op(part)
        part.token, part.op = token, op
        return op

    dies(make)


def test_rule_for_out_of_an_operation():
    def make(token):
        op, rule, doc = _C.Op("double", lambda a: a), Text("like"), Text("doc")
        op._take_out(rule, doc)
        rule.token, rule.op, doc.rule = token, op, rule
        return op

    dies(make)


@pytest.mark.parametrize("part", ["function", "announced", "rule"])
def test_overridable(part):
    def make(token):
        held = Text("like") if part == "rule" else Rule()
        function = _C.Overridable(held if part == "function" else Rule())
        if part == "announced":
            function._announce(held)
        elif part == "rule":
            function._take_out(held)
        held.token, held.function = token, function
        return function

    dies(make)


@pytest.mark.parametrize("member", ["device", "dtype", "memory_format"])
def test_conversion(member):
    def make(token):
        held = Token()
        held.token, held.conversion = token, _C.Conversion("all", **{member: held})
        return held.conversion

    dies(make)


@pytest.mark.parametrize("member", ["fn", "done"])
def test_keep_ties(member):
    def make(token):
        held = Rule()
        held.token = token
        held.ties = ties = _C.KeepTies(held if member == "fn" else lambda t: held)
        return ties

    dies(make)
