# SPDX-License-Identifier: BSD-3-Clause
"""Subclasses of Tensor live through operations, gradients, copies, pickles and modules."""

from __future__ import annotations

import copy
import copyreg
import gc
import pickle
import weakref
from collections import OrderedDict

import pytest

import modtree as mt


class Ours(mt.Tensor):
    """Can be pickled: its module has it."""


try:
    import torch
except ImportError:
    pass
else:

    class Theirs(torch.Tensor):
        """The same for torch."""


@pytest.fixture
def cls(lib):
    return Ours if lib is mt else Theirs


def test_how_objects_are_made(lib, cls):
    data = lib.ones(2, 3)
    for t in (data.as_subclass(cls), lib.Tensor._make_subclass(cls, data), cls(data)):
        assert type(t) is cls and isinstance(t, lib.Tensor) and t.data_ptr() == data.data_ptr()
    assert cls([1.0, 2.0]).tolist() == [1.0, 2.0] and type(cls([1.0])) is cls
    assert tuple(cls(2, 3).shape) == (2, 3) and cls().numel() == 0
    assert type(data.as_subclass(cls).as_subclass(lib.Tensor)) is lib.Tensor


def test_make_subclass(lib, cls):
    data = lib.ones(2)
    t = lib.Tensor._make_subclass(cls, data, True)
    assert t.requires_grad and t.is_leaf and not data.requires_grad
    assert not lib.Tensor._make_subclass(cls, t).requires_grad
    with pytest.raises(TypeError):
        lib.Tensor._make_subclass(int, data)
    with pytest.raises(TypeError):
        lib.Tensor._make_subclass(cls, [1.0])
    with pytest.raises(TypeError):
        data.as_subclass(int)


def test_a_wrapper_without_memory_is_refused():
    with pytest.raises(NotImplementedError, match="Ours.*_make_subclass"):
        mt.Tensor._make_wrapper_subclass(Ours, (2,))


RESULTS = {
    "add": lambda lib, t: t + 1, "radd": lambda lib, t: 1 + t,
    "plain first": lambda lib, t: lib.ones(2, 2) + t,
    "matmul": lambda lib, t: t @ t, "compare": lambda lib, t: t > 0, "neg": lambda lib, t: -t,
    "index": lambda lib, t: t[0], "mask": lambda lib, t: t[t > 0], "sum": lambda lib, t: t.sum(),
    "mean of dim": lambda lib, t: t.mean(0), "exp": lambda lib, t: lib.exp(t),
    "detach": lambda lib, t: t.detach(), "clone": lambda lib, t: t.clone(),
    "data": lambda lib, t: t.data, "T": lambda lib, t: t.T, "to": lambda lib, t: t.to(lib.float64),
    "double": lambda lib, t: t.double(), "reshape": lambda lib, t: t.reshape(-1),
    "view": lambda lib, t: t.view(4), "cat": lambda lib, t: lib.cat([t, t]),
    "stack": lambda lib, t: lib.stack([lib.ones(2, 2), t]),
    "zeros_like": lambda lib, t: lib.zeros_like(t),
    "where": lambda lib, t: lib.where(t > 0, t, 0.0), "new": lambda lib, t: t.new_ones(2),
    "relu": lambda lib, t: lib.nn.functional.relu(t),
    "linear": lambda lib, t: lib.nn.functional.linear(t, lib.ones(3, 2)),
    "softmax": lambda lib, t: lib.nn.functional.softmax(t, dim=-1),
    "deepcopy": lambda lib, t: copy.deepcopy(t), "copy": lambda lib, t: copy.copy(t),
    "pickle": lambda lib, t: pickle.loads(pickle.dumps(t)),
    "contiguous": lambda lib, t: t.contiguous(),
    "add_": lambda lib, t: t.add_(1), "zero_": lambda lib, t: t.zero_(),
    "unsqueeze": lambda lib, t: t.unsqueeze(0), "norm": lambda lib, t: t.norm(),
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_of_the_class(lib, cls, name):
    t = lib.ones(2, 2).as_subclass(cls)
    plain = lib.ones(2, 2)
    if name == "deepcopy" and lib is not mt:
        pytest.skip("torch cannot (docs/compat.md)")
    result = RESULTS[name](lib, t)
    assert type(result) is cls
    assert result.tolist() == RESULTS[name](lib, plain).tolist()


def test_results_with_several_tensors(lib, cls):
    t = lib.tensor([[1.0, 2.0], [3.0, 4.0]]).as_subclass(cls)
    values, indices = t.max(0)
    assert type(values) is type(indices) is cls and t.max(0).values.tolist() == [3.0, 4.0]
    for result in (
        t.unbind(),
        t.split(1),
        t.chunk(2),
        list(t),
        lib.meshgrid(t[0], t[1], indexing="ij"),
    ):
        assert all(type(part) is cls for part in result)
    assert type(t.topk(1).values) is cls and type(t.sort()[0]) is cls


def test_what_is_no_tensor_stays(lib, cls):
    t = lib.ones(2, 2).as_subclass(cls)
    assert type(t.shape) is lib.Size and type(t.size()) is lib.Size and t.shape == (2, 2)
    assert t.tolist() == [[1.0, 1.0]] * 2 and t.dtype is lib.float32 and t.sum().item() == 4.0
    assert isinstance(t.stride(), tuple) and len(t) == 2 and bool(t[0, 0]) is True
    assert type(t.numpy()).__name__ == "ndarray" and t.requires_grad is False


def test_in_place_keeps_the_object(lib, cls):
    t = lib.ones(2).as_subclass(cls)
    same = t
    t += 1
    t[0] = 5
    assert t is same and t.tolist() == [5.0, 2.0] and type(t) is cls


def test_shares_memory_and_version(lib, cls):
    data = lib.ones(2)
    t = data.as_subclass(cls)
    t.mul_(3)
    assert data.tolist() == [3.0, 3.0] and data._version == t._version == 1


def test_gradients(lib, cls):
    x = lib.ones(2, requires_grad=True)
    t = x.as_subclass(cls)
    assert t.requires_grad and not t.is_leaf and t.grad_fn.name() == "AliasBackward0"
    (t * t * 3).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0] and type(x.grad) is lib.Tensor


def test_gradients_of_leaves_of_the_class(lib, cls):
    t = lib.Tensor._make_subclass(cls, lib.ones(2), True)
    y = (t * 2).sum()
    assert type(y) is cls
    y.backward()
    assert t.grad.tolist() == [2.0, 2.0]
    t.grad = None
    assert t.grad is None
    (grad,) = lib.autograd.grad((t * 3).sum(), t)
    assert grad.tolist() == [3.0, 3.0]


def test_gradients_twice(lib, cls):
    t = lib.Tensor._make_subclass(cls, lib.tensor([2.0], dtype=lib.float64), True)
    (grad,) = lib.autograd.grad((t**3).sum(), t, create_graph=True)
    (second,) = lib.autograd.grad(grad.sum(), t)
    assert second.tolist() == [12.0]


def test_as_subclass_without_recording(lib, cls):
    x = lib.ones(2, requires_grad=True)
    with lib.no_grad():
        assert x.as_subclass(cls).grad_fn is None


def test_attributes(lib, cls):
    t = lib.ones(2).as_subclass(cls)
    t.note = ["kept"]
    assert not hasattr(t + 1, "note")
    assert copy.copy(t).note == ["kept"]
    assert pickle.loads(pickle.dumps(t)).note == ["kept"]


def test_deepcopy():
    t = mt.ones(2).as_subclass(Ours)
    t.note = ["kept"]
    twin = copy.deepcopy(t)
    assert type(twin) is Ours and twin.note == t.note and twin.note is not t.note
    assert twin.tolist() == t.tolist() and twin.data_ptr() != t.data_ptr()


def test_text(lib, cls):
    t = lib.tensor([[1.0, 2.0], [3.0, 4.0]]).as_subclass(cls)
    text = repr(lib.tensor([[1.0, 2.0], [3.0, 4.0]]))
    shift = len(cls.__name__) - len("tensor")
    start, rest = text.split("\n")
    rest = rest[-shift:] if shift < 0 else " " * shift + rest
    assert repr(t) == start.replace("tensor", cls.__name__) + "\n" + rest


def test_methods_of_its_own(lib):
    class Named(lib.Tensor):
        def __new__(cls, data, name):
            self = lib.Tensor._make_subclass(cls, data)
            self.name_ = name
            return self

        def double_name(self):
            return self.name_ * 2

        def exp(self):
            return "mine"

    t = Named(lib.ones(2), "a")
    assert t.double_name() == "aa" and t.exp() == "mine" and type(lib.exp(t)) is Named


def test_metadata_that_travels(lib):
    """The example of torch's notes on extending it, with one change: a class with metadata."""

    class Meta(lib.Tensor):
        @staticmethod
        def __new__(cls, x, metadata=None, *args, **kwargs):
            return super().__new__(cls, x, *args, **kwargs)

        def __init__(self, x, metadata=None):
            super().__init__()
            self._metadata = metadata

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            found = [a._metadata for a in args if hasattr(a, "_metadata")]
            result = super().__torch_function__(func, types, args, kwargs or {})
            if isinstance(result, cls):
                result._metadata = found[0]
            return result

    t = Meta([1.0, 2.0], metadata="m")
    assert (t + 1)._metadata == "m" and (2 * t).exp()._metadata == "m" and t.tolist() == [1.0, 2.0]


# -- in modules ------------------------------------------------------------------------------------


def test_parameters_of_the_class(lib, cls):
    t = lib.ones(2).as_subclass(cls)
    p = lib.nn.Parameter(t)
    assert type(p) is cls and isinstance(p, lib.nn.Parameter) and p._is_param and p.requires_grad
    assert p is not t and p.data_ptr() == t.data_ptr() and not hasattr(t, "_is_param")
    assert not isinstance(t, lib.nn.Parameter)
    assert not lib.nn.Parameter(t, requires_grad=False).requires_grad
    assert repr(p).startswith("Parameter(")


def test_results_of_parameters_are_plain(lib):
    class Own(lib.nn.Parameter):
        pass

    for p in (lib.nn.Parameter(lib.ones(2)), Own(lib.ones(2))):
        for result in (p + 1, p.detach(), p.clone(), p[0], p.data, p.exp(), lib.exp(p)):
            assert type(result) is lib.Tensor
    plain = lib.ones(2).as_subclass(Own)
    assert type(plain) is Own


def test_detach_of_another_class_is_no_parameter(lib):
    class Loses(lib.Tensor):
        def detach(self):
            return super().detach().as_subclass(lib.Tensor)

    with pytest.raises(RuntimeError, match="requires that detach.. returns an instance"):
        lib.nn.Parameter(lib.ones(2).as_subclass(Loses))


def test_modules_keep_them(lib, cls):
    m = lib.nn.Module()
    m.w = lib.nn.Parameter(lib.ones(2, 2).as_subclass(cls))
    m.register_buffer("b", lib.ones(2).as_subclass(cls))
    assert list(m._parameters) == ["w"] and type(m.w) is cls
    state = m.state_dict()
    assert type(state["w"]) is cls and type(state["b"]) is cls and not state["w"].requires_grad
    m.double()
    assert type(m.w) is cls and type(m.b) is cls and m.w.dtype is m.b.dtype is lib.float64
    assert m.w._is_param and list(m._parameters) == ["w"]
    m.load_state_dict({"w": lib.zeros(2, 2), "b": lib.zeros(2)})
    assert type(m.w) is cls and m.w.tolist() == [[0.0, 0.0]] * 2
    if lib is mt:
        twin = copy.deepcopy(m)
        assert type(twin.w) is cls and twin.w is not m.w and list(twin._parameters) == ["w"]
    again = pickle.loads(pickle.dumps(m))
    assert type(again.w) is cls and list(again._parameters) == ["w"]
    m.requires_grad_(False)
    assert not m.w.requires_grad


def test_layers_compute_with_them(lib, cls):
    layer = lib.nn.Linear(2, 3)
    assert type(layer(lib.ones(1, 2).as_subclass(cls))) is cls
    layer.weight = lib.nn.Parameter(layer.weight.detach().as_subclass(cls))
    y = layer(lib.ones(1, 2))
    assert type(y) is cls
    y.sum().backward()
    assert layer.weight.grad.tolist() == [[1.0, 1.0]] * 3
    optimizer = lib.optim.SGD(layer.parameters(), lr=0.5)
    before = layer.weight.detach().clone()
    optimizer.step()
    assert lib.equal(layer.weight.detach(), before - 0.5)
    assert type(layer.weight) is cls


def test_state_dicts_of_files(lib, cls, tmp_path):
    state = OrderedDict(w=lib.ones(2).as_subclass(cls))
    lib.save(state, tmp_path / "state")
    loaded = lib.load(tmp_path / "state", weights_only=False)
    assert type(loaded["w"]) is cls and loaded["w"].tolist() == [1.0, 1.0]


# -- references ------------------------------------------------------------------------------------


def test_a_class_can_go():
    def make():
        class Gone(mt.Tensor):
            pass

        t = mt.ones(2).as_subclass(Gone)
        t.me = t
        (t + 1).exp()
        return weakref.ref(Gone), weakref.ref(t)

    kind, tensor = make()
    gc.collect()
    assert tensor() is None and kind() is None


def test_copy_goes_by_what_a_subclass_tells_pickle(lib, monkeypatch):
    class Reduced(lib.Tensor):
        def __reduce_ex__(self, protocol):
            return lib.zeros, (1,)

    class Named(lib.Tensor):
        def __reduce_ex__(self, protocol):
            return "a name"

    class Registered(lib.Tensor):
        pass

    monkeypatch.setitem(copyreg.dispatch_table, Registered, lambda t: (list, ((1, 2),)))
    made = copy.copy(lib.ones(2).as_subclass(Reduced))
    assert type(made) is lib.Tensor and made.tolist() == [0.0]
    named = lib.ones(2).as_subclass(Named)
    assert copy.copy(named) is named
    assert copy.copy(lib.ones(2).as_subclass(Registered)) == [1, 2]


def test_copy_of_a_parameter_shares_its_memory(lib):
    p = lib.nn.Parameter(lib.ones(2))
    new = copy.copy(p)
    assert type(new) is type(p) and new is not p and new.data_ptr() == p.data_ptr()
