# SPDX-License-Identifier: BSD-3-Clause
"""Functions that change a module in steps: whichever step user code stops, all is as before.

Each is run with a fault at its first step, at its second, and so on, until it ends. Steps are what
user code sees: registration hooks, and ``__setattr__`` and ``__delattr__`` of the class, before and
after they do their work.
"""

from __future__ import annotations

import collections
import contextlib
import itertools

import pytest

import modtree as mt
from modtree import nn
from modtree.nn.modules import module as registration
from modtree.nn.utils import parametrizations, parametrize, prune


class Stop(BaseException):
    """Not an Exception: an interrupt must not leave half of a change either."""


class Steps:
    """Counts steps, and raises at one of them."""

    def __init__(self, at):
        self.at, self.count, self.active = at, 0, False

    def take(self, module=None):
        if self.active:
            self.count += 1
            if self.count == self.at:
                raise Stop

    @contextlib.contextmanager
    def counted(self):
        register = (
            registration.register_module_parameter_registration_hook,
            registration.register_module_buffer_registration_hook,
            registration.register_module_module_registration_hook,
        )
        handles = [each(lambda *_: self.take()) for each in register]
        self.active = True
        try:
            yield
        finally:
            self.active = False
            for handle in handles:
                handle.remove()


def watched(base, steps):
    """A subclass whose assignments and deletions are steps."""

    class Watched(base):
        def __setattr__(self, name, value):
            steps.take()
            super().__setattr__(name, value)
            steps.take()

        def __delattr__(self, name):
            steps.take()
            super().__delattr__(name)
            steps.take()

    return Watched


def facts(module):
    """All that a module and those within it have, in order; tensors with their values."""
    result = []
    for path, each in module.named_modules(remove_duplicate=False):
        state = dict(nn.Module.__getstate__(each))
        for name, value in state.items():
            if isinstance(value, dict):
                value = [(key, fact(entry)) for key, entry in value.items()]
            elif isinstance(value, set):
                value = sorted(value)
            else:
                value = fact(value)
            result.append((path, type(each), id(each), name, value))
    return result


def fact(value):
    if isinstance(value, mt.Tensor):
        values = None if nn.parameter.is_lazy(value) else value.detach().tolist()
        return id(value), type(value), str(value.dtype), values
    if isinstance(value, list | tuple):
        return [fact(entry) for entry in value]
    return value if isinstance(value, int | float | str | None) else id(value)


class Twice(nn.Module):
    def forward(self, x):
        return x * 2

    def right_inverse(self, x):
        return x / 2


class Parts(nn.Module):
    def forward(self, a, b):
        return a + b

    def right_inverse(self, x):
        return x / 2, x / 2


def linear(steps):
    mt.manual_seed(0)
    return watched(nn.Linear, steps)(2, 2)


def with_plain_tensor(steps):
    layer = linear(steps)
    layer.scale = mt.ones(2)
    return layer


def pruned(steps):
    layer = linear(steps)
    prune.identity(layer, "weight")
    return layer


def parametrized(steps):
    layer = linear(steps)
    parametrize.register_parametrization(layer, "weight", Twice())
    return layer


def in_parts(steps):
    layer = linear(steps)
    parametrize.register_parametrization(layer, "weight", Parts())
    return layer


def weight_normed(steps):
    layer = linear(steps)
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(layer)
    return layer


def weight_norm(layer):
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(layer)


def spectral_normed(steps):
    return nn.utils.spectral_norm(linear(steps))


def listed(steps):
    return watched(nn.ModuleList, steps)(nn.Identity() for _ in range(4))


def sequence(steps):
    return watched(nn.Sequential, steps)(*(nn.Identity() for _ in range(4)))


def parameters(steps):
    return watched(nn.ParameterList, steps)([mt.zeros(1), mt.ones(1), "text"])


def named_parameters(steps):
    entries = {"a": mt.zeros(1), "b": mt.ones(1), "c": "text"}
    return watched(nn.ParameterDict, steps)(entries)


def lazy(steps):
    return watched(nn.LazyLinear, steps)(3)


def delete(what):
    def run(container):
        del container[what]

    return run


CASES = {
    "prune.identity": (linear, lambda m: prune.identity(m, "weight")),
    "prune, twice": (pruned, lambda m: prune.l1_unstructured(m, "weight", 1)),
    "prune.remove": (pruned, lambda m: prune.remove(m, "weight")),
    "prune.global_unstructured": (
        linear,
        lambda m: prune.global_unstructured(
            [(m, "weight"), (m, "bias")], prune.L1Unstructured, amount=2
        ),
    ),
    "register_parametrization": (
        linear,
        lambda m: parametrize.register_parametrization(m, "weight", Twice()),
    ),
    "register_parametrization, second tensor": (
        parametrized,
        lambda m: parametrize.register_parametrization(m, "bias", Twice()),
    ),
    "register_parametrization, again": (
        parametrized,
        lambda m: parametrize.register_parametrization(m, "weight", Twice()),
    ),
    "register_parametrization, parts": (
        linear,
        lambda m: parametrize.register_parametrization(m, "weight", Parts()),
    ),
    "remove_parametrizations": (
        parametrized,
        lambda m: parametrize.remove_parametrizations(m, "weight"),
    ),
    "remove_parametrizations, parts": (
        in_parts,
        lambda m: parametrize.remove_parametrizations(m, "weight"),
    ),
    "remove_parametrizations, original": (
        parametrized,
        lambda m: parametrize.remove_parametrizations(m, "weight", leave_parametrized=False),
    ),
    "transfer_parametrizations": (
        linear,
        lambda m: parametrize.transfer_parametrizations_and_params(in_parts(Steps(0)), m),
    ),
    "parametrizations.weight_norm": (linear, parametrizations.weight_norm),
    "parametrizations.spectral_norm": (linear, parametrizations.spectral_norm),
    "parametrizations.orthogonal": (linear, parametrizations.orthogonal),
    "weight_norm": (linear, weight_norm),
    "remove_weight_norm": (weight_normed, nn.utils.remove_weight_norm),
    "spectral_norm": (linear, nn.utils.spectral_norm),
    "remove_spectral_norm": (spectral_normed, nn.utils.remove_spectral_norm),
    "ModuleList del": (listed, delete(slice(0, 3, 2))),
    "ModuleList.extend": (listed, lambda m: m.extend([nn.ReLU(), nn.ReLU()])),
    "ModuleList.pop": (listed, lambda m: m.pop(1)),
    "ModuleList.insert": (listed, lambda m: m.insert(1, nn.ReLU())),
    "Sequential del": (sequence, delete(slice(1, 3))),
    "Sequential.extend": (sequence, lambda m: m.extend([nn.ReLU(), nn.ReLU()])),
    "Sequential +=": (sequence, lambda m: m.__iadd__(nn.Sequential(nn.ReLU(), nn.ReLU()))),
    "Sequential *=": (sequence, lambda m: m.__imul__(3)),
    "ParameterList.append": (parameters, lambda m: m.append(mt.zeros(2))),
    "ParameterList.extend": (parameters, lambda m: m.extend([mt.zeros(2), 3, mt.ones(1)])),
    "ParameterDict set": (named_parameters, lambda m: m.__setitem__("z", mt.zeros(2))),
    "ParameterDict del": (named_parameters, delete("a")),
    "ParameterDict.clear": (named_parameters, lambda m: m.clear()),
    "ParameterDict.popitem": (named_parameters, lambda m: m.popitem()),
    "first call of a lazy module": (lazy, lambda m: m(mt.ones(1, 2))),
    "functional_call": (
        with_plain_tensor,
        lambda m: mt.func.functional_call(
            m, {"weight": mt.zeros(2, 2), "scale": mt.ones(1), "more": mt.ones(1)}, mt.ones(1, 2)
        ),
    ),
}
WITHOUT_STEPS = {"ModuleList.insert"}  # those that are there only move


@pytest.mark.parametrize("name", CASES)
def test_a_change_that_is_stopped_is_undone(name):
    make, change = CASES[name]
    for at in itertools.count(1):
        steps = Steps(at)
        module = make(steps)
        before = facts(module)
        try:
            with steps.counted():
                change(module)
        except Stop:
            assert facts(module) == before, f"after step {at}"
        else:
            break
    assert at > 1 or name in WITHOUT_STEPS  # there was something to stop


class Scribbling(Steps):
    """At each step user code writes elsewhere on the module, too."""

    def __init__(self, at):
        super().__init__(at)
        self.on = collections.Counter()

    def take(self, module=None):
        if self.active and module is not None:
            steps = nn.Module.__getattribute__(module, "__dict__").get("steps", 0)
            nn.Module.__setattr__(module, "steps", steps + 1)
            self.on[id(module)] += 1
            if steps == 0:
                module.register_forward_pre_hook(print)
                if not isinstance(module, NUMBERED):
                    module._modules["helper"], module._buffers["more"] = nn.Identity(), None
        super().take()


NUMBERED = (nn.ModuleList, nn.Sequential, nn.ParameterList)


def scribbling(base, steps):
    class Watched(base):
        def __setattr__(self, name, value):
            steps.take(self)
            super().__setattr__(name, value)
            steps.take(self)

        def __delattr__(self, name):
            steps.take(self)
            super().__delattr__(name)
            steps.take(self)

    return Watched


@pytest.mark.parametrize("name", CASES)
def test_what_user_code_wrote_elsewhere_stays(name, monkeypatch):
    monkeypatch.setitem(globals(), "watched", scribbling)
    make, change = CASES[name]
    for at in itertools.count(1):
        steps = Scribbling(at)
        module = make(steps)
        before = facts(module)
        try:
            with steps.counted():
                change(module)
        except Stop:
            written = vars(module).pop("steps", 0)
            assert written == steps.on[id(module)]
            if written:
                hooks = module._forward_pre_hooks
                (key,) = [key for key, hook in hooks.items() if hook is print]
                del hooks[key]
                if not isinstance(module, NUMBERED):
                    del module._modules["helper"], module._buffers["more"]
            assert facts(module) == before, f"after step {at}"
        else:
            break


@pytest.mark.parametrize("derived", [False, True])
def test_a_class_assigned_to_a_parametrized_module_stays(derived):
    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Twice())

    class Own(type(layer) if derived else nn.Linear):
        def twice(self, x):
            return self(x) * 2

    layer.__class__ = Own
    parametrize.register_parametrization(layer, "bias", Twice())
    assert isinstance(layer, Own) and layer.twice(mt.ones(1, 2)).shape == (1, 2)
    assert parametrize.type_before_parametrizations(layer) is Own
    assert not hasattr(Own, "bias")  # the class itself is the program's
    parametrize.remove_parametrizations(layer, "bias")
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is Own and not hasattr(layer, "parametrizations")
    assert type(layer.weight) is type(layer.bias) is nn.Parameter
    layer.weight = nn.Parameter(mt.zeros(2, 2))
    assert layer.weight.tolist() == [[0, 0], [0, 0]]
