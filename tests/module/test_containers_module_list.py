# SPDX-License-Identifier: BSD-3-Clause
"""ModuleList: every operation, on torch too; then what is deliberately different."""

from __future__ import annotations

import pytest
from helpers.containers_common import entries, keys, tagger, tags
from helpers.support import raises


def row(impl, n=3):
    tag = tagger(impl)
    return impl.nn.ModuleList([tag(i) for i in range(n)])


def with_foreign(impl):
    modules = row(impl)
    modules.foreign = tagger(impl)("foreign")
    return modules


# -- construction --------------------------------------------------------------------------------


def test_construction(impl):
    tag = tagger(impl)
    assert list(entries(row(impl)).items()) == [("0", 0), ("1", 1), ("2", 2)]
    assert len(impl.nn.ModuleList()) == len(impl.nn.ModuleList(None)) == 0
    assert tags(impl.nn.ModuleList(tag(i) for i in range(2))) == [0, 1]
    assert tags(impl.nn.ModuleList(modules=[tag(7), None])) == [7, None]


@pytest.mark.parametrize("value", [3, 2.5])
def test_construction_needs_an_iterable(impl, value):
    message = "ModuleList.extend should be called with an iterable, but got"
    with raises(TypeError, f"{message} {type(value).__name__}"):
        impl.nn.ModuleList(value)


def test_has_no_forward(impl):
    with raises(NotImplementedError, "ModuleList"):
        row(impl)([])


def test_what_a_list_has_and_this_has_not(impl):
    missing = ("index", "remove", "count", "clear", "__mul__", "__contains__", "__reversed__")
    assert not [name for name in missing if hasattr(impl.nn.ModuleList(), name)]


# -- reading -------------------------------------------------------------------------------------


def test_sequence_protocol(impl):
    modules = row(impl)
    assert len(modules) == 3
    assert tags(modules) == [0, 1, 2]
    assert [m.tag for m in reversed(modules)] == [2, 1, 0]
    assert modules[1] in modules
    assert tagger(impl)(1) not in modules


@pytest.mark.parametrize("index, tag", [(0, 0), (2, 2), (-1, 2), (-3, 0), (True, 1)])
def test_index(impl, index, tag):
    assert row(impl)[index].tag == tag


@pytest.mark.parametrize("index", [3, -4])
def test_index_out_of_range(impl, index):
    modules = row(impl)
    message = f"index {index} is out of range"
    with raises(IndexError, message):
        modules[index]
    with raises(IndexError, message):
        modules[index] = tagger(impl)(0)
    with raises(IndexError, message):
        del modules[index]
    with raises(IndexError, message):
        modules.pop(index)
    assert tags(modules) == [0, 1, 2]


def test_a_class_may_say_which_name_an_index_has(impl):
    class Reversed(impl.nn.ModuleList):
        def _get_abs_string_index(self, idx):
            return str(len(self) - 1 - idx)

    class Short(impl.nn.ModuleList):
        def __len__(self):
            return 0

    first, second = impl.nn.Identity(), impl.nn.Flatten()
    m = Reversed([first, second])
    assert m[0] is second and m[1] is first
    short = Short()
    short.add_module("0", first)
    with pytest.raises(IndexError):
        short[0]


@pytest.mark.parametrize("index", ["0", 1.0, None])
def test_index_of_a_wrong_type(impl, index):
    modules = row(impl)
    with raises(TypeError):
        modules[index]
    with raises(TypeError):
        modules[index] = tagger(impl)(0)
    with raises(TypeError):
        del modules[index]
    with raises(TypeError):
        modules.insert(index, tagger(impl)(0))


def test_index_is_a_name(impl):
    modules = impl.nn.ModuleList()
    modules.add_module("1", tagger(impl)("one"))
    modules.add_module("0", tagger(impl)("zero"))
    assert modules[0].tag == "zero"
    assert tags(modules) == ["one", "zero"]


def test_a_foreign_child_counts_but_has_no_index(impl):
    modules = with_foreign(impl)
    assert len(modules) == 4
    assert modules[2].tag == 2
    for index in (3, -1):
        with raises(KeyError, "3"):
            modules[index]


def test_slice_is_numbered_anew(impl):
    class Mine(impl.nn.ModuleList):
        pass

    modules = Mine(row(impl, 4))
    part = modules[1:3]
    assert type(part) is Mine
    assert list(entries(part).items()) == [("0", 1), ("1", 2)]
    assert part[0] is modules[1]
    assert tags(modules[::-1]) == [3, 2, 1, 0]
    assert len(modules[9:]) == 0


def test_dir_has_no_numbers(impl):
    assert not [name for name in dir(row(impl)) if name.isdigit()]


# -- repr ----------------------------------------------------------------------------------------


def test_repr_folds_neighbours_that_look_alike(impl):
    tag = tagger(impl)
    modules = impl.nn.ModuleList([tag("a"), tag("a"), tag("b"), tag("a"), None, None, None])
    assert repr(modules).splitlines() == [
        "ModuleList(",
        "  (0-1): 2 x <a>",
        "  (2): <b>",
        "  (3): <a>",
        "  (4-6): 3 x None",
        ")",
    ]
    assert repr(impl.nn.ModuleList()) == "ModuleList()"
    assert str(modules) == repr(modules)


def test_repr_indents_every_line(impl):
    class Block(impl.nn.Module):
        def __repr__(self):
            return "Block(\n\n  x\n)"

    modules = impl.nn.ModuleList([Block(), Block()])
    assert repr(modules) == "ModuleList(\n  (0-1): 2 x Block(\n  \n    x\n  )\n)"


def test_repr_of_lists_in_lists(impl):
    nn = impl.nn
    outer = nn.ModuleList([nn.ModuleList([tagger(impl)("a")] * 2), nn.Sequential(nn.ModuleList())])
    assert repr(outer).splitlines() == [
        "ModuleList(",
        "  (0): ModuleList(",
        "    (0-1): 2 x <a>",
        "  )",
        "  (1): Sequential(",
        "    (0): ModuleList()",
        "  )",
        ")",
    ]


def test_repr_ignores_extra_repr_and_names(impl):
    class Mine(impl.nn.ModuleList):
        def extra_repr(self):
            return "never shown"

        def _get_name(self):
            return "Renamed"

    modules = Mine([tagger(impl)("a")])
    modules.foreign = tagger(impl)("b")
    assert repr(modules) == "Renamed(\n  (0): <a>\n  (1): <b>\n)"
    assert repr(Mine()) == "Renamed()"


# -- writing -------------------------------------------------------------------------------------


def test_set(impl):
    modules = row(impl)
    modules[-1] = tagger(impl)("new")
    modules[0] = None
    assert list(entries(modules).items()) == [("0", None), ("1", 1), ("2", "new")]
    with raises(TypeError, "cannot assign"):
        modules[0] = 3
    with raises(TypeError):
        modules[0:1] = [tagger(impl)(0)]


@pytest.mark.parametrize(
    "index, left",
    [
        (0, [1, 2, 3, 4]),
        (-1, [0, 1, 2, 3]),
        (slice(1, 3), [0, 3, 4]),
        (slice(None, None, -2), [1, 3]),
        (slice(7, 9), [0, 1, 2, 3, 4]),
        (slice(None), []),
    ],
    ids=str,
)
def test_delete_renumbers(impl, index, left):
    modules = row(impl, 5)
    del modules[index]
    assert tags(modules) == left
    assert keys(modules) == [str(i) for i in range(len(left))]


def test_append_and_extend(impl):
    tag = tagger(impl)
    modules = row(impl, 1)
    assert modules.append(tag("a")) is modules
    assert modules.append(None) is modules
    assert modules.extend(tag(t) for t in "bc") is modules
    same = modules
    modules += impl.nn.ModuleList([tag("d")])
    assert modules is same
    assert tags(modules) == [0, "a", None, "b", "c", "d"]
    assert keys(modules) == [str(i) for i in range(6)]


def test_extend_needs_an_iterable(impl):
    modules = row(impl)
    message = "ModuleList.extend should be called with an iterable, but got"
    for value in (3, None, tagger(impl)(0)):
        with raises(TypeError, f"{message} {type(value).__name__}"):
            modules.extend(value)
        with raises(TypeError, message):
            modules += value
    assert tags(modules) == [0, 1, 2]


def test_entries_must_be_modules(impl):
    modules = row(impl)
    with raises(TypeError, "int is not a Module subclass"):
        modules.append(3)
    with raises(TypeError, "int is not a Module subclass"):
        modules.extend([3])
    with raises(TypeError, "str is not a Module subclass"):
        modules.extend({"a": tagger(impl)("a")})
    assert tags(modules) == [0, 1, 2]


@pytest.mark.parametrize("index", [0, 1, 3])
def test_insert(impl, index):
    modules = row(impl)
    assert modules.insert(index, tagger(impl)("x")) is None
    expected = [0, 1, 2]
    expected.insert(index, "x")
    assert tags(modules) == expected
    assert keys(modules) == ["0", "1", "2", "3"]


def test_insert_none(impl):
    modules = row(impl, 1)
    modules.insert(0, None)
    assert list(entries(modules).items()) == [("0", None), ("1", 0)]


def test_insert_beside_a_foreign_child(impl):
    modules = with_foreign(impl)
    with raises(KeyError):
        modules.insert(0, tagger(impl)("x"))


def test_insert_runs_no_registration_hook(impl):
    modules = row(impl)
    calls = []
    handle = impl.module.register_module_module_registration_hook(lambda *args: calls.append(args))
    try:
        modules.insert(0, tagger(impl)("x"))
        assert calls == []
        modules.append(tagger(impl)("y"))
        assert [name for _, name, _ in calls] == ["4"]
    finally:
        handle.remove()


def test_pop(impl):
    modules = row(impl, 4)
    assert modules.pop(1).tag == 1
    assert tags(modules) == [0, 2, 3]
    part = modules.pop(slice(1, None))
    assert type(part) is impl.nn.ModuleList
    assert tags(part) == [2, 3]
    assert list(entries(modules).items()) == [("0", 0)]
    with raises(TypeError):
        modules.pop()


def test_add(impl):
    class Mine(impl.nn.ModuleList):
        pass

    tag = tagger(impl)
    modules = Mine([tag(0)])
    both = modules + [tag(1), None]
    assert type(both) is impl.nn.ModuleList
    assert tags(both) == [0, 1, None]
    assert both[0] is modules[0]
    assert len(modules) == 1
    with raises(TypeError):
        [tag(1)] + modules
    with raises(TypeError, "'int' object is not iterable"):
        modules + 3
    with raises(TypeError, "int is not a Module subclass"):
        modules + [3]


# -- what torch does differently -----------------------------------------------------------------


@pytest.mark.parametrize("index, at", [(-1, 2), (-3, 0), (True, 1)])
def test_insert_counts_from_the_end(ours, index, at):
    modules = row(ours)
    modules.insert(index, tagger(ours)("x"))
    expected = [0, 1, 2]
    expected.insert(at, "x")
    assert tags(modules) == expected
    assert keys(modules) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("index", [4, -4])
def test_insert_leaves_no_gap(ours, index):
    modules = row(ours)
    with raises(IndexError, f"Index out of range: {index}", "length 3 takes -3 to 3"):
        modules.insert(index, tagger(ours)("x"))
    assert tags(modules) == [0, 1, 2]


def test_insert_needs_a_module(ours):
    modules = row(ours)
    with raises(TypeError, "int is not a Module subclass"):
        modules.insert(0, 3)
    assert tags(modules) == [0, 1, 2]


def test_delete_beside_a_foreign_child_is_refused(ours):
    modules = with_foreign(ours)
    for index in (0, -1, slice(0, 2)):
        with raises(KeyError, "would rename entry 'foreign'"):
            del modules[index]
    with raises(KeyError, "would rename entry 'foreign'"):
        modules.pop(0)
    assert keys(modules) == ["0", "1", "2", "foreign"]
    del modules.foreign
    del modules[0]
    assert list(entries(modules).items()) == [("0", 1), ("1", 2)]


def test_append_never_overwrites(ours):
    modules = ours.nn.ModuleList()
    modules.add_module("1", tagger(ours)("one"))
    for add in (modules.append, lambda m: modules.extend([m]), lambda m: modules.insert(1, m)):
        with raises(KeyError, "would be named '1' and overwrite"):
            add(tagger(ours)("new"))
    assert list(entries(modules).items()) == [("1", "one")]


def test_extension_by_itself(ours):
    modules = row(ours, 2)
    assert modules.extend(modules) is modules
    assert tags(modules) == [0, 1, 0, 1]
    modules += modules
    assert tags(modules) == [0, 1] * 4
    modules.extend(m for m in modules)
    assert keys(modules) == [str(i) for i in range(16)]


def test_extend_is_all_or_nothing(ours):
    modules = row(ours, 2)
    new = tagger(ours)("new")
    with raises(TypeError, "int is not a Module subclass"):
        modules.extend([new, new, 3])
    with raises(TypeError, "int is not a Module subclass"):
        modules += [new, 3]
    assert list(entries(modules).items()) == [("0", 0), ("1", 1)]
