# SPDX-License-Identifier: BSD-3-Clause
"""Dotted paths: ``get_submodule``, ``set_submodule``, ``get_parameter``, ``get_buffer``, and the
extra state stubs.
"""

from __future__ import annotations

import warnings

import pytest
from helpers.support import raises
from helpers.util import buffer, small_tree, tensor

# -- get_submodule ---------------------------------------------------------------------------------


def test_get_submodule(impl):
    m = small_tree(impl)
    m.left.deep = impl.nn.Module()
    m.left.deep.add_module("0", impl.nn.Module())
    assert m.get_submodule("") is m
    assert m.get_submodule("left") is m.left
    assert m.get_submodule("left.deep") is m.left.deep
    assert m.get_submodule("left.deep.0") is m.left.deep._modules["0"]
    assert m.get_submodule(target="again.deep") is m.left.deep


@pytest.mark.parametrize(
    "path", ["nope", "left.nope", "left..deep", ".left", "left.", ".", "left.-1"]
)
def test_get_submodule_of_a_missing_name(impl, path):
    m = small_tree(impl)
    missing = next(a for a in path.split(".") if a != "left")
    with raises(AttributeError, f"Module has no attribute `{missing}`"):
        m.get_submodule(path)


@pytest.mark.parametrize(
    "path", ["scale", "none", "left.weight", "left.mean", "left.gone", "plain", "forward"]
)
def test_get_submodule_of_something_else(impl, path):
    m = small_tree(impl)
    m.plain = 3
    with raises(AttributeError, f"`{path.split('.')[-1]}` is not an nn.Module"):
        m.get_submodule(path)


def test_get_submodule_names_the_class(impl):
    class Own(impl.nn.Module):
        pass

    class Renamed(impl.nn.Module):
        def _get_name(self):
            return "Pretty"

    m = Own()
    m.child = Renamed()
    with raises(AttributeError, "Own has no attribute `x`"):
        m.get_submodule("x")
    with raises(AttributeError, "Pretty has no attribute `x`"):
        m.get_submodule("child.x")


def test_get_submodule_sees_plain_attributes_and_properties(impl):
    class M(impl.nn.Module):
        @property
        def alias(self):
            return self.child

    m = M()
    m.child = impl.nn.Module()
    m.child.leaf = impl.nn.Module()
    m.__dict__["plain"] = m.child
    assert m.get_submodule("alias.leaf") is m.child.leaf
    assert m.get_submodule("plain.leaf") is m.child.leaf


def test_get_submodule_uses_getattr_of_the_children(impl):
    class Proxy(impl.nn.Module):
        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("wrapped"), name)

    m = impl.nn.Module()
    m.proxy = Proxy()
    m.proxy.wrapped = small_tree(impl)
    assert m.get_submodule("proxy.left") is m.proxy.wrapped.left


def test_dotted_names_are_out_of_reach(impl):
    m = impl.nn.Module()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        setattr(m, "a.b", impl.nn.Module())
    with raises(AttributeError, "has no attribute `a`"):
        m.get_submodule("a.b")


@pytest.mark.parametrize("target", [3, None, ["a"]])
def test_targets_that_are_no_strings(impl, target):
    m = small_tree(impl)
    for method in (m.get_submodule, m.get_parameter, m.get_buffer):
        with pytest.raises(AttributeError):
            method(target)


def test_get_submodule_passes_other_exceptions(impl):
    class M(impl.nn.Module):
        @property
        def bad(self):
            raise ValueError("getter")

    with raises(ValueError, "getter"):
        M().get_submodule("bad")


# -- set_submodule ---------------------------------------------------------------------------------


def test_set_submodule(impl):
    m = small_tree(impl)
    new = impl.nn.Module()
    assert m.set_submodule("left", new) is None
    assert m.left is new and list(m._modules) == ["left", "none", "right", "again"]
    deep = impl.nn.Module()
    m.set_submodule("right.fresh", deep)
    assert m.right.fresh is deep
    with raises(AttributeError, "is not an nn.Module"):
        m.set_submodule("none", new)


def test_set_submodule_strict(impl):
    m = small_tree(impl)
    new = impl.nn.Module()
    with raises(AttributeError, "has no attribute `fresh`"):
        m.set_submodule("left.fresh", new, strict=True)
    with raises(AttributeError, "has no attribute `fresh`"):
        m.set_submodule("fresh", new, True)
    m.set_submodule("left", new, strict=True)
    assert m.left is new


@pytest.mark.parametrize(
    "path", ["scale", "left.weight", "left.mean", "left.gone", "none", "plain"]
)
def test_set_submodule_over_something_else(impl, path):
    m = small_tree(impl)
    m.plain = 3
    for strict in (False, True):
        with raises(AttributeError, f"`{path.split('.')[-1]}` is not an nn.Module"):
            m.set_submodule(path, impl.nn.Module(), strict)


def test_set_submodule_order_of_checks(impl):
    m = small_tree(impl)
    with raises(ValueError, "Cannot set the submodule without a target name"):
        m.set_submodule("", 3)
    with raises(ValueError, "`module` is not an nn.Module, found "):
        m.set_submodule("nope.x", 3)
    with raises(AttributeError, "has no attribute `nope`"):
        m.set_submodule("nope.x", impl.nn.Module())


def test_set_submodule_assigns_through_setattr(impl):
    seen = []

    class M(impl.nn.Module):
        def __setattr__(self, name, value):
            seen.append(name)
            super().__setattr__(name, value)

    m = M()
    m.child = M()
    seen.clear()
    m.set_submodule("child.x", impl.nn.Module())
    assert seen == ["x"] and isinstance(m.child.x, impl.nn.Module)


def test_set_submodule_uses_an_overridden_get_submodule(impl):
    class M(impl.nn.Module):
        def get_submodule(self, target):
            return self.other

    m = M()
    m.other = impl.nn.Module()
    new = impl.nn.Module()
    m.set_submodule("whatever.x", new)
    assert m.other.x is new


# -- get_parameter, get_buffer ---------------------------------------------------------------------


def test_get_parameter(impl):
    m = small_tree(impl)
    assert m.get_parameter("scale") is m.scale
    assert m.get_parameter("left.weight") is m.left.weight
    assert m.get_parameter("again.weight") is m.left.weight
    m.left.__dict__["hidden"] = m.scale
    assert m.get_parameter("left.hidden") is m.scale


@pytest.mark.parametrize(
    "path", ["left.gone", "left.mean", "left", "none", "left.plain", "forward"]
)
def test_get_parameter_of_something_else(impl, path):
    m = small_tree(impl)
    m.left.plain = tensor(impl)
    with raises(AttributeError, f"`{path.split('.')[-1]}` is not an nn.Parameter"):
        m.get_parameter(path)


@pytest.mark.parametrize("method", ["get_parameter", "get_buffer"])
@pytest.mark.parametrize("path", ["nope", "left.nope", "left."])
def test_missing_tensors(impl, method, path):
    m = small_tree(impl)
    with raises(AttributeError, f"Module has no attribute `{path.rpartition('.')[2]}`"):
        getattr(m, method)(path)


@pytest.mark.parametrize("method", ["get_parameter", "get_buffer"])
def test_missing_modules_on_the_way(impl, method):
    m = small_tree(impl)
    with raises(AttributeError, "has no attribute `nope`"):
        getattr(m, method)("nope.weight")
    with raises(AttributeError, "`scale` is not an nn.Module"):
        getattr(m, method)("scale.x")


def test_get_buffer(impl):
    m = small_tree(impl)
    assert m.get_buffer("left.mean") is m.left.mean
    assert m.get_buffer("left.scratch") is m.left.scratch
    assert m.get_buffer("right.empty") is None
    m.x = buffer(impl)
    assert m.get_buffer("x") is m.x


@pytest.mark.parametrize("path", ["left.weight", "left", "left.plain", "none"])
def test_get_buffer_of_something_else(impl, path):
    m = small_tree(impl)
    m.left.plain = tensor(impl)
    with raises(AttributeError, f"`{path.split('.')[-1]}` is not a buffer"):
        m.get_buffer(path)


def test_tensor_lookups_use_an_overridden_get_submodule(impl):
    class M(impl.nn.Module):
        def get_submodule(self, target):
            return super().get_submodule("inner." + target if target else "inner")

    m = M()
    m.inner = small_tree(impl)
    assert m.get_parameter("left.weight") is m.inner.left.weight
    assert m.get_parameter("scale") is m.inner.scale
    assert m.get_buffer("left.mean") is m.inner.left.mean


# -- extra state -----------------------------------------------------------------------------------


def test_extra_state_of_the_base_class(impl):
    m = impl.nn.Module()
    with raises(RuntimeError, "should never be called"):
        m.get_extra_state()
    with raises(RuntimeError, "should never be called"):
        m.set_extra_state(3)
