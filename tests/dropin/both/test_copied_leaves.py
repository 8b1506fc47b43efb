# SPDX-License-Identifier: BSD-3-Clause
"""Which of torch's functions copies and conversions of a tree call, as modes and patches see it."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


class Names(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append((getattr(func, "__name__", str(func)), sorted(kwargs or {})))
        return func(*args, **(kwargs or {}))


class Operations(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("Mode", [Names, Operations])
def test_modes_see_the_calls_of_a_copy(Mode):
    layer = nn.Linear(2, 2)
    with Mode() as alone:
        for p in layer.parameters():
            p.__deepcopy__({})
    with Mode() as whole:
        copied = copy.deepcopy(layer)
    assert alone.seen and whole.seen == alone.seen
    assert type(copied.weight) is nn.Parameter and copied.weight.equal(layer.weight)


def test_a_patched_constructor_makes_the_copies(monkeypatch):
    made, original = [], nn.Parameter.__new__

    def patched(cls, *args, **kwargs):
        made.append(cls)
        return original(cls, *args, **kwargs)

    layer = nn.Linear(2, 2)
    copy.deepcopy(layer)
    monkeypatch.setattr(nn.Parameter, "__new__", staticmethod(patched))
    copy.deepcopy(layer)
    assert made == [nn.Parameter, nn.Parameter]


def test_data_of_another_class_goes_to_the_constructor(monkeypatch):
    class Marked(torch.Tensor):
        pass

    original = torch.Tensor.clone
    monkeypatch.setattr(
        torch.Tensor, "clone", lambda self, **kw: original(self, **kw).as_subclass(Marked)
    )
    copied = copy.deepcopy(nn.Linear(2, 2))
    assert type(copied.weight) is Marked and copied.weight._is_param


def test_an_error_of_a_clone_comes_out(monkeypatch):
    def refuse(self, **kwargs):
        raise KeyError("no clone")

    monkeypatch.setattr(torch.Tensor, "clone", refuse)
    with pytest.raises(KeyError, match="no clone"):
        copy.deepcopy(nn.Linear(2, 2))


def test_the_function_of_a_conversion_and_the_mode_it_runs_in():
    modes = []

    def fn(t):
        modes.append((isinstance(t, nn.Parameter), torch.is_grad_enabled()))
        return t

    nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))._apply(fn)
    assert modes == [(True, False)] * 4 + [(False, True)] * 3 + [(True, False)] * 2
    assert torch.is_grad_enabled()
