# SPDX-License-Identifier: BSD-3-Clause
"""The tensor as an object: identity, attributes, versions, copies, pickles, collection."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import textwrap
import weakref
from types import FunctionType

import numpy as np
import pytest
from helpers.limits import HANGS_AFTER

import modtree as mt
from modtree import _C


def test_identity_and_hash():
    t, u = mt.ones(2), mt.ones(2)
    assert len({t, u}) == 2 and hash(t) == hash(t)
    assert (t == u).tolist() == [True, True]
    assert (t != u).tolist() == [False, False]
    assert (t == None) is False  # noqa: E711
    assert (t == "x") is False


def test_tensors_lie_apart_from_modules():
    """CPython's allocator has a place of its own for objects of each size, in steps of 16 bytes."""
    size, of_module = sys.getsizeof(mt.zeros(2)), sys.getsizeof(mt.nn.Module())
    assert -(-size // 16) != -(-of_module // 16)


def test_attributes_and_weak_references():
    t = mt.ones(2)
    t._is_buffer = True
    t.note = [1]
    assert t.__dict__ == {"_is_buffer": True, "note": [1]}
    ref = weakref.ref(t)
    assert ref() is t
    del t
    gc.collect()
    assert ref() is None


def test_new_without_init_is_a_whole_tensor():
    for cls in (_C.TensorBase, mt.Tensor):
        t = cls.__new__(cls)
        assert tuple(t.shape) == (0,) and t.dtype is mt.float32 and t.grad is None
        assert t.detach().numel() == 0


def test_constructor():
    assert mt.Tensor(2, 3).shape == (2, 3)
    assert mt.Tensor([1, 2]).dtype is mt.float32
    assert mt.Tensor([1, 2]).tolist() == [1, 2]
    base = mt.ones(2)
    assert mt.Tensor(base).data_ptr() == base.data_ptr()


def test_views_and_detach_share_memory_and_version():
    t = mt.zeros(2, 3)
    view, handle, row = t.view(6), t.detach(), t[0]
    copy_ = t.clone()
    view.add_(1)
    assert t.tolist() == [[1, 1, 1]] * 2
    assert t._version == view._version == handle._version == row._version == 1
    handle[0, 0] = 5
    assert row[0].item() == 5 and t._version == 2
    assert copy_._version == 0 and copy_.sum().item() == 0
    t.data.add_(1)
    assert t._version == 2, "changes through .data are not counted"
    assert t.reshape(3, 2)._version == 2
    assert t.T.reshape(6)._version == 0, "a reshape that copies has a version of its own"


def test_new_data_keeps_the_object():
    t = mt.ones(2)
    t.note = 1
    other = mt.zeros(3, dtype=mt.float64)
    t.data = other
    assert t.shape == (3,) and t.dtype is mt.float64 and t.note == 1
    other.add_(1)
    assert t.tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match="Variable data has to be a tensor, but got .*ndarray"):
        t.data = np.ones(3)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        t.data = mt.ones(3, device="meta")
    t.requires_grad_()
    with pytest.raises(RuntimeError, match="must be floating point or complex"):
        t.data = mt.arange(3)
    with pytest.raises(TypeError):
        del t.data


def test_requires_grad():
    t = mt.ones(2)
    assert not t.requires_grad and t.is_leaf and t.grad_fn is None and t.grad is None
    assert t.requires_grad_() is t and t.requires_grad
    assert not t.detach().requires_grad
    assert t.detach_() is t and not t.requires_grad
    text = "only Tensors of floating point dtype can require gradients"
    with pytest.raises(RuntimeError, match=text):
        mt.arange(2).requires_grad_()
    with pytest.raises(RuntimeError, match=text):
        mt.arange(2).requires_grad = True
    with pytest.raises(
        RuntimeError, match="Only Tensors of floating point and complex dtype can require gradients"
    ):
        mt.ones(2, dtype=mt.int64, requires_grad=True)
    with pytest.raises(TypeError):
        t.requires_grad_(1)
    with pytest.raises(RuntimeError):
        t.requires_grad = 1
    t = mt.ones(2, requires_grad=True)
    t.sum().backward()
    assert t.grad.tolist() == [1.0, 1.0]
    assert t.detach_() is t and not t.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        t.sum().backward()


def test_leaf_in_place():
    t = mt.ones(2, requires_grad=True)
    text = "a leaf Variable that requires grad is being used in an in-place operation"
    for change in (
        lambda: t.add_(1),
        lambda: t.zero_(),
        lambda: t.fill_(1),
        lambda: t.copy_(mt.ones(2)),
        lambda: t.uniform_(),
        lambda: t.__setitem__(0, 1.0),
        lambda: t.__iadd__(1),
    ):
        with pytest.raises(RuntimeError, match=text):
            change()
    assert t.tolist() == [1, 1] and t._version == 0
    with mt.no_grad():
        t.add_(1)
    assert t.tolist() == [2, 2]


def test_grad_slot():
    t = mt.ones(2)
    grad = mt.zeros(2)
    t.grad = grad
    assert t.grad is grad
    for bad, error in (
        (mt.zeros(3), RuntimeError),
        (mt.zeros(2, dtype=mt.float64), RuntimeError),
        (mt.zeros(2, device="meta"), RuntimeError),
        (t, RuntimeError),
        (np.zeros(2), TypeError),
        (1, TypeError),
    ):
        with pytest.raises(error):
            t.grad = bad
    assert t.grad is grad
    t.grad = None
    assert t.grad is None
    t.grad = grad
    del t.grad
    assert t.grad is None


def test_grad_modes():
    assert mt.is_grad_enabled()
    with mt.no_grad():
        assert not mt.is_grad_enabled()
        with mt.enable_grad():
            assert mt.is_grad_enabled()
        assert not mt.is_grad_enabled()
    with pytest.raises(KeyError), mt.no_grad():
        raise KeyError
    assert mt.is_grad_enabled()

    @mt.no_grad()
    def a():
        return mt.is_grad_enabled()

    @mt.no_grad
    def b():
        return mt.is_grad_enabled()

    @mt.no_grad()
    def c():
        yield mt.is_grad_enabled()
        yield mt.is_grad_enabled()

    assert a() is False and b() is False and a.__name__ == "a"
    seen = []
    for inside in c():
        seen.append((inside, mt.is_grad_enabled()))
    assert seen == [(False, True)] * 2
    with mt.set_grad_enabled(False):
        assert not mt.is_grad_enabled()
    assert mt.is_grad_enabled()
    mt.set_grad_enabled(False)
    assert not mt.is_grad_enabled()
    mt.set_grad_enabled(True)
    with mt.inference_mode():
        assert mt.is_inference_mode_enabled() and not mt.is_grad_enabled()
    assert not mt.is_inference_mode_enabled() and mt.is_grad_enabled()


def test_grad_mode_is_per_thread():
    import threading

    seen = []
    with mt.no_grad():
        thread = threading.Thread(target=lambda: seen.append(mt.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_pickle(protocol, device):
    t = mt.ones(2, 3, requires_grad=True, device=device)
    t.note = "n"
    t.grad = mt.ones(2, 3, device=device)
    u = pickle.loads(pickle.dumps(t, protocol))
    assert type(u) is mt.Tensor and u.requires_grad and u.grad is None and u.note == "n"
    assert u.shape == t.shape and u.device == t.device and u.dtype is t.dtype
    if device == "cpu":
        assert u.tolist() == t.tolist()
        u.detach()[0] = 5
        assert t[0, 0].item() == 1
    view = pickle.loads(pickle.dumps(mt.arange(6).view(2, 3).T, protocol))
    assert view.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_deepcopy_keeps_attributes_grad_and_sharing():
    t = mt.zeros(4, requires_grad=True)
    t.note = [1]
    t.grad = mt.ones(4)
    u = copy.deepcopy(t)
    assert u is not t and u.requires_grad and u.note == [1] and u.note is not t.note
    assert u.grad is not t.grad and u.grad.tolist() == [1] * 4
    base = mt.zeros(2, 3)
    a, b, c = copy.deepcopy([base, base[1], base.T])
    a.add_(1)
    assert b.tolist() == [1] * 3 and c.tolist() == [[1, 1]] * 3 and base.sum().item() == 0
    same = copy.deepcopy([base, base])
    assert same[0] is same[1]
    meta = copy.deepcopy(mt.ones(2, device="meta"))
    assert meta.is_meta


def test_shallow_copy_shares():
    t = mt.ones(2, requires_grad=True)
    t.note = [1]
    t.grad = mt.ones(2)
    u = copy.copy(t)
    assert u is not t and u.note is t.note and u.data_ptr() == t.data_ptr() and u.grad is None
    assert u.requires_grad


def test_subclasses_survive_operations():
    class Special(mt.Tensor):
        pass

    t = mt.Tensor._make_subclass(Special, mt.ones(2))
    assert type(t) is Special
    for result in (t + 1, t.detach(), t.clone(), t[0], t.data, t.T, t.float().double(), np.exp(t)):
        assert type(result) is Special
    assert type(copy.deepcopy(t)) is Special and type(copy.copy(t)) is Special


# One test per reference that a tensor holds.


def test_cycle_through_dict(gc_tester):
    def make():
        t = mt.ones(2)
        t.me = t
        return t

    gc_tester(make)


def test_cycle_through_grad(gc_tester):
    def make():
        t, g = mt.ones(2), mt.ones(2)
        t.grad, g.owner = g, t
        return t

    gc_tester(make)


def test_operation_in_a_cycle():
    class Mark:
        pass

    def make():
        op = _C.Op("loop", lambda x: op)
        op.mark, op.me = Mark(), op
        return weakref.ref(op.mark)

    mark = make()
    gc.collect()
    assert mark() is None


def test_wrong_self_is_a_type_error():
    for cls in (_C.TensorBase, _C.Op, _C.dtype):
        for name, member in vars(cls).items():
            if (
                callable(member)
                and not isinstance(member, (type, staticmethod))
                and name != "__new__"
            ):
                with pytest.raises((TypeError, AttributeError)):
                    member(3)
    for member in vars(_C.TensorBase).values():
        if type(member).__name__ == "getset_descriptor":
            with pytest.raises(TypeError):
                member.__get__(3)
    with pytest.raises(TypeError):
        _C.make_subclass(mt.Tensor, 3)
    with pytest.raises(TypeError):
        _C.make_subclass(int, mt.ones(2))
    with pytest.raises(TypeError):
        _C.from_array(3)
    with pytest.raises(TypeError):
        mt.exp(3j, 4)


def test_no_leaks():
    code = f"sys_path = {sys.path!r}\n" + textwrap.dedent("""
    import gc, resource, sys
    sys.path[:0] = sys_path
    import numpy as np
    import modtree as mt

    def work():
        t = mt.ones(50, 50)
        u = t.detach()
        v = t.view(-1)
        v.add_(1)
        (t + u * 2 - 1).sum().item()
        t[0], t[:, 1:], t[t > 0]
        t.data = mt.zeros(50, 50)
        t.grad = mt.ones(50, 50)
        t.note = t
        np.exp(t)
        mt.cat([t, u])
        t.to(mt.float64).copy_(u)
        mt.ones(5, device="meta") + 1
        for bad in (
            lambda: t + mt.ones(3),
            lambda: t @ mt.ones(3),
            lambda: t.view(7),
            lambda: t.add_("x"),
        ):
            try:
                bad()
            except (RuntimeError, TypeError):
                pass

    def count():
        gc.collect()
        # What the first one freed may count until the second, on a free-threaded CPython.
        gc.collect()
        return sys.getallocatedblocks(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for _ in range(50):
        work()
    for _ in range(3):  # caches of CPython and NumPy fill up, ever more slowly; a leak goes on
        blocks, memory = count()
        for _ in range(400):
            work()
        after, grown = count()
        if after - blocks < 200:
            break
    assert after - blocks < 200, (blocks, after)
    assert grown - memory < 8000, (memory, grown)
    """)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANGS_AFTER)


def test_data_replaced_while_it_is_used():
    """An operand whose conversion runs user code may swap the array of the other."""
    t = mt.ones(1000)

    class Evil:
        def __array__(self, dtype=None, copy=None):
            t.data = mt.zeros(1)
            return np.ones(1000, dtype or np.float32)

    class Index:
        def __index__(self):
            t.data = mt.zeros(1)
            return 5

    assert t[Index()].item() == 1
    t.data = mt.ones(1000)
    with pytest.raises(TypeError):
        t + Evil()
    t[mt.tensor(3)] = 2
    assert t.numel() in (1, 1000)


def test_dtype_objects():
    assert repr(mt.float32) == "modtree.float32" and mt.half is mt.float16 and mt.long is mt.int64
    assert (
        mt.float is mt.float32
        and mt.double is mt.float64
        and mt.int is mt.int32
        and mt.short is mt.int16
    )
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(mt.float32, protocol)) is mt.float32
    assert copy.deepcopy(mt.int8) is mt.int8 and copy.copy(mt.int8) is mt.int8
    assert mt.float32 == np.float32().dtype and np.dtype("float32") == mt.float32
    assert (
        mt.float32 != mt.float64 and mt.float32 != np.dtype("float64") and mt.float32 != "float32"
    )
    assert hash(mt.float32) == hash(np.dtype("float32"))
    assert np.zeros(3, dtype=mt.float32.dtype).dtype == mt.float32
    assert np.zeros(3, dtype=mt.float16).dtype == np.float16
    assert (
        mt.complex64.is_complex and mt.float16.is_floating_point and not mt.int8.is_floating_point
    )
    assert mt.int8.itemsize == 1 and mt.complex128.itemsize == 16
    assert mt.zeros(2, dtype=np.float64).dtype is mt.float64
    assert mt.zeros(2, dtype="int16").dtype is mt.int16
    assert mt.zeros(2, dtype=float).dtype is mt.float64 and mt.zeros(2, dtype=bool).dtype is mt.bool
    with pytest.raises(TypeError, match="expected a dtype such as"):
        mt.zeros(2, dtype="nonsense")
    with pytest.raises(TypeError):
        type(mt.float32)()


FUNCTIONS = (FunctionType, mt._C.Overridable)


@pytest.mark.parametrize("module", [mt, mt.linalg], ids=["modtree", "linalg"])
def test_functions_are_pickled_by_public_names(module):
    functions = [v for v in map(vars(module).get, module.__all__) if isinstance(v, FUNCTIONS)]
    assert len(functions) > 10
    for function in functions:
        pickled = pickle.dumps(function)
        assert b"modtree._" not in pickled and pickle.loads(pickled) is function


def test_devices():
    t = mt.ones(2)
    assert t.device == mt.device("cpu") and t.device.type == "cpu"
    assert repr(t.device) == "device(type='cpu')" and str(mt.device("meta")) == "meta"
    assert mt.device("cpu:0").index == 0 and mt.device("cpu", 0) != mt.device("cpu")
    assert hash(mt.device("cpu")) == hash(mt.device("cpu"))
    assert pickle.loads(pickle.dumps(t.device)) is t.device and copy.deepcopy(t.device) is t.device
    with pytest.raises(RuntimeError, match="Expected one of the device types cpu, meta"):
        mt.device("cuda")
    with pytest.raises(AttributeError):
        t.device.type = "meta"


def test_size():
    size = mt.ones(2, 3).shape
    assert isinstance(size, tuple) and size == (2, 3) and size.numel() == 6
    assert repr(size) == "modtree.Size([2, 3])" and f"{size}" == "modtree.Size([2, 3])"
    assert type(size[1:]) is mt.Size and type(size + (1,)) is mt.Size and size[0] == 2
    assert pickle.loads(pickle.dumps(size)) == size and copy.deepcopy(size) == size


def test_to():
    t = mt.ones(2)
    assert (
        t.to() is t
        and t.to(mt.float32) is t
        and t.to("cpu") is t
        and t.float() is t
        and t.cpu() is t
    )
    assert t.to(t.device, mt.float32) is t and t.to(dtype=None) is t
    assert t.to(mt.float32, copy=True) is not t and t.to(mt.float32, False, True) is not t
    assert t.to(mt.float64).dtype is mt.float64 and t.to("cpu", mt.int64).dtype is mt.int64
    assert t.to(mt.arange(2)).dtype is mt.int64 and t.to(device="meta").is_meta
    assert t.type() == "modtree.FloatTensor" and t.type(mt.int64).type() == "modtree.LongTensor"
    assert t.type("modtree.DoubleTensor").dtype is mt.float64
    assert t.to(mt.int64).to("meta").type() == "modtree.meta.LongTensor"
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        t.to("meta").to("cpu")
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        t.copy_(t.to("meta"))
    with pytest.raises(TypeError):
        t.to([])
    with pytest.raises(TypeError):
        t.to(nonsense=1)
    with pytest.warns(UserWarning, match="discards the imaginary part"):
        mt.tensor(1 + 2j).to(mt.float32)
