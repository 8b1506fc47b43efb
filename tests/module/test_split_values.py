# SPDX-License-Identifier: BSD-3-Clause
"""Plain attributes and hooks in structures: compared by value at any size, made anew."""

from __future__ import annotations

import gc
import math
import signal
import threading
import weakref
from collections import OrderedDict, namedtuple
from typing import Any

import pytest

from modtree import _C, nn

Pair = namedtuple("Pair", "first second")


def holder(**attributes: Any) -> Any:
    module = nn.Module()
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


def split(tree: Any, known: Any = None, weak: bool = True, levels: int = 0) -> Any:
    return _C._split_modules(tree, known, weak, levels)


def structure(tree: Any) -> Any:
    return split(tree).structure


def made(module: Any) -> Any:
    found = split(module, None, False)
    return found.structure.make(found.leaves, None)[0]


def nested(depth: int, innermost: Any) -> Any:
    for _ in range(depth):
        innermost = [innermost]
    return innermost


VALUES: dict[str, Any] = {
    "list": lambda: [1, [2, (3,)], {"a": {4}}],
    "ordered": lambda: OrderedDict([("a", [1]), ("b", 2)]),
    "sets": lambda: [{1, "x", (2, 3)}, frozenset([1, frozenset([2])])],
    "named": lambda: (Pair([1], 2), Pair(None, (3.0,))),
    "many": lambda: list(range(1000)),
    "deep": lambda: nested(5000, 1),
    "empty": lambda: [[], {}, (), set(), OrderedDict()],
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("weak", [True, False])
def test_equal_values_are_one_structure(kind: str, weak: bool) -> None:
    one, other = holder(x=VALUES[kind]()), holder(x=VALUES[kind]())
    known = split(one, None, weak).structure
    assert known == structure(other) and hash(known) == hash(structure(other))
    assert split(one, known, weak).structure is known
    assert split(other, known, weak).structure is known


@pytest.mark.parametrize("kind", VALUES)
def test_made_containers_are_equal_and_new(kind: str) -> None:
    module = holder(x=VALUES[kind]())
    copies = made(module), made(module)
    for copy in copies:
        assert type(copy.x) is type(module.x) and copy.x is not module.x
        if kind != "deep":
            assert copy.x == module.x
            if kind != "sets":  # whose order depends on how they were filled
                assert repr(copy.x) == repr(module.x)
    assert copies[0].x is not copies[1].x or not copies[0].x
    assert structure(copies[0]) == structure(module)


def _innermost(value: Any) -> Any:
    while value and isinstance(value[0], list):
        value = value[0]
    return value


def test_change_at_any_depth_and_size_is_seen() -> None:
    for value, change in (
        (list(range(257)), lambda v: v.__setitem__(0, -1)),
        (list(range(100_000)), lambda v: v.__setitem__(99_999, -1)),
        (nested(10_000, 1), lambda v: _innermost(v).__setitem__(0, 2)),
        ({i: [i] for i in range(300)}, lambda v: v[299].append(1)),
        (OrderedDict(a=1, b=2), lambda v: v.move_to_end("a")),
        ({"a": {1, 2}}, lambda v: v["a"].add(3)),
        (Pair([1], 2), lambda v: v.first.append(1)),
    ):
        module = holder(x=value)
        before = structure(module)
        change(value)
        after = split(module, before).structure
        assert after is not before and after != before
        assert split(module, after).structure is after


def test_order_of_an_ordered_dict_beside_its_dict() -> None:
    one, other = OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)
    assert structure(holder(x=one)) != structure(holder(x=other))
    one.move_to_end("a")
    assert structure(holder(x=one)) == structure(holder(x=other))
    known = structure(holder(x=other))
    module = holder(x=one)
    assert split(module, known).structure is known
    assert list(made(module).x) == ["b", "a"]
    assert structure(holder(x={"a": 1})) != structure(holder(x=OrderedDict(a=1)))


def test_hooks_in_another_order_are_another_structure_that_is_found_again() -> None:
    module = nn.Module()
    calls: list[str] = []
    module.register_forward_hook(lambda *_: calls.append("second"))
    before = structure(module)
    handle = module.register_forward_hook(lambda *_: calls.append("first"), prepend=True)
    known = structure(module)
    assert known != before and split(module, known).structure is known
    assert list(made(module)._forward_hooks.values()) == list(module._forward_hooks.values())
    module._forward_hooks.move_to_end(handle.id)
    assert split(module, known).structure != known


def test_an_ordered_dict_among_the_arguments_has_modules() -> None:
    one, other = holder(), holder()
    tree = OrderedDict(a=one, b=[other, 5])
    tree.move_to_end("a")
    found = split(tree)
    assert found.modules == [other, one] and found.others == [5]
    rebuilt = found.structure.rebuild(found.modules, [6])
    assert rebuilt == OrderedDict([("b", [other, 6]), ("a", one)])
    assert split(tree, found.structure).structure == found.structure
    assert structure({"b": [other, 5], "a": one}) != found.structure


def test_values_are_compared_with_their_types_and_bits() -> None:
    for one, other in ((1, True), (1, 1.0), (0.0, -0.0), (0j, -0j), ({1}, {True}), ([], ())):
        known = structure(holder(x=[one]))
        assert known != structure(holder(x=[other]))
        assert split(holder(x=[other]), known).structure is not known
    known = structure(holder(x=[float("nan")]))
    assert split(holder(x=[math.nan]), known).structure is known
    assert structure(holder(x=[math.nan])) == known
    assert structure({1: holder()}) != structure({True: holder()})


def test_equal_sets_in_another_order_are_equal() -> None:
    one, other = {"a", 0, 8, 16}, {16, 8, 0, "a"}
    other |= set(range(100))
    other -= set(range(100)) - {0, 8, 16}
    assert structure(holder(x=one)) == structure(holder(x=other))
    assert structure(holder(x=one)) != structure(holder(x=other | {1}))


def test_containers_are_shared_where_they_were_shared() -> None:
    inner: list[Any] = [1]
    inner.append((inner,))
    parent = holder(a=inner, b={"x": inner})
    parent.child = holder(c=inner)
    copy = made(parent)
    assert copy.a is copy.b["x"] is copy.child.c is copy.a[1][0] and copy.a is not inner
    assert split(parent, structure(parent)).structure == structure(copy)
    alike = holder(a=[1], b=[1])
    shared = holder(a=[1])
    shared.b = shared.a
    assert structure(alike) != structure(shared)
    assert split(shared, structure(alike)).structure != structure(alike)
    assert split(alike, structure(shared)).structure != structure(shared)
    pair = (1, 2)
    assert structure(holder(a=pair, b=pair)) == structure(holder(a=(1, 2), b=tuple([1, 2])))


def test_objects_are_the_very_ones_also_where_they_are_equal() -> None:
    class Config:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Config)

        def __hash__(self) -> int:
            return 1

    one, other = holder(x=[Config()]), holder(x=[Config()])
    known = split(one, None, False).structure
    found = split(other, known, False)
    assert found.structure == known
    assert found.structure.make([], None)[0].x[0] is other.x[0]


def test_a_cached_structure_does_not_hold_containers_or_what_is_in_them() -> None:
    class Data:
        pass

    data = Data()
    dies = weakref.ref(data)
    module = holder(x=[{"data": (data,)}], y={frozenset([data])})
    known = structure(module)
    assert split(module, known).structure is known
    del module, data
    gc.collect()
    assert dies() is None
    assert known.constants[0][2] == [{"data": (None,)}]
    with pytest.raises(RuntimeError, match="has died"):
        known.make([], None)


class Name(str):
    """A name with attributes."""


@pytest.mark.parametrize("where", ["_parameters", "_buffers", "_modules", "__dict__"])
def test_names_are_traversed(where: str) -> None:
    name = Name("x")
    module = holder()
    vars(module)
    (vars(module) if where == "__dict__" else getattr(module, where))[name] = None
    name.structure = split(module, None, False).structure  # type: ignore[attr-defined]
    dies = weakref.ref(name)
    del name, module
    gc.collect()
    assert dies() is None


@pytest.mark.parametrize("shared", [list, tuple])
def test_containers_that_share_containers_are_met_once(shared: Any) -> None:
    value: Any = 0
    for _ in range(40):
        value = shared([value] * 128)
    module = holder(x=value)
    known = structure(module)
    assert split(module, known).structure is known
    assert structure(made(module)) == known
    assert split([value, module]).others[0] is value


def test_lists_that_share_lists_with_a_module_are_refused() -> None:
    tree: Any = holder()
    for _ in range(4):
        tree = [tree] * 128
    with pytest.raises(ValueError, match="containers around modules have more than"):
        split(tree)


def test_many_items_are_compared_with_signals() -> None:
    module = holder(x=[0.5] * 1_500_000)
    known = structure(module)
    assert split(module, known).structure == known
    before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyError("alarm")))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(KeyError, match="alarm"):
            for _ in range(1000):
                split(module, known)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_registries_that_a_property_of_the_class_hides() -> None:
    class Proxy(nn.Module):
        @property
        def _buffers(self) -> Any:
            return vars(self)["inner"]._buffers

        @_buffers.setter
        def _buffers(self, value: Any) -> None:
            pass

    inner = nn.Module()
    inner._buffers["b"] = 1
    proxy = Proxy()
    vars(proxy)["inner"] = inner
    found = split(proxy)
    assert found.leaves == [1]
    inner._buffers["c"] = 2
    again = split(proxy, found.structure)
    assert again.leaves == [1, 2]
    before = again.snapshot()
    again.put([3, 4])
    assert inner._buffers == {"b": 3, "c": 4}
    again.restore(before)
    assert inner._buffers == {"b": 1, "c": 2}


def test_restore_is_complete_when_what_was_replaced_dies() -> None:
    class Looking:
        def __del__(self) -> None:
            seen.append(dict(vars(module)))
            module.more = 1

    seen: list[Any] = []
    module = holder(x=1, y=2)
    module.register_buffer("b", None)
    found = split(module)
    before = found.snapshot()
    module.x = Looking()
    module._buffers["b"] = Looking()
    module.z = [Looking()]
    found.restore(before)
    assert module.x == 1 and module.y == 2 and module.b is None and not hasattr(module, "z")
    assert len(seen) == 3 and all(look["x"] == 1 and look["y"] == 2 for look in seen)


def test_restore_puts_the_order_of_an_ordered_dict_back() -> None:
    module = nn.Module()
    handles = [module.register_forward_hook(lambda *_: None) for _ in range(2)]
    found = split(module)
    before = found.snapshot()
    module._forward_hooks.move_to_end(handles[0].id)
    found.restore(before)
    assert list(module._forward_hooks) == [handle.id for handle in handles]


def test_hints_say_which_entries_are_one_leaf() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    for layer in model:
        layer._parameters.update(weight=True, bias=None)
    one, other = object(), object()
    hints = {
        id(model[0]): (weakref.ref(model[0]), {"weight": (True, one), "bias": (None, other)}),
        id(model[1]): (weakref.ref(model[1]), {"weight": (False, one), "bias": (None, other)}),
        1: 2,
    }
    found = _C._split_modules(model, None, True, 0, hints)
    assert [place[2] for place in found.structure.places] == [0, 1, 2, 1]
    assert found.leaves == [True, None, True]
    plain = split(model)
    assert [place[2] for place in plain.structure.places] == [0, -1, 0, -1]


def test_threads_change_containers_while_they_are_compared() -> None:
    module = holder(x=[[i] for i in range(50)], y={i: [i] for i in range(50)})
    tree = [module, module.x]
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            module.x[:] = [[1]] * 30
            module.y.clear()
            module.x[:] = [[i] for i in range(50)]
            module.y.update({i: [i] for i in range(50)})

    thread = threading.Thread(target=change)
    thread.start()
    try:
        known = structure(tree)
        for _ in range(300):
            known = split(tree, known).structure
    finally:
        stop.set()
        thread.join()
