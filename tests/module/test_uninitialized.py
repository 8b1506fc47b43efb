# SPDX-License-Identifier: BSD-3-Clause
"""Parameters and buffers without a shape (BEHAVIOUR 10.13 to 10.20)."""

from __future__ import annotations

import copy
import operator
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.support import raises

import modtree as mt


@pytest.fixture
def lazy(lib):
    """The tensors of one library: modtree's own, and torch's."""
    return lib.nn.parameter


@pytest.fixture(params=["UninitializedParameter", "UninitializedBuffer"])
def kind(request, lazy):
    return getattr(lazy, request.param)


REFUSED = "Attempted to use an uninitialized parameter in"


def test_what_they_are(lib, lazy):
    p, b = lazy.UninitializedParameter(), lazy.UninitializedBuffer()
    assert isinstance(p, lazy.Parameter) and isinstance(p, lazy.UninitializedTensorMixin)
    assert isinstance(b, lib.Tensor) and isinstance(b, lazy.Buffer) and b.persistent
    assert (
        not isinstance(b, lazy.Parameter)
        and not lazy.UninitializedBuffer(persistent=False).persistent
    )
    assert lazy.is_lazy(p) and lazy.is_lazy(b) and not lazy.is_lazy(lib.zeros(2))
    assert p.requires_grad and not b.requires_grad
    assert not lazy.UninitializedParameter(False).requires_grad
    assert p.cls_to_become is lazy.Parameter and b.cls_to_become is lib.Tensor


def test_what_can_be_read(lib, kind):
    t = kind(dtype=lib.float64)
    assert tuple(t.size()) == (0,) and t.size(0) == 0 and t.ndim == 1
    assert type(t.data) is lib.Tensor or type(t.data) is kind
    assert t.dtype is lib.float64 and str(t.device) == "cpu"
    assert t.grad is None and t.grad_fn is None and t.is_leaf and not t.is_meta
    assert t.is_floating_point() and not t.is_complex() and t.get_device() == -1
    t.requires_grad = False
    assert not t.requires_grad
    t.requires_grad = True
    assert t.requires_grad
    assert kind(device="meta").is_meta


def test_what_has_an_error_of_its_own(kind):
    with raises(RuntimeError, "Can't access the shape of an uninitialized parameter or buffer"):
        _ = kind().shape
    with raises(RuntimeError, "Can't share memory on an uninitialized parameter or buffer"):
        kind().share_memory_()


METHODS = """dim numel detach clone zero_ requires_grad_ type bfloat16 sum max exp abs tolist item t
    contiguous element_size data_ptr stride backward is_contiguous unbind normal_ uniform_ numpy
    __array__ nelement ndimension retain_grad""".split()


@pytest.mark.parametrize("name", METHODS)
def test_methods_that_are_refused(kind, name):
    with raises(ValueError, REFUSED):
        getattr(kind(), name)()


@pytest.mark.parametrize("name", ["new_zeros", "view", "register_hook", "expand", "new_tensor"])
def test_methods_with_an_argument_that_are_refused(kind, name):
    with raises(ValueError, REFUSED):
        getattr(kind(), name)(1)


OPERATORS = {
    **{
        name: getattr(operator, name)
        for name in """add sub mul truediv floordiv mod pow matmul lt le eq ne gt ge and_ or_ xor
        lshift rshift iadd isub imul itruediv ipow""".split()
    },
    "radd": lambda t, x: 2 + t,
    "rsub": lambda t, x: 2 - t,
    "rpow": lambda t, x: 2**t,
    "neg": lambda t, x: -t,
    "abs": lambda t, x: abs(t),
    "invert": lambda t, x: ~t,
    "bool": lambda t, x: bool(t),
    "int": lambda t, x: int(t),
    "float": lambda t, x: float(t),
    "len": lambda t, x: len(t),
    "getitem": lambda t, x: t[0],
    "index with it": lambda t, x: x[t],
    "setitem": lambda t, x: operator.setitem(t, 0, 1),
    "set to it": lambda t, x: operator.setitem(x, 0, t),
    "contains": lambda t, x: 1.0 in t,
    "iter": lambda t, x: list(t),
    "format": lambda t, x: format(t),
    "right of a tensor": lambda t, x: x + t,
    "in a method of another": lambda t, x: x.add(t),
    "in place of another": lambda t, x: x.add_(t),
    "in place on the right": lambda t, x: operator.imul(x, t),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_that_are_refused(lib, kind, name):
    with raises(ValueError, REFUSED):
        OPERATORS[name](kind(), lib.ones(2))


FUNCTIONS = {
    "add": lambda lib, t: lib.add(t, 1),
    "exp": lambda lib, t: lib.exp(t),
    "cat": lambda lib, t: lib.cat([lib.ones(2), t]),
    "stack": lambda lib, t: lib.stack((t, t)),
    "sum": lambda lib, t: lib.sum(t),
    "max": lambda lib, t: lib.max(t),
    "where": lambda lib, t: lib.where(lib.ones(2) > 0, t, 0.0),
    "einsum": lambda lib, t: lib.einsum("i,i->", t, t),
    "empty_like": lambda lib, t: lib.empty_like(t),
    "zeros_like": lambda lib, t: lib.zeros_like(t),
    "keyword": lambda lib, t: lib.add(input=lib.ones(2), other=t),
    "linear": lambda lib, t: lib.nn.functional.linear(lib.ones(2), t),
    "relu": lambda lib, t: lib.nn.functional.relu(t),
    "softmax": lambda lib, t: lib.nn.functional.softmax(t, dim=0),
    "mse_loss": lambda lib, t: lib.nn.functional.mse_loss(lib.ones(2), t),
    "init.zeros_": lambda lib, t: lib.nn.init.zeros_(t),
    "init.ones_": lambda lib, t: lib.nn.init.ones_(t),
    "init.normal_": lambda lib, t: lib.nn.init.normal_(t),
    "init.uniform_": lambda lib, t: lib.nn.init.uniform_(t),
    "init.constant_": lambda lib, t: lib.nn.init.constant_(t, 1.0),
    "init.kaiming_uniform_": lambda lib, t: lib.nn.init.kaiming_uniform_(t),
    "init.xavier_normal_": lambda lib, t: lib.nn.init.xavier_normal_(t),
    "Parameter": lambda lib, t: lib.nn.Parameter(t),
    "linalg.norm": lambda lib, t: lib.linalg.norm(t),
    "np.asarray": lambda lib, t: np.asarray(t),
    "np.exp": lambda lib, t: np.exp(t),
    "np.add": lambda lib, t: np.add(1, t),
    "np.concatenate": lambda lib, t: np.concatenate([t, t]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_are_refused(lib, kind, name):
    with raises(ValueError, REFUSED):
        FUNCTIONS[name](lib, kind())


@pytest.mark.parametrize("function", [np.var, np.median, np.linalg.norm, np.shape, np.atleast_1d])
def test_functions_of_numpy_that_are_refused(function):
    with raises(ValueError, REFUSED):
        function(mt.nn.UninitializedParameter())


def test_conversions(lib, kind):
    t = kind()
    for name, dtype in {
        "half": "float16",
        "double": "float64",
        "char": "int8",
        "short": "int16",
        "int": "int32",
        "long": "int64",
    }.items():
        assert getattr(t, name)().dtype is getattr(lib, dtype)
    assert t.to(lib.float64).dtype is lib.float64 and t.dtype is lib.float32
    assert t.float() is t and t.cpu() is t and t.to("cpu") is t


def test_materialize(lib, kind):
    t = kind(dtype=lib.float64)
    t.requires_grad = True
    t.mark = "kept"
    assert t.materialize((2, 3)) is None
    assert type(t) is kind.cls_to_become and tuple(t.shape) == (2, 3) and t.dtype is lib.float64
    assert t.requires_grad and t.is_leaf and t.mark == "kept" and not hasattr(t, "materialize")
    assert not lib.nn.parameter.is_lazy(t)
    (t * 2).sum().backward()
    assert t.grad.tolist() == [[2.0] * 3] * 2


def test_materialize_with_a_dtype(lib, kind):
    t = kind()
    t.materialize((2,), dtype=lib.float64, device="cpu")
    assert t.dtype is lib.float64 and tuple(t.size()) == (2,)
    meta = kind(device="meta")
    meta.materialize([3, 4])
    assert meta.is_meta and tuple(meta.shape) == (3, 4)


def test_materialize_elsewhere_changes_nothing(lib, kind):
    t = kind()
    with pytest.raises(RuntimeError):
        t.materialize((2,), device="meta")
    assert type(t) is kind and not t.is_meta


def test_materialized_buffer_is_still_a_buffer(lazy):
    b = lazy.UninitializedBuffer(persistent=False)
    b.materialize((2,))
    assert isinstance(b, lazy.Buffer) and not b.persistent


def test_repr(kind):
    assert repr(kind()) == str(kind()) == f"<{kind.__name__}>"


def test_its_names_can_be_listed():
    assert "materialize" in dir(mt.nn.UninitializedParameter())


def test_values_can_be_copied_in(lib, kind):
    t = kind(requires_grad=False)
    assert t.copy_(lib.ones(0)) is t


def test_hash_is_identity(kind):
    t = kind()
    assert {t: 1}[t] == 1


def test_deepcopy(lib, kind):
    if lib.__name__ == "torch" and kind.__name__ == "UninitializedBuffer":
        pytest.skip("torch cannot (docs/compat.md)")
    t = kind(requires_grad=False, dtype=lib.float64, device="meta")
    memo: dict = {}
    twin = copy.deepcopy(t, memo)
    assert type(twin) is kind and twin is not t and copy.deepcopy(t, memo) is twin
    assert not twin.requires_grad and twin.dtype is lib.float64 and twin.is_meta


def test_deepcopy_of_a_buffer():
    b = mt.nn.UninitializedBuffer(dtype=mt.float64, persistent=False)
    twin = copy.deepcopy(b)
    assert type(twin) is type(b) and twin.dtype is mt.float64 and not twin.persistent
    assert isinstance(twin, mt.nn.Buffer)


def test_copy(kind):
    t = kind(requires_grad=False)
    twin = copy.copy(t)
    assert type(twin) is kind and twin is not t and not twin.requires_grad


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_keeps_the_flag(kind, protocol):
    twin = pickle.loads(pickle.dumps(kind(requires_grad=False), protocol))
    assert type(twin) is kind and not twin.requires_grad


@pytest.mark.parametrize("kind", [mt.nn.UninitializedParameter, mt.nn.UninitializedBuffer])
def test_pickle_is_complete(kind):
    t = kind(device="meta", dtype=mt.float64)
    t.mark = "kept"
    t.persistent = False
    twin = pickle.loads(pickle.dumps(t))
    assert type(twin) is kind and twin.is_meta and twin.dtype is mt.float64
    assert twin.mark == "kept" and twin.persistent is False
    twin.materialize((2,))
    assert isinstance(twin, mt.nn.Buffer if kind is mt.nn.UninitializedBuffer else mt.nn.Parameter)


def test_files(tmp_path):
    net = Net(SimpleNamespace(nn=mt.nn, lib=mt))
    mt.save({"w": net.w, "b": net.b}, tmp_path / "lazy")
    loaded = mt.load(tmp_path / "lazy")
    assert type(loaded["w"]) is mt.nn.UninitializedParameter
    assert type(loaded["b"]) is mt.nn.UninitializedBuffer


# -- in modules ------------------------------------------------------------------------------------


def Net(impl):  # noqa: N802
    net = impl.nn.Module()
    net.w = impl.lib.nn.parameter.UninitializedParameter()
    net.register_buffer("b", impl.lib.nn.parameter.UninitializedBuffer())
    return net


def Plain(impl):  # noqa: N802
    net = impl.nn.Module()
    net.w = impl.nn.Parameter(impl.lib.ones(2))
    net.register_buffer("b", impl.lib.ones(2))
    return net


def test_registration(impl):
    net = Net(impl)
    assert list(net._parameters) == ["w"] and list(net._buffers) == ["b"]
    net.c = impl.lib.nn.parameter.UninitializedBuffer(persistent=False)
    assert net._non_persistent_buffers_set == {"c"}
    assert [n for n, _ in net.named_parameters()] == ["w"]


def test_conversions_keep_the_slots(impl):
    net = Net(impl)
    w = net.w
    assert net.double() is net and net.w is w and net.w.dtype is impl.lib.float64
    assert type(net.w).__name__ == "UninitializedParameter"
    net.to(impl.lib.float16)
    assert net.w is w and net.w.dtype is impl.lib.float16 and net.b.dtype is impl.lib.float16
    net.zero_grad()
    net.w.materialize((2,))
    assert net.w is w and net.w.dtype is impl.lib.float16


@pytest.mark.parametrize(
    "operation",
    [
        lambda net: net.type("torch.DoubleTensor"),
        lambda net: net.requires_grad_(False),
        lambda net: net.to_empty(device="cpu"),
        lambda net: net.state_dict(),
    ],
    ids=["type", "requires_grad_", "to_empty", "state_dict"],
)
def test_what_modules_cannot_do_with_them(impl, operation):
    with raises(ValueError, REFUSED):
        operation(Net(impl))


def test_modules_cannot_share_them(impl):
    with raises(RuntimeError, "Can't share memory on an uninitialized parameter or buffer"):
        Net(impl).share_memory()


def test_state_dict_with_the_objects_themselves(impl):
    net = Net(impl)
    state = net.state_dict(keep_vars=True)
    assert state["w"] is net.w and state["b"] is net.b


def test_loading_from_an_uninitialized_checkpoint(impl):
    state = Net(impl).state_dict(keep_vars=True)
    with raises(RuntimeError, "Can't access the shape of an uninitialized parameter or buffer"):
        Plain(impl).load_state_dict(state)


def test_loading_into_an_uninitialized_slot(impl):
    state = Plain(impl).state_dict()
    with raises(RuntimeError, "While copying the parameter named"):
        Net(impl).load_state_dict(state)
    net = Net(impl)
    net.w.materialize((2,))
    net.b.materialize((2,))
    net.load_state_dict(state)
    assert net.w.tolist() == net.b.tolist() == [1.0, 1.0]


def test_deepcopy_of_a_module():
    net = Net(SimpleNamespace(nn=mt.nn, lib=mt))
    twin = copy.deepcopy(net)
    assert type(twin.w) is type(net.w) and twin.w is not net.w and type(twin.b) is type(net.b)
