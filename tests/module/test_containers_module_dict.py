# SPDX-License-Identifier: BSD-3-Clause
"""ModuleDict (as torch's throughout) and the deprecated Container."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from helpers.containers_common import entries, keys, tagger
from helpers.support import raises


def letters(impl, names="ba"):
    tag = tagger(impl)
    return impl.nn.ModuleDict({name: tag(name) for name in names})


@pytest.mark.parametrize("kind", [dict, OrderedDict, list, iter])
def test_construction_keeps_the_order(impl, kind):
    tag = tagger(impl)
    d = impl.nn.ModuleDict(
        kind(
            [("b", tag("b")), ("a", tag("a")), ("n", None)]
            if kind is not iter
            else [["b", tag("b")], ("a", tag("a")), ["n", None]]
        )
    )
    assert list(entries(d).items()) == [("b", "b"), ("a", "a"), ("n", None)]


def test_construction_from_another(impl):
    d = letters(impl)
    other = impl.nn.ModuleDict(d)
    assert list(other) == ["b", "a"]
    assert other["a"] is d["a"]


def test_empty(impl):
    assert len(impl.nn.ModuleDict()) == len(impl.nn.ModuleDict(None)) == 0
    assert repr(impl.nn.ModuleDict()) == "ModuleDict()"


def test_reading(impl):
    d = letters(impl)
    assert d["a"].tag == "a"
    assert d["a"] is d.a
    assert len(d) == 2
    assert list(d) == ["b", "a"]
    assert "a" in d
    assert "zz" not in d
    assert 3 not in d
    assert repr(d) == "ModuleDict(\n  (b): <b>\n  (a): <a>\n)"


def test_views_are_live(impl):
    d = letters(impl)
    names, pairs, modules = d.keys(), d.items(), d.values()
    d["c"] = tagger(impl)("c")
    assert list(names) == ["b", "a", "c"]
    assert [(k, m.tag) for k, m in pairs] == [("b", "b"), ("a", "a"), ("c", "c")]
    assert [m.tag for m in modules] == ["b", "a", "c"]


def test_missing_key(impl):
    d = letters(impl)
    for key in ("zz", 3):
        for read in (d.__getitem__, d.__delitem__, d.pop):
            with pytest.raises(KeyError) as info:
                read(key)
            assert type(info.value) is KeyError
            assert info.value.args[0] == key
    with raises(TypeError):
        d.pop("zz", None)


def test_what_a_dict_has_and_this_has_not(impl):
    missing = ("get", "setdefault", "popitem", "copy", "__or__", "__ror__", "__reversed__")
    assert not [name for name in missing if hasattr(impl.nn.ModuleDict(), name)]
    with raises(KeyError):
        list(reversed(letters(impl)))


def test_has_no_forward(impl):
    with raises(NotImplementedError, "ModuleDict"):
        letters(impl)([])


def test_set_replace_and_attribute(impl):
    d = letters(impl)
    d["b"] = tagger(impl)("new")
    d["n"] = None
    d.attribute = tagger(impl)("attribute")
    assert list(entries(d).items()) == [
        ("b", "new"),
        ("a", "a"),
        ("n", None),
        ("attribute", "attribute"),
    ]


@pytest.mark.parametrize("name", ["keys", "pop", "type", "training", "forward"])
def test_name_of_an_attribute_is_refused(impl, name):
    d = letters(impl)
    with raises(KeyError, f"attribute '{name}' already exists"):
        d[name] = tagger(impl)(0)
    assert keys(d) == ["b", "a"]


@pytest.mark.parametrize("name, kind", [("a.b", KeyError), ("", KeyError), (3, TypeError)])
def test_bad_name_is_refused(impl, name, kind):
    d = letters(impl)
    with raises(kind):
        d[name] = tagger(impl)(0)
    with raises(kind):
        d.update({name: tagger(impl)(0)})
    assert keys(d) == ["b", "a"]


def test_non_module_is_refused(impl):
    with raises(TypeError, "int is not a Module subclass"):
        letters(impl)["a"] = 3


def test_delete_pop_clear(impl):
    d = letters(impl, "abc")
    del d["a"]
    assert keys(d) == ["b", "c"]
    assert not hasattr(d, "a")
    assert d.pop("c").tag == "c"
    assert keys(d) == ["b"]
    assert d.clear() is None
    assert keys(d) == []


def test_update(impl):
    tag = tagger(impl)
    d = letters(impl)
    assert d.update({"z": tag("z"), "a": tag("new")}) is None
    d.update([("y", None), ["x", tag("x")]])
    d.update(letters(impl, "w"))
    d.update(OrderedDict(v=tag("v")))
    d.update(d)
    assert list(entries(d).items()) == [
        ("b", "b"),
        ("a", "new"),
        ("z", "z"),
        ("y", None),
        ("x", "x"),
        ("w", "w"),
        ("v", "v"),
    ]
    with raises(TypeError):
        d.update(u=tag("u"))


@pytest.mark.parametrize(
    "value, kind, text",
    [
        (
            3,
            TypeError,
            "ModuleDict.update should be called with an iterable of key/value pairs, but got int",
        ),
        ([3], TypeError, "ModuleDict update sequence element #0 should be Iterable; isint"),
        ([("a",)], ValueError, "#0 has length 1; 2 is required"),
        (["abc"], ValueError, "#0 has length 3; 2 is required"),
        ([("a", 3)], TypeError, "int is not a Module subclass"),
    ],
    ids=["int", "no pair", "too short", "too long", "no module"],
)
def test_update_with_nonsense(impl, value, kind, text):
    d = letters(impl)
    with raises(kind, text):
        d.update(value)
    with raises(kind, text):
        impl.nn.ModuleDict(value)
    assert keys(d) == ["b", "a"]


def test_update_keeps_what_came_before_an_error(impl):
    d = letters(impl)
    with raises(TypeError, "#1 should be Iterable"):
        d.update([("x", tagger(impl)("x")), 4])
    assert keys(d) == ["b", "a", "x"]


def test_update_goes_through_setitem(impl):
    class Upper(impl.nn.ModuleDict):
        def __setitem__(self, key, module):
            super().__setitem__(key.upper(), module)

    assert keys(Upper({"a": tagger(impl)(0)})) == ["A"]


def test_names_in_the_tree(impl):
    d = letters(impl)
    assert [name for name, _ in d.named_children()] == ["b", "a"]


def test_container_is_deprecated(impl):
    tag = tagger(impl)
    with pytest.warns(FutureWarning, match="Container"):
        c = impl.nn.Container(b=tag("b"), a=None)
    assert list(entries(c).items()) == [("b", "b"), ("a", None)]
    with pytest.warns(FutureWarning), raises(TypeError, "int is not a Module subclass"):
        impl.nn.Container(a=3)


def test_subclass_of_container_is_told_once(impl):
    with pytest.warns(FutureWarning, match="Container"):

        class Mine(impl.nn.Container):
            pass

    assert keys(Mine(a=tagger(impl)("a"))) == ["a"]
