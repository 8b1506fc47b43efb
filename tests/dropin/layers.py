# SPDX-License-Identifier: BSD-3-Clause
"""A program: builds, calls, trains, saves, loads, copies, pickles, compiles and converts each layer
of torch.nn, and prints what came out, for test_layers.py to compare.
"""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db


def digest(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        data = value.detach().contiguous().numpy().tobytes()
        return [list(value.shape), str(value.dtype), hashlib.sha256(data).hexdigest()[:16]]
    if isinstance(value, (tuple, list)):
        return [digest(item) for item in value]
    return str(type(value))


def first_tensor(value: Any) -> torch.Tensor:
    while not isinstance(value, torch.Tensor):
        value = value[0]
    return value


def attempt(what: Callable[[], Any]) -> Any:
    """Some layers refuse some of this, on both classes in the same words."""
    try:
        return what()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"


class Layer:
    """One layer with one of its inputs."""

    def __init__(self, info: Any, inputs: Any, training: bool) -> None:
        self.info, self.inputs, self.training = info, inputs, training
        torch.manual_seed(1)
        self.module = self.make()

    def make(self) -> torch.nn.Module:
        arguments = self.inputs.constructor_input
        module = self.info.module_cls(*arguments.args, **arguments.kwargs)
        return module.train(self.training)

    def call(self, module: Any) -> Any:
        torch.manual_seed(2)
        arguments = self.inputs.forward_input
        return module(*arguments.args, **arguments.kwargs)

    def step(self) -> Any:
        first_tensor(self.call(self.module)).float().sum().backward()
        parameters = list(self.module.parameters())
        grads = [p.grad if p.grad is None else digest(p.grad) for p in parameters]
        if parameters:
            torch.optim.SGD(parameters, 0.1).step()
        self.module.zero_grad()
        return grads, [digest(p) for p in parameters]

    def load(self) -> Any:
        other = self.make()
        keys = other.load_state_dict(self.module.state_dict())
        return str(keys), list(other.state_dict()), digest(self.call(other))

    def compiled(self) -> Any:
        torch._dynamo.reset()
        return digest(self.call(torch.compile(copy.deepcopy(self.module), backend="eager")))

    def facts(self) -> list[Any]:
        module = self.module
        return [
            repr(module),
            [[name, type(child).__name__] for name, child in module.named_modules()],
            attempt(lambda: digest(self.call(module))),
            attempt(self.step),
            attempt(self.load),
            attempt(lambda: digest(self.call(copy.deepcopy(module)))),
            attempt(lambda: digest(self.call(pickle.loads(pickle.dumps(module))))),
            self.training and attempt(self.compiled),
            attempt(lambda: [str(p.dtype) for p in copy.deepcopy(module).double().parameters()]),
            attempt(lambda: [str(b.device) for b in copy.deepcopy(module).to("meta").buffers()]),
            attempt(lambda: module.eval().training),
            sorted(module.__dict__),
        ]


def all_facts() -> dict[str, Any]:
    facts = {}
    for info in module_db:
        for training in (True, False):
            torch.manual_seed(0)
            inputs = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
            )
            name = f"{info.name} {'training' if training else 'evaluating'}"
            facts[name] = Layer(info, inputs[0], training).facts()
    return facts


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(json.dumps(all_facts()))
