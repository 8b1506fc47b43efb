# SPDX-License-Identifier: BSD-3-Clause
"""Calling a module: dispatch, ``forward`` and the path without hooks."""

from __future__ import annotations

import functools
import operator

import pytest
from helpers.support import raises


def echo(impl):
    class Echo(impl.nn.Module):
        def forward(self, *args, **kwargs):
            return ("forward", args, kwargs)

    return Echo()


def test_call_passes_everything_to_forward(impl):
    m = echo(impl)
    assert m() == ("forward", (), {})
    assert m(1, 2) == ("forward", (1, 2), {})
    assert m(1, x=2, self_=3) == ("forward", (1,), {"x": 2, "self_": 3})
    assert m(*range(20), **{"a b": 1}) == ("forward", tuple(range(20)), {"a b": 1})


def test_result_is_the_very_object(impl):
    m, x = impl.nn.Identity(), object()
    assert m(x) is x


def test_call_gives_forward_its_own_kwargs(impl):
    class Eats(impl.nn.Module):
        def forward(self, **kwargs):
            kwargs.clear()

    given = {"a": 1}
    Eats()(**given)
    assert given == {"a": 1}


def test_missing_forward(impl):
    class Nothing(impl.nn.Module):
        pass

    with raises(NotImplementedError, 'Module [Nothing] is missing the required "forward" function'):
        Nothing()(1)


def test_missing_init(impl):
    class Forgot(impl.nn.Module):
        def __init__(self):
            pass

        def forward(self):
            return 1

    with raises(AttributeError, "'Forgot' object has no attribute '_backward_hooks'"):
        Forgot()()


def test_wrong_arguments_are_pythons_error(impl):
    with raises(TypeError, "forward() missing 1 required positional argument"):
        impl.nn.Identity()()


def test_exceptions_pass_through(impl):
    class Fails(impl.nn.Module):
        def forward(self):
            raise LookupError("mine")

    with raises(LookupError, "mine"):
        Fails()()


def test_forward_as_an_instance_attribute(impl):
    m = echo(impl)
    m.forward = lambda *a, **k: ("instance", a, k)
    assert m(1, b=2) == ("instance", (1,), {"b": 2})
    del m.forward
    assert m(1) == ("forward", (1,), {})


def test_forward_as_a_static_method(impl):
    class Static(impl.nn.Module):
        @staticmethod
        def forward(x):
            return ("static", x)

    assert Static()(1) == ("static", 1)


def test_forward_as_a_class_method(impl):
    class ClassWide(impl.nn.Module):
        @classmethod
        def forward(cls, x):
            return (cls, x)

    assert ClassWide()(1) == (ClassWide, 1)


def test_forward_as_a_property(impl):
    class Chooses(impl.nn.Module):
        @property
        def forward(self):
            return lambda x: ("chosen", x)

    assert Chooses()(1) == ("chosen", 1)


def test_forward_as_a_child_module(impl):
    class Outer(impl.nn.Module):
        forward = None

    m = Outer()
    m.__dict__["forward"] = impl.nn.Identity()
    assert m(5) == 5


def test_forward_patched_on_the_class(impl):
    m = echo(impl)
    type(m).forward = lambda self, x: ("patched", self, x)
    assert m(1) == ("patched", m, 1)


def test_forward_may_call_super(impl):
    class Base(impl.nn.Module):
        def forward(self, x):
            return x + 1

    class Derived(Base):
        def forward(self, x):
            return super().forward(x) * 10

    assert Derived()(1) == 20


def test_direct_forward_runs_no_hooks(impl):
    m = echo(impl)
    m.register_forward_hook(lambda *a: "hook")
    assert m.forward(1) == ("forward", (1,), {})
    assert m(1) == "hook"


def test_call_of_a_subclass(impl):
    class Own(impl.nn.Module):
        def __call__(self, *args):
            return ("own call", args)

    assert Own()(1) == ("own call", (1,))


def test_call_of_a_subclass_may_reach_us(impl):
    class Own(impl.nn.Module):
        def __call__(self, *args, **kwargs):
            return ("own", super().__call__(*args, **kwargs))

        def forward(self, x, y=0):
            return x + y

    assert Own()(1, y=2) == ("own", 3)


def test_call_as_an_instance_attribute_is_ignored(impl):
    m = echo(impl)
    m.__call__ = lambda *a: "never"
    assert m(1) == ("forward", (1,), {})


def test_call_patched_later(impl):
    m = echo(impl)
    cls = type(m)
    cls.__call__ = lambda self, *a: ("patched", a)
    assert m(1) == ("patched", (1,))
    del cls.__call__
    assert m(1) == ("forward", (1,), {})


def test_ways_to_call(impl):
    m = echo(impl)
    many = tuple(range(12))
    assert list(map(m, [1, 2])) == [m(1), m(2)]
    assert functools.partial(m, *many, a=1)(9, b=2) == ("forward", (*many, 9), {"a": 1, "b": 2})
    assert operator.methodcaller("__call__", *many, a=1)(m) == m(*many, a=1)
    assert functools.reduce(m, [1, 2, 3]) == ("forward", (("forward", (1, 2), {}), 3), {})
    assert sorted([3, 1], key=lambda value: m(value)[1]) == [1, 3]


def test_call_patched_between_calls_of_one_instance(impl):
    class Base(impl.nn.Module):
        def forward(self, *args, **kwargs):
            return ("forward", args, kwargs)

    class Derived(Base):
        pass

    m = Derived()
    assert m(1, a=2) == ("forward", (1,), {"a": 2})
    Base.__call__ = lambda self, *args, **kwargs: ("base", args, kwargs)
    assert m(1, a=2) == ("base", (1,), {"a": 2})
    assert m(*range(12)) == ("base", tuple(range(12)), {})
    Derived.__call__ = lambda self, *args, **kwargs: ("derived", args, kwargs)
    assert m() == ("derived", (), {})
    del Derived.__call__
    assert m(3) == ("base", (3,), {})
    del Base.__call__
    assert m(1, a=2) == ("forward", (1,), {"a": 2})


def test_class_with_its_own_call_given_to_an_instance(impl):
    class Plain(impl.nn.Module):
        def forward(self, x):
            return "forward", x

    class Calls(Plain):
        def __call__(self, x, *, twice=False):
            return "call", (x, x) if twice else x

    m, other = Plain(), Calls()
    assert m(1) == ("forward", 1)
    m.__class__, other.__class__ = Calls, Plain
    assert m(1) == ("call", 1)
    assert m(x=1, twice=True) == ("call", (1, 1))
    assert other(x=1) == ("forward", 1)


def test_overridden_call_impl_is_used(impl):
    class Own(impl.nn.Module):
        def _call_impl(self, *args, **kwargs):
            return ("impl", super()._call_impl(*args, **kwargs))

        def forward(self, x):
            return x

    m = Own()
    m.register_forward_hook(lambda m, a, out: out + 1)
    assert m(1) == ("impl", 2)
    m._call_impl = lambda *a: "instance"
    assert m(1) == "instance"


def test_overridden_wrapped_call_impl_is_not_used(impl):
    class Own(impl.nn.Module):
        def _wrapped_call_impl(self, *args, **kwargs):
            return "never"

        def forward(self, x):
            return x

    assert Own()(1) == 1


def test_call_helpers_can_be_called(impl):
    m = echo(impl)
    assert m._call_impl(1, a=2) == m._wrapped_call_impl(1, a=2) == ("forward", (1,), {"a": 2})
    assert impl.nn.Module.__call__(m, 1) == ("forward", (1,), {})
    m.register_forward_hook(lambda *a: "hook")
    assert m._call_impl(1) == m._wrapped_call_impl(1) == "hook"


def test_forward_is_looked_up_before_the_pre_hooks(impl):
    m = echo(impl)

    def swap(module, args):
        module.forward = lambda *a: "new"

    m.register_forward_pre_hook(swap)
    assert m(1) == ("forward", (1,), {})
    assert m(1) == "new"


def test_class_changed_by_a_pre_hook(impl):
    class Other(impl.nn.Module):
        def forward(self, x):
            return ("other", x)

    m = echo(impl)

    def change(module, args):
        module.__class__ = Other

    handle = m.register_forward_pre_hook(change)
    assert m(1) == ("forward", (1,), {})
    handle.remove()
    assert type(m) is Other
    assert m(1) == ("other", 1)


def test_hook_added_in_forward_on_the_fast_path_waits(impl):
    fired = []

    class Adds(impl.nn.Module):
        def forward(self, x):
            if not self._forward_hooks:
                self.register_forward_hook(lambda *a: fired.append("late"))
            return x

    m = Adds()
    m(1)
    assert fired == []
    m(1)
    assert fired == ["late"]


def test_hook_added_in_forward_on_the_slow_path_runs(impl):
    fired = []

    class Adds(impl.nn.Module):
        def forward(self, x):
            if not self._forward_hooks:
                self.register_forward_hook(lambda *a: fired.append("late"))
            return x

    m = Adds()
    m.register_forward_pre_hook(lambda *a: fired.append("pre"))
    m(1)
    assert fired == ["pre", "late"]


def test_hooks_written_into_the_table_are_used(impl):
    m = impl.nn.Identity()
    m._forward_hooks["mine"] = lambda module, args, out: (args, out)
    m._forward_pre_hooks["mine"] = lambda module, args: (args[0] + 1,)
    assert m(1) == ((2,), 2)
    m._forward_hooks.clear()
    m._forward_pre_hooks.clear()
    assert m(1) == 1


def test_rebound_hook_table_is_used(impl):
    m = impl.nn.Identity()
    table = type(m._forward_hooks)()
    m._forward_hooks = table
    table["k"] = lambda *a: "rebound"
    assert m(1) == "rebound"


class Truth:
    """Stands for a hook table that is no dict, and answers only when asked for its truth."""

    def __init__(self, answer):
        self.answer = answer

    def __bool__(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("name", ["_forward_hooks", "_forward_pre_hooks", "_backward_hooks"])
@pytest.mark.parametrize("table", [None, Truth(False), ()], ids=["none", "falsy", "tuple"])
def test_a_hook_table_is_asked_for_its_truth(impl, name, table):
    m = impl.nn.Identity()
    setattr(m, name, table)
    assert m(1) == 1


@pytest.mark.parametrize("name", ["_forward_hooks", "_forward_pre_hooks"])
@pytest.mark.parametrize("table", [None, Truth(False), ()], ids=["none", "falsy", "tuple"])
def test_a_hook_table_is_asked_for_its_truth_beside_other_hooks(impl, name, table):
    class Echo(impl.nn.Module):
        def forward(self, x):
            return x

    m = Echo()
    calls = []
    m.register_forward_hook(lambda *a: calls.append("post"))
    m.register_forward_pre_hook(lambda *a: calls.append("pre"))
    setattr(m, name, table)
    assert m(1) == 1
    assert calls == ["pre" if name == "_forward_hooks" else "post"]
    # Beside a global hook it is listed.
    register = {
        "_forward_hooks": impl.module.register_module_forward_hook,
        "_forward_pre_hooks": impl.module.register_module_forward_pre_hook,
    }[name]
    with register(lambda *a: None), pytest.raises(AttributeError):
        m(1)


@pytest.mark.parametrize("name", ["_forward_hooks", "_forward_pre_hooks", "_backward_hooks"])
@pytest.mark.parametrize("error", [ValueError, TypeError, ZeroDivisionError])
def test_the_error_of_a_hook_table_ends_the_call(impl, name, error):
    m = impl.nn.Identity()
    setattr(m, name, Truth(error("no")))
    with pytest.raises(error, match="no"):
        m(1)
    with pytest.raises(error, match="no"):
        m(input=1)


def test_the_error_of_a_table_of_backward_hooks_behind_a_forward_hook(impl):
    m = impl.nn.Identity()
    m.register_forward_hook(lambda *a: None)
    m._forward_pre_hooks, m._backward_hooks = {}, Truth(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        m(1)


def test_deep_recursion_in_forward_is_pythons_error(impl):
    class Loop(impl.nn.Module):
        def forward(self, x):
            return self(x)

    with pytest.raises(RecursionError):
        Loop()(1)


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("name", ["forward", "_call_impl"])
def test_a_module_that_calls_itself_is_pythons_error(impl, name, hooked):
    m, other = impl.nn.Module(), impl.nn.Module()
    m.__dict__[name] = other
    other.__dict__[name] = m
    if hooked:
        m.register_forward_hook(lambda *args: None)
    # CPython 3.14 goes to the end of the C stack, which native code or CPython finds first.
    exceeded = "maximum recursion depth exceeded|Stack overflow|nested too deeply for the C stack"
    with pytest.raises(RecursionError, match=exceeded):
        m(1)
    own = impl.nn.Module()
    own.__dict__[name] = own
    with pytest.raises(RecursionError, match=exceeded):
        own(1, a=2)


def test_module_may_die_during_its_call(impl):
    holder = []

    class Drops(impl.nn.Module):
        def forward(self, x):
            holder.clear()
            return x

    holder.append(Drops())
    assert holder[0](3) == 3


@pytest.mark.parametrize("name", ["__call__", "_call_impl", "_wrapped_call_impl"])
def test_wrong_self(ours, name):
    with pytest.raises((TypeError, AttributeError)):
        getattr(ours.nn.Module, name)(3)
