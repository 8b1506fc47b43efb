# SPDX-License-Identifier: BSD-3-Clause
"""Random nets with random backward hooks: the same calls, gradients, warnings and errors on NumPy
leaves, torch leaves and in torch.

``MODTREE_FUZZ=N`` runs N seeds instead of the default number. Numbers are small integers in
float64, so that results are equal, not close. Operands are tensors throughout: a Python number has
a place among the gradients of torch's nodes only (docs/compat.md).
"""

from __future__ import annotations

import os
import random
import warnings
from typing import Any

import pytest
from helpers.implementations import implementation, needs_torch

SEEDS = int(os.environ.get("MODTREE_FUZZ", "300"))
GROUP = 50

# What is compared of an error beside its type.
PHRASES = [
    "invalid number of grad_input",
    "invalid number of grad_output",
    "has changed the size of value",
    "has changed the type of value",
    "expected Variable",
    "has no len()",
    "should always return None",
    "is being modified inplace",
    "has returned an incorrect number of values",
    "expected tuple",
    "can't replace a None gradient",
    "does not require grad",
    "a leaf Variable that requires grad",
    "a view of a leaf Variable",
    "has been modified by an inplace operation",
    "its base or another view of its base has been modified",
    "Cannot use both",
]


class Stop(Exception):
    pass


def phrase(error: Exception) -> str:
    return next((p for p in PHRASES if p in str(error)), "")


class Run:
    """One implementation, a random net and random hooks. ``events`` records everything that can be
    observed.
    """

    def __init__(self, impl: Any, seed: int) -> None:
        self.impl, self.lib = impl, impl.lib
        self.rng = random.Random(seed)
        self.events: list[Any] = []
        self.handles: list[Any] = []
        self.retained: list[Any] = []
        self.made = 0
        self.net = self.make_module("net", depth=0)
        for name, module in self.net.named_modules():
            for _ in range(self.rng.choice([0, 1, 1, 2, 3])):
                self.add_hook(name, module)
        for _ in range(self.rng.choice([0, 0, 1])):
            self.add_global_hook()

    # -- the net -----------------------------------------------------------------------------------

    def number(self) -> float:
        return float(self.rng.randrange(-3, 4))

    def tensor(self, requires_grad: bool = False) -> Any:
        values = [self.number(), self.number()]
        return self.lib.tensor(values, dtype=self.lib.float64, requires_grad=requires_grad)

    def make_module(self, name: str, depth: int) -> Any:
        run, rng, nn = self, self.rng, self.impl.nn
        kind = rng.choice(["mul", "square", "two", "inplace", "skip", "pass", "dict", "square"])
        if rng.random() < 0.05:
            kind = "writes"
        if depth < 2 and rng.random() < 0.8:
            kind = rng.choice(["chain", "branch"])
        factor = self.tensor()

        class Layer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.kind = kind
                if rng.random() < 0.6:
                    self.w = nn.Parameter(factor)
                else:
                    self.register_buffer("w", factor)
                for i in range(rng.choice([1, 2]) if kind in ("chain", "branch") else 0):
                    setattr(self, f"c{i}", run.make_module(f"{name}.{i}", depth + 1))

            def forward(self, x: Any, *rest: Any) -> Any:
                run.events.append(("forward", name, x.tolist(), [type(r).__name__ for r in rest]))
                result = run.compute(self, x, rest)
                for tensor in (x, *run.flat(result)):
                    run.watch(name, tensor)
                return result

        return Layer()

    def compute(self, m: Any, x: Any, rest: tuple[Any, ...]) -> Any:
        other = next((r for r in rest if isinstance(r, self.lib.Tensor)), m.w)
        if m.kind == "mul":
            return x * m.w
        if m.kind == "square":
            return (x * x + other) * m.w
        if m.kind == "two":
            return x * m.w, "text", x + other
        if m.kind == "inplace":
            y = x * m.w
            y += other
            return y
        if m.kind == "writes":
            x += other  # an error if x came through a hook's identity, or is a leaf
            return x * x
        if m.kind == "skip":
            return m.w * m.w, x
        if m.kind == "pass":
            return x
        if m.kind == "dict":
            return {"a": x * m.w}
        out = x
        for child in m.children():
            result = child(out, other) if m.kind == "branch" else child(out)
            result = self.flat(result)
            out = result[0] if len(result) == 1 else result[0] + result[-1]
            if m.kind == "branch":
                out = out + x
        return out

    def flat(self, result: Any) -> list[Any]:
        if isinstance(result, dict):
            result = tuple(result.values())
        items = result if isinstance(result, tuple) else (result,)
        return [r for r in items if isinstance(r, self.lib.Tensor)]

    # -- hooks -------------------------------------------------------------------------------------

    def shown(self, grads: Any) -> Any:
        return [None if g is None else g.tolist() for g in grads]

    def changed(self, grads: tuple[Any, ...], how: str) -> Any:
        def each(f: Any) -> tuple[Any, ...]:
            return tuple(None if g is None else f(g) for g in grads)

        two = self.lib.tensor(2.0, dtype=self.lib.float64)
        if how == "raise":
            raise Stop
        return {
            "none": lambda: None,
            "same": lambda: grads,
            "scaled": lambda: each(lambda g: (g * two).to(g.dtype)),
            "list": lambda: list(each(lambda g: g + g)),
            "nones": lambda: (None,) * len(grads),
            "ones": lambda: tuple(self.lib.ones(2, dtype=self.lib.float64) for g in grads),
            "longer": lambda: (*grads, None),
            "shape": lambda: each(lambda g: g[0]),
            "dtype": lambda: each(lambda g: g.to(self.lib.float32)),
            "number": lambda: 3,
        }[how]()

    def behaviour(self, of_node: bool = False) -> str:
        """How a hook answers; hooks of graph nodes may return nothing but tuples."""
        if self.rng.random() < 0.08:
            return self.rng.choice(
                ["nones", "ones", "longer", "shape", "dtype", "number", "raise", "list"]
            )
        return self.rng.choice(["none", "none", "same", "scaled", "same" if of_node else "list"])

    def hook(self, kind: str) -> Any:
        self.made += 1
        ident, how = self.made, self.behaviour("legacy" in kind)
        names = {m: n for n, m in self.net.named_modules()}

        def full(module: Any, grad_input: Any, grad_output: Any) -> Any:
            shown = self.shown(grad_input), self.shown(grad_output)
            self.events.append((kind, ident, names[module], *shown))
            return self.changed(grad_input, how)

        def pre(module: Any, grad_output: Any) -> Any:
            self.events.append((kind, ident, names[module], self.shown(grad_output)))
            return self.changed(grad_output, how)

        return pre if "pre" in kind else full

    def add_hook(self, name: str, module: Any) -> None:
        kind = self.rng.choice(["full", "full", "full", "pre", "pre", "legacy"])
        prepend = self.rng.random() < 0.3
        hook = self.hook(kind)
        try:
            if kind == "full":
                handle = module.register_full_backward_hook(hook, prepend=prepend)
            elif kind == "pre":
                handle = module.register_full_backward_pre_hook(hook, prepend=prepend)
            else:
                handle = module.register_backward_hook(hook)
        except RuntimeError as error:
            self.events.append(("not registered", kind, name, phrase(error)))
            return
        self.handles.append(handle)

    def add_global_hook(self) -> None:
        kind = self.rng.choice(["global full", "global pre", "global legacy"])
        register = {
            "global full": self.impl.module.register_module_full_backward_hook,
            "global pre": self.impl.module.register_module_full_backward_pre_hook,
            "global legacy": self.impl.module.register_module_backward_hook,
        }[kind]
        self.handles.append(register(self.hook(kind)))

    def watch(self, name: str, tensor: Any) -> None:
        """Sometimes puts a hook on the tensor or on its node."""
        kind = self.rng.choice(["tensor", "node", "node pre", "retain", *[""] * 8])
        if not kind or not tensor.requires_grad:
            return
        self.made += 1
        ident, how = self.made, self.behaviour("node" in kind)

        def of_tensor(grad: Any) -> Any:
            self.events.append((kind, ident, name, self.shown([grad])))
            result = self.changed((grad,), how)
            return result[0] if isinstance(result, (tuple, list)) else result

        def of_node(*grads: Any) -> Any:
            self.events.append((kind, ident, name, *map(self.shown, grads)))
            return self.changed(grads[0], how)

        if kind == "tensor":
            tensor.register_hook(of_tensor)
        elif kind == "retain":
            tensor.retain_grad()
            self.retained.append(tensor)
        elif tensor.grad_fn is not None:
            node = tensor.grad_fn
            (node.register_hook if kind == "node" else node.register_prehook)(of_node)

    # -- passes ------------------------------------------------------------------------------------

    def run(self) -> list[Any]:
        try:
            for _ in range(self.rng.choice([1, 2])):
                self.step()
                if self.handles and self.rng.random() < 0.5:
                    self.rng.choice(self.handles).remove()
        finally:
            for handle in self.handles:
                handle.remove()
            self.impl.module._global_is_full_backward_hook = None
        return self.events

    def step(self) -> None:
        rng = self.rng
        x = self.tensor(requires_grad=rng.random() < 0.8)
        rest = [self.tensor(requires_grad=rng.random() < 0.5)] if rng.random() < 0.5 else []
        if rng.random() < 0.2:
            rest.append(None)
        if rng.random() < 0.2:
            rest.append(self.lib.arange(2))
        inner = rng.random() < 0.5
        plan = rng.choice(["backward", "backward", "twice", "grad", "inputs"])
        all_outputs = rng.random() < 0.6
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                start = x * self.tensor() if inner else x
                result = self.flat(self.net(start, *rest))
                self.events.append(("out", self.shown(result), [r.requires_grad for r in result]))
                if rng.random() < 0.1:
                    result[0] += self.tensor()
                out = result[0].sum()
                if all_outputs:
                    for r in result[1:]:
                        out = out + r.sum()
                self.go_back(out, plan, [x, *rest])
            except (Stop, RuntimeError, TypeError) as error:
                self.events.append(("error", type(error).__name__, phrase(error)))
        self.events.append(("warned", [w.category.__name__ for w in caught]))
        leaves = [x, *(r for r in rest if isinstance(r, self.lib.Tensor)), *self.net.parameters()]
        # A module that writes into an input may have made it part of the graph.
        self.events.append(("retained", self.shown([t.grad for t in self.retained])))
        self.retained.clear()
        self.events.append(("grads", self.shown([t.grad if t.is_leaf else None for t in leaves])))

    def go_back(self, out: Any, plan: str, leaves: list[Any]) -> None:
        if plan == "backward":
            out.backward()
        elif plan == "twice":
            out.backward(retain_graph=True)
            out.backward()
        else:
            wanted = [
                t
                for t in [*leaves, *self.net.parameters()]
                if isinstance(t, self.lib.Tensor) and t.requires_grad
            ]
            wanted = [t for t in wanted if self.rng.random() < 0.6]
            if plan == "inputs" and wanted:
                out.backward(inputs=wanted)
            elif wanted:
                grads = self.lib.autograd.grad(out, wanted, allow_unused=True)
                self.events.append(("grad", self.shown(grads)))


@needs_torch
@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("group", range((SEEDS + GROUP - 1) // GROUP))
def test_random_backward_hooks(group, kind):
    ours, torch = implementation(kind), implementation("torch")
    for seed in range(group * GROUP, min(SEEDS, (group + 1) * GROUP)):
        assert Run(ours, seed).run() == Run(torch, seed).run(), f"seed {seed}"
