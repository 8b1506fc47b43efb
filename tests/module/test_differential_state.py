# SPDX-License-Identifier: BSD-3-Clause
"""Random trees saved and loaded by modtree and by torch: keys, metadata, hook events, messages and
values must agree.

``MODTREE_FUZZ=N`` runs N seeds instead of the default number.
"""

from __future__ import annotations

import os
import random
import warnings
from collections import OrderedDict
from typing import Any

import pytest
from helpers.implementations import implementation, needs_torch
from helpers.support import dtype, same_shapes, values

SEEDS = int(os.environ.get("MODTREE_FUZZ", "400"))
GROUP = 100
NAMES = ("a", "b", "w", "weight", "0", "1", "x1", "ünï")
ODD_CHILDREN = ("a.b", "", "w.0", "_extra_state")
SHAPES = ((), (1,), (2,), (2, 3), (0,))
CLASSES = 8


# -- trees -----------------------------------------------------------------------------------------


def make_classes(impl: Any, events: list[Any]) -> list[type]:
    """Classes that override parts of saving and loading; the first is plain."""
    nn = impl.nn

    class Plain(nn.Module):
        pass

    class Renames(nn.Module):
        def _load_from_state_dict(self, state_dict, prefix, *args):
            for key in [k for k in state_dict if k.startswith(prefix)]:
                if key[len(prefix) :].startswith("old"):
                    state_dict[prefix + key[len(prefix) + 3 :]] = state_dict.pop(key)
            super()._load_from_state_dict(state_dict, prefix, *args)

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            own = {}
            super()._save_to_state_dict(own, prefix, keep_vars)
            for key, value in own.items():
                destination[prefix + "old" + key[len(prefix) :]] = value

    class Extra(nn.Module):
        state = 0

        def get_extra_state(self):
            return self.state

        def set_extra_state(self, state):
            events.append(("extra state", repr(state)))
            self.state = state

    class Getter(nn.Module):
        def get_extra_state(self):
            return None

    class Versioned(nn.Module):
        _version = 2

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *args):
            events.append(("version", prefix, sorted(local_metadata), list(state_dict)))
            if local_metadata.get("version") != 2:
                state_dict.pop(prefix + "a", None)
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    class LoadsNothing(nn.Module):
        def _load_from_state_dict(self, sd, prefix, meta, strict, missing, unexpected, errors):
            events.append(("nothing", prefix, list(missing), list(unexpected), len(errors)))
            if len(sd) == 1:
                errors.append("one entry under " + prefix)

    class SavesMore(nn.Module):
        def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
            out = super().state_dict(
                *args, destination=destination, prefix=prefix, keep_vars=keep_vars
            )
            out[prefix + "more"] = 1
            return out

    class OwnSetattr(nn.Module):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)

    return [Plain, Renames, Extra, Getter, Versioned, LoadsNothing, SavesMore, OwnSetattr]


class Case:
    """One random tree of one implementation; ``events`` records what its hooks and overrides
    saw.
    """

    def __init__(self, impl: Any, seed: int, overrides: bool, start: float) -> None:
        self.impl, self.events, self.start = impl, [], start
        self.rng = random.Random(seed)
        self.overrides = overrides
        self.classes = make_classes(impl, self.events)
        self.tensors: list[Any] = []
        self.modules: list[Any] = []
        self.root = self.grow(3)

    def tensor(self, shape: tuple[int, ...], integer: bool = False) -> Any:
        self.start += 1
        out = self.impl.lib.full(shape, self.start)
        return out.to(self.impl.lib.int64) if integer else out

    def grow(self, depth: int) -> Any:
        rng, nn = self.rng, self.impl.nn
        own = self.overrides and rng.random() < 0.3
        m = self.classes[rng.randrange(1, CLASSES) if own else 0]()
        self.modules.append(m)
        for name in rng.sample(NAMES, rng.randrange(4)):
            kind = rng.randrange(8)
            shape = rng.choice(SHAPES)
            if kind == 0:
                m.register_parameter(name, None)
            elif kind == 1 and self.tensors:
                m.register_parameter(name, rng.choice(self.tensors))
            elif kind < 5:
                p = nn.Parameter(self.tensor(shape), requires_grad=rng.random() < 0.7)
                self.tensors.append(p)
                m.register_parameter(name, p)
            else:
                value = None if rng.random() < 0.1 else self.tensor(shape, rng.random() < 0.4)
                m.register_buffer(name, value, persistent=rng.random() < 0.7)
        for _ in range(rng.randrange(4) if depth else 0):
            pool = ODD_CHILDREN if rng.random() < 0.1 else NAMES
            name = rng.choice(pool)
            if name in m._parameters or name in m._buffers:
                continue
            kind = rng.randrange(10)
            if kind == 0:
                m._modules[name] = None
            elif kind == 1 and len(self.modules) > 6:
                shared = self.modules[-1]
                if not any(c is m for c in shared.modules()):
                    m._modules[name] = shared
            else:
                m._modules[name] = self.grow(depth - 1)
        if self.overrides and rng.random() < 0.3:
            self.add_hook(m)
        return m

    def add_hook(self, m: Any) -> None:
        rng, events = self.rng, self.events
        kind = rng.randrange(6)

        def note_save(module, destination, prefix, local_metadata):
            events.append(("save post", prefix, list(destination), dict(local_metadata)))

        def note_load(state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
            lists = (list(missing), list(unexpected), len(errors))
            events.append(("load pre", prefix, list(state_dict), *lists))
            if kind == 4 and state_dict:
                key = next(iter(state_dict))
                state_dict[key + "_moved"] = state_dict.pop(key)

        def note_done(module, keys):
            events.append(("load post", list(keys.missing_keys), list(keys.unexpected_keys)))
            if rng_value < 0.1:
                keys.missing_keys.clear()

        rng_value = rng.random()
        if kind == 0:
            m.register_state_dict_pre_hook(lambda m, p, keep: events.append(("save pre", p, keep)))
        elif kind == 1:
            m.register_state_dict_post_hook(note_save)
        elif kind == 2:
            m._register_state_dict_hook(lambda m, d, p, meta: OrderedDict(d, legacy=1))
        elif kind in (3, 4):
            m._register_load_state_dict_pre_hook(note_load)
        else:
            m.register_load_state_dict_post_hook(note_done)

    def show(self, state: Any) -> list[Any]:
        lib = self.impl.lib
        return [
            (k, (dtype(v), tuple(v.shape), values(v)) if isinstance(v, lib.Tensor) else repr(v))
            for k, v in state.items()
        ]

    def registered(self) -> list[Any]:
        """Every tensor of the tree with its flags, by path."""
        out = []
        for path, m in self.root.named_modules(remove_duplicate=False):
            for kind in ("_parameters", "_buffers"):
                for name, t in getattr(m, kind).items():
                    shown = None
                    if t is not None:
                        shown = (dtype(t), tuple(t.shape), values(t), t.requires_grad)
                    out.append((kind, path, name, shown))
            out.append(sorted(m._non_persistent_buffers_set))
            out.append(getattr(m, "state", None))
        return out


# -- checkpoints -----------------------------------------------------------------------------------


def break_checkpoint(case: Case, sd: Any, rng: random.Random) -> Any:
    """The same random damage for the same keys, whatever the implementation."""
    lib = case.impl.lib
    metadata = getattr(sd, "_metadata", None)
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        keys = list(sd)
        key = rng.choice(keys) if keys else "none"
        prefix = key[: key.rfind(".") + 1]
        kind = rng.randrange(12)
        if kind == 0:
            sd.pop(key, None)
        elif kind == 1:
            sd[prefix + "unexpected"] = 1
        elif kind == 2:
            sd[key + ".deeper"] = lib.zeros(1)
        elif kind == 3:
            sd[key] = lib.zeros(rng.choice(SHAPES))
        elif kind == 4:
            sd[key] = rng.choice((3, None, "text", [1.0]))
        elif kind == 5:
            sd[
                rng.choice((".", "", "..", "a.", ".a", "a.b.c", "_extra_state", "a._extra_state"))
            ] = 5
        elif kind == 6 and keys:
            sd.move_to_end(key, last=rng.random() < 0.5)
        elif kind == 7 and keys and isinstance(sd[key], lib.Tensor):
            sd[key] = sd[key].to(rng.choice((lib.float64, lib.int32, lib.float16)))
        elif kind == 8 and keys:
            sd["old" + key] = sd.pop(key)
        elif kind == 9 and metadata:
            metadata.pop(rng.choice(list(metadata)))
        elif kind == 10 and keys and isinstance(sd[key], lib.Tensor):
            sd[key] = case.impl.nn.Parameter(sd[key], requires_grad=False)
        elif kind == 11 and keys and isinstance(sd[key], lib.Tensor) and len(sd[key].shape) == 0:
            sd[key] = sd[key].reshape(1)
    return dict(sd) if rng.random() < 0.2 else sd


def attempt(fn: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fn()
    except Exception as error:
        return error


def lines(error: Exception) -> list[str]:
    """The messages, without the parts in which the libraries speak for themselves."""
    return [
        line.partition("an exception occurred")[0]
        for line in same_shapes(str(error).partition("\n\n")[0]).split("\n\t")
    ]


def check(kind: str, seed: int) -> None:
    overrides = seed % 2 == 1
    cases = [Case(implementation(k), seed, overrides, 0.0) for k in ("torch", kind)]
    sources = [Case(implementation(k), seed, overrides, 50.0) for k in ("torch", kind)]
    rng = random.Random(seed * 31 + 7)
    prefix = rng.choice(("", "", "", "p.", "odd"))
    saved = [s.root.state_dict(prefix=prefix) for s in sources]
    where = f"{kind}, seed {seed}"
    assert sources[1].show(saved[1]) == sources[0].show(saved[0]), where
    assert type(saved[0]).__name__ != "OrderedDict" or (
        list(getattr(saved[1], "_metadata", {}).items())
        == list(getattr(saved[0], "_metadata", {}).items())
    ), where
    assert sources[1].events == sources[0].events, where

    damage = rng.randrange(1 << 30)
    saved = [
        break_checkpoint(c, s, random.Random(damage)) for c, s in zip(cases, saved, strict=True)
    ]
    strict, assign = rng.random() < 0.6, rng.random() < 0.4
    before = cases[1].registered()
    results = [
        attempt(lambda c=c, s=s: c.root.load_state_dict(s, strict=strict, assign=assign))
        for c, s in zip(cases, saved, strict=True)
    ]
    where += f", strict={strict}, assign={assign}, keys {list(saved[0])}"
    expected, got = results
    if isinstance(expected, Exception):  # extra state is set only by a load that succeeds
        for c in cases:
            c.events[:] = [e for e in c.events if e[0] != "extra state"]
    assert cases[1].events == cases[0].events, where
    if isinstance(expected, Exception):
        assert type(got) is type(expected), (where, expected, got)
        assert lines(got) == lines(expected), where
        if not overrides and "an exception occurred" not in str(expected):
            assert cases[1].registered() == before, where
    else:
        assert not isinstance(got, Exception), (where, got)
        assert tuple(got) == tuple(expected), where
        assert repr(got) == repr(expected), where
        assert cases[1].registered() == cases[0].registered(), where


@needs_torch
@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_same_as_torch(kind, first):
    for seed in range(first, min(first + GROUP, SEEDS)):
        check(kind, seed)


@needs_torch
def test_cases_are_varied():
    """The generator itself: torch agrees with itself, and both outcomes and all kinds of events
    occur.
    """
    seen = set()
    for seed in range(60):
        case = Case(implementation("torch"), seed, True, 0.0)
        sd = case.root.state_dict()
        if not isinstance(sd, OrderedDict):
            continue
        rng = random.Random(seed)
        result = attempt(
            lambda c=case, s=sd, r=rng: c.root.load_state_dict(break_checkpoint(c, s, r))
        )
        seen.add(type(result).__name__)
        seen.update(e[0] for e in case.events)
    assert seen >= {"_IncompatibleKeys", "RuntimeError", "version", "nothing", "extra state"}
    assert seen >= {"save pre", "save post", "load pre", "load post"}
