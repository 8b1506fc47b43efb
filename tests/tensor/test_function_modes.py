# SPDX-License-Identifier: BSD-3-Clause
"""Modes that take over every function on tensors."""

from __future__ import annotations

import importlib
import threading

import pytest


@pytest.fixture
def overrides(lib):
    return importlib.import_module(f"{lib.__name__}.overrides")


@pytest.fixture
def Noting(overrides):  # noqa: N802
    class Noting(overrides.TorchFunctionMode):
        def __init__(self, name="", log=None):
            super().__init__()
            self.name = name
            self.log = [] if log is None else log

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.log.append((self.name, func, types))
            return func(*args, **(kwargs or {}))

    return Noting


def functions(mode):
    return [func for _, func, _ in mode.log]


def test_what_a_mode_sees(lib, Noting):  # noqa: N803
    with Noting() as mode:
        x = lib.ones(2)
        y = x + 1
        y.exp()
        lib.nn.functional.relu(y)
        y.shape  # noqa: B018
        y[0]
        y.add_(1)
        len(y)
    T = lib.Tensor  # noqa: N806
    assert functions(mode) == [
        lib.ones, T.add, T.exp, lib.nn.functional.relu, T.shape.__get__, T.__getitem__, T.add_,
        T.__len__,
    ]  # fmt: skip
    assert all(set(types) <= {lib.Tensor} for _, _, types in mode.log)
    lib.ones(2)
    assert len(mode.log) == 8


def test_inner_modes_first(lib, Noting, overrides):  # noqa: N803
    log = []
    with Noting("outer", log), Noting("inner", log):
        lib.ones(1)
        assert [m.name for m in overrides._get_current_function_mode_stack()] == ["outer", "inner"]
    assert [name for name, _, _ in log][:2] == ["inner", "outer"]
    assert overrides._get_current_function_mode() is None


def test_modes_before_classes(lib, Noting):  # noqa: N803
    log = []

    class Sub(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(("class", func, types))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = lib.ones(2).as_subclass(Sub)
    with Noting("mode", log):
        assert type(x + 1) is Sub
    assert [(name, tuple(types)) for name, _, types in log] == [("mode", (Sub,)), ("class", (Sub,))]


def test_a_mode_may_answer_itself(lib, overrides):
    class Seven(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return 7

    with Seven():
        x = lib.zeros(3)
        assert x == 7
    x = lib.zeros(3)
    with Seven():
        assert x + 1 == 7 and x.exp() == 7 and x.T == 7 and lib.cat([x]) == 7 and x[0] == 7


def test_a_mode_may_decline(lib, overrides):
    class Declines(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    class Duck:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "duck"

    x = lib.ones(1)
    with Declines():
        assert lib.exp(Duck()) == "duck"
        with pytest.raises(TypeError, match="Declines"):
            lib.exp(x)


def test_errors_leave_the_mode_on_its_stack(lib, overrides):
    class Failing(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise KeyError("mine")

    with Failing() as mode:
        for _ in range(2):
            with pytest.raises(KeyError, match="mine"):
                lib.ones(1)
        assert overrides._get_current_function_mode() is mode
    assert lib.ones(1).item() == 1.0


def test_the_base_mode_changes_nothing(lib, overrides):
    with overrides.BaseTorchFunctionMode():
        assert (lib.ones(2) + 1).tolist() == [2.0, 2.0]


def test_a_mode_without_the_method(lib, overrides):
    with overrides.TorchFunctionMode(), pytest.raises(NotImplementedError):
        lib.ones(1)


def test_switches(lib, Noting):  # noqa: N803
    with Noting() as mode:
        with lib._C.DisableTorchFunction():
            lib.ones(1)
        assert not mode.log
        with lib._C.DisableTorchFunctionSubclass():
            lib.ones(1)
        assert functions(mode) == [lib.ones]


def test_other_threads_have_their_own(lib, Noting):  # noqa: N803
    with Noting() as mode:
        thread = threading.Thread(target=lambda: lib.ones(2) + 1)
        thread.start()
        thread.join()
    assert not mode.log


def test_has_torch_function(lib, Noting, overrides):  # noqa: N803
    x = lib.ones(1)
    with Noting():
        assert overrides.has_torch_function((x,)) and overrides.has_torch_function_unary(x)
    assert not overrides.has_torch_function((x,))


def test_popping_a_mode_for_a_while(lib, Noting, overrides):  # noqa: N803
    with Noting() as mode:
        with overrides._pop_mode_temporarily() as popped:
            lib.ones(1)
        assert popped is mode and not mode.log
        lib.ones(1)
        assert len(mode.log) == 1


def test_gradients_under_a_mode(lib, Noting):  # noqa: N803
    with Noting():
        x = lib.ones(2, requires_grad=True)
        (x * 3).sum().backward()
        assert x.grad.tolist() == [3.0, 3.0]


def test_layers_under_a_mode(lib, Noting):  # noqa: N803
    layer = lib.nn.Linear(2, 2)
    x = lib.ones(1, 2)
    with Noting() as mode:
        layer(x)
    assert lib.nn.functional.linear in functions(mode)
