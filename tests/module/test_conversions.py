# SPDX-License-Identifier: BSD-3-Clause
"""``to`` and its relatives, ``to_empty``, ``share_memory``, ``compile`` and replicas."""

from __future__ import annotations

import collections
import copy
import sys

import numpy as np
import pytest
from helpers.needs import needs
from helpers.support import dtype, leaf, parameter_type, quiet, raises, tree, values, warns

import modtree


def mixed(impl):
    """A float parameter, a float buffer, an integer buffer and a boolean one."""
    m = leaf(impl, "w")
    m.register_buffer("f", impl.lib.tensor([0.5]))
    m.register_buffer("i", impl.lib.tensor([1, 2]))
    m.register_buffer("b", impl.lib.tensor([True, False]))
    return m


def dtypes(m):
    return [dtype(t) for t in (*m.parameters(), *m.buffers())]


# -- casts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "name"), [("float", "float32"), ("double", "float64"), ("half", "float16")]
)
def test_cast_methods_touch_only_floating_point(impl, method, name):
    m = mixed(impl)
    w, i, b = m.w, m.i, m.b
    assert getattr(m, method)() is m
    assert dtypes(m) == [name, name, "int64", "bool"]
    assert m.w is w and m.i is i and m.b is b
    assert values(m.w) == [1.0, 2.0]


def test_tensors_of_a_class_of_their_own_keep_it(impl):
    class Marked(impl.lib.Tensor):
        pass

    def marked():
        return impl.lib.Tensor._make_subclass(Marked, impl.lib.ones(2))

    m = impl.nn.Module()
    m.w = impl.nn.Parameter(marked())
    m.register_buffer("f", marked())
    for convert in (
        lambda: m.double(),
        lambda: m.to(impl.lib.float32),
        lambda: m.to(device="meta"),
        lambda: m.to_empty(device="cpu"),
    ):
        convert()
        assert [type(m.w), type(m.f)] == [Marked, Marked]
        assert list(m._parameters) == ["w"]
        assert isinstance(m.w, impl.nn.Parameter)
    assert dtypes(m) == ["float32", "float32"]


@needs("ml_dtypes")
def test_bfloat16(impl):
    m = mixed(impl)
    assert m.bfloat16() is m
    assert dtypes(m) == ["bfloat16", "bfloat16", "int64", "bool"]
    m.to(impl.lib.float32)
    m.to(impl.lib.bfloat16)
    assert dtypes(m) == ["bfloat16", "bfloat16", "int64", "bool"]


def test_cast_methods_leave_complex_tensors_alone(impl):
    m = impl.nn.Module()
    m.register_buffer("c", impl.lib.tensor([1.0]).to(impl.lib.complex64))
    m.double()
    assert dtype(m.c) == "complex64"


def test_casts_reach_the_whole_tree(impl):
    net = tree(impl)
    net.double()
    assert {dtype(p) for p in net.parameters()} == {"float64"}
    assert {dtype(b) for n, b in net.named_buffers() if "count" not in n} == {"float64"}


def test_type_casts_everything(impl):
    m = mixed(impl)
    assert m.type(impl.lib.float64) is m
    assert dtypes(m) == ["float64"] * 4


def test_conversions_go_through_an_overridden_apply(impl):
    calls = []

    class Own(impl.nn.Module):
        def _apply(self, fn, recurse=True):
            calls.append(callable(fn))
            return self

    m = Own()
    x = impl.lib.tensor([1.0])
    for convert in (
        *(m.float, m.double, m.half, m.cpu),
        *(lambda: m.type(x.dtype), lambda: m.to("cpu"), lambda: m.to_empty(device="cpu")),
        m.share_memory,
    ):
        assert convert() is m
    assert calls == [True] * 8


def test_conversions_return_what_apply_returns(impl):
    class Own(impl.nn.Module):
        def _apply(self, fn, recurse=True):
            return "mine"

    assert Own().double() == "mine"
    assert Own().to("cpu") == "mine"


def test_plain_tensors_are_not_converted(impl):
    m = impl.nn.Module()
    m.plain = impl.lib.tensor([1.0])
    m.in_a_list = [impl.nn.Parameter(impl.lib.tensor([1.0]))]
    m.double()
    assert dtype(m.plain) == dtype(m.in_a_list[0]) == "float32"


def test_cpu_changes_nothing_on_the_cpu(impl):
    m = mixed(impl)
    before = [*m.parameters(), *m.buffers()]
    assert m.cpu() is m
    assert all(a is b for a, b in zip(before, [*m.parameters(), *m.buffers()], strict=True))


# -- to: forms of the arguments ------------------------------------------------------------------

FORMS = {
    "nothing": lambda lib: ((), {}),
    "none": lambda lib: ((None,), {}),
    "none none": lambda lib: ((None, None), {}),
    "device text": lambda lib: (("cpu",), {}),
    "device": lambda lib: ((lib.device("cpu"),), {}),
    "device keyword": lambda lib: ((), {"device": "cpu"}),
    "device none": lambda lib: (("cpu", None), {}),
    "device non_blocking": lambda lib: (("cpu",), {"non_blocking": True}),
}
CASTS = {
    "dtype": lambda lib: ((lib.float64,), {}),
    "dtype keyword": lambda lib: ((), {"dtype": lib.float64}),
    "dtype non_blocking": lambda lib: ((lib.float64, True), {}),
    "device dtype": lambda lib: (("cpu", lib.float64), {}),
    "device dtype non_blocking": lambda lib: (("cpu", lib.float64, True), {}),
    "device dtype keywords": lambda lib: ((), {"device": "cpu", "dtype": lib.float64}),
    "device, dtype keyword": lambda lib: (("cpu",), {"dtype": lib.float64}),
    "none dtype": lambda lib: ((None, lib.float64), {}),
    "tensor": lambda lib: ((lib.zeros(1, dtype=lib.float64),), {}),
    "tensor non_blocking": lambda lib: ((lib.zeros(1, dtype=lib.float64), True), {}),
    "tensor keyword": lambda lib: ((), {"tensor": lib.zeros(1, dtype=lib.float64)}),
}


@pytest.mark.parametrize("form", FORMS)
def test_to_forms_that_change_nothing(impl, form):
    args, kwargs = FORMS[form](impl.lib)
    m = mixed(impl)
    f = m.f
    assert m.to(*args, **kwargs) is m
    assert m.f is f
    assert dtypes(m) == ["float32", "float32", "int64", "bool"]


@pytest.mark.parametrize("form", CASTS)
def test_to_forms_that_cast(impl, form):
    args, kwargs = CASTS[form](impl.lib)
    m = mixed(impl)
    w = m.w
    assert m.to(*args, **kwargs) is m
    assert m.w is w
    assert dtypes(m) == ["float64", "float64", "int64", "bool"]


def test_to_tensor_takes_its_device_too(impl):
    m = mixed(impl)
    m.to(impl.lib.zeros(1, dtype=impl.lib.float64, device="meta"))
    assert all(t.is_meta for t in (*m.parameters(), *m.buffers()))
    assert dtypes(m) == ["float64", "float64", "int64", "bool"]


def test_to_meta_moves_everything(impl):
    net = tree(impl)
    assert net.to("meta") is net
    tensors = [*net.parameters(), *net.buffers()]
    assert len(tensors) == 15
    assert all(t.is_meta for t in tensors)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {"copy": True}),
        ((None,), {"copy": True}),
        (("cpu", None, False, True), {}),
    ],
    ids=["keyword", "none", "positional"],
)
def test_to_has_no_copy(impl, args, kwargs):
    with raises(RuntimeError, ".to() does not accept copy argument"):
        mixed(impl).to(*args, **kwargs)


@pytest.mark.parametrize("name", ["int64", "int32", "uint8", "bool"])
def test_to_refuses_integer_dtypes(impl, name):
    m = mixed(impl)
    wanted = getattr(impl.lib, name)
    with raises(
        TypeError,
        "nn.Module.to only accepts floating point or complex dtypes, but got desired "
        f"dtype={wanted}",
    ):
        m.to(wanted)
    with raises(TypeError, "only accepts floating point or complex dtypes"):
        m.to(impl.lib.zeros(1, dtype=wanted))
    with raises(TypeError, "only accepts floating point or complex dtypes"):
        m.to("cpu", wanted)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("cpu", "cpu"), {}),
        ((), {"foo": 1}),
        (([],), {}),
        (("cpu",), {"device": "cpu"}),
        (("cpu",), {"non_blocking": "x"}),
    ],
    ids=["two devices", "unknown keyword", "list", "device twice", "wrong flag"],
)
def test_to_refuses_other_arguments(impl, args, kwargs):
    m = mixed(impl)
    with raises(TypeError, "to()"):
        m.to(*args, **kwargs)


def test_to_refuses_two_dtypes(impl):
    lib = impl.lib
    with raises(TypeError, "to()"):
        mixed(impl).to(lib.float64, lib.float32)
    with raises(TypeError, "to()"):
        mixed(impl).to(lib.float64, dtype=lib.float32)


def test_to_refuses_an_unknown_device(impl):
    with raises(RuntimeError, "nonsense"):
        mixed(impl).to("nonsense")


def test_to_complex_warns_and_casts_floating_tensors(impl):
    m = mixed(impl)
    with warns(UserWarning, "Complex modules are a new feature"):
        m.to(impl.lib.complex64)
    assert dtypes(m) == ["complex64", "complex64", "int64", "bool"]
    with quiet():  # the libraries warn that the imaginary part is dropped
        m.to(impl.lib.float32)
    assert dtypes(m) == ["float32", "float32", "int64", "bool"]


def test_memory_format_applies_to_images_only(impl):
    lib = impl.lib
    m = impl.nn.Module()
    m.flat = impl.nn.Parameter(lib.zeros(2, 3))
    m.image = impl.nn.Parameter(lib.zeros(2, 3, 4, 5))
    assert not m.image.is_contiguous(memory_format=lib.channels_last)
    m.to(memory_format=lib.channels_last)
    assert m.image.is_contiguous(memory_format=lib.channels_last)
    assert not m.image.is_contiguous() and m.image.stride() == (60, 1, 15, 3)
    assert m.flat.is_contiguous()


TO_ERRORS = {
    "a name": (RuntimeError, lambda lib: (("bad",), {})),
    "a name by keyword": (RuntimeError, lambda lib: ((), {"device": "bad"})),
    "no name": (RuntimeError, lambda lib: (("",), {})),
    "no index": (RuntimeError, lambda lib: (("cpu:x",), {})),
    "a negative index": (RuntimeError, lambda lib: ((-1,), {})),
    "a dtype's name": (RuntimeError, lambda lib: (("float64",), {})),
    "a truth": (TypeError, lambda lib: ((True,), {})),
    "a truth by keyword": (TypeError, lambda lib: ((), {"device": True})),
    "a number": (TypeError, lambda lib: ((), {"device": 1.5})),
    "a list": (TypeError, lambda lib: (([],), {})),
    "an array": (TypeError, lambda lib: ((np.ones(1),), {})),
    "a class": (TypeError, lambda lib: ((lib.Tensor,), {})),
    "an integer dtype": (TypeError, lambda lib: ((lib.int64,), {})),
    "a device beside a dtype": (TypeError, lambda lib: ((lib.float64,), {"device": "cpu"})),
    "a dtype beside a tensor": (TypeError, lambda lib: ((lib.ones(1),), {"dtype": lib.float64})),
    "two devices": (TypeError, lambda lib: (("cpu",), {"device": "cpu"})),
    "another tensor": (TypeError, lambda lib: ((), {"other": lib.ones(1)})),
    "a flag that is none": (TypeError, lambda lib: ((), {"non_blocking": 1})),
    "no such keyword": (TypeError, lambda lib: ((), {"bogus": 1})),
    "a copy": (RuntimeError, lambda lib: (("cpu", lib.float64, True, True), {})),
    "a copy of a dtype": (RuntimeError, lambda lib: ((lib.float64, True, True), {})),
    "a copy of a tensor": (RuntimeError, lambda lib: ((lib.ones(1), True, True), {})),
    "a format's name": (TypeError, lambda lib: ((), {"memory_format": "channels_last"})),
}


@pytest.mark.parametrize("leaves", [False, True], ids=["no leaf", "a leaf"])
@pytest.mark.parametrize("case", TO_ERRORS)
def test_wrong_arguments_of_to_are_seen_without_leaves(impl, case, leaves):
    error, arguments = TO_ERRORS[case]
    args, kwargs = arguments(impl.lib)
    m = impl.nn.Module()
    if leaves:
        m.w = impl.nn.Parameter(impl.lib.ones(2))
    with pytest.raises(error):
        m.to(*args, **kwargs)


def test_a_module_is_no_place(impl):
    with pytest.raises(TypeError):
        impl.nn.Module().to(impl.nn.Module())


def test_devices_are_judged_by_their_tensors(impl):
    m = impl.nn.Module()
    for device in ("cuda", "cuda:1", "xla", impl.lib.device("meta"), None):
        assert m.to(device) is m


# -- meta ----------------------------------------------------------------------------------------


def test_to_from_meta_names_to_empty(impl):
    m = mixed(impl).to("meta")
    with raises(NotImplementedError, "Cannot copy out of meta tensor; no data!", "to_empty()"):
        m.to("cpu")


def test_to_from_meta_says_what_to_empty_leaves(ours):
    """Followed for a model of which a part is on meta, the advice takes the values of the rest."""
    m = mixed(ours).to("meta")
    with raises(NotImplementedError, "It leaves no tensor of the module with its values"):
        m.to("cpu")


def test_cpu_from_meta_fails_too(impl):
    m = mixed(impl).to("meta")
    with raises(NotImplementedError, "Cannot copy out of meta tensor; no data!"):
        m.cpu()


def test_casting_meta_tensors_keeps_them(impl):
    m = mixed(impl).to("meta")
    w = m.w
    m.double()
    assert m.w is w
    assert dtype(w) == "float64" and w.is_meta


def test_to_empty_from_meta(impl):
    m = mixed(impl).to("meta")
    old = m.w
    old.requires_grad_(False)
    assert m.to_empty(device="cpu") is m
    assert m.w is not old
    assert type(m.w) is parameter_type(impl) and m.w.requires_grad is False
    assert not any(t.is_meta for t in (*m.parameters(), *m.buffers()))
    assert dtypes(m) == ["float32", "float32", "int64", "bool"]
    assert [tuple(t.shape) for t in (*m.parameters(), *m.buffers())] == [(2,), (1,), (2,), (2,)]


def test_to_empty_keeps_the_parameter_on_the_same_device(impl):
    m = mixed(impl)
    w, f = m.w, m.f
    m.to_empty(device="cpu")
    assert m.w is w
    assert m.f is not f
    m.to_empty(device=None)
    assert m.w is w and not w.is_meta


def test_to_empty_recurse_false(impl):
    net = tree(impl).to("meta")
    net.to_empty(device="cpu", recurse=False)
    assert not net.gain.is_meta and not net.offset.is_meta
    assert net.head.weight.is_meta


def test_to_empty_is_keyword_only(impl):
    with raises(TypeError, "positional argument"):
        mixed(impl).to_empty("cpu")
    with raises(TypeError, "'device'"):
        mixed(impl).to_empty()


def test_buffers_that_require_gradients_stay_on_the_graph(impl):
    lib = impl.lib
    for convert in (
        lambda m: m.double(),
        lambda m: m.to(lib.float64),
        lambda m: m.type(lib.float64),
    ):
        m = impl.nn.Module()
        leaf = lib.ones(2, requires_grad=True)
        m.register_buffer("b", leaf)
        convert(m)
        assert m.b.requires_grad and dtype(m.b) == "float64"
        m.b.sum().backward()
        assert values(leaf.grad) == [1.0, 1.0] and dtype(leaf.grad) == "float32"


def test_no_gradient_comes_back_from_meta(impl):
    leaf = impl.lib.ones(2, requires_grad=True)
    m = impl.nn.Module()
    m.register_buffer("b", leaf)
    m.to("meta")
    assert m.b.requires_grad
    with raises(NotImplementedError, "Cannot copy out of meta tensor; no data!"):
        m.b.sum().backward()
    assert leaf.grad is None


@pytest.mark.parametrize("method", ["float", "share_memory"])
def test_something_else_in_a_registry_is_no_tensor(impl, method):
    m = impl.nn.Module()
    m._buffers["x"] = impl.nn.Module()
    with raises(AttributeError, "'Module' object has no attribute"):
        getattr(m, method)()


@pytest.mark.parametrize(
    "convert, asked",
    [
        (lambda m, lib: m.to("cpu"), "to"),
        (lambda m, lib: m.to(lib.float64), "to"),
        (lambda m, lib: m.to(memory_format=lib.channels_last), "dim"),
        (lambda m, lib: m.double(), "is_floating_point"),
        (lambda m, lib: m.cpu(), "cpu"),
        (lambda m, lib: m.cuda(), "cuda"),
        (lambda m, lib: m.cuda(1), "cuda"),
    ],
)
def test_what_something_else_in_a_registry_is_asked_for(impl, convert, asked):
    m = impl.nn.Module()
    m._buffers["x"] = [1]
    with raises(AttributeError, f"'list' object has no attribute '{asked}'"):
        convert(m, impl.lib)


# -- share_memory --------------------------------------------------------------------------------


def test_meta_tensors_cannot_be_shared(impl):
    m = impl.nn.Module()
    m.register_buffer("x", impl.lib.empty(2, device="meta"))
    with raises(RuntimeError, "only available on CPU"):
        m.share_memory()


def test_share_memory(impl):
    m = mixed(impl)
    w = m.w
    assert m.share_memory() is m
    assert m.w is w
    assert all(t.is_shared() for t in (*m.parameters(), *m.buffers()))


# -- compile -------------------------------------------------------------------------------------


def test_compiled_call_replaces_the_call_and_its_hooks(impl):
    m = impl.nn.Identity()
    fired = []
    m.register_forward_hook(lambda *a: fired.append(a))
    assert m._compiled_call_impl is None
    m._compiled_call_impl = lambda *a, **k: ("compiled", a, k)
    assert m(1, x=2) == ("compiled", (1,), {"x": 2})
    assert fired == []
    m._compiled_call_impl = None
    assert m(1) == 1
    assert len(fired) == 1


def test_compile_stores_the_compiled_call(impl, monkeypatch):
    if impl.leaves != "torch":
        pytest.skip("compiles with torch.compile")
    seen = []

    def compiler(fn, *args, **kwargs):
        seen.append((args, kwargs))
        return lambda *a: ("compiled", fn(*a))

    monkeypatch.setattr(impl.lib, "compile", compiler)
    m = leaf(impl, "w")
    m.forward = lambda x: x + 1
    assert m.compile("a", backend="b") is None
    assert seen == [(("a",), {"backend": "b"})]
    assert "_compiled_call_impl" in m.__dict__
    assert m(1) == ("compiled", 2)
    assert "_compiled_call_impl" not in m.__getstate__()


def test_compile_without_torch_leaves_changes_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    m = modtree.nn.Linear(2, 2)
    fired = []
    m.register_forward_hook(lambda *a: fired.append("hook"))
    assert m.compile(fullgraph=True, dynamic=False, backend="inductor", mode="default") is None
    assert m._compiled_call_impl == m._call_impl and "torch" not in sys.modules
    assert m(modtree.ones(2)).shape == (2,) and fired == ["hook"]
    assert copy.deepcopy(m)._compiled_call_impl is None
    modtree.nn.Module().compile()


def test_arguments_of_compile(impl):
    m = leaf(impl, "w")
    with raises(TypeError, "unexpected keyword argument 'unknown'"):
        m.compile(unknown=1)
    with raises(TypeError, "positional argument"):
        m.compile("inductor")
    with raises(RuntimeError, "Either mode or options can be specified"):
        m.compile(mode="default", options={})
    assert m._compiled_call_impl is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_behind", [False, True])
def test_compiled_reads_of_a_class_behind(impl, is_behind):
    if impl.leaves != "torch":
        pytest.skip("compiles with torch.compile")

    class TenTimes:
        def __getattribute__(self, name):
            value = super().__getattribute__(name)
            return 10 * value if name == "scale" else value

    bases = (impl.nn.Module, TenTimes) if is_behind else (TenTimes, impl.nn.Module)

    class Scaled(*bases):
        def __init__(self):
            super().__init__()
            self.scale = 3

        def forward(self, x):
            return x * self.scale

    impl.lib._dynamo.reset()
    m, x = Scaled(), impl.lib.ones(1)
    assert m(x).item() == 30
    # dynamo looks through the dicts of classes, where Module's comes first (docs/compat.md).
    found = impl.lib.compile(m, backend="eager")(x).item()
    assert found == (3 if is_behind and not impl.is_torch else 30)


@pytest.mark.filterwarnings("ignore")
def test_compile_with_torch_leaves_compiles_each_forward(impl):
    if impl.leaves != "torch":
        pytest.skip("compiles with torch.compile")
    lib, graphs = impl.lib, []

    class Scale(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = impl.nn.Parameter(lib.ones(3))

        def forward(self, x):
            return x * self.w + 1

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    lib._dynamo.reset()
    m = impl.nn.Sequential(Scale(), Scale())
    fired = []
    m.register_forward_hook(lambda *a: fired.append("hook"))
    m.compile(backend=backend)
    y = m(lib.ones(3))
    assert y.tolist() == [3.0] * 3 and graphs and fired == ["hook"]
    y.sum().backward()
    assert m[0].w.grad.tolist() == [1.0] * 3
    assert list(m.state_dict()) == ["0.w", "1.w"]


# -- _replicate_for_data_parallel ----------------------------------------------------------------


def test_replica(impl):
    net = tree(impl)
    net.note = [1]
    handle = net.register_forward_hook(lambda *a: None)
    replica = net._replicate_for_data_parallel()
    assert type(replica) is type(net) and replica is not net
    assert replica._parameters == {}
    assert replica._buffers == net._buffers and replica._buffers is not net._buffers
    assert replica._modules == net._modules and replica._modules is not net._modules
    assert replica._is_replica is True
    assert not hasattr(net, "_is_replica")
    assert replica.note is net.note
    assert replica._forward_hooks is net._forward_hooks
    replica.body = None
    assert net.body is not None
    handle.remove()
    assert isinstance(replica._forward_hooks, collections.OrderedDict)
    assert len(replica._forward_hooks) == 0


@pytest.mark.parametrize(("name", "near"), [("flaot16", "float16"), ("float16", "float16")])
def test_name_of_a_dtype_is_no_device(ours, name, near):
    message = f"to() expected a device or a dtype, got '{name}': did you mean the dtype {near}?"
    with raises(RuntimeError, message):
        ours.nn.Identity().to(name)
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        ours.nn.Identity().to("nowhere")
