# SPDX-License-Identifier: BSD-3-Clause
"""Classes of parameters and buffers that take part in a protocol of Python are asked in walks."""

from __future__ import annotations

import importlib

import pytest
from helpers.util import names


@pytest.fixture
def Parameter(impl):
    """The class of the leaves' library."""
    home = "modtree.nn" if impl.leaves == "numpy" else "torch.nn"
    return importlib.import_module(home).Parameter


WAYS = {
    "parameters": lambda m: list(m.parameters()),
    "named_parameters": lambda m: list(m.named_parameters()),
    "zero_grad": lambda m: m.zero_grad(),
    "requires_grad_": lambda m: m.requires_grad_(False),
}


@pytest.mark.parametrize("where", ["root", "child"])
@pytest.mark.parametrize("way", WAYS)
def test_a_hash_of_a_parameter_is_used(impl, Parameter, way, where):
    class Own(Parameter):
        def __hash__(self):
            raise KeyError("hash")

    m = impl.nn.Module()
    m.weight = Own(impl.lib.ones(1))
    with pytest.raises(KeyError, match="hash"):
        WAYS[way](m if where == "root" else impl.nn.Sequential(impl.nn.Identity(), m))


def test_a_hash_of_a_buffer_is_used(impl):
    class Own(impl.lib.Tensor):
        def __hash__(self):
            raise KeyError("hash")

    m = impl.nn.Module()
    m.register_buffer("count", impl.lib.ones(1).as_subclass(Own))
    for way in (m.buffers, m.named_buffers):
        with pytest.raises(KeyError, match="hash"):
            list(way())
    assert names(m.named_parameters()) == []


def test_parameters_that_say_they_are_equal_are_one(impl, Parameter):
    class Own(Parameter):
        def __hash__(self):
            return 1

        def __eq__(self, other):
            return True

    m = impl.nn.Module()
    m.plain = Parameter(impl.lib.ones(1))
    m.first, m.second = Own(impl.lib.ones(1)), Own(impl.lib.ones(1))
    assert names(m.named_parameters()) == ["plain", "first"]
    assert len(list(m.named_parameters(remove_duplicate=False))) == 3
    m.requires_grad_(False)
    assert [p.requires_grad for p in (m.plain, m.first, m.second)] == [False, False, True]
    for p in (m.first, m.second):
        p.grad = impl.lib.ones(1)
    m.zero_grad()
    assert m.first.grad is None and m.second.grad is not None


@pytest.mark.parametrize("way", ["zero_grad", "double"])
def test_a_property_in_the_place_of_the_gradient_is_read(impl, Parameter, way):
    read = []

    class Own(Parameter):
        @property
        def grad(self):
            read.append(way)

    m = impl.nn.Module()
    m.weight = Own(impl.lib.ones(1))
    getattr(m, way)()
    assert read


def test_a_gradient_that_a_class_keeps_elsewhere_is_zeroed(impl, Parameter):
    class Own(Parameter):
        @property
        def grad(self):
            return self.__dict__.get("kept")

        @grad.setter
        def grad(self, value):
            self.__dict__["kept"] = value

    m = impl.nn.Module()
    m.weight = Own(impl.lib.ones(1))
    kept = m.weight.grad = impl.lib.ones(1)
    m.zero_grad(set_to_none=False)
    assert m.weight.grad is kept and kept.tolist() == [0.0]
    m.zero_grad()
    assert m.weight.grad is None
