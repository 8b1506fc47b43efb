# SPDX-License-Identifier: BSD-3-Clause
"""The call of a module, as an article prints it from torch's file of 2020, and around it."""

# ruff: noqa: N806
from __future__ import annotations

import functools
import itertools
from typing import Any, Callable  # noqa: UP035

import pytest
from helpers.article_names import names_of


def with_call_of_2020(impl):
    names = names_of(impl)
    torch, Module = names.torch, names.Module
    _global_forward_pre_hooks = impl.module._global_forward_pre_hooks
    _global_forward_hooks = impl.module._global_forward_hooks
    _global_backward_hooks = impl.module._global_backward_hooks

    class Written(Module):
        def _call_impl(self, *input, **kwargs):
            for hook in itertools.chain(
                _global_forward_pre_hooks.values(), self._forward_pre_hooks.values()
            ):
                result = hook(self, input)
                if result is not None:
                    if not isinstance(result, tuple):
                        result = (result,)
                    input = result
            if torch._C._get_tracing_state():
                result = self._slow_forward(*input, **kwargs)
            else:
                result = self.forward(*input, **kwargs)
            for hook in itertools.chain(
                _global_forward_hooks.values(), self._forward_hooks.values()
            ):
                hook_result = hook(self, input, result)
                if hook_result is not None:
                    result = hook_result
            if (len(self._backward_hooks) > 0) or (len(_global_backward_hooks) > 0):
                var = result
                while not isinstance(var, torch.Tensor):
                    if isinstance(var, dict):
                        var = next(v for v in var.values() if isinstance(v, torch.Tensor))
                    else:
                        var = var[0]
                grad_fn = var.grad_fn
                if grad_fn is not None:
                    for hook in itertools.chain(
                        _global_backward_hooks.values(), self._backward_hooks.values()
                    ):
                        wrapper = functools.partial(hook, self)
                        functools.update_wrapper(wrapper, hook)
                        grad_fn.register_hook(wrapper)
            return result

        __call__: Callable[..., Any] = _call_impl

    return Written


def scaled(base, impl):
    class Scaled(base):
        def __init__(self):
            super().__init__()
            self.weight = impl.nn.Parameter(impl.lib.full((2,), 3.0))

        def forward(self, x, bias=0.0):
            return [{"out": x * self.weight + bias}]

    return Scaled()


def record(m, impl, log):
    def note(name, change=None):
        def hook(module, *args):
            log.append((name, type(module).__name__, len(args)))
            return change(*args) if change else None

        return hook

    handles = [
        impl.module.register_module_forward_pre_hook(note("global pre")),
        impl.module.register_module_forward_hook(note("global post")),
        m.register_forward_pre_hook(note("pre", lambda args: args[0] + 1)),
        m.register_forward_hook(note("post", lambda args, out: [{"out": out[0]["out"] * 2}])),
        m.register_backward_hook(note("backward")),
    ]
    return handles


def test_calls_as_written(impl):
    found = []
    for base in (with_call_of_2020(impl), impl.nn.Module):
        log = []
        m = scaled(base, impl)
        handles = record(m, impl, log)
        x = impl.lib.ones(2, requires_grad=True)
        with pytest.warns() if base is impl.nn.Module else _silent():
            out = m(x, bias=1.0)[0]["out"]
        out.sum().backward()
        for handle in handles:
            handle.remove()
        found.append((out.tolist(), m.weight.grad.tolist(), x.grad.tolist(), log))
    assert found[0] == found[1]
    assert found[0][:3] == ([14.0] * 2, [4.0] * 2, [6.0] * 2)
    assert [name for name, *_ in found[0][3]] == [
        "global pre",
        "pre",
        "global post",
        "post",
        "backward",
    ]


class _silent:
    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None


def test_something_before_and_after_the_call(impl, capsys):
    nn = impl.nn

    class MyModule(nn.Module):
        def __call__(self, *args, **kwargs):
            print("before")
            output = self._call_impl(*args, **kwargs)  # noqa: F841
            print("after")

        def forward(self, x, *, y):
            print("forward", x, y)
            return x + y

    m = MyModule()
    m.register_forward_hook(lambda m, args, out: print("hook", args, out))
    assert m(1, y=2) is None
    assert nn.Sequential(m)._modules["0"] is m
    assert capsys.readouterr().out.split("\n") == [
        "before",
        "forward 1 2",
        "hook (1,) 3",
        "after",
        "",
    ]
