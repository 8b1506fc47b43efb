# SPDX-License-Identifier: BSD-3-Clause
"""Lazy modules of one's own, with leaves of either library (BEHAVIOUR 10.21 to 10.27)."""

from __future__ import annotations

import copy
import importlib
import pickle
from types import SimpleNamespace

import pytest
from helpers.implementations import implementation, params
from helpers.support import future, raises


def kinds_of(impl):
    """The mixin, and the uninitialized tensors of the leaves' library."""
    lazy = importlib.import_module(f"{impl.nn.__name__}.modules.lazy")
    parameter = importlib.import_module(f"{impl.lib.__name__}.nn.parameter")
    return SimpleNamespace(
        Mixin=lazy.LazyModuleMixin,
        Parameter=parameter.UninitializedParameter,
        Buffer=parameter.UninitializedBuffer,
        is_lazy=importlib.import_module(f"{impl.nn.__name__}.parameter").is_lazy,
    )


def scale_class(impl):
    """A module that multiplies by its weight and counts its calls."""

    class Scale(impl.nn.Module):
        def __init__(self, n, device=None):
            super().__init__()
            self.n = n
            self.log = []
            self.weight = impl.nn.Parameter(impl.lib.ones(n, device=device))
            self.register_buffer("shift", impl.lib.zeros(n, device=device))

        def forward(self, x, *, factor=1.0):
            self.log.append(type(self).__name__)
            return x * self.weight * factor + self.shift

        def extra_repr(self):
            return str(self.n)

    return Scale


def lazy_class(impl, becomes=True):
    """The same, lazy; both classes."""
    kinds = kinds_of(impl)
    scale = scale_class(impl)

    class LazyScale(kinds.Mixin, scale):
        cls_to_become = scale if becomes else None

        def __init__(self, **kwargs):
            super().__init__(0)
            self.weight = kinds.Parameter(**kwargs)
            self.shift = kinds.Buffer(**kwargs)

        def initialize_parameters(self, x, **kwargs):
            self.log.append("initialize")
            self.n = x.shape[-1]
            if self.has_uninitialized_params():
                with impl.lib.no_grad():
                    for name in ("weight", "shift"):
                        getattr(self, name).materialize((self.n,))
                    self.weight.fill_(2)
                    self.shift.zero_()

    return LazyScale, scale


def hooks_left(m):
    return len(m._forward_pre_hooks), len(m._load_state_dict_pre_hooks)


def test_before_the_first_call(impl):
    LazyScale, Scale = lazy_class(impl)
    m = LazyScale()
    assert isinstance(m, Scale)
    assert m.has_uninitialized_params()
    assert hooks_left(m) == (1, 1)
    assert list(m._parameters) == ["weight"]
    assert list(m._buffers) == ["shift"]
    assert all(kinds_of(impl).is_lazy(t) for t in (m.weight, m.shift))
    assert isinstance(m.weight, impl.nn.Parameter)
    assert repr(m) == "LazyScale(0)"
    assert [repr(t) for t in (m.weight, m.shift)] == [
        "<UninitializedParameter>",
        "<UninitializedBuffer>",
    ]


def test_the_first_call(impl):
    LazyScale, Scale = lazy_class(impl)
    m = LazyScale()
    weight, shift = m.weight, m.shift
    out = m(impl.lib.ones(2, 3), factor=2.0)
    assert out.tolist() == [[4.0] * 3] * 2
    assert type(m) is Scale
    assert m.weight is weight
    assert m.shift is shift
    assert type(weight) is type(impl.nn.Parameter(impl.lib.ones(1)))
    assert type(shift) is impl.lib.Tensor
    assert isinstance(shift, impl.nn.Buffer)
    assert weight.requires_grad
    assert hooks_left(m) == (0, 0)
    assert not hasattr(m, "_initialize_hook")
    assert not hasattr(m, "_load_hook")
    assert not hasattr(weight, "materialize")
    assert repr(m) == "Scale(3)"
    m(impl.lib.ones(2, 3))
    assert m.log.count("initialize") == 1
    out.sum().backward()
    assert weight.grad.tolist() == [4.0] * 3


def test_a_module_without_another_class_keeps_its_own(impl):
    LazyScale, _ = lazy_class(impl, becomes=False)
    m = LazyScale()
    for _ in range(2):
        assert m(impl.lib.ones(3)).tolist() == [2.0] * 3
        assert type(m) is LazyScale
    assert not m.has_uninitialized_params()
    assert hooks_left(m) == (0, 0)
    assert m.log == ["initialize", "LazyScale", "LazyScale"]
    copied = copy.deepcopy(m)
    assert copied(impl.lib.ones(3)).tolist() == [2.0] * 3


def test_a_model_with_lazy_parts(impl):
    LazyScale, Scale = lazy_class(impl)
    model = impl.nn.Sequential(LazyScale(), impl.nn.Sequential(LazyScale(), Scale(3)))
    assert not hasattr(model, "has_uninitialized_params")
    assert model(impl.lib.ones(3)).tolist() == [4.0] * 3
    assert [type(m) for m in model.modules() if isinstance(m, Scale)] == [Scale] * 3
    assert all(tuple(t.shape) == (3,) for t in model.state_dict().values())


def test_forward_alone_initializes_nothing(impl):
    LazyScale, _ = lazy_class(impl)
    m = LazyScale()
    with raises(ValueError, "Attempted to use an uninitialized parameter"):
        m.forward(impl.lib.ones(3))
    assert m.has_uninitialized_params()
    assert m(impl.lib.ones(3)).tolist() == [2.0] * 3


def test_a_module_must_say_how_it_is_initialized(impl):
    kinds = kinds_of(impl)

    class Silent(kinds.Mixin, impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = kinds.Parameter()

    m = Silent()
    with raises(NotImplementedError, "initialize_parameters is not implemented for Silent"):
        m(1)
    assert hooks_left(m) == (1, 1)


def test_what_stays_uninitialized_is_an_error_that_can_be_mended(impl):
    kinds = kinds_of(impl)

    class Half(kinds.Mixin, impl.nn.Module):
        parts = ("a",)

        def __init__(self):
            super().__init__()
            self.a = kinds.Parameter()
            self.b = kinds.Parameter()

        def initialize_parameters(self, x):
            for name in self.parts:
                if kinds.is_lazy(getattr(self, name)):
                    getattr(self, name).materialize((2,))

        def forward(self, x):
            return x

    m = Half()
    with raises(RuntimeError, "module Half has not been fully initialized"):
        m(1)
    assert hooks_left(m) == (1, 1)
    m.parts = ("a", "b")
    assert m(1) == 1
    assert hooks_left(m) == (0, 0)


def test_an_error_of_the_initialization_can_be_mended(impl):
    LazyScale, Scale = lazy_class(impl)
    m = LazyScale()
    with raises(AttributeError):
        m("no tensor")
    assert type(m) is LazyScale
    assert m(impl.lib.ones(3)).tolist() == [2.0] * 3
    assert type(m) is Scale


def test_the_mixin_comes_before_the_module(impl):
    kinds = kinds_of(impl)

    class Wrong(impl.nn.Module, kinds.Mixin):
        def __init__(self):
            super().__init__()
            self.weight = kinds.Parameter()

        def forward(self, x):
            return x

    m = Wrong()
    assert not hasattr(m, "_initialize_hook")
    assert m(1) == 1
    assert m.has_uninitialized_params()


def test_only_its_own_tensors_count(impl):
    LazyScale, _ = lazy_class(impl)
    kinds = kinds_of(impl)

    class Outer(kinds.Mixin, impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = LazyScale()

        def initialize_parameters(self, x):
            pass

        def forward(self, x):
            return self.inner(x)

    m = Outer()
    assert not m.has_uninitialized_params()
    assert m.inner.has_uninitialized_params()
    assert m(impl.lib.ones(2)).tolist() == [2.0] * 2


# -- hooks of a user -------------------------------------------------------------------------------


def test_hooks_run_in_order_around_the_initialization(impl):
    LazyScale, Scale = lazy_class(impl)
    m = LazyScale()
    seen = []

    def note(name):
        return lambda m, *args: seen.append((name, type(m).__name__, m.has_weight()))

    Scale.has_weight = lambda self: not kinds_of(impl).is_lazy(self.weight)
    m.register_forward_pre_hook(note("pre"))
    m.register_forward_pre_hook(note("first"), prepend=True)
    m.register_forward_hook(note("post"))
    handle = impl.module.register_module_forward_pre_hook(note("global"))
    m(impl.lib.ones(3))
    handle.remove()
    assert seen == [
        ("global", "LazyScale", False),
        ("first", "LazyScale", False),
        ("pre", "Scale", True),
        ("post", "Scale", True),
    ]
    assert hooks_left(m) == (2, 0)


def test_the_initialization_gets_what_earlier_hooks_made_of_the_arguments(impl):
    LazyScale, _ = lazy_class(impl)
    m = LazyScale()
    m.register_forward_pre_hook(lambda m, args: (impl.lib.ones(5),), prepend=True)
    assert m(impl.lib.ones(3)).shape == (5,)
    assert m.n == 5


def test_a_hook_may_fail_after_the_initialization(impl):
    LazyScale, Scale = lazy_class(impl)
    m = LazyScale()

    def fail(m, args):
        raise KeyError("hook")

    handle = m.register_forward_pre_hook(fail)
    with raises(KeyError, "hook"):
        m(impl.lib.ones(3))
    assert type(m) is Scale
    handle.remove()
    assert m(impl.lib.ones(3)).tolist() == [2.0] * 3
    assert m.log.count("initialize") == 1


def test_the_initialization_may_call_another_lazy_module(impl):
    LazyScale, Scale = lazy_class(impl)

    class Chain(kinds_of(impl).Mixin, Scale):
        cls_to_become = Scale

        def __init__(self):
            super().__init__(0)
            self.first = LazyScale()
            self.weight = kinds_of(impl).Parameter()
            self.shift = kinds_of(impl).Buffer()

        def initialize_parameters(self, x):
            shape = self.first(x).shape
            with impl.lib.no_grad():
                self.weight.materialize(shape)
                self.weight.fill_(1)
                self.shift.materialize(shape)
                self.shift.fill_(1)

    m = Chain()
    assert m(impl.lib.ones(3)).tolist() == [2.0] * 3
    assert [type(m), type(m.first)] == [Scale, Scale]


def test_the_first_call_is_one_of_the_new_class(impl):
    """torch runs the forward of the lazy class, in which super() fails."""
    Lazy, Scale = lazy_class(impl)

    class WithForward(Lazy):
        def forward(self, x):
            self.log.append("WithForward")
            return super().forward(x)

    m = WithForward()
    if impl.is_torch:
        with raises(TypeError, "subtype"):
            m(impl.lib.ones(3))
        assert m.log == ["initialize", "WithForward"]
    else:
        assert m(impl.lib.ones(3)).tolist() == [2.0] * 3
        assert m.log == ["initialize", "Scale"]
    assert type(m) is Scale


def test_a_forward_of_the_instance_stays(impl):
    LazyScale, _ = lazy_class(impl)
    m = LazyScale()
    m.forward = lambda x: ("own", x.shape)
    assert m(impl.lib.ones(3)) == ("own", (3,))
    assert m.weight.tolist() == [2.0] * 3


def test_replicas_need_an_initialized_module(impl):
    LazyScale, _ = lazy_class(impl)
    m = LazyScale()
    with raises(RuntimeError, "can't be used with `DataParallel`"):
        m._replicate_for_data_parallel()
    m(impl.lib.ones(3))
    assert m._replicate_for_data_parallel()._is_replica


# -- state -----------------------------------------------------------------------------------------


def test_the_state_holds_the_uninitialized_tensors_themselves(impl):
    LazyScale, _ = lazy_class(impl)
    m = LazyScale()
    state = m.state_dict()
    assert list(state) == ["weight", "shift"]
    assert state["weight"] is m.weight
    assert state["shift"] is m.shift
    assert m.state_dict(keep_vars=True)["weight"] is m.weight
    m(impl.lib.ones(3))
    assert [list(m.state_dict()), m.state_dict()["weight"].tolist()] == [
        ["weight", "shift"],
        [2.0] * 3,
    ]


def test_names_of_non_persistent_buffers_hide_no_parameter(impl):
    LazyScale, _ = lazy_class(impl)
    m = LazyScale()
    m._non_persistent_buffers_set.update(("weight", "shift"))
    assert list(m.state_dict()) == ["weight"]
    del m._buffers["shift"]
    del m._non_persistent_buffers_set
    assert list(m.state_dict()) == ["weight"]


def test_some_initialized(impl):
    LazyScale, _ = lazy_class(impl)
    m = LazyScale()
    m.weight.materialize((2,))
    m.register_buffer("hidden", impl.lib.ones(1), persistent=False)
    state = m.state_dict()
    assert list(state) == ["weight", "shift"]
    assert state["weight"] is not m.weight
    assert state["weight"].data_ptr() == m.weight.data_ptr()
    assert state["shift"] is m.shift
    assert m.state_dict(keep_vars=True)["weight"] is m.weight


def test_loading_gives_shapes(impl):
    LazyScale, Scale = lazy_class(impl)
    source = Scale(3)
    m = LazyScale()
    weight = m.weight
    assert str(m.load_state_dict(source.state_dict())) == "<All keys matched successfully>"
    assert m.weight is weight
    assert m.weight.tolist() == [1.0] * 3
    assert type(m) is LazyScale
    assert hooks_left(m) == (1, 1)
    assert not m.has_uninitialized_params()
    assert m(impl.lib.ones(3)).tolist() == [1.0] * 3
    assert type(m) is Scale
    assert m.log[0] == "initialize"
    assert hooks_left(m) == (0, 0)


def test_loading_keeps_its_own_dtype(impl):
    LazyScale, Scale = lazy_class(impl)
    m = LazyScale(dtype=impl.lib.float64)
    m.load_state_dict(Scale(3).state_dict())
    assert m.weight.dtype == impl.lib.float64


def test_loading_by_assignment(impl):
    LazyScale, Scale = lazy_class(impl)
    source = Scale(3).double()
    m = LazyScale()
    m.load_state_dict(source.state_dict(), assign=True)
    assert m.weight.dtype == impl.lib.float64
    assert m.weight.data_ptr() == source.weight.data_ptr()
    assert isinstance(m.weight, impl.nn.Parameter)
    assert m(impl.lib.ones(3, dtype=impl.lib.float64)).tolist() == [1.0] * 3


def test_loading_a_part(impl):
    LazyScale, Scale = lazy_class(impl)
    m = LazyScale()
    with raises(RuntimeError, 'Missing key(s) in state_dict: "shift".'):
        m.load_state_dict({"weight": impl.lib.ones(3)})
    m = LazyScale()
    m.load_state_dict({"weight": impl.lib.ones(3)}, strict=False)
    assert tuple(m.weight.shape) == (3,)
    assert m.has_uninitialized_params()


def test_an_uninitialized_state_loads_into_a_lazy_module(impl):
    LazyScale, _ = lazy_class(impl)
    m = LazyScale()
    m.load_state_dict(LazyScale().state_dict())
    assert m.has_uninitialized_params()
    assert m(impl.lib.ones(3)).tolist() == [2.0] * 3


def test_an_uninitialized_state_does_not_load_into_an_initialized_module(impl):
    LazyScale, Scale = lazy_class(impl)
    m = Scale(3)
    with raises(RuntimeError, "Can't access the shape of an uninitialized parameter or buffer"):
        m.load_state_dict(LazyScale().state_dict())
    assert m.weight.tolist() == [1.0] * 3


def test_an_initialized_state_does_not_load_into_what_is_not_lazy(impl):
    m = impl.nn.Module()
    m.weight = kinds_of(impl).Parameter()
    with raises(RuntimeError, 'While copying the parameter named "weight"'):
        m.load_state_dict({"weight": impl.lib.ones(3)})


def test_extra_state(impl):
    """torch leaves it out of the state of a lazy module, and cannot load that."""
    LazyScale, Scale = lazy_class(impl)

    class WithExtra(LazyScale):
        cls_to_become = None

        def get_extra_state(self):
            return {"n": 7}

        def set_extra_state(self, state):
            self.extra = state

    m = WithExtra()
    if impl.is_torch:
        assert "_extra_state" not in m.state_dict()
        return
    outer = impl.nn.Sequential(m)
    assert outer.state_dict()["0._extra_state"] == {"n": 7}
    other = impl.nn.Sequential(WithExtra())
    other.load_state_dict(outer.state_dict())
    assert other[0].extra == {"n": 7}
    m(impl.lib.ones(2))
    assert list(m.state_dict()) == ["weight", "shift", "_extra_state"]


# -- copies and conversions ------------------------------------------------------------------------


def parameters_only(impl, **kwargs):
    LazyScale, Scale = lazy_class(impl)
    m = LazyScale(**kwargs)
    m.register_buffer("shift", impl.lib.zeros(1))
    return m, LazyScale, Scale


def test_deep_copies_are_lazy_on_their_own(impl):
    m, LazyScale, Scale = parameters_only(impl)
    copied = copy.deepcopy(m)
    assert copied.weight is not m.weight
    assert kinds_of(impl).is_lazy(copied.weight)
    copied.initialize_parameters = lambda x: copied.weight.materialize((2,))
    copied(impl.lib.ones(2))
    assert type(copied) is Scale
    assert type(m) is LazyScale
    assert hooks_left(copied) == (0, 0)
    assert hooks_left(m) == (1, 1)
    assert m.has_uninitialized_params()


@pytest.fixture(params=params("modtree"))
def own(request):
    """modtree's own leaves, whose uninitialized buffers know how to be copied."""
    return implementation(request.param)


def test_uninitialized_buffers_are_copied(own):
    LazyScale, Scale = lazy_class(own)
    m = LazyScale(dtype=own.lib.float64)
    m.shift.persistent = False
    copied = copy.deepcopy(m)
    assert copied.shift is not m.shift
    assert copied.shift.dtype == own.lib.float64
    assert not copied.shift.persistent
    copied(own.lib.ones(2, dtype=own.lib.float64))
    assert [type(copied), type(m)] == [Scale, LazyScale]
    assert copied.weight.dtype == own.lib.float64


def test_conversions_before_the_first_call(impl):
    LazyScale, _ = lazy_class(impl)
    m = LazyScale()
    weight = m.weight
    assert m.double() is m
    assert m.weight is weight
    assert m.weight.dtype == impl.lib.float64
    assert all(kinds_of(impl).is_lazy(t) for t in (m.weight, m.shift))
    assert m.shift.dtype == impl.lib.float64
    m.zero_grad()
    m.cpu()
    m.to(impl.lib.float32).to(impl.lib.float64)
    assert m.weight is weight
    m.train(False)
    assert m.weight.requires_grad


def test_swapping_before_the_first_call_names_the_parameter(impl):
    LazyScale, _ = lazy_class(impl)
    m = LazyScale()
    switches = future(impl)
    switches.set_swap_module_params_on_conversion(True)
    try:
        with raises(RuntimeError, "_apply(): Couldn't swap LazyScale.weight"):
            m.float()  # gives the very tensor, of which no parameter can be made
    finally:
        switches.set_swap_module_params_on_conversion(False)
    assert m.has_uninitialized_params()


def test_hooks_of_a_lazy_module_that_got_another_class(impl):
    LazyScale, _ = lazy_class(impl)
    m = LazyScale()
    m.__class__ = impl.nn.Module
    state = {"weight": impl.lib.ones(3), "shift": impl.lib.ones(3)}
    m.load_state_dict(state)
    assert m.weight.shape == (3,)
    with raises(AttributeError, "initialize_parameters"):
        m(1)


def test_apply_reaches_lazy_modules(impl):
    LazyScale, _ = lazy_class(impl)
    seen = []
    impl.nn.Sequential(LazyScale(), LazyScale()).apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["LazyScale", "LazyScale", "Sequential"]


def findable(cls):
    """The class under a name where pickle finds it."""
    cls.__qualname__ = cls.__name__
    globals()[cls.__name__] = cls
    return cls


def test_pickles_are_lazy_on_their_own(impl):
    m, LazyScale, Scale = parameters_only(impl)
    findable(LazyScale)
    findable(Scale)
    other = pickle.loads(pickle.dumps(m))
    assert kinds_of(impl).is_lazy(other.weight)
    assert type(other) is LazyScale
    assert hooks_left(other) == (1, 1)
    other.register_buffer("shift", kinds_of(impl).Buffer())
    assert other(impl.lib.ones(3)).tolist() == [2.0] * 3
    assert type(other) is Scale
    assert hooks_left(other) == (0, 0)
    assert m.has_uninitialized_params()
    again = pickle.loads(pickle.dumps(other))
    assert again(impl.lib.ones(3)).tolist() == [2.0] * 3
