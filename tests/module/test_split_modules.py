# SPDX-License-Identifier: BSD-3-Clause
"""The native split of modules into a structure and leaves, and the ways back."""

from __future__ import annotations

import gc
import weakref
from collections import namedtuple
from typing import Any

import pytest

import modtree as mt
from modtree import _C, nn

Pair = namedtuple("Pair", "first second")


class Leafy(nn.Module):
    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(mt.ones(2))
        self.register_buffer("count", mt.zeros(1))
        self.register_buffer("none", None)
        for name, value in attributes.items():
            setattr(self, name, value)


def split(tree: Any, known: Any = None, weak: bool = True, levels: int = 0) -> Any:
    return _C._split_modules(tree, known, weak, levels)


def structure(tree: Any) -> Any:
    return split(tree).structure


def test_leaves_in_the_order_of_the_tree_with_ties_once() -> None:
    model = nn.Sequential(Leafy(), Leafy())
    model[1].weight = model[0].weight
    found = split(model)
    assert [id(leaf) for leaf in found.leaves] == [
        id(model[0].weight), id(model[0].count), id(model[1].count)
    ]  # fmt: skip
    assert found.structure.places == (
        (1, "0.weight", 0, True),
        (1, "0.count", 1, False),
        (1, "0.none", -1, False),
        (2, "1.weight", 0, True),
        (2, "1.count", 2, False),
        (2, "1.none", -1, False),
    )
    assert found.modules == [model, model[0], model[1]]


def test_known_structure_is_found_again_by_identity() -> None:
    model = nn.Sequential(Leafy(), nn.Linear(2, 2))
    found = split(model)
    again = split(model, found.structure)
    assert again.structure is found.structure
    assert list(map(id, again.leaves)) == list(map(id, found.leaves))
    assert structure(model) == found.structure
    assert hash(structure(model)) == hash(found.structure)


def test_models_of_one_structure_are_equal() -> None:
    one, other = (nn.Sequential(Leafy(n=[1, (2, "x")]), nn.Linear(2, 2)) for _ in range(2))
    assert structure(one) == structure(other)
    assert split(other, structure(one)).structure == structure(one)


def _eval(model: Any) -> None:
    model[0].eval()


def _attribute(model: Any) -> None:
    model[0].n = 2


def _new_attribute(model: Any) -> None:
    model[0].more = 1


def _item_of_list(model: Any) -> None:
    model[0].items[1] = 5


def _item_of_dict(model: Any) -> None:
    model[0].table["a"] = {"b": 4}


def _hook(model: Any) -> None:
    model[0].register_forward_hook(lambda *_: None)


def _parameter(model: Any) -> None:
    model[0].bias = nn.Parameter(mt.ones(1))


def _none(model: Any) -> None:
    model[0].none = mt.ones(1)


def _child(model: Any) -> None:
    model.append(Leafy())


def _class(model: Any) -> None:
    model[1] = nn.Identity()


def _tie(model: Any) -> None:
    model[0].count = model[1].count


def _shared(model: Any) -> None:
    model[2] = model[1]


def _persistent(model: Any) -> None:
    model[0].register_buffer("count", model[0].count, persistent=False)


@pytest.mark.parametrize(
    "change",
    [
        _eval, _attribute, _new_attribute, _item_of_list, _item_of_dict, _hook, _parameter, _none,
        _child, _class, _tie, _shared, _persistent,
    ],
)  # fmt: skip
@pytest.mark.parametrize("weak", [True, False])
def test_change_gives_another_structure(change: Any, weak: bool) -> None:
    model = nn.Sequential(
        Leafy(n=1, items=[1, 2], table={"a": {"b": 3}}), Leafy(), Leafy()
    )  # fmt: skip
    before = split(model, None, weak).structure
    change(model)
    after = split(model, before, weak).structure
    assert after != before
    assert split(model, after, weak).structure is after


def test_new_arrays_do_not_change_the_structure() -> None:
    model = Leafy()
    before = structure(model)
    model.weight = nn.Parameter(mt.zeros(5))
    model.count = mt.zeros(7)
    found = split(model, before)
    assert found.structure is before
    assert found.leaves[0] is model.weight


def test_shared_modules_and_cycles() -> None:
    shared = Leafy()
    model = nn.Sequential(shared, nn.Sequential(shared))
    model[1].add_module("back", model)
    found = split(model)
    assert found.modules == [model, shared, model[1]]
    assert len(found.leaves) == 2
    again = split(model, found.structure)
    assert again.structure is found.structure
    (copy, *_) = found.structure.make(found.leaves, None)
    assert copy is not model and copy[1].back is copy and copy[1][0] is copy[0]


def test_deep_chain_is_split() -> None:
    root = inner = nn.Sequential()
    for _ in range(20_000):
        inner.add_module("0", nn.Sequential())
        inner = inner[0]
    inner.add_module("0", Leafy())
    found = split(root)
    assert len(found.modules) == 20_002
    assert split(root, found.structure).structure is found.structure
    assert len(found.structure.make(found.leaves, None)) == 20_002


def test_containers_around_modules() -> None:
    model, other = Leafy(), nn.Linear(2, 2)
    tree = {"a": [model, (1, 2)], "b": Pair(other, model), "c": {"d": "x"}}
    found = split(tree)
    assert found.others == [(1, 2), {"d": "x"}]
    assert found.structure.roots == (("a", 0), ("b", 0))
    rebuilt = found.structure.rebuild(found.modules, ["one", "two"])
    assert rebuilt == {"a": [model, "one"], "b": Pair(other, model), "c": "two"}
    assert type(rebuilt["b"]) is Pair
    again = split(tree, found.structure)
    assert again.structure is found.structure and again.others == found.others


def test_levels_take_containers_without_modules_apart() -> None:
    found = split(((1, [2]), {"a": 3}), levels=2)
    assert found.others == [1, [2], 3]
    assert split(((4, 5), {"a": 6}), found.structure, levels=2).others == [4, 5, 6]


def test_nested_containers_without_end_are_an_error() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RecursionError, match="modules in containers"):
        split(endless)
    with pytest.raises(RecursionError, match="modules in containers"):
        split(endless, structure([Leafy()]))


def test_made_modules_have_leaves_and_all_else() -> None:
    def hook(*_: Any) -> None:
        pass

    model = nn.Sequential(Leafy(n=3), nn.Linear(2, 2)).eval()
    model[0].register_forward_hook(hook)
    model[0].register_buffer("aside", mt.ones(1), persistent=False)
    model[0].forward = len
    found = split(model, None, False)
    copy = found.structure.make(range(found.structure.leaf_count), None)[0]
    assert copy[0]._parameters == {"weight": 0}
    assert copy[0]._buffers == {"count": 1, "none": None, "aside": 2}
    assert not copy.training and not copy[0].training
    assert list(copy[0]._forward_hooks.values()) == [hook]
    assert copy[0]._non_persistent_buffers_set == {"aside"}
    assert copy[0].n == 3 and copy[0].forward is len
    assert copy[0].forward is len and copy[0]._forward_hooks is not model[0]._forward_hooks
    assert copy[1].in_features == 2


def test_wrong_number_of_leaves_is_an_error() -> None:
    found = split(Leafy())
    with pytest.raises(ValueError, match="2 leaves"):
        found.structure.make([1], None)
    with pytest.raises(ValueError, match="2 leaves"):
        found.put([1])


def test_put_follows_ties() -> None:
    model = nn.Sequential(Leafy(), Leafy())
    model[1].weight = model[0].weight
    found = split(model)
    found.put(["w", "c", "d"])
    assert model[0]._parameters["weight"] == model[1]._parameters["weight"] == "w"
    assert (model[0]._buffers["count"], model[1]._buffers["count"]) == ("c", "d")


def test_nothing_is_written_where_an_entry_is_missing() -> None:
    model = nn.Sequential(Leafy(), Leafy())
    found = split(model)
    before = model[0].weight
    del model[1].count
    with pytest.raises(RuntimeError, match="'1' has no entry 'count'"):
        found.put(["w", "c", "v", "d"])
    assert model[0].weight is before


def test_write_takes_marks_over() -> None:
    class Array:
        pass

    old, new = Array(), Array()
    old.mark = 1  # type: ignore[attr-defined]
    model = Leafy()
    model._parameters["weight"] = old
    found = split(model)
    assert found.write((0,), (0,), [new], ("mark", "other")) == 0
    assert vars(new) == {"mark": 1} and model._parameters["weight"] is new
    assert split(model).write((0,), (0,), [5], ("mark",)) == 1
    with pytest.raises(IndexError):
        found.write((9,), (0,), [5], ())


def test_marks_are_bytes() -> None:
    class Array:
        pass

    model = nn.Sequential(*(Leafy() for _ in range(4)))
    for layer, mark in zip(model, (None, True, False, 7), strict=True):
        layer._parameters["weight"] = Array()
        if mark is not None:
            layer._parameters["weight"].mark = mark
    assert split(model).marks("mark") == bytes([0, 0, 1, 0, 2, 0, 3, 0])


def test_snapshot_restores_everything() -> None:
    model = nn.Sequential(Leafy(n=1), Leafy())
    found = split(model)
    snapshot = found.snapshot()
    tables = model[0]._parameters, vars(model[0])
    weight, children = model[0].weight, list(model)
    model[0].weight = nn.Parameter(mt.zeros(3))
    model[0].n = 5
    model[0].extra = 3
    del model[0].none
    model[0].register_buffer("none", None)
    model[0].register_buffer("more", mt.ones(1), persistent=False)
    model[0].register_forward_hook(lambda *_: None)
    model.eval()
    model[1].child = Leafy()
    del model[1].count
    found.restore(snapshot)
    assert model[0].weight is weight and model[0].n == 1 and not hasattr(model[0], "extra")
    assert list(model[0]._buffers) == ["count", "none"]
    assert not model[0]._forward_hooks and not model[0]._non_persistent_buffers_set
    assert model.training and list(model) == children and not list(model[1].children())
    assert model[1].count is not None
    assert model[0]._parameters is tables[0] and vars(model[0]) is tables[1]


def test_restore_of_a_module_that_was_exposed_meanwhile() -> None:
    model = Leafy(n=1)
    found = split(model)
    snapshot = found.snapshot()
    vars(model)["n"] = 2
    model.eval()
    found.restore(snapshot)
    assert model.n == 1 and model.training and list(model._buffers) == ["count", "none"]
    assert split(model, found.structure).structure == found.structure


def test_odd_snapshots_are_refused() -> None:
    found = split(Leafy())
    for odd in (None, [], [()], [None], [(1,) * 18], [(({}, None),) * 18], [((1, None),) * 18]):
        with pytest.raises(TypeError):
            found.restore(odd)


def test_attributes_are_kept_weakly_or_not() -> None:
    class Thing:
        pass

    model = Leafy(thing=Thing(), things=[Thing()])
    weak, strong = split(model).structure, split(model, None, False).structure
    alive = weakref.ref(model.thing), weakref.ref(model.things[0])
    assert split(model, weak).structure is weak and split(model, strong).structure is strong
    del model
    gc.collect()
    assert alive[0]() is not None
    del strong
    gc.collect()
    assert alive[0]() is None and alive[1]() is None
    with pytest.raises(RuntimeError, match="'thing' has died"):
        weak.make([1, 2], None)


def test_hashable_objects_are_compared_by_value() -> None:
    class Config:
        def __init__(self, n: int) -> None:
            self.n = n

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Config) and self.n == other.n

        def __hash__(self) -> int:
            return self.n

    one, other, third = Leafy(config=Config(1)), Leafy(config=Config(1)), Leafy(config=Config(2))
    assert structure(one) == structure(other) != structure(third)


def test_error_of_a_comparison_is_raised() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("no")

        def __hash__(self) -> int:
            return 1

    one, other = structure(Leafy(odd=Odd())), structure(Leafy(odd=Odd()))
    model = Leafy(odd=Odd())
    same = split(model, None, False).structure
    assert split(model, None, False).structure == same
    assert one != other or True  # both objects have died
    two = Leafy(odd=Odd())
    with pytest.raises(ValueError, match="no"):
        assert split(two).structure == same


def test_uninitialized_module_is_an_error() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            pass

    with pytest.raises(AttributeError, match="training"):
        split(Late())


def test_registry_of_another_class_is_read_by_its_items() -> None:
    class Table(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            return [("b", 2), ("a", 1)]

    model = Leafy()
    model._buffers = Table(a=1, b=2)
    found = split(model)
    assert found.leaves[1:] == [2, 1]
    assert split(model, found.structure).structure == found.structure


def test_registry_that_changes_the_tree_while_it_is_read() -> None:
    class Table(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            model[1] = nn.Identity()
            model[0].__dict__.clear()
            model.add_module("more", Leafy())
            return list(super().items())

    model = nn.Sequential(Leafy(), Leafy())
    model[0]._buffers = Table(count=mt.ones(1))
    try:
        split(model)
    except (AttributeError, RuntimeError):
        pass


def test_structures_and_splits_are_collected() -> None:
    class Thing:
        pass

    thing = Thing()
    model = Leafy(thing=thing)
    thing.model = model  # type: ignore[attr-defined]
    found = split(model, None, False)
    thing.found = found  # type: ignore[attr-defined]
    thing.structure = found.structure  # type: ignore[attr-defined]
    dies = weakref.ref(thing)
    del thing, model, found
    gc.collect()
    assert dies() is None


def test_types_cannot_be_made() -> None:
    for cls in (_C.ModuleStructure, _C.ModuleSplit):
        with pytest.raises(TypeError):
            cls()
    with pytest.raises(TypeError, match="ModuleStructure"):
        split(Leafy(), [3])


class Dying:
    """A leaf that runs a function when it dies."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __del__(self) -> None:
        self.function()


def test_leaves_that_change_the_module_when_they_die() -> None:
    def change() -> None:
        model[0]._parameters.clear()
        model[0].__dict__.clear()
        model.append(Leafy())
        found.leaves.clear()

    model = nn.Sequential(Leafy(), Leafy())
    model[0]._parameters["weight"] = Dying(change)
    found = split(model)
    found.leaves.clear()
    found.put(["a", "b", "c", "d"])
    assert len(model) == 3


def test_restore_of_values_that_change_the_module_when_they_die() -> None:
    def change() -> None:
        model[1].__dict__.clear()
        snapshot.clear()
        model[0].__dict__["more"] = 1

    model = nn.Sequential(Leafy(n=1), Leafy())
    found = split(model)
    snapshot = found.snapshot()
    model[0].dying = Dying(change)
    try:
        found.restore(snapshot)
    except (AttributeError, RuntimeError, TypeError):
        pass
    assert not snapshot


def test_attributes_whose_comparison_changes_the_module() -> None:
    class Name(str):
        def __eq__(self, other: object) -> bool:
            model[0].__dict__.clear()
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    model = nn.Sequential(Leafy(n=1), Leafy())
    model[0]._buffers[Name("odd")] = mt.ones(1)
    vars(model[1])[Name("attribute")] = 2
    found = split(model)
    split(model, found.structure)
    try:
        found.put(found.leaves)
        found.restore(found.snapshot())
    except (AttributeError, RuntimeError):
        pass


def test_odd_arguments_are_refused() -> None:
    found = split(Leafy())
    for call in (
        lambda: found.put(3),
        lambda: found.write([0], (0,), [1], ()),
        lambda: found.write((0,), (0,), [1]),
        lambda: found.write(("a",), (0,), [1], ()),
        lambda: found.marks(3),
        lambda: found.structure.make([1, 2]),
        lambda: found.structure.make([1, 2], [3]),
        lambda: found.structure.rebuild([], 3),
        lambda: found.structure.rebuild([], []),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()
