# SPDX-License-Identifier: BSD-3-Clause
"""``state_dict`` with torch leaves calls ``detach`` as Python would find it."""

from __future__ import annotations

import pytest

from modtree import nn

torch = pytest.importorskip("torch")


def _module(count: int = 4) -> nn.Module:
    m = nn.Module()
    for i in range(count):
        m.register_parameter(f"p{i}", torch.nn.Parameter(torch.full((2,), float(i))))
        m.register_buffer(f"b{i}", torch.full((2,), float(-i)))
    return m


@pytest.mark.parametrize("others", [0, 1, 3, 40])
@pytest.mark.parametrize("through_dict", [False, True])
def test_an_attribute_of_one_tensor(others, through_dict):
    m = _module()
    for tensor in (m.p1, m.b2):
        if through_dict:
            assert vars(tensor) == {}
        for i in range(others):
            setattr(tensor, f"other{i}", i)
    before = m.state_dict()
    m.p1.detach = lambda: "mine"
    m.b2.detach = lambda: "yours"
    sd = m.state_dict()
    assert sd["p1"] == "mine" and sd["b2"] == "yours"
    del m.p1.detach, m.b2.detach
    sd = m.state_dict()
    assert torch.equal(sd["p1"], before["p1"]) and torch.equal(sd["b2"], before["b2"])
    vars(m.p1)["detach"] = lambda: "again"
    assert m.state_dict()["p1"] == "again"


def test_a_class_that_is_patched_in_the_middle(monkeypatch):
    m = _module()

    def patching() -> str:
        monkeypatch.setattr(torch.Tensor, "detach", lambda tensor: "patched", raising=False)
        return "first"

    m.p1.detach = patching
    sd = m.state_dict()
    assert torch.is_tensor(sd["p0"]) and sd["p1"] == "first"
    assert all(sd[k] == "patched" for k in list(sd)[2:])
    monkeypatch.undo()
    del m.p1.detach
    assert all(torch.is_tensor(v) for v in m.state_dict().values())
    monkeypatch.setattr(torch.nn.Parameter, "detach", lambda tensor: "own", raising=False)
    sd = m.state_dict()
    assert sd["p0"] == "own" and torch.is_tensor(sd["b0"])


def test_a_mode_sees_the_calls():
    from torch.overrides import TorchFunctionMode

    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    m = _module()
    with Mode():
        m.state_dict()
    assert seen.count(torch.Tensor.detach) == 8


def test_classes_of_programs():
    class Own(torch.Tensor):
        def detach(self):
            return "own"

    m = _module(1)
    m.register_buffer("mine", torch.zeros(2).as_subclass(Own))
    assert m.state_dict()["mine"] == "own"


def test_values_are_detached():
    m = _module()
    sd = m.state_dict()
    assert all(type(v) is torch.Tensor and not v.requires_grad for v in sd.values())
    assert sd["p1"].data_ptr() == m.p1.data_ptr()


def test_requires_grad_of_one_tensor_when_assigning():
    called = []
    m = _module()
    sd = {
        k: torch.nn.Parameter(torch.ones(2)) if k[0] == "p" else torch.ones(2)
        for k in m.state_dict()
    }
    sd["p1"].requires_grad_ = lambda flag: called.append(flag)
    m.load_state_dict(sd, assign=True)
    assert called == [True] and m.p1 is sd["p1"]
