# SPDX-License-Identifier: BSD-3-Clause
"""The OrderedDict that ``state_dict`` fills natively is one like any other: compared with one that
got the same entries from Python, whatever happened to both before and happens afterwards.
"""

from __future__ import annotations

import copy
import gc
import pickle
import random
from collections import OrderedDict
from typing import Any

import pytest

import modtree
from modtree import nn


class Text(str):
    """A key that is no plain str."""


class Own(OrderedDict):
    """A subclass with nothing of its own."""


def _module(names: list[str]) -> nn.Module:
    m = nn.Module()
    for i, name in enumerate(names):
        if i % 3:
            m.register_parameter(name, nn.Parameter(modtree.zeros(1)))
        else:
            m.register_buffer(name, modtree.zeros(1))
    return m


def _same(dict_: Any, twin: Any) -> None:
    assert list(dict_) == list(twin)
    assert list(reversed(dict_)) == list(reversed(twin))
    assert len(dict_) == len(twin)
    assert all(a is b for a, b in zip(dict_.values(), twin.values(), strict=True))
    assert [k for k, _ in dict_.items()] == list(twin)


def _change(random_: random.Random, *dicts: Any) -> None:
    """One change by Python, the same to all."""
    kind, number = random_.randrange(7), random_.random()
    keys = list(dicts[0])
    key = keys[int(number * len(keys))] if keys else "none"
    for d in dicts:
        if kind == 0 and keys:
            del d[key]
        elif kind == 1 and keys:
            d.move_to_end(key, last=number < 0.5)
        elif kind == 2 and keys:
            d.popitem(last=number < 0.5)
        elif kind == 3:
            d[f"more{number}"] = None
        elif kind == 4 and keys:
            d[key] = None
        elif kind == 5 and keys:
            d.pop(key)
        elif kind == 6 and number < 0.1:
            d.clear()


def _history(random_: random.Random, *dicts: Any) -> None:
    for i in range(random_.choice([0, 0, 3, 12, 60])):
        for d in dicts:
            d[f"old{i}"] = i
    odd = random_.randrange(8)
    for d in dicts:
        if odd == 0:
            d[7] = None
        elif odd == 1:
            d[Text("odd")] = None
    for _ in range(random_.randrange(12)):
        _change(random_, *dicts)


@pytest.mark.parametrize("seed", range(60))
def test_filled_like_one_of_python(seed):
    random_ = random.Random(seed)
    kind = random_.choice([OrderedDict, OrderedDict, Own, type(nn.Module().state_dict())])
    dict_, twin = kind(), kind()
    _history(random_, dict_, twin)
    for turn in range(3):
        names = [f"n{random_.randrange(200)}" for _ in range(random_.randrange(1, 90))]
        names += random_.sample(["old0", "old2"], random_.randrange(3))
        m = _module(list(dict.fromkeys(names)))
        prefix = random_.choice(["", "", f"p{turn}."])
        m.state_dict(destination=dict_, prefix=prefix, keep_vars=True)
        for entries in (m._parameters, m._buffers):
            for name, value in entries.items():
                twin[prefix + name] = value
        _same(dict_, twin)
        for _ in range(random_.randrange(20)):
            _change(random_, dict_, twin)
            _same(dict_, twin)
    assert dict_ == twin
    _same(copy.copy(dict_), twin)
    assert list(pickle.loads(pickle.dumps(dict_))) == list(twin)


def test_an_iterator_over_the_destination_notices():
    for count in (1, 5, 40):
        destination = OrderedDict(first=1)
        walk = iter(destination)
        _module([f"n{i}" for i in range(count)]).state_dict(destination=destination)
        with pytest.raises(RuntimeError):
            next(walk)


@pytest.mark.parametrize(
    ("action", "left"),
    [
        (lambda d: d.pop("b"), ["a", "c"]),
        (lambda d: d.update(z=1), ["b", "z", "a", "c"]),
        (lambda d: d.move_to_end("b"), ["a", "b", "c"]),
        (lambda d: d.clear(), ["a", "c"]),
    ],
)
def test_a_destructor_that_changes_the_destination(action, left):
    class Last:
        def __init__(self) -> None:
            self.owner: OrderedDict[str, Any] = OrderedDict(b=self)

        def __del__(self) -> None:
            action(self.owner)

    def is_whole(dict_: OrderedDict[str, Any]) -> bool:
        try:
            return len(dict_) == len([*dict_])
        except KeyError:
            return False

    destination = Last().owner
    _module(["a", "b", "c"]).state_dict(destination=destination)
    if not is_whole(destination):
        # Then CPython's own function was at work (on 3.10, or in a build with
        # MODTREE_NO_INTERNALS), which leaves a place without an entry.
        twin = Last().owner
        twin.update(dict.fromkeys("abc"))
        assert not is_whole(twin)
        return
    assert list(reversed(destination)) == list(destination)[::-1]
    assert sorted(destination) == sorted(left)
    assert len(destination) == len(left)


def test_the_collector_goes_through_it():
    sd = _module([f"n{i}" for i in range(50)]).state_dict()
    sd["itself"] = sd
    assert any(referent is sd for referent in gc.get_referents(sd))
    del sd
    gc.collect()


def test_keys_are_held():
    m = _module([f"n{i}" for i in range(300)])
    sd = m.state_dict(prefix="some.longer.prefix.")
    other = _module([f"k{i}" for i in range(300)])
    for _ in range(3):  # takes the place of the names that are remembered
        other.state_dict(prefix="x.")
    del m
    gc.collect()
    assert list(sd) == list(sd.keys()) and all(k.startswith("some.longer") for k in sd)
    while sd:
        sd.popitem()
