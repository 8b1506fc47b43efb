# SPDX-License-Identifier: BSD-3-Clause
"""Writing attributes (the table of transitions has its own file)."""

from __future__ import annotations

import warnings

import pytest
from helpers.support import raises, warns
from helpers.util import INTERNAL_KEYS, buffer, names, param, tensor

# -- writing -------------------------------------------------------------------------------------

PLAIN = [1, 2.5, "s", None, [1], {"a": 1}, (1,), object(), int, len]


@pytest.mark.parametrize("value", PLAIN, ids=lambda v: type(v).__name__)
def test_plain_values_are_attributes(impl, value):
    m = impl.nn.Module()
    m.x = value
    assert m.x is value and m.__dict__["x"] is value
    assert not m._parameters and not m._buffers and not m._modules


def test_plain_attributes_keep_their_order(impl):
    m = impl.nn.Module()
    m.b, m.a, m.c = 1, 2, 3
    m.b = 4
    del m.a
    m.a = 5
    assert [k for k in m.__dict__ if k not in INTERNAL_KEYS] == ["b", "c", "a"]


def test_containers_of_python_are_opaque(impl):
    m = impl.nn.Module()
    m.list, m.dict = [param(impl), impl.nn.Module()], {"p": param(impl)}
    m.tuple = (tensor(impl), buffer(impl))
    assert list(m.parameters()) == list(m.children()) == list(m.buffers()) == []


def test_a_parameter_flag_makes_a_tensor_a_parameter(impl):
    m = impl.nn.Module()
    t = tensor(impl)
    t._is_param = True
    m.x = t
    assert m._parameters["x"] is t
    t2 = buffer(impl)
    t2._is_param = True  # wins over the buffer flag
    m.y = t2
    assert m._parameters["y"] is t2 and "y" not in m._buffers


def test_a_buffer_flag_makes_a_tensor_a_buffer(impl):
    m = impl.nn.Module()
    t = tensor(impl)
    t._is_buffer, t.persistent = True, False
    m.x = t
    assert m._buffers["x"] is t and m._non_persistent_buffers_set == {"x"}


def test_assigning_a_tensor_keeps_the_persistence(impl):
    m = impl.nn.Module()
    m.register_buffer("on", tensor(impl))
    m.register_buffer("off", tensor(impl), persistent=False)
    m.on, m.off = tensor(impl, 2), tensor(impl, 2)
    assert m._non_persistent_buffers_set == {"off"}
    m.on, m.off = None, None
    assert m._non_persistent_buffers_set == {"off"}
    m.off = buffer(impl)
    assert m._non_persistent_buffers_set == set()
    m.off = buffer(impl, persistent=False)
    assert m._non_persistent_buffers_set == {"off"}
    m.off = param(impl)  # for step 1 a parameter is a parameter, whatever the name was
    assert m._non_persistent_buffers_set == set() and list(m._parameters) == ["off"]


def test_moving_between_kinds_appends_and_rewriting_keeps_the_place(impl):
    m = impl.nn.Module()
    m.a, m.b, m.c = param(impl), param(impl), param(impl)
    m.a = param(impl)
    m.b = None
    m.b = param(impl)
    assert list(m._parameters) == ["a", "b", "c"]
    del m.a
    m.a = param(impl)
    assert list(m._parameters) == ["b", "c", "a"]
    m.x, m.y = impl.nn.Module(), impl.nn.Module()
    m.x = None
    m.x = impl.nn.Module()
    assert list(m._modules) == ["x", "y"]
    m.x = param(impl)
    assert list(m._modules) == ["y"] and list(m._parameters) == ["b", "c", "a", "x"]
    for name in "pq":
        m.register_buffer(name, tensor(impl))
    m.p = None
    m.p = tensor(impl)
    assert list(m._buffers) == ["p", "q"]
    m.p = impl.nn.Module()
    assert list(m._buffers) == ["q"] and list(m._modules) == ["y", "p"]


def test_none_as_plain_value_and_as_reserved_slot(impl):
    m = impl.nn.Module()
    m.plain = None
    m.register_parameter("slot", None)
    with raises(KeyError, "attribute 'plain' already exists"):
        m.plain = buffer(impl)
    m.plain = impl.nn.Module()
    with raises(TypeError, "as parameter 'slot' (torch.nn.Parameter or None expected)"):
        m.slot = tensor(impl)
    m.slot = param(impl)
    assert list(m._parameters) == ["slot"]


@pytest.mark.parametrize("name", ["a.b", "", "0", "a b", "ünï", "\udcff", "."])
def test_odd_names_for_every_kind(impl, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = impl.nn.Module()
        child = impl.nn.Module()
        setattr(m, name, child)
        assert getattr(m, name) is child and list(m._modules) == [name]
        setattr(m, name, None)
        assert getattr(m, name) is None
        delattr(m, name)
        setattr(m, name, "plain")
        assert m.__dict__[name] == "plain"
        delattr(m, name)
        for value in (param(impl), buffer(impl)):
            if name == "" or "." in name:
                with raises(KeyError, "name can't"):
                    setattr(m, name, value)
                assert not hasattr(m, name)
            else:
                setattr(m, name, value)
                assert getattr(m, name) is value
                delattr(m, name)


@pytest.mark.parametrize("name", ["a.b", "", "."])
def test_a_module_under_a_name_that_breaks_paths_warns(ours, name):
    m = ours.nn.Module()
    child = ours.nn.Module()
    with warns(UserWarning, repr(name)):
        setattr(m, name, child)
    assert list(m._modules) == [name] and m._modules[name] is child


def test_colliding_paths_keep_the_later_value(impl):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m, inner, dotted = impl.nn.Module(), impl.nn.Module(), impl.nn.Module()
        inner.b = impl.nn.Module()
        inner.b.w, dotted.w = param(impl, 1), param(impl, 2)
        m.a = inner
        setattr(m, "a.b", dotted)
    assert names(m.named_parameters()) == ["a.b.w", "a.b.w"]
    assert list(m.state_dict()) == ["a.b.w"]
    assert float(m.state_dict()["a.b.w"][0]) == 2.0


def test_a_user_setattr_with_super(impl):
    seen = []

    class M(impl.nn.Module):
        def __setattr__(self, name, value):
            seen.append(name)
            super().__setattr__(name, value)

    m = M()
    seen.clear()
    m.p, m.c, m.x = param(impl), impl.nn.Module(), 3
    assert seen == ["p", "c", "x"]
    assert list(m._parameters) == ["p"] and list(m._modules) == ["c"] and m.__dict__["x"] == 3


def test_assignment_calls_the_register_methods_of_the_class(impl):
    calls = []

    class M(impl.nn.Module):
        def register_parameter(self, name, value):
            calls.append(("parameter", name, value))
            super().register_parameter(name, value)

        def register_buffer(self, name, value, persistent=True):
            calls.append(("buffer", name, value, persistent))
            super().register_buffer(name, value, persistent)

        def add_module(self, name, module):
            calls.append(("module", name, module))

    m = M()
    p, b, t, child = param(impl), buffer(impl, persistent=False), tensor(impl), impl.nn.Module()
    m.p, m.b = p, b
    m.b = t
    m.p = None
    m.c = child
    assert calls == [
        ("parameter", "p", p),
        ("buffer", "b", b, False),
        ("buffer", "b", t, False),
        ("parameter", "p", None),
    ]
    assert m._modules["c"] is child


def test_assignment_calls_register_methods_of_the_instance(impl):
    m = impl.nn.Module()
    calls = []
    m.register_parameter = lambda name, value: calls.append(("parameter", name))
    m.register_buffer = lambda name, value, persistent=True: calls.append(("buffer", name))
    m.p, m.b = param(impl), buffer(impl)
    assert calls == [("parameter", "p"), ("buffer", "b")]
    assert not m._parameters and not m._buffers


def test_register_buffer_overridden_without_persistent(impl):
    calls = []

    class M(impl.nn.Module):
        def register_buffer(self, name, value):
            calls.append(name)
            super().register_buffer(name, value)

    m = M()
    m.b = buffer(impl)
    assert calls == ["b"] and list(m._buffers) == ["b"]
    with raises(RuntimeError, "Registering a non-persistent buffer on a Module subclass"):
        m.c = buffer(impl, persistent=False)


def test_a_patch_of_modules_own_register_buffer_gets_persistent(impl, monkeypatch):
    calls = []
    original = impl.nn.Module.register_buffer

    def patched(self, *args):
        calls.append(args[2:])
        return original(self, *args)

    monkeypatch.setattr(impl.nn.Module, "register_buffer", patched)
    m = impl.nn.Module()
    m.c = buffer(impl, persistent=False)
    m.c = tensor(impl)
    assert calls == [(False,), (False,)]
    assert m._non_persistent_buffers_set == {"c"}


def test_a_buffer_counter_updated_in_forward(impl):
    """The usual ``self.n = self.n + 1``: stays a buffer, keeps its place and its flag."""

    class Counter(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", impl.lib.tensor(0.0), persistent=False)
            self.register_buffer("other", impl.lib.tensor(0.0))

        def forward(self):
            self.n = self.n + 1

    m = Counter()
    for _ in range(5):
        m()
    assert float(m.n) == 5.0 and list(m._buffers) == ["n", "other"]
    assert m._non_persistent_buffers_set == {"n"}


def test_a_property_setter_sees_plain_values_only(impl):
    class M(impl.nn.Module):
        @property
        def x(self):
            return self.__dict__.get("_kept")

        @x.setter
        def x(self, value):
            self.__dict__["_kept"] = value

    m = M()
    for value in (3, None, tensor(impl)):
        m.x = value
        assert m._kept is value and "x" not in m.__dict__
    child = impl.nn.Module()
    m.x = child
    assert m._modules["x"] is child and m._kept is not child


def test_class_annotations_and_slots_do_not_matter(impl):
    class M(impl.nn.Module):
        __slots__ = ("s",)
        weight: int

    m = M()
    m.s = tensor(impl)
    m.weight = param(impl)
    assert "s" not in m.__dict__ and list(m._parameters) == ["weight"]


# -- failed assignments --------------------------------------------------------------------------


def non_leaf(impl):
    """A tensor that says it is a parameter but was computed."""
    t = param(impl) * 2
    if not getattr(t, "grad_fn", None):
        pytest.skip("tensors of this library have no graph yet")
    t._is_param = True
    return t


def test_a_non_leaf_parameter_is_refused(impl):
    m = impl.nn.Module()
    with raises(ValueError, "Cannot assign non-leaf Tensor to parameter 'x'"):
        m.register_parameter("x", non_leaf(impl))
    assert "x" not in m._parameters


@pytest.mark.parametrize("case", ["dotted", "empty", "class"])
@pytest.mark.parametrize("old", ["plain", "module", "buffer"])
def test_a_failed_parameter_assignment_changes_nothing(ours, case, old):
    name = {"dotted": "a.b", "empty": "", "class": "forward"}[case]
    m = ours.nn.Module()
    value = {"plain": 3, "module": ours.nn.Module(), "buffer": tensor(ours)}[old]
    if old == "plain":
        m.__dict__[name] = value
    else:
        {"module": m._modules, "buffer": m._buffers}[old][name] = value
    m._non_persistent_buffers_set.add(name)
    with pytest.raises(KeyError):
        setattr(m, name, param(ours))
    if old == "plain":
        assert m.__dict__[name] == 3
    else:
        assert {"module": m._modules, "buffer": m._buffers}[old][name] is value
    assert m._non_persistent_buffers_set == {name}


@pytest.mark.parametrize("old", ["plain", "module", "buffer"])
def test_a_failing_registration_hook_changes_nothing(ours, old):
    m = ours.nn.Module()
    value = {"plain": 3, "module": ours.nn.Module(), "buffer": tensor(ours)}[old]
    if old == "buffer":
        m.register_buffer("x", value, persistent=False)
    else:
        m.x = value

    def hook(module, name, value):
        raise RuntimeError("refused")

    handle = ours.module.register_module_parameter_registration_hook(hook)
    try:
        with raises(RuntimeError, "refused"):
            m.x = param(ours)
    finally:
        handle.remove()
    assert m.x is value or m.x == value
    assert ("x" in m._non_persistent_buffers_set) == (old == "buffer")
    m.x = param(ours)
    assert list(m._parameters) == ["x"]


@pytest.mark.parametrize("old", ["plain", "buffer", "training"])
def test_a_module_refused_by_a_hook_changes_nothing(ours, old):
    m = ours.nn.Module()
    name = "training" if old == "training" else "x"
    m.x = buffer(ours, persistent=False) if old == "buffer" else 3
    value = getattr(m, name)

    def hook(module, name, value):
        raise RuntimeError("refused")

    with ours.module.register_module_module_registration_hook(hook):
        with raises(RuntimeError, "refused"):
            setattr(m, name, ours.nn.Module())
    assert getattr(m, name) is value
    assert m._non_persistent_buffers_set == ({"x"} if old == "buffer" else set())


def test_torch_loses_the_old_entry_where_ours_keeps_it(impl):
    """The difference pinned from both sides (docs/compat.md)."""
    m = impl.nn.Module()
    m.__dict__["a.b"] = 3
    with raises(KeyError, 'parameter name can\'t contain "."'):
        setattr(m, "a.b", param(impl))
    assert ("a.b" in m.__dict__) == (not impl.is_torch)
