# SPDX-License-Identifier: BSD-3-Clause
"""Classes behind Module in the MRO, and children that are modules by their ``__class__``."""

from __future__ import annotations

import copy
from unittest.mock import MagicMock, Mock, patch

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


class Noted:
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        self.__dict__.setdefault("noted", []).append(name)


class NotedLinear(nn.Linear, Noted):
    pass


def test_plain_writes_reach_the_class_behind():
    m = NotedLinear(2, 2)
    assert len(m.noted) == 19  # the internal entries and the two sizes
    m.noted.clear()
    m.child = nn.ReLU()
    m.flag = 1
    nn.Sequential(m).eval()
    assert m.noted == ["flag", "training"]
    assert copy.deepcopy(m).noted == ["flag", "training"]
    assert m(torch.ones(1, 2)).shape == (1, 2)


class Single:
    made = None

    def __new__(cls, *args):
        if cls.made is None:
            cls.made = super().__new__(cls)
        return cls.made


class SingleLinear(nn.Linear, Single):
    pass


def test_a_new_behind_module_makes_the_module():
    first = SingleLinear(1, 1)
    assert SingleLinear(2, 2) is first and first.in_features == 2


class Reads:
    reads = 0

    def __getattribute__(self, name):
        Reads.reads += name == "weight"
        return super().__getattribute__(name)


class ReadLinear(nn.Linear, Reads):
    pass


def test_reads_go_through_the_class_behind():
    m = ReadLinear(1, 1)
    before = Reads.reads
    assert m.weight is m._parameters["weight"]
    m(torch.ones(1, 1))
    assert Reads.reads == before + 2


def test_mocks_with_a_spec_are_children():
    m = nn.Sequential(nn.Linear(1, 1), MagicMock(spec=nn.Linear))
    m.head = nn.ReLU()
    with patch.object(m, "head", Mock(spec=nn.Module)):
        assert list(m._modules) == ["0", "1", "head"]
        m.eval()
        assert m.head.train.call_count == 1
    assert repr(m.head) == "ReLU()"
    assert m[1]._apply.call_count == 0
    m.double()
    assert m[1]._apply.call_count == 1
    assert list(m.state_dict()) == ["0.weight", "0.bias"]
