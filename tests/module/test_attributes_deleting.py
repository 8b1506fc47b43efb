# SPDX-License-Identifier: BSD-3-Clause
"""Deleting and listing attributes."""

from __future__ import annotations

import copy

import pytest
from helpers.support import nothing_to_delete, raises
from helpers.util import param, tensor

# -- deleting ------------------------------------------------------------------------------------


def test_deleting_each_kind(impl):
    m = impl.nn.Module()
    m.p, m.c, m.x = param(impl), impl.nn.Module(), 3
    m.register_buffer("b", tensor(impl), persistent=False)
    for name in ("p", "c", "x", "b"):
        delattr(m, name)
        assert not hasattr(m, name)
        with raises(AttributeError, nothing_to_delete(impl, "Module", name)):
            delattr(m, name)
    assert m._non_persistent_buffers_set == set()
    assert not m._parameters and not m._buffers and not m._modules


def test_deleting_none_entries(impl):
    m = impl.nn.Module()
    m.register_parameter("p", None)
    m.register_buffer("b", None)
    m.add_module("c", None)
    del m.p, m.b, m.c
    assert not m._parameters and not m._buffers and not m._modules


def test_deletion_order_of_one_name_in_every_place(impl):
    m = impl.nn.Module()
    m._parameters["x"], m._buffers["x"] = param(impl), tensor(impl)
    m._modules["x"], m.__dict__["x"] = impl.nn.Module(), 3
    m._non_persistent_buffers_set.add("x")
    left = []
    for _ in range(4):
        del m.x
        places = (m._parameters, m._buffers, m._modules, m.__dict__)
        left.append("".join("x" if "x" in place else "-" for place in places))
        assert ("x" in m._non_persistent_buffers_set) == (len(left) == 1)
    assert left == ["-xxx", "--xx", "---x", "----"]


def test_deleting_a_class_attribute_or_property(impl):
    class M(impl.nn.Module):
        klass = 1

        @property
        def deletable(self):
            return 1

        @deletable.deleter
        def deletable(self):
            self.gone = True

    m = M()
    with pytest.raises(AttributeError):
        del m.klass
    del m.deletable
    assert m.gone is True


def test_a_user_delattr_with_super(impl):
    seen = []

    class M(impl.nn.Module):
        def __delattr__(self, name):
            seen.append(name)
            super().__delattr__(name)

    m = M()
    m.p, m.x = param(impl), 3
    del m.p, m.x
    assert seen == ["p", "x"] and not m._parameters


# -- __dir__ -------------------------------------------------------------------------------------


def test_dir_lists_class_instance_and_registries_sorted(impl):
    m = impl.nn.Module()
    m.zz_plain, m.p, m.child = 1, param(impl), impl.nn.Module()
    m.register_buffer("b", tensor(impl))
    found = dir(m)
    assert found == sorted(found)
    for name in ("zz_plain", "p", "child", "b", "training", "_modules", "forward", "parameters"):
        assert name in found


def test_dir_hides_names_that_start_with_a_digit(impl):
    m = impl.nn.Module()
    m.add_module("0", impl.nn.Module())
    m.add_module("1a", impl.nn.Module())
    m.add_module("a1", impl.nn.Module())
    setattr(m, "2", 3)
    found = dir(m)
    assert "a1" in found
    assert not {"0", "1a", "2"} & set(found)


def test_dir_keeps_duplicates_and_dotted_names(impl):
    m = impl.nn.Module()
    m.forward = lambda x: x
    m.__dict__["dotted.name"] = 1
    m._parameters["forward"] = param(impl)
    assert m.__dir__().count("forward") == 3
    assert "dotted.name" in dir(m)


def test_dir_with_an_empty_name(impl):
    m = impl.nn.Module()
    m.__dict__[""] = 1
    with pytest.raises(IndexError):
        dir(m)


def test_writes_through_copies_do_not_leak(impl):
    """``__dict__`` copied, then changed: the module does not see it."""
    m = impl.nn.Module()
    snapshot = copy.copy(m.__dict__)
    snapshot["x"] = 1
    assert not hasattr(m, "x")
