# SPDX-License-Identifier: BSD-3-Clause
"""torch's modules as attributes of ours, and ours of torch's: plain attributes, which a warning
says once per class.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import warnings
import weakref

import pytest
from helpers.implementations import needs_torch
from helpers.internals import needs_object_methods
from helpers.support import raises, warns

import modtree as mt
from modtree import nn


@pytest.fixture
def torch_nn(torch):
    return torch.nn


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_a_torch_module_in_ours(torch_nn):
    class Layer(torch_nn.Linear):
        pass

    m, child = nn.Module(), Layer(2, 2)
    with pytest.warns(UserWarning) as caught:
        m.child = child
    (warning,) = caught
    text = str(warning.message)
    assert f"Module.child is a torch.nn.Module ({__name__}.{Layer.__qualname__})" in text
    assert "plain attribute" in text and "state_dict()" in text and "modtree.nn" in text
    assert warning.filename == __file__
    assert m.child is child and list(m.parameters()) == [] and "child" in m.__dict__


def test_once_per_class(torch_nn, quiet):
    class Layer(torch_nn.Module):
        pass

    class Below(Layer):
        pass

    m = nn.Module()
    for cls in (Layer, Below):
        with warns(UserWarning, "is a torch.nn.Module"):
            m.a = cls()
        m.a, m.b = cls(), cls()
        nn.Sequential().c = cls()
        del m.a


@pytest.mark.slow
def test_a_class_at_the_place_of_a_dead_one(torch_nn):
    for _ in range(20):
        cls = type("Layer", (torch_nn.Module,), {})
        m = nn.Module()
        with warns(UserWarning, "is a torch.nn.Module"):
            m.a = cls()
        ref = weakref.ref(cls)
        del cls, m
        gc.collect()
        assert ref() is None


def test_as_an_error_nothing_is_assigned(torch_nn, quiet):
    class Layer(torch_nn.Module):
        pass

    m = nn.Module()
    for _ in range(2):
        with raises(UserWarning, "is a torch.nn.Module"):
            m.a = Layer()
        assert not hasattr(m, "a")


def test_where_it_is_an_error_anyway(torch_nn, quiet):
    class Layer(torch_nn.Module):
        pass

    m = nn.Module()
    m.child, m.p = nn.Module(), nn.Parameter(mt.ones(1))
    m.register_buffer("b", None)
    for name in ("child", "p", "b"):
        with raises(TypeError, f"'{name}'"):
            setattr(m, name, Layer())
    for add in (m.add_module, m.register_module):
        with raises(TypeError, "is not a Module subclass"):
            add("x", Layer())


@needs_object_methods
def test_object_setattr_of_a_torch_module_is_meant(torch_nn, quiet):
    class Layer(torch_nn.Module):
        pass

    m, child = nn.Module(), Layer()
    object.__setattr__(m, "child", child)
    m.__dict__["other"] = child
    assert m.child is m.other is child


def test_a_metaclass_may_answer_anything(torch_nn):
    class Meta(type):
        __hash__ = None

        def __eq__(cls, other):
            raise ZeroDivisionError

    class Layer(torch_nn.Module, metaclass=Meta):
        __hash__ = object.__hash__

    class Other(metaclass=Meta):
        __hash__ = object.__hash__

    m = nn.Module()
    m.other = Other()
    with warns(UserWarning, "is a torch.nn.Module"):
        m.a = Layer()
    m.b = Layer()


@pytest.mark.parametrize("late", [False, True])
def test_values_that_are_no_modules(torch_nn, quiet, late):
    import torch

    class Plain:
        pass

    m = nn.Module()
    if late:
        m.__dict__  # noqa: B018
    for value in (
        Plain(),
        Plain,
        torch_nn.Module,
        torch.Size([1]),
        torch.float32,
        torch.nn.functional,
        1,
        None,
    ):
        m.value = value
        assert m.value is value


@needs_object_methods
def test_our_module_in_one_of_torch(torch_nn, quiet):
    class Model(torch_nn.Module):
        def __init__(self, child):
            super().__init__()
            self.child = child

    child = nn.Linear(2, 2)
    with pytest.warns(UserWarning) as caught:
        model = Model(child)
    (warning,) = caught
    text = str(warning.message)
    assert (
        "Model.child is a module of modtree (Linear), which torch keeps as a plain attribute"
        in text
    )
    assert warning.filename == __file__
    assert model.child is child and list(model.parameters()) == []
    Model(child).other = child

    class Other(torch_nn.Module):
        pass

    with warns(UserWarning, "Other.child is a module of modtree"):
        object.__setattr__(Other(), "child", child)


@needs_torch
def test_our_module_in_other_objects(quiet):
    class Plain:
        def __setattr__(self, name, value):
            super().__setattr__(name, value)

    holder = Plain()
    holder.child = nn.Module()
    assert isinstance(holder.child, nn.Module)


def test_without_torch_nothing_is_imported():
    program = """
        import sys
        import warnings
        warnings.simplefilter("error")
        from modtree import nn

        class Module:
            pass

        Module.__module__ = "torch.nn.modules.module"
        m = nn.Module()
        m.child = type("Layer", (Module,), {})()
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
