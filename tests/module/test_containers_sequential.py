# SPDX-License-Identifier: BSD-3-Clause
"""Sequential: every operation, on torch too; then what is deliberately different."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from helpers.containers_common import entries, keys, tagger, tags
from helpers.support import raises


def row(impl, n=3):
    tag = tagger(impl)
    return impl.nn.Sequential(*[tag(i) for i in range(n)])


def named(impl, names="abc"):
    tag = tagger(impl)
    return impl.nn.Sequential(OrderedDict((name, tag(name)) for name in names))


# -- construction --------------------------------------------------------------------------------


def test_modules_are_named_by_position(impl):
    assert list(entries(row(impl)).items()) == [("0", 0), ("1", 1), ("2", 2)]


def test_ordered_dict_gives_the_names(impl):
    s = named(impl, "ba")
    assert list(entries(s).items()) == [("b", "b"), ("a", "a")]
    assert s.a.tag == "a"


def test_empty(impl):
    assert len(impl.nn.Sequential()) == 0
    assert len(impl.nn.Sequential(OrderedDict())) == 0
    assert impl.nn.Sequential()("same") == "same"
    assert repr(impl.nn.Sequential()) == "Sequential()"


def test_plain_dict_is_refused(impl):
    with raises(TypeError, "dict is not a Module subclass"):
        impl.nn.Sequential({"a": tagger(impl)(0)})


def test_two_ordered_dicts_are_refused(impl):
    with raises(TypeError, "OrderedDict is not a Module subclass"):
        impl.nn.Sequential(OrderedDict(), OrderedDict())


def test_none_is_kept_and_fails_when_called(impl):
    s = impl.nn.Sequential(tagger(impl)(0), None)
    assert list(entries(s).items()) == [("0", 0), ("1", None)]
    with raises(TypeError, "'NoneType' object is not callable"):
        s([])


def test_non_module_is_refused(impl):
    with raises(TypeError, "int is not a Module subclass"):
        impl.nn.Sequential(3)


# -- the call ------------------------------------------------------------------------------------


def test_call_folds_in_order(impl):
    assert row(impl)([]) == [0, 1, 2]
    assert row(impl)(input=["x"]) == ["x", 0, 1, 2]


@pytest.mark.parametrize("args", [(), ([], [])], ids=["none", "two"])
def test_call_takes_one_input(impl, args):
    with pytest.raises(TypeError):
        row(impl)(*args)


def test_call_goes_through_an_overridden_iteration(impl):
    class Backwards(impl.nn.Sequential):
        def __iter__(self):
            return reversed(self._modules.values())

    tag = tagger(impl)
    assert Backwards(tag(0), tag(1))([]) == [1, 0]


def test_hooks_of_the_modules_run(impl):
    s = row(impl, 2)
    s[0].register_forward_hook(lambda m, args, out: [*out, "hook"])
    assert s([]) == [0, "hook", 1]


# -- reading -------------------------------------------------------------------------------------


def test_len_iter_in_reversed(impl):
    s = row(impl)
    assert len(s) == 3
    assert tags(s) == [0, 1, 2]
    assert [m.tag for m in reversed(s)] == [2, 1, 0]
    assert s[1] in s
    assert tagger(impl)(1) not in s
    assert 3 not in s


def test_a_child_set_as_attribute_counts(impl):
    s = row(impl, 1)
    s.extra = tagger(impl)("extra")
    assert len(s) == 2
    assert s[1] is s.extra
    assert s([]) == [0, "extra"]


@pytest.mark.parametrize("index, tag", [(0, 0), (2, 2), (-1, 2), (-3, 0), (True, 1)])
def test_index(impl, index, tag):
    assert row(impl)[index].tag == tag


def test_index_by_a_tensor(impl):
    assert row(impl)[impl.lib.tensor(2)].tag == 2


def test_index_is_a_position_not_a_name(impl):
    tag = tagger(impl)
    s = impl.nn.Sequential(OrderedDict([("1", tag("one")), ("0", tag("zero"))]))
    assert s[0].tag == "one"


@pytest.mark.parametrize("index", [3, -4, 100])
def test_index_out_of_range(impl, index):
    s = row(impl)
    message = f"index {index} is out of range"
    with raises(IndexError, message):
        s[index]
    with raises(IndexError, message):
        s[index] = tagger(impl)(0)
    with raises(IndexError, message):
        del s[index]
    with raises(IndexError, message):
        s.pop(index)
    assert tags(s) == [0, 1, 2]


@pytest.mark.parametrize("index", ["0", 1.0, None])
def test_index_of_a_wrong_type(impl, index):
    s = row(impl)
    with raises(TypeError):
        s[index]
    with raises(TypeError):
        s[index] = tagger(impl)(0)
    with raises(TypeError):
        del s[index]
    assert tags(s) == [0, 1, 2]


@pytest.mark.parametrize(
    "part, expected",
    [
        (slice(1, None), ["1", "2", "3"]),
        (slice(None, None, 2), ["0", "2"]),
        (slice(None, None, -1), ["3", "2", "1", "0"]),
        (slice(9, None), []),
        (slice(-2, None), ["2", "3"]),
    ],
    ids=str,
)
def test_slice_keeps_names_and_modules(impl, part, expected):
    s = row(impl, 4)
    sliced = s[part]
    assert keys(sliced) == expected
    assert all(m is s._modules[k] for k, m in sliced._modules.items())


def test_slice_is_of_the_same_class(impl):
    class Mine(impl.nn.Sequential):
        pass

    s = Mine(*row(impl))
    assert type(s[1:]) is Mine
    assert type(s.pop(slice(0, 1))) is Mine


def test_slice_of_a_class_with_another_constructor_fails(impl):
    class Odd(impl.nn.Sequential):
        def __init__(self):
            super().__init__(tagger(impl)(0), tagger(impl)(1))

    with raises(TypeError):
        Odd()[1:]


def test_dir_has_no_numbers(impl):
    assert not [name for name in dir(row(impl)) if name.isdigit()]
    assert "a" in dir(named(impl))


def test_repr(impl):
    s = impl.nn.Sequential(tagger(impl)("a"), impl.nn.Sequential(tagger(impl)("b")), None)
    inner = "  (1): Sequential(\n    (0): <b>\n  )"
    assert repr(s) == f"Sequential(\n  (0): <a>\n{inner}\n  (2): None\n)"


# -- writing -------------------------------------------------------------------------------------


def test_set_goes_under_the_name_of_that_position(impl):
    s = named(impl)
    s[1] = tagger(impl)("new")
    assert list(entries(s).items()) == [("a", "a"), ("b", "new"), ("c", "c")]
    s[-1] = None
    assert s.c is None


def test_set_a_non_module(impl):
    s = row(impl)
    with raises(TypeError, "cannot assign"):
        s[0] = 3
    with raises(TypeError):
        s[0:1] = [tagger(impl)(0)]
    assert tags(s) == [0, 1, 2]


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
    s = row(impl, 5)
    del s[index]
    assert tags(s) == left
    assert keys(s) == [str(i) for i in range(len(left))]
    assert s([]) == left


def test_delete_renumbers_a_slice_of_numbers(impl):
    s = row(impl, 5)[2:]
    del s[0]
    assert list(entries(s).items()) == [("0", 3), ("1", 4)]


def test_state_dict_after_delete(impl):
    nn = impl.nn
    s = nn.Sequential(*[nn.Module() for _ in range(3)])
    for i, m in enumerate(s):
        m.w = nn.Parameter(impl.lib.tensor([float(i)]))
    last = s[2].w
    del s[1]
    assert list(s.state_dict()) == ["0.w", "1.w"]
    assert s.get_parameter("1.w") is last


def test_append(impl):
    s = row(impl, 1)
    assert s.append(tagger(impl)("x")) is s
    assert s.append(None) is s
    assert list(entries(s).items()) == [("0", 0), ("1", "x"), ("2", None)]
    with raises(TypeError, "str is not a Module subclass"):
        s.append("x")


def test_append_to_a_named_one(impl):
    s = named(impl, "ab").append(tagger(impl)("x"))
    assert keys(s) == ["a", "b", "2"]


def test_extend(impl):
    s = row(impl, 1)
    assert s.extend(row(impl, 2)) is s
    assert s.extend(m for m in [None]) is s
    assert tags(s) == [0, 0, 1, None]
    with raises(TypeError, "'int' object is not iterable"):
        s.extend(3)


def test_extend_goes_through_append(impl):
    class Loud(impl.nn.Sequential):
        def append(self, module):
            seen.append(module.tag)
            return super().append(module)

    seen = []
    Loud().extend(row(impl, 2))
    assert seen == [0, 1]


@pytest.mark.parametrize("index, at", [(0, 0), (1, 1), (3, 3), (-1, 2), (-3, 0)])
def test_insert(impl, index, at):
    s = row(impl)
    assert s.insert(index, tagger(impl)("x")) is s
    expected = [0, 1, 2]
    expected.insert(at, "x")
    assert tags(s) == expected
    assert keys(s) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("index", [4, -4])
def test_insert_out_of_range(impl, index):
    s = row(impl)
    with raises(IndexError, "Index out of range"):
        s.insert(index, tagger(impl)("x"))
    assert tags(s) == [0, 1, 2]


@pytest.mark.parametrize("value", [3, None, "x"])
def test_insert_needs_a_module(impl, value):
    with raises(AssertionError, "module should be of type"):
        row(impl).insert(0, value)


def test_insert_into_a_named_one(impl):
    s = named(impl)
    with raises(KeyError):
        s.insert(0, tagger(impl)("x"))
    assert keys(s) == ["a", "b", "c"]
    s.insert(3, tagger(impl)("x"))
    assert keys(s) == ["a", "b", "c", "3"]


def test_insert_runs_no_registration_hook(impl):
    s = row(impl)
    calls = []
    handle = impl.module.register_module_module_registration_hook(lambda *args: calls.append(args))
    try:
        s.insert(1, tagger(impl)("x"))
        assert calls == []
        s.append(tagger(impl)("y"))
        assert [name for _, name, _ in calls] == ["4"]
    finally:
        handle.remove()


def test_pop(impl):
    s = row(impl, 4)
    assert s.pop(1).tag == 1
    assert tags(s) == [0, 2, 3]
    part = s.pop(slice(1, None))
    assert type(part) is impl.nn.Sequential
    assert tags(part) == [2, 3]
    assert list(entries(s).items()) == [("0", 0)]
    with raises(TypeError):
        s.pop()


# -- arithmetic ----------------------------------------------------------------------------------


def test_add(impl):
    class Mine(impl.nn.Sequential):
        pass

    a, b = Mine(*row(impl, 1)), named(impl, "ab")
    both = a + b
    assert type(both) is impl.nn.Sequential
    assert list(entries(both).items()) == [("0", 0), ("1", "a"), ("2", "b")]
    assert both[0] is a[0]
    assert len(a) == 1


@pytest.mark.parametrize("other", [[], 3, None], ids=["list", "int", "none"])
def test_add_needs_a_sequential(impl, other):
    message = "add operator supports only objects of Sequential class"
    s = row(impl)
    with raises(ValueError, message):
        s + other
    with raises(ValueError, message):
        s += other


def test_add_in_place(impl):
    s = same = row(impl, 1)
    s += named(impl, "ab")
    assert s is same
    assert list(entries(s).items()) == [("0", 0), ("1", "a"), ("2", "b")]
    s = named(impl, "ab")
    s += row(impl, 1)
    assert keys(s) == ["a", "b", "2"]


@pytest.mark.parametrize("left", [True, False], ids=["s * n", "n * s"])
def test_multiply(impl, left):
    s = named(impl, "ab")
    product = s * 2 if left else 2 * s
    assert type(product) is impl.nn.Sequential
    assert list(entries(product).items()) == [("0", "a"), ("1", "b"), ("2", "a"), ("3", "b")]
    assert product[0] is product[2] is s.a
    assert keys(s) == ["a", "b"]


@pytest.mark.parametrize("factor", [2.0, "2", None])
def test_multiply_by_a_non_integer(impl, factor):
    s = row(impl)
    with raises(TypeError, "unsupported operand type(s) for *"):
        s * factor
    with raises(TypeError):
        factor * s
    with raises(TypeError, "unsupported operand type(s) for *"):
        s *= factor


@pytest.mark.parametrize("factor", [0, -1, False])
def test_multiply_by_a_factor_below_one(impl, factor):
    s = row(impl)
    with raises(ValueError, "Non-positive multiplication factor"):
        s * factor
    with raises(ValueError, "Non-positive multiplication factor"):
        s *= factor
    assert len(s) == 3


def test_multiply_in_place(impl):
    s = same = row(impl, 2)
    s *= 3
    assert s is same
    assert tags(s) == [0, 1] * 3
    assert keys(s) == [str(i) for i in range(6)]
    assert s[0] is s[2] is s[4]


def test_multiply_in_place_needs_numbers(impl):
    s = named(impl)
    with raises(KeyError):
        s *= 2
    assert keys(s) == ["a", "b", "c"]
    s *= 1
    assert keys(s) == ["a", "b", "c"]


# -- what torch does differently -----------------------------------------------------------------


@pytest.mark.parametrize("index", [0, -1, slice(0, 2)], ids=str)
def test_delete_from_a_named_one_is_refused(ours, index):
    s = named(ours)
    with raises(KeyError, "cannot delete by position", "delattr"):
        del s[index]
    with raises(KeyError, "cannot delete by position"):
        s.pop(index)
    assert list(entries(s).items()) == [("a", "a"), ("b", "b"), ("c", "c")]
    del s.b
    assert keys(s) == ["a", "c"]


def test_delete_from_a_named_one_when_no_name_is_lost(ours):
    s = named(ours)
    del s[5:]
    assert keys(s) == ["a", "b", "c"]
    del s[:]
    assert keys(s) == []
    s = row(ours, 2)
    s.extra = tagger(ours)("extra")
    del s[-1]
    assert keys(s) == ["0", "1"]


def test_delete_keeps_the_registry(ours):
    assigned = []

    class Own(ours.nn.Sequential):
        def __setattr__(self, name, value):
            assigned.append(name)
            super().__setattr__(name, value)

    s = Own(*row(ours))
    registry = s._modules
    assigned.clear()
    del s[0]
    assert s._modules is registry and assigned == []
    assert list(registry) == ["0", "1"]


def test_append_never_overwrites(ours):
    s = row(ours, 3)[1:]
    new = tagger(ours)("new")
    for add in (
        s.append,
        lambda m: s.extend([m]),
        lambda m: s.insert(2, m),
        lambda m: s.__iadd__(ours.nn.Sequential(m)),
    ):
        with raises(KeyError, "would be named '2' and overwrite", "entries: '1', '2'"):
            add(new)
    assert list(entries(s).items()) == [("1", 1), ("2", 2)]


def test_long_lists_of_names_are_cut_in_messages(ours):
    s = row(ours, 200)[1:]
    with raises(KeyError, "'8', ... (199 in all)") as info:
        s.append(tagger(ours)("new"))
    assert len(info.value.args[0]) < 500


def test_insert_into_a_slice_is_refused(ours):
    s = row(ours, 3)[1:]
    with raises(KeyError, "cannot insert at position 0", "named '1', '2'"):
        s.insert(0, tagger(ours)("new"))
    assert list(entries(s).items()) == [("1", 1), ("2", 2)]


def test_insert_takes_any_integer(ours):
    s = row(ours, 2)
    s.insert(True, tagger(ours)("x"))
    assert list(entries(s).items()) == [("0", 0), ("1", "x"), ("2", 1)]
    with raises(TypeError, "'str' object cannot be interpreted as an integer"):
        s.insert("0", tagger(ours)("y"))


def test_extension_by_itself(ours):
    s = row(ours, 2)
    assert s.extend(s) is s
    assert tags(s) == [0, 1, 0, 1]
    s += s
    assert tags(s) == [0, 1] * 4
    s.extend(reversed(s))
    assert len(s) == 16
    s.extend(m for m in s)
    assert len(s) == 32
    assert keys(s) == [str(i) for i in range(32)]


def test_extend_is_all_or_nothing(ours):
    s = row(ours, 2)
    new = tagger(ours)("new")

    def failing():
        yield new
        raise LookupError("no more")

    with raises(TypeError, "int is not a Module subclass"):
        s.extend([new, new, 3])
    with raises(LookupError, "no more"):
        s.extend(failing())
    assert list(entries(s).items()) == [("0", 0), ("1", 1)]
    clash = ours.nn.Sequential(OrderedDict([("3", new), ("b", new)]))
    with raises(KeyError, "would be named '3'"):
        clash += row(ours, 2)
    assert keys(clash) == ["3", "b"]


def test_multiply_in_place_is_all_or_nothing(ours):
    s = row(ours, 2)
    s.extra = tagger(ours)("extra")
    with raises(KeyError, "no entry named '2'", "entries: '0', '1', 'extra'"):
        s *= 2
    assert keys(s) == ["0", "1", "extra"]
