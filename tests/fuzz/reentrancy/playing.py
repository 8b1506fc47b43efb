# SPDX-License-Identifier: BSD-3-Clause
"""One round: a world, its triggers, some operations while they are armed, and a look at what is
left.
"""

from __future__ import annotations

import copy
import gc
import pickle
import random
import sys
import traceback
from collections.abc import Callable
from typing import Any

import meddling
import operations
import triggers
from operations import SENSIBLE
from triggers import Ambient, Stop, state
from world import GLOBAL_TABLES, REGISTRIES, World

import modtree
from modtree import _C, nn

AMBIENT = ("none", "none", "none", "gc", "gc", "signal", "profile")


class Failed(Exception):
    """A finding: the message says what."""


def judge(error: BaseException, where: str) -> None:
    """Errors that the meddling cannot explain are findings."""
    sensible = isinstance(error, SENSIBLE) and not isinstance(error, (NameError, SystemError))
    # As in torch some arguments are asserted, with words; an assertion without words is one of the
    # library's own.
    if not sensible and not (isinstance(error, AssertionError) and str(error)):
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        raise Failed(f"{where}: " + "".join(lines[-12:])) from None


class Player:
    """Plays the rounds of one seed. ``unraisable`` collects errors of finalizers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.findings: list[str] = []
        sys.unraisablehook = self.unraisable

    def unraisable(self, info: Any) -> None:
        if info.exc_value is None:
            return
        try:
            judge(info.exc_value, f"in {info.object!r:.80}")
        except Failed as failure:
            self.findings.append(str(failure))

    def play(self, number: int) -> str | None:
        """The finding of the round, or None."""
        rng = random.Random(f"{self.seed}:{number}")
        modtree.manual_seed(number)
        state.begin(number)
        self.findings.clear()
        try:
            self.round(rng)
        except Failed as failure:
            self.findings.append(str(failure))
        finally:
            state.armed = False
            for name in GLOBAL_TABLES:
                getattr(_C, name).clear()
            _C._set_grad_enabled(True)
        if number % 20 == 0:
            gc.collect()
        return self.findings[0] if self.findings else None

    def round(self, rng: random.Random) -> None:
        world = World(rng)
        for _ in range(rng.randrange(1, 5)):
            self.safely("plant", rng.choice(meddling.PLANTS), world, rng)
        state.left = rng.choice((1, 1, 1, 2, 3, 6, 15))
        ambient = rng.choice(AMBIENT)
        # What runs at any moment has many chances before the operation is where it can be hurt.
        skips = (0, 0, 0, 1, 2, 4, 9, 20, 60) if ambient == "none" else (0, 3, 10, 30, 80, 150, 400)
        state.skip = rng.choice(skips)
        state.meddle = self.meddler(world, rng)
        state.note(f"ambient {ambient}, {state.left} times after {state.skip}")
        with Ambient(ambient):
            favourite = rng.choice(operations.OPERATIONS) if rng.random() < 0.5 else None
            for _ in range(rng.randrange(1, 6)):
                state.armed = True
                self.safely("operation", operations.run_one, world, rng, favourite)
                state.armed = False
            if rng.random() < 0.3:
                state.armed = True
                operations.drop(world)
                gc.collect()
                state.armed = False
        self.look(world)

    def meddler(self, world: World, rng: random.Random) -> Callable[[str], None]:
        raises = rng.random() < 0.15
        favourites = [rng.choice(rng.choice(list(meddling.MEDDLING.values()))) for _ in range(2)]

        def meddle(place: str) -> None:
            group = state.group if rng.random() < 0.7 else rng.choice(list(meddling.MEDDLING))
            action = rng.choice(favourites if rng.random() < 0.4 else meddling.MEDDLING[group])
            state.note(f"      at {place}: {action.__name__}")
            self.safely(action.__name__, action, world, rng)
            # The error of a signal or a profile function would come up in the middle of this tool.
            if raises and not place.startswith(("signal", "profile")) and rng.random() < 0.5:
                raise Stop(place)

        return meddle

    def safely(self, where: str, function: Callable[..., Any], *args: Any) -> None:
        try:
            function(*args)
        except Exception as error:
            judge(error, where)
        except BaseException as error:
            raise Failed(f"{where}: {type(error).__name__}") from None

    # -- afterwards --------------------------------------------------------------------------------

    def look(self, world: World) -> None:
        """Nobody meddles any more: everything works or says what is wrong, and nothing foreign is
        in the registries.
        """
        for m in list(world.modules):
            for look in LOOKS:
                self.safely(look.__name__, look, m)
            self.registries(m)
        for t in (*world.tensors, *world.params, *world.graph):
            self.safely("tensor", look_at_tensor, t)
        for m in list(world.modules):
            self.safely("again", use_again, m)

    def registries(self, m: Any) -> None:
        try:
            entries = object.__getattribute__(m, "__dict__")
        except Exception as error:
            judge(error, "__dict__")
            return
        for name in REGISTRIES:
            table = entries.get(name)
            if type(table) is not dict:
                continue
            found = list(table.items())
            if len(found) != len(table):
                raise Failed(f"{name} has {len(table)} entries and shows {len(found)}")
            for key, value in found:
                if not isinstance(key, (str, triggers.Key, int, float)):
                    raise Failed(f"{name} has the key {key!r}")
                if sys.getrefcount(value) < 3:
                    raise Failed(f"{name}[{key!r}] is owned by nobody")


def look_at_walks(m: Any) -> None:
    for name in ("named_modules", "named_parameters", "named_buffers", "named_children"):
        for _, _ in zip(range(200), getattr(m, name)(), strict=False):
            pass


def look_at_state(m: Any) -> None:
    state_dict = m.state_dict()
    if isinstance(state_dict, dict):
        list(state_dict.items())


def look_at_text(m: Any) -> None:
    if not isinstance(repr(m), str):
        raise Failed("repr is no text")


def look_at_copy(m: Any) -> None:
    copy.deepcopy(m)


def look_at_pickle(m: Any) -> None:
    pickle.dumps(m)


def look_at_attributes(m: Any) -> None:
    for name in dir(m):
        if isinstance(name, str) and not name.startswith("__"):
            getattr(m, name, None)


def look_at_training(m: Any) -> None:
    m.train()
    m.zero_grad()


LOOKS = (
    look_at_walks,
    look_at_state,
    look_at_text,
    look_at_copy,
    look_at_pickle,
    look_at_attributes,
    look_at_training,
)


def look_at_tensor(t: Any) -> None:
    repr(t)
    if t.grad is not None:
        repr(t.grad)
    if t.grad_fn is not None:
        repr(t.grad_fn)
    (t + 1).sum()


def use_again(m: Any) -> None:
    """A new start: the module is as good as new."""
    m.__dict__ = {}
    object.__setattr__(m, "__class__", nn.Module) if type(m) is not nn.Module else None
    nn.Module.__init__(m)
    m.p, m.c = nn.Parameter(modtree.ones(1)), nn.Module()
    if [n for n, _ in m.named_parameters()] != ["p"]:
        raise Failed(f"after a new start the parameters are {list(m.named_parameters())}")
