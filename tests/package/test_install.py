# SPDX-License-Identifier: BSD-3-Clause
"""``_C._install``: what native code takes from Python, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
from helpers.limits import HANGS_AFTER

import modtree
from modtree import _C

assert modtree.Tensor, "loads the NumPy side"
CLASSES = [name for name, value in _C._installed().items() if isinstance(value, type)]
FUNCTIONS = [
    name for name, value in _C._installed().items() if name not in CLASSES and callable(value)
]


@pytest.fixture(autouse=True)
def nothing_changes():
    before = _C._installed()
    yield
    assert _C._installed() == before


def test_everything_that_native_code_uses_is_there():
    assert None not in _C._installed().values()
    assert len(CLASSES) == 7 and len(FUNCTIONS) > 10


def test_an_unknown_name():
    with pytest.raises(TypeError, match="nothing of the name 'what'"):
        _C._install(what=1)


@pytest.mark.parametrize("wrong", [3, None, "Tensor", modtree.ones(1)], ids=repr)
@pytest.mark.parametrize("name", CLASSES)
def test_an_object_for_a_class(name, wrong):
    with pytest.raises(
        TypeError, match=f"'{name}' must be a (sub)?class.*got {type(wrong).__name__}: "
    ):
        _C._install(**{name: wrong})


@pytest.mark.parametrize("name", ["Tensor", "Parameter", "Size", "StateDict", "PickledTable"])
def test_a_class_of_another_kind(name):
    with pytest.raises(TypeError, match=f"'{name}' must be a subclass of [\\w.]+, got type"):
        _C._install(**{name: int})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_object_that_cannot_be_called(name):
    with pytest.raises(TypeError, match=f"'{name}' must be callable, got int: 3"):
        _C._install(**{name: 3})


@pytest.mark.parametrize("name, kind", [("cpu_device", "cpu"), ("meta_device", "meta")])
def test_another_object_for_a_device(name, kind):
    other = modtree.device("meta" if kind == "cpu" else "cpu")
    for wrong in (kind, None, other, SimpleNamespace(type=3)):
        with pytest.raises(TypeError, match=f"'{name}' must be the device whose type is '{kind}'"):
            _C._install(**{name: wrong})


def test_another_object_for_the_family():
    for wrong in (None, object(), SimpleNamespace(tensor_type=modtree.Tensor, parameter_type=int)):
        with pytest.raises(TypeError, match="'numpy_family' must be a family whose tensor_type"):
            _C._install(numpy_family=wrong)


def test_an_error_of_an_attribute_that_is_asked_for():
    class Refuses:
        @property
        def type(self):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _C._install(cpu_device=Refuses())


def test_one_wrong_object_among_good_ones():
    with pytest.raises(TypeError, match="'as_device'"):
        _C._install(find_family=print, IncompatibleKeys=int, as_device=3)
    with pytest.raises(TypeError, match="'what'"):
        _C._install(find_family=print, what=print)


def test_in_another_order_than_modtree_does():
    """In the extension alone, where nothing is installed."""
    program = f"""
        import importlib.machinery, importlib.util
        loader = importlib.machinery.ExtensionFileLoader("modtree._C", {_C.__file__!r})
        _C = importlib.util.module_from_spec(importlib.util.spec_from_loader("modtree._C", loader))
        loader.exec_module(_C)
        assert set(_C._installed().values()) == {{None}}

        class Tensor(_C.TensorBase): pass
        class Parameter(Tensor): pass
        class Family: tensor_type, parameter_type = Tensor, Parameter

        def refused(missing, **objects):
            before = _C._installed()
            try:
                _C._install(numpy_family=Family(), **objects)
            except RuntimeError as error:
                assert f"'numpy_family' needs '{{missing}}'" in str(error)
            else:
                raise AssertionError("taken")
            assert _C._installed() == before

        refused("Tensor")
        refused("Tensor", Parameter=Parameter)
        refused("Parameter", Tensor=Tensor)
        _C._install(Tensor=Tensor)
        refused("Parameter")
        _C._install(numpy_family=Family(), Parameter=Parameter)
        assert type(_C._installed()["numpy_family"]) is Family
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=HANGS_AFTER
    )
