# SPDX-License-Identifier: BSD-3-Clause
"""What torch's profiler tells of modules: their names, nested as their calls are."""

from __future__ import annotations

import cProfile
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from outcome import error_of, part, report, seed
from torch import nn
from torch.profiler import ProfilerActivity, profile


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        for layer in self.layers:
            x = layer(self.norm(x)) * scale
        return x


class Callable_(nn.Module):
    """With a ``__call__`` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ReLU()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


class Failing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no forward today")


def nested(events: Iterable[Any]) -> list[Any]:
    """Modules with the modules and operations that run in them; other functions are left out."""
    found: list[Any] = []
    for event in events:
        inner = nested(event.children)
        if event.name.startswith(("nn.Module: ", "aten::")):
            found.append([event.name, inner] if event.name.startswith("nn.Module") else event.name)
        else:
            found += inner
    return found


def profiled(run: Callable[[], Any], **options: Any) -> list[Any]:
    with profile(activities=[ProfilerActivity.CPU], **options) as p:
        run()
    return nested(p.profiler.kineto_results.experimental_event_tree())


def net() -> nn.Module:
    seed()
    return nn.Sequential(Block(), nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2)), Callable_())


def of_calls() -> dict[str, Any]:
    model, x = net(), torch.ones(3, 4)
    block = model[0]
    hooked = net()
    hooked[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    hooked[1].register_forward_hook(lambda module, args, output: output + 1)
    hooked.register_full_backward_hook(lambda module, grads, outputs: None)
    return {
        "with_stack": profiled(lambda: model(x), with_stack=True),
        "with_modules": profiled(lambda: model(x), with_modules=True),
        "both": profiled(lambda: model(x), with_stack=True, with_modules=True),
        "keywords": profiled(lambda: block(x, scale=2.0), with_stack=True),
        "hooks": profiled(lambda: hooked(x).sum().backward(), with_stack=True),
        "without": profiled(lambda: model(x)),
    }


def of_errors() -> dict[str, Any]:
    # All live on: the tracer tells modules apart by their addresses.
    failing, empty, relu, x = Failing(), nn.Module(), nn.ReLU(), torch.ones(2, 4)
    errors = []

    def run() -> None:
        errors.extend([error_of(lambda: failing(x)), error_of(lambda: empty(x))])
        relu(x)

    return {"events": profiled(run, with_stack=True), "errors": errors}


def of_threads() -> dict[str, Any]:
    """A thread that was there before is traced too, and one that starts later is not."""
    model, x = net(), torch.ones(3, 4)
    results = []

    def run() -> None:
        later = threading.Thread(target=lambda: results.append(model(x)))
        later.start()
        later.join()
        results.append(model(x))

    events = profiled(run, with_stack=True)
    return {"events": events, "results": results}


def of_other_profilers() -> dict[str, Any]:
    """Python's own, alone and after torch's, changes nothing in what a model gives."""
    model, x = net().eval(), torch.ones(3, 4)
    before = model(x)
    events = profiled(lambda: model(x), with_stack=True)
    python = cProfile.Profile()
    given = python.runcall(model, x)
    return {"before": before, "events": events, "given": given, "after": model(x)}


def of_classes() -> dict[str, Any]:
    """``_call_impl`` of the class, and a module that is compiled."""

    class Own(nn.Linear):
        def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
            return super()._call_impl(*args, **kwargs) * 2

    own, x = Own(4, 4), torch.ones(2, 4)
    compiled = net().eval()
    compiled.compile(backend="eager")
    compiled(x)
    first = profiled(lambda: own(x), with_stack=True)
    return {"own": first, "value": own(x), "compiled": compiled(x)}


def main() -> dict[str, Any]:
    return {
        "calls": part(of_calls),
        "errors": part(of_errors),
        "threads": part(of_threads),
        "others": part(of_other_profilers),
        "classes": part(of_classes),
    }


report(main())
