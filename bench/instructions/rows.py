# SPDX-License-Identifier: BSD-3-Clause
"""What is counted: the operations of the benchmark's tables, on trees small enough for valgrind."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from bench import trees
from bench.common import OURS, OURS_TORCH
from bench.trees import Side

STATEMENTS = 20  # of one round of an unrolled statement
BLOCKS, EXPERTS, LINKS = 2, 24, 120
ROUNDS = 2
_HEAVY = ("deepcopy", "dumps", "loads")  # one round of these is enough

#: A loop of so many rounds of an operation.
Loop = Callable[[int], object]


@dataclass(frozen=True)
class Row:
    """One operation on one side.

    Attributes:
        side: Its name.
        make: Builds what the operation needs on a side; returns the loop to count.
        items: What the count of one round is divided by.
        rounds: Of the shorter of the two counted loops; the longer has twice as many.
    """

    key: str
    title: str
    per: str
    side: str
    items: int
    rounds: int
    make: Callable[[Side], Loop]


def fresh_side(name: str) -> Side:
    """The side with model classes of its own. Where a class comes to lie decides whether it shares
    a line of a cache with another, which counts as much as a change of the program.
    """
    return replace(trees.side(name))


def statement(text: str, **names: Any) -> Loop:
    """A loop over ``text``, repeated ``STATEMENTS`` times in each round."""
    body = "\n        ".join([text] * STATEMENTS)
    arguments = ", ".join(f"{n}={n}" for n in names)
    source = f"def loop(rounds, {arguments}):\n    for _ in range(rounds):\n        {body}\n"
    scope = dict(names)
    exec(source, scope)
    return scope["loop"]


def _repeat(operation: Callable[[], Any]) -> Loop:
    def loop(rounds: int) -> None:
        for _ in range(rounds):
            operation()

    return loop


def _small(s: Side) -> Any:
    m = s.classes.Three(s.parameter(), s.parameter(), s.parameter())
    m.child = s.classes.Empty()
    m.flag = 1
    return m


def _with_python_setattr(s: Side) -> Any:
    class Watching(s.classes.Empty):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)

    return Watching()


def _other(s: Side) -> Any:
    return SimpleNamespace(flag=1)


def _identity_module(s: Side, hooks: int) -> Any:
    m = s.classes.Identity()
    for _ in range(hooks):
        m.register_forward_hook(lambda module, args, output: None)
    return m


def _identity(tensor: Any) -> Any:
    return tensor


def _foreign_state(s: Side, m: Any) -> dict[str, Any]:
    """A state dict of parameters that belong to no module, so that assigning can take them."""
    return {name: s.parameter() for name in m.state_dict()}


def single(name: str) -> Iterator[Row]:
    """The rows of one module."""

    def of(text: str, **more: Callable[[Side], Any]) -> Callable[[Side], Loop]:
        return lambda s: statement(text, m=_small(s), **{n: make(s) for n, make in more.items()})

    def call(hooks: int) -> Callable[[Side], Loop]:
        return lambda s: statement("m(x)", m=_identity_module(s, hooks), x=s.zeros())

    def in_python(text: str) -> Callable[[Side], Loop]:
        return lambda s: statement(text, m=_with_python_setattr(s))

    def past(s: Side) -> Callable[..., None]:
        return object.__setattr__

    construct = of("C()", C=lambda s: s.classes.Empty)
    for key, title, make in (
        ("read.parameter", "read a parameter", of("m.w2")),
        ("read.child", "read a child", of("m.child")),
        ("read.plain", "read a plain value", of("m.flag")),
        ("write.parameter", "write a parameter", of("m.w2 = v", v=lambda s: s.parameter())),
        ("write.child", "write a child", of("m.child = v", v=lambda s: s.classes.Empty())),
        ("write.plain", "write a plain value", of("m.flag = 2")),
        ("write.python", "write a plain value, `__setattr__` in Python", in_python("m.flag = 2")),
        ("write.object", "`object.__setattr__(m, 'flag', 2)`", of("f(m, 'flag', 2)", f=past)),
        ("write.other", "the same on another object", of("f(o, 'flag', 2)", f=past, o=_other)),
        ("call", "`m(x)`, identity forward", call(0)),
        ("call.hook", "`m(x)` with one forward hook", call(1)),
        ("construct.module", "construct an empty subclass", construct),
    ):
        yield Row(key, title, "operation", name, STATEMENTS, 50, make)
    if name == OURS:
        make = of("C(4, 4)", C=lambda s: s.lib.nn.Linear)
        yield Row("construct.linear", "construct `Linear(4, 4)`", "operation", name, 20, 5, make)


def walks(name: str, label: str, build: Callable[..., Any]) -> Iterator[Row]:
    """The rows of a tree. Each builds its own, so that none depends on those before it."""
    sample = build(trees.side(name))
    modules, parameters = (sum(1 for _ in walk()) for walk in (sample.modules, sample.parameters))

    def given(
        key: str, title: str, per: str, prepare: Callable[[Side, Any], Callable[[], Any]]
    ) -> Row:
        items = modules if per == "module" else parameters
        rounds = 1 if key in _HEAVY else ROUNDS
        make = lambda s: _repeat(prepare(s, build(s)))  # noqa: E731
        return Row(f"{label}.{key}", title, per, name, items, rounds, make)

    def row(key: str, title: str, per: str, operation: Callable[[Any], Any]) -> Row:
        return given(key, title, per, lambda s, m: lambda: operation(m))

    def loading(assign: bool) -> Callable[[Side, Any], Callable[[], Any]]:
        def prepare(s: Side, m: Any) -> Callable[[], Any]:
            state = _foreign_state(s, m)
            return lambda: m.load_state_dict(state, assign=assign)

        return prepare

    def unpickling(s: Side, m: Any) -> Callable[[], Any]:
        data = pickle.dumps(m, pickle.HIGHEST_PROTOCOL)
        return lambda: pickle.loads(data)

    def zeroing(s: Side, m: Any) -> Callable[[], Any]:
        grad, held = s.zeros(), list(m.parameters())

        def operation() -> None:
            for p in held:
                p.grad = grad
            m.zero_grad()

        return operation

    def constructing(s: Side, m: Any) -> Callable[[], Any]:
        leaves = list(m.parameters())
        return lambda: build(s, iter(leaves))

    yield row("train", "`m.train()`", "module", lambda m: m.train())
    yield row("eval", "`m.eval()`", "module", lambda m: m.eval())
    yield row("modules", "`list(m.modules())`", "module", lambda m: list(m.modules()))
    yield row("parameters", "`list(m.parameters())`", "parameter", lambda m: list(m.parameters()))
    yield row(
        "named_parameters",
        "`list(m.named_parameters())`",
        "parameter",
        lambda m: list(m.named_parameters()),
    )
    yield row("state_dict", "`m.state_dict()`", "parameter", lambda m: m.state_dict())
    yield given("load", "`m.load_state_dict(sd)`", "parameter", loading(assign=False))
    if label == "chain":  # the rest says nothing new there, and recursion ends deep chains
        return
    yield given("load.assign", "`load_state_dict(assign=True)`", "parameter", loading(assign=True))
    yield given("zero_grad", "set gradients, `m.zero_grad()`", "parameter", zeroing)
    yield row(
        "zero_grad.none", "`m.zero_grad()`, no gradients", "parameter", lambda m: m.zero_grad()
    )
    yield row("apply", "`m._apply(identity)`", "parameter", lambda m: m._apply(_identity))
    yield row("deepcopy", "`copy.deepcopy(m)`", "module", copy.deepcopy)
    yield row(
        "dumps", "`pickle.dumps(m)`", "module", lambda m: pickle.dumps(m, pickle.HIGHEST_PROTOCOL)
    )
    yield given("loads", "`pickle.loads(...)`", "module", unpickling)
    yield given("construct", "construct the tree, its tensors given", "module", constructing)


def _experts(s: Side, leaves: Iterator[Any] | None = None) -> Any:
    return trees.expert_tree(s, leaves, blocks=BLOCKS, experts=EXPERTS)


def _chain(s: Side) -> Any:
    return trees.chain(s, LINKS)


def all_rows(sides: list[str]) -> list[Row]:
    """Every row; the keys of those with torch leaves start with ``torch.``."""
    found = []
    for side in sides:
        prefix, leaves = ("torch.", ", torch leaves") if side == OURS_TORCH else ("", "")
        for r in itertools.chain(
            single(side), walks(side, "tree", _experts), walks(side, "chain", _chain)
        ):
            found.append(replace(r, key=prefix + r.key, title=r.title + leaves))
    return found
