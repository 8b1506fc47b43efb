# SPDX-License-Identifier: BSD-3-Clause
"""Making modules: the class itself, ``__init__`` and its arguments, a forgotten
``super().__init__()``.
"""

from __future__ import annotations

import abc
import inspect
import typing
import weakref

import pytest
from helpers.support import raises
from helpers.util import HOOK_TABLES, INTERNAL_KEYS, REGISTRIES, buffer, names, param, tensor

# -- the class -------------------------------------------------------------------------------------


def test_module_is_an_ordinary_class(impl):
    Module = impl.nn.Module
    assert type(Module) is type
    assert Module.__mro__[-1] is object
    assert Module.__name__ == Module.__qualname__ == "Module"
    m = Module()
    assert type(m) is Module
    assert isinstance(m.__dict__, dict)
    assert weakref.ref(m)() is m


def test_the_native_base_is_the_only_one(impl):
    between = impl.nn.Module.__mro__[1:-1]
    assert [base.__name__ for base in between] == ([] if impl.is_torch else ["ModuleBase"])


def test_equality_and_hash_are_identity(impl):
    a, b = impl.nn.Module(), impl.nn.Module()
    assert a == a and a != b
    assert len({a, b, a}) == 2
    assert hash(a) == object.__hash__(a)
    assert bool(a)
    with pytest.raises(TypeError):
        len(a)


@pytest.mark.parametrize(
    "name, value",
    [("dump_patches", False), ("_version", 1), ("call_super_init", False)],
)
def test_class_attributes(impl, name, value):
    assert getattr(impl.nn.Module, name) is value or getattr(impl.nn.Module, name) == value
    assert getattr(impl.nn.Module(), name) == value


def test_compiled_call_and_typing_helpers_of_the_class(impl):
    Module = impl.nn.Module
    assert Module._compiled_call_impl is None
    assert isinstance(Module.T_destination, typing.TypeVar)
    assert Module.forward.__name__ == "_forward_unimplemented"
    assert Module.__call__ is Module._wrapped_call_impl


@pytest.mark.parametrize("name", ["training", *REGISTRIES])
def test_state_is_only_annotated_on_the_class(impl, name):
    assert name in impl.nn.Module.__annotations__
    assert not hasattr(impl.nn.Module, name)


def test_abc_and_generic_subclasses(impl):
    T = typing.TypeVar("T")

    class Base(impl.nn.Module, abc.ABC):
        @abc.abstractmethod
        def forward(self, x): ...

    class Typed(impl.nn.Module, typing.Generic[T]):
        pass

    class Leaf(Base):
        def forward(self, x):
            return x

    with raises(TypeError, "abstract"):
        Base()
    assert Leaf()(3) == 3
    assert isinstance(Typed[int](), impl.nn.Module)
    assert list(Typed[int]().parameters()) == []


def test_multiple_inheritance_and_slots(impl):
    class Mixin:
        def hello(self):
            return "hello"

    class Both(Mixin, impl.nn.Module):
        __slots__ = ("slot",)

    m = Both()
    m.slot = 3
    m.child = impl.nn.Module()
    assert m.hello() == "hello" and m.slot == 3
    assert names(m.named_children()) == ["child"]
    assert "slot" not in m.__dict__


def test_the_class_of_an_instance_can_be_assigned(impl):
    class A(impl.nn.Module):
        def forward(self):
            return "a"

    class B(impl.nn.Module):
        def forward(self):
            return "b"

    m = A()
    m.child = impl.nn.Module()
    m.__class__ = B
    assert m() == "b" and type(m) is B
    assert names(m.named_children()) == ["child"]


def test_a_method_patched_on_the_class_is_honoured_at_once(impl):
    class M(impl.nn.Module):
        pass

    m = M()
    m.child = impl.nn.Module()
    assert len(list(m.modules())) == 2
    M.named_modules = lambda self, memo=None, prefix="", remove_duplicate=True: iter(
        [("only", self)]
    )
    assert list(m.modules()) == [m]
    del M.named_modules
    assert len(list(m.modules())) == 2


def test_patching_module_itself_is_honoured_and_can_be_undone(impl, monkeypatch):
    m = impl.nn.Module()
    m.child = impl.nn.Module()
    seen = []
    original = impl.nn.Module.named_children

    def patched(self):
        seen.append(self)
        return original(self)

    monkeypatch.setattr(impl.nn.Module, "named_children", patched)
    assert list(m.children()) == [m.child]
    assert seen == [m]
    monkeypatch.undo()
    assert list(m.children()) == [m.child]
    assert seen == [m]


@pytest.mark.parametrize("method", ["__setattr__", "__delattr__", "__getattr__", "__dir__"])
def test_patched_attribute_protocol_on_a_class(impl, method):
    class M(impl.nn.Module):
        pass

    m = M()
    m.x = 1
    calls = []
    original = getattr(impl.nn.Module, method)

    def patched(self, *args):
        calls.append(args)
        return original(self, *args)

    setattr(M, method, patched)
    m.y = 2
    del m.y
    with pytest.raises(AttributeError):
        _ = m.missing
    dir(m)
    assert len(calls) == 1
    delattr(M, method)
    m.y = 2
    assert len(calls) == 1 and m.y == 2


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args, kwargs, text",
    [
        ((), {"b": 1, "a": 2}, "Own.__init__() got an unexpected keyword argument 'b'"),
        ((1,), {"a": 2}, "Own.__init__() got an unexpected keyword argument 'a'"),
        ((1,), {}, "Own.__init__() takes 1 positional argument but 2 were given"),
        ((1, 2), {}, "Own.__init__() takes 1 positional argument but 3 were given"),
    ],
)
def test_extra_arguments(impl, args, kwargs, text):
    class Own(impl.nn.Module):
        pass

    with raises(TypeError, text):
        Own(*args, **kwargs)


def test_extra_arguments_through_super(impl):
    class Named(impl.nn.Module):
        def __init__(self):
            super().__init__(7)

    with raises(TypeError, "Named.__init__() takes 1 positional argument but 2 were given"):
        Named()


def test_new_takes_whatever_init_takes(impl):
    class Own(impl.nn.Module):
        def __init__(self, a, *, b):
            super().__init__()
            self.a, self.b = a, b

    m = Own(1, b=2)
    assert (m.a, m.b) == (1, 2)


def test_call_super_init_reaches_the_next_class(impl):
    seen = []

    class After:
        def __init__(self, *args, **kwargs):
            seen.append((args, kwargs, "training" in self.__dict__))
            super().__init__()

    class On(impl.nn.Module, After):
        call_super_init = True

    class Off(impl.nn.Module, After):
        pass

    On(1, key=2)
    assert seen == [((1,), {"key": 2}, True)]
    Off()
    assert len(seen) == 1


def test_call_super_init_before_object(impl):
    class On(impl.nn.Module):
        call_super_init = True

    On()
    with pytest.raises(TypeError):
        On(1)


# -- __init__ not run ------------------------------------------------------------------------------

_BEFORE = [
    ("parameter", lambda m, i: setattr(m, "x", param(i)), "cannot assign parameters before"),
    (
        "register_parameter",
        lambda m, i: m.register_parameter("x", param(i)),
        "cannot assign parameter before Module.__init__() call",
    ),
    (
        "register_parameter_none",
        lambda m, i: m.register_parameter("x", None),
        "cannot assign parameter before Module.__init__() call",
    ),
    ("module", lambda m, i: setattr(m, "x", i.nn.Module()), "cannot assign module before Module"),
    ("buffer", lambda m, i: setattr(m, "x", buffer(i)), "cannot assign buffer before Module"),
    (
        "register_buffer",
        lambda m, i: m.register_buffer("x", tensor(i)),
        "cannot assign buffer before Module.__init__() call",
    ),
    ("add_module", lambda m, i: m.add_module("x", i.nn.Module()), "'_modules'"),
    ("add_module_none", lambda m, i: m.add_module("x", None), "'_modules'"),
    ("dir", lambda m, i: dir(m), "'_parameters'"),
    ("parameters", lambda m, i: list(m.parameters()), ""),
    ("repr", lambda m, i: repr(m), "'_modules'"),
    ("train", lambda m, i: m.train(), "'_modules'"),
    ("apply", lambda m, i: m.apply(print), "'_modules'"),
    ("named_modules", lambda m, i: list(m.named_modules()), "'_modules'"),
    ("named_children", lambda m, i: list(m.named_children()), "'_modules'"),
    ("call", lambda m, i: m(1), "'_backward_hooks'"),
    ("state_dict", lambda m, i: m.state_dict(), "'_state_dict_pre_hooks'"),
    ("training", lambda m, i: m.training, "'training'"),
    ("registry", lambda m, i: m._parameters, "'_parameters'"),
    ("hook", lambda m, i: m.register_forward_hook(print), "'_forward_hooks'"),
    ("named_parameters", lambda m, i: list(m.named_parameters(recurse=False)), "'_parameters'"),
]


@pytest.fixture(params=["new", "forgotten"])
def bare(request, impl):
    """A module whose ``Module.__init__`` never ran: through ``__new__``, and by forgetting
    ``super().__init__()``.
    """

    class Bare(impl.nn.Module):
        def __init__(self):
            pass

        def forward(self, x):
            return x

    return Bare.__new__(Bare) if request.param == "new" else Bare()


@pytest.mark.parametrize("action, text", [p[1:] for p in _BEFORE], ids=[p[0] for p in _BEFORE])
def test_before_init(impl, bare, action, text):
    with raises(AttributeError, text):
        action(bare, impl)


def test_before_init_names_the_class(impl, bare):
    with raises(AttributeError, "'Bare' object has no attribute '_modules'"):
        bare.add_module("x", impl.nn.Module())
    with raises(AttributeError, "'Bare' object has no attribute 'missing'"):
        _ = bare.missing


@pytest.mark.parametrize("value", [1, None, "s", [1]])
def test_plain_values_before_init(impl, bare, value):
    bare.x = value
    assert bare.x is value and bare.__dict__ == {"x": value}
    with raises(AttributeError, "'_parameters'"):
        del bare.x
    assert bare._version == 1


def test_a_tensor_before_init_is_plain(impl, bare):
    t = tensor(impl)
    bare.x = t
    assert bare.x is t and list(bare.__dict__) == ["x"]


def test_plain_values_survive_init(impl):
    class Early(impl.nn.Module):
        def __init__(self):
            self.early = [1]
            super().__init__()

    m = Early()
    assert m.early == [1]
    assert [k for k in m.__dict__ if k != "early"] == list(INTERNAL_KEYS)


def test_init_again_resets_the_registries_only(impl):
    m = impl.nn.Module()
    m.p, m.child, m.plain = param(impl), impl.nn.Module(), 3
    m.register_buffer("b", tensor(impl), persistent=False)
    m.register_forward_hook(lambda *a: None)
    m.eval()
    held = m._parameters
    m.__init__()
    assert m.training is True and m.plain == 3
    assert m._parameters == m._buffers == m._modules == {}
    assert m._non_persistent_buffers_set == set()
    assert all(len(getattr(m, k)) == 0 for k in HOOK_TABLES if k != "_is_full_backward_hook")
    assert list(held) == ["p"]  # the old registry itself is left alone
    with pytest.raises(AttributeError):
        _ = m.p


def test_init_on_a_bare_instance_makes_it_usable(impl, bare):
    impl.nn.Module.__init__(bare)
    bare.p = param(impl)
    assert names(bare.named_parameters()) == ["p"]
    assert bare(5) == 5


# -- no forward ------------------------------------------------------------------------------------


def test_missing_forward(impl):
    class Own(impl.nn.Module):
        pass

    with raises(NotImplementedError, 'Module [Own] is missing the required "forward" function'):
        Own()(1)
    with raises(NotImplementedError, 'Module [Module] is missing the required "forward" function'):
        impl.nn.Module()()


@pytest.mark.parametrize(
    "kind", ["Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"]
)
def test_empty_containers_are_falsy(impl, kind):
    assert not getattr(impl.nn, kind)()


# -- signatures ------------------------------------------------------------------------------------


def parameter_kinds(function):
    return [(p.name, p.kind.name) for p in inspect.signature(function).parameters.values()]


def test_signature_of_a_class_without_init(impl):
    class Own(impl.nn.Module):
        """With words of its own."""

    class Below(Own):
        def forward(self, x):
            return x

    anything = [("args", "VAR_POSITIONAL"), ("kwargs", "VAR_KEYWORD")]
    for cls in (impl.nn.Module, Own, Below, impl.nn.Identity):
        assert parameter_kinds(cls) == anything
        assert parameter_kinds(cls.__init__)[1:] == anything
    assert parameter_kinds(Own().__init__) == anything
    inspect.signature(Own).bind(1, 2, x=3)
    assert Own.__doc__ == "With words of its own." and Below.__doc__ is None


def test_signature_of_a_class_with_init(impl):
    class Own(impl.nn.Module):
        def __init__(self, size, *, bias=True):
            super().__init__()

    class WithNew(impl.nn.Module):
        def __new__(cls, size):
            return super().__new__(cls)

    for cls in (Own, type("Below", (Own,), {})):
        assert str(inspect.signature(cls)) == "(size, *, bias=True)"
    assert [p for p, _ in parameter_kinds(WithNew)] == ["size"]


def test_signature_of_a_module_is_that_of_its_call(impl):
    class Own(impl.nn.Module):
        def __init__(self, size):
            super().__init__()

        def __call__(self, x, *, scale=1):
            return x * scale

    anything = [("args", "VAR_POSITIONAL"), ("kwargs", "VAR_KEYWORD")]
    assert parameter_kinds(impl.nn.Module()) == parameter_kinds(impl.nn.Identity()) == anything
    assert str(inspect.signature(Own(1))) == "(x, *, scale=1)"
    assert str(inspect.signature(Own)) == "(size)"
