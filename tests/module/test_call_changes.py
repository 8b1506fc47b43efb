# SPDX-License-Identifier: BSD-3-Clause
"""Calls of modules whose ``forward``, hooks and dicts change between calls and during them."""

from __future__ import annotations

import functools
import gc

import pytest
from helpers.support import raises


def echo(impl):
    class Echo(impl.nn.Module):
        def forward(self, *args, **kwargs):
            return ("forward", args, kwargs)

    return Echo()


def test_forward_deleted_from_the_class_while_it_runs(impl):
    class Vanishes(impl.nn.Module):
        def forward(self, x):
            del type(self).forward
            gc.collect()
            return [x for _ in range(2)]

    class Keyword(impl.nn.Module):
        def forward(self, *, x):
            del type(self).forward
            gc.collect()
            return {"x": x}

    assert Vanishes()(1) == [1, 1]
    assert Keyword()(x=1) == {"x": 1}
    with pytest.raises((NotImplementedError, AttributeError)):
        Vanishes()(1)


def test_forward_deleted_while_its_keywords_are_compared(ours):
    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            if "forward" in vars(Keyword):
                del Keyword.forward
                gc.collect()
            return str.__eq__(self, other)

    class Keyword(ours.nn.Module):
        def forward(self, a=None, value=None):
            return a, value

    assert Keyword()(**{Name("value"): 5}) == (None, 5)


def test_code_and_defaults_of_forward_changed_between_calls(impl):
    class Changes(impl.nn.Module):
        def forward(self, x, y=1):
            return x, y

    m = Changes()
    assert m(0) == (0, 1)
    m.forward.__func__.__defaults__ = (2,)
    assert m(0) == (0, 2)

    def other(self, *args, **kwargs):
        return "other", args, kwargs

    Changes.forward.__code__ = other.__code__
    assert m(0, z=1) == ("other", (0,), {"z": 1})


def test_forward_as_a_generator_and_a_coroutine(impl):
    class Yields(impl.nn.Module):
        def forward(self, x):
            yield x

    class Awaits(impl.nn.Module):
        async def forward(self, x):
            return x

    assert list(Yields()(1)) == [1]
    waiting = Awaits()(1)
    with pytest.raises(StopIteration) as stopped:
        waiting.send(None)
    assert stopped.value.value == 1


@pytest.mark.parametrize("count", [0, 1, 8, 9, 40])
def test_many_arguments_with_and_without_hooks(impl, count):
    m, args = echo(impl), tuple(range(count))
    keywords = {f"k{i}": i for i in range(count)}
    expected = ("forward", args, keywords)
    assert m(*args, **keywords) == expected
    seen = []
    m.register_forward_hook(lambda module, given, out: seen.append((given, out)))
    assert m(*args, **keywords) == expected and seen == [(args, expected)]
    m._call_impl = functools.partial(type(m)._call_impl, m)
    assert m(*args, **keywords) == expected


def test_a_hook_of_each_kind_alone(impl):
    seen = []

    def kinds(m):
        yield m.register_forward_hook(lambda *a: seen.append(a))
        yield m.register_forward_hook(lambda *a: seen.append(a), with_kwargs=True)
        yield m.register_forward_hook(lambda *a: seen.append(a), always_call=True)
        yield m.register_forward_pre_hook(lambda *a: seen.append(a))
        yield m.register_forward_pre_hook(lambda *a: seen.append(a), with_kwargs=True)

    m = echo(impl)
    out = ("forward", (1,), {"a": 2})
    for handle in kinds(m):
        assert m(1, a=2) == out
        handle.remove()
        assert m(1, a=2) == out
    plain = (m, (1,), out)
    with_kwargs = (m, (1,), {"a": 2}, out)
    assert seen == [plain, with_kwargs, plain, (m, (1,)), (m, (1,), {"a": 2})]


def test_a_global_table_filled_by_hand(impl):
    seen = []
    m = impl.nn.Identity()
    assert m(1) == 1
    for name in ("_global_forward_hooks", "_global_forward_pre_hooks"):
        table = getattr(impl.module, name)
        table["mine"] = lambda *args: seen.append(args)
        assert m(1) == 1
        del table["mine"]
        assert m(1) == 1
    assert seen == [(m, (1,), 1), (m, (1,))]


def test_a_module_whose_dict_was_looked_at(impl):
    m, seen = echo(impl), []
    entries = vars(m)
    plain = ("forward", (1,), {"a": 2})
    assert m(1, a=2) == plain
    for name in ("_forward_hooks", "_forward_pre_hooks"):
        entries[name]["mine"] = lambda *args: seen.append(args)
        assert m(1, a=2) == plain
        entries[name].clear()
        assert m(1, a=2) == plain
        old, entries[name] = entries[name], {"mine": lambda *args: seen.append(args)}
        assert m(1, a=2) == plain
        entries[name] = old
    assert seen == [(m, (1,), plain)] * 2 + [(m, (1,))] * 2
    for name in ("forward", "_call_impl", "_compiled_call_impl"):
        entries[name] = lambda *args, name=name, **kwargs: (name, args, kwargs)
        assert m(1, a=2) == (name, (1,), {"a": 2})
        del entries[name]
        assert m(1, a=2) == plain
    entries["_compiled_call_impl"] = None
    assert m(1, a=2) == plain
    entries["".join(list("forward"))] = lambda *args, **kwargs: "equal name"
    assert m(1) == "equal name"
    del entries["forward"]
    entries[3] = 4  # no dict of names any more
    assert m(1, a=2) == plain


@pytest.mark.parametrize("name", ["_forward_hooks", "_forward_pre_hooks", "_backward_hooks"])
def test_a_hook_table_deleted_from_the_dict(impl, name):
    m = echo(impl)
    table = vars(m).pop(name)
    with raises(AttributeError, name):
        m(1)
    vars(m)[name] = table
    assert m(1) == ("forward", (1,), {})


def test_a_dict_with_a_hostile_name(impl):
    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared.append(str(other))
            vars(m).pop("filler", None)
            return str.__eq__(self, other)

    compared = []
    m = echo(impl)
    vars(m)["filler"] = 1
    vars(m)[Name("forward")] = lambda *args: "instance"
    assert m(1) == "instance" and "forward" in compared
