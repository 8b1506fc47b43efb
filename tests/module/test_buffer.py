# SPDX-License-Identifier: BSD-3-Clause
"""``Buffer``: a marked plain tensor."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from helpers.implementations import implementation, needs_torch
from helpers.support import dtype, raises, storage_shared, values
from test_parameter import modtree_types, tensor_class


def test_construction(impl):
    data = impl.lib.tensor([1.0, 2.0])
    b = impl.nn.Buffer(data)
    assert type(b) is modtree_types(impl).Tensor and b is not data
    assert b._is_buffer is True and b.persistent is True
    assert isinstance(b, impl.nn.Buffer) and not isinstance(b, impl.nn.Parameter)
    assert storage_shared(b, data)
    assert not isinstance(data, impl.nn.Buffer) and not hasattr(data, "persistent")


def test_persistent_is_keyword_only(impl):
    data = impl.lib.tensor([1.0])
    assert impl.nn.Buffer(data, persistent=False).persistent is False
    with raises(TypeError, "positional argument"):
        impl.nn.Buffer(data, False)


def test_default_is_an_empty_tensor(ours):
    b = ours.nn.Buffer()
    assert isinstance(b, ours.nn.Buffer) and tuple(b.shape) == (0,) and dtype(b) == "float32"


@pytest.mark.parametrize("flag", [False, True])
def test_requires_grad_is_kept(impl, flag):
    data = impl.lib.tensor([1.0]).requires_grad_(flag)
    b = impl.nn.Buffer(data)
    assert b.requires_grad is flag and b.is_leaf


def test_integers(impl):
    assert values(impl.nn.Buffer(impl.lib.tensor([1, 2]))) == [1, 2]


@pytest.mark.parametrize("data", [3, "text", [1.0], np.ones(2)], ids=lambda v: type(v).__name__)
def test_not_a_tensor(impl, data):
    with raises(AttributeError, "detach"):
        impl.nn.Buffer(data)


def test_not_a_tensor_says_what_to_do(ours):
    with raises(AttributeError, "Buffer() takes a tensor", "modtree.from_numpy"):
        ours.nn.Buffer(np.ones(2))


def test_tensor_class_is_kept(impl):
    Own, make = tensor_class(impl)
    b = impl.nn.Buffer(make([1.0]))
    assert type(b) is Own and isinstance(b, impl.nn.Buffer)


def test_buffer_of_a_parameter_and_back(impl):
    p = impl.nn.Parameter(impl.lib.tensor([1.0]))
    b = impl.nn.Buffer(p)
    assert isinstance(b, impl.nn.Buffer) and not isinstance(b, impl.nn.Parameter)
    assert b.requires_grad and storage_shared(b, p)
    again = impl.nn.Parameter(b)
    assert isinstance(again, impl.nn.Parameter) and not isinstance(again, impl.nn.Buffer)


def test_isinstance(impl):
    Sub = type("Sub", (impl.nn.Buffer,), {})
    t = impl.lib.tensor([1.0])
    t._is_buffer = True
    assert isinstance(t, impl.nn.Buffer) and not isinstance(t, Sub)
    t._is_buffer = False
    assert not isinstance(t, impl.nn.Buffer)
    for other in (3, None, np.ones(1), impl.nn.Module()):
        assert not isinstance(other, impl.nn.Buffer)
    assert not issubclass(modtree_types(impl).Tensor, impl.nn.Buffer)


def test_mark_survives_copies(impl):
    b = impl.nn.Buffer(impl.lib.tensor([1.0]), persistent=False)
    for c in (copy.copy(b), copy.deepcopy(b), pickle.loads(pickle.dumps(b))):
        assert isinstance(c, impl.nn.Buffer) and c.persistent is False
        assert type(c) is type(b) and values(c) == [1.0]


def test_mark_survives_conversions_that_do_nothing(impl):
    b = impl.nn.Buffer(impl.lib.tensor([1.0]))
    assert b.float() is b and b.to("cpu") is b
    for c in (b.clone(), b.detach(), b.double(), b + 1):
        assert not isinstance(c, impl.nn.Buffer)


def test_module_buffers_lose_the_mark_and_stay_registered(impl):
    m = impl.nn.Module()
    m.b = impl.nn.Buffer(impl.lib.tensor([1.0]))
    m.float()
    assert isinstance(m.b, impl.nn.Buffer)
    m.double()
    assert not isinstance(m.b, impl.nn.Buffer)
    assert list(m.state_dict()) == ["b"]


@needs_torch
def test_torch_tensors_give_torchs_buffer():
    import torch

    nn = implementation("modtree").nn
    data = torch.ones(2)
    b = nn.Buffer(data, persistent=False)
    assert type(b) is torch.Tensor and b.data_ptr() == data.data_ptr()
    assert isinstance(b, torch.nn.Buffer) and isinstance(b, nn.Buffer)
    assert b.persistent is False

    class Own(nn.Buffer):
        pass

    with raises(TypeError, "Own", "torch"):
        Own(data)
