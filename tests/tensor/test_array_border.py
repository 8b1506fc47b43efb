# SPDX-License-Identifier: BSD-3-Clause
"""Arrays that go out of tensors and come in: memory is shared, the array objects are not, so what
is done to an array in place (shape, dtype, flags) leaves the tensor as it is.
"""

from __future__ import annotations

import copy
import pickle
import weakref

import numpy as np
import pytest

import modtree as mt
from modtree import _C, nn

# NumPy 2.4 and 2.5 deprecate these ways to change an array in place.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Setting the (strides|shape|dtype) on a NumPy array:DeprecationWarning"
)


def _pickled_buffer(t):
    buffers = []
    pickle.dumps(nn.Parameter(t), 5, buffer_callback=buffers.append)
    shown = memoryview(buffers[0])
    assert not isinstance(shown.obj, np.ndarray)
    return np.ndarray(t.shape, t.dtype.dtype, shown)


def _memo_of(t, kept):
    memo = {}
    copy.deepcopy(t, memo)
    return memo[id(memo)][0] if kept else next(v for v in memo.values() if type(v) is np.ndarray)


def _memo_of_module(t):
    layer = nn.Module()
    layer.register_buffer("t", t)
    memo = {}
    copy.deepcopy(layer, memo)
    return [v for v in memo[id(memo)] if type(v) is np.ndarray][0]


def _seen_by_callback(t):
    seen = []
    np.apply_over_axes(lambda a, axis: seen.append(a) or a, t, [0])
    return seen[0]


_OUT = {
    "numpy": lambda t: t.numpy(),
    "numpy-force": lambda t: t.requires_grad_().numpy(force=True),
    "detach": lambda t: t.requires_grad_().detach().numpy(),
    "data": lambda t: t.data.numpy(),
    "parameter": lambda t: nn.Parameter(t).detach().numpy(),
    "view": lambda t: t[:].numpy(),
    "asarray": np.asarray,
    "array-protocol": lambda t: t.__array__(),
    "no-copy": lambda t: np.array(t, copy=None),
    "reduce": lambda t: t.__reduce_ex__(4)[1][1],
    "pickle-buffer": _pickled_buffer,
    "memo": lambda t: _memo_of(t, True),
    "memo-of-module": _memo_of_module,
    "family": lambda t: mt.families.family_of(t).to_numpy(t),
    "callback": _seen_by_callback,
}


def _arrays_behind(array):
    while isinstance(array, np.ndarray):
        yield array
        array = array.base


def _set_shape(a):
    a.shape = (6,)


def _set_dtype(a):
    a.dtype = np.dtype([("x", "f4")])


def _set_strides(a):
    a.strides = (0, 0)


def _set_writeable(a):
    a.flags.writeable = False


def _swap_bytes(a):
    a.dtype = a.dtype.newbyteorder()


def _set_state(a):
    np.ndarray.__setstate__(a, (1, (2,), np.dtype(np.int64), False, b"\0" * 16))


_CHANGES = [_set_shape, _set_dtype, _set_strides, _set_writeable, _swap_bytes, _set_state]


def _check_untouched(t):
    assert tuple(t.shape) == (2, 3) and t.stride() == (3, 1) and t.dtype is mt.float32
    with mt.no_grad():
        t.add_(1)
        assert t.tolist() == [[2, 3, 4], [5, 6, 7]]


@pytest.mark.parametrize("change", _CHANGES, ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("way", _OUT)
def test_a_tensor_keeps_its_shape_and_dtype_when_its_array_is_given_others(way, change):
    t = mt.arange(1.0, 7).view(2, 3).clone()
    for array in _arrays_behind(_OUT[way](t)):
        change(array)
    _check_untouched(t)


def test_the_copy_in_a_memo_is_not_the_array_of_the_copied_tensor():
    t, memo = mt.ones(2, 3), {}
    copied = copy.deepcopy(t, memo)
    for value in memo.values():
        for array in _arrays_behind(value):
            array.shape = (6,)
    assert copied.shape == (2, 3)


_IN = {
    "from_numpy": mt.from_numpy,
    "as_tensor": mt.as_tensor,
    "asarray": mt.asarray,
    "frombuffer-of-array": lambda a: mt.from_numpy(np.frombuffer(a, np.float32).reshape(2, 3)),
    "dlpack": mt.from_dlpack,
    "parameter": lambda a: nn.Parameter(mt.from_numpy(a)),
    "round-trip": lambda a: mt.from_numpy(mt.from_numpy(a).numpy()),
    "wrapped": lambda a: mt.squeeze(a) if type(mt.squeeze(a)) is mt.Tensor else mt.from_numpy(a),
    "reshape": lambda a: mt.reshape(a, (2, 3)),
    "unpickled": lambda a: mt.ones(1).__reduce_ex__(4)[0](mt.Tensor, a, False),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "change", [c for c in _CHANGES if c is not _set_state], ids=lambda f: f.__name__.strip("_")
)
@pytest.mark.parametrize("way", _IN)
def test_a_tensor_keeps_its_shape_when_the_array_it_came_from_is_given_another(way, change):
    array = np.arange(1, 7, dtype=np.float32).reshape(2, 3).copy()
    t = _IN[way](array)
    change(array)
    _check_untouched(t)


def test_memory_is_shared_both_ways():
    array = np.zeros(3, np.float32)
    t = mt.from_numpy(array)
    array[0] = 1
    t.numpy()[1] = 2
    t[2] = 3
    assert t.tolist() == array.tolist() == [1, 2, 3]
    assert np.shares_memory(t.numpy(), array) and np.asarray(t) is not np.asarray(t)


def test_memory_lives_as_long_as_an_array_over_it(lib):
    array = lib.arange(3.0).numpy()
    assert array.tolist() == [0, 1, 2] and not array.flags.owndata
    assert not isinstance(array.base, np.ndarray)


@pytest.mark.parametrize("part", [lambda a: a, lambda a: a[1:], lambda a: a.reshape(2, 2)])
def test_an_array_is_not_resized_under_a_tensor(part):
    array = np.zeros(4, np.float32)
    t = mt.from_numpy(part(array))
    with pytest.raises(ValueError, match="cannot resize"):
        array.resize((1000,), refcheck=False)
    with pytest.raises(ValueError, match="cannot resize"):
        t.numpy().resize((1000,), refcheck=False)
    del t
    array.resize((5,), refcheck=False)
    assert array.shape == (5,)


def test_arrays_that_go_out_and_in_do_not_become_a_chain():
    array = np.ones(2, np.float32)
    for _ in range(100_000):
        array = mt.from_numpy(array).numpy()[:]
    base = array.base
    assert type(base) is not np.ndarray or type(base.base) is not np.ndarray
    del array, base  # a chain would end the stack


def test_an_array_of_the_caller_is_let_go_with_the_tensor():
    class Own(np.ndarray):
        pass

    array = np.ones(3, np.float32).view(Own)
    ref = weakref.ref(array)
    t = mt.from_numpy(array)
    del array
    assert ref() is not None and t.sum().item() == 3
    del t
    assert ref() is None


def test_gradients_hold_when_an_operand_is_given_another_shape_and_dtype():
    t, factor, index = mt.ones(3, requires_grad=True), np.full(3, 2, np.float32), np.array([0, 2])
    loss = (t * factor)[index].sum()
    y = t * 1
    y[index] = 5.0
    factor.shape, factor.dtype, index.shape = (3, 1), np.int32, (2, 1)
    loss.backward()
    assert t.grad.tolist() == [2, 0, 2]
    index.dtype = np.int8
    t.grad = None
    y.sum().backward()
    assert t.grad.tolist() == [0, 1, 0]


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_subclasses_of_arrays_become_plain_ones_over_the_same_memory(tmp_path):
    mapped = np.memmap(tmp_path / "values", np.float32, "w+", shape=(3,))
    t = mt.from_numpy(mapped)
    t.fill_(2)
    assert mapped.tolist() == [2, 2, 2] and type(t.numpy()) is np.ndarray
    mapped.flush()
    assert np.fromfile(tmp_path / "values", np.float32).tolist() == [2, 2, 2]
    assert mt.from_numpy(np.matrix([[1.0, 2]])).shape == (1, 2)
    masked = mt.from_numpy(np.ma.masked_array([1.0, 2], [True, False]))
    assert type(masked.numpy()) is np.ndarray


class _Cunning(np.ndarray):
    shared = np.zeros(2, np.float32)

    def copy(self, *args, **kwargs):
        return self.shared

    astype = copy


def test_a_copy_is_one_whatever_the_class_of_the_array_says():
    t = mt.tensor(np.ones(2, np.float32).view(_Cunning))
    _Cunning.shared.shape = (1, 2)
    assert t.shape == (2,) and t.tolist() == [1, 1]


@pytest.mark.parametrize("dtype", ["object", "i4,f4", "S4", "M8[s]"])
def test_arrays_of_other_dtypes_are_refused(dtype):
    with pytest.raises(TypeError, match="can't convert np.ndarray"):
        mt.from_numpy(np.zeros(2, dtype))


_WITH_BAD_ARRAY = [
    lambda t: t.dtype,
    lambda t: t + 1,
    lambda t: t.sum(),
    repr,
    lambda t: t.requires_grad_(),
    lambda t: t.clone(),
    copy.deepcopy,
    lambda t: t.float(),
    lambda t: t.add_(1),
    lambda t: t[0],
    lambda t: t.item(),
    lambda t: t.zero_(),
    lambda t: t.copy_(mt.ones(2, 3)),
    lambda t: mt.ones(2, 3).copy_(t),
    lambda t: mt.cat([t, t]),
    lambda t: nn.Parameter(t),
    lambda t: mt.result_type(t, t),
    lambda t: mt.ones(2, 3, requires_grad=True) * t,
    lambda t: mt.ones(2, 3, requires_grad=True).sum().backward(t),
    lambda t: pickle.dumps(nn.Parameter(t, requires_grad=False), 5),
    lambda t: setattr(t, "data", mt.ones(2, 3)),
    lambda t: setattr(mt.ones(2, 3), "grad", t),
    lambda t: nn.Linear(3, 2).load_state_dict({"weight": t, "bias": mt.ones(2)}),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "dtype", [np.dtype([("x", "f4")]), np.dtype(">f4"), np.dtype("V2")], ids=str
)
@pytest.mark.parametrize("use", _WITH_BAD_ARRAY)
def test_native_code_bears_any_dtype_of_the_private_array(use, dtype):
    t = mt.ones(2, 3)
    t._array.dtype = dtype
    try:
        use(t)
    except (TypeError, RuntimeError, ValueError, AttributeError):
        pass  # an error, but none that ends the process
    t.data = mt.ones(2, 3)
    assert t.dtype is mt.float32


def test_functions_of_numpy_wrap_views_of_what_user_code_returns():
    kept = np.ones((1, 3), np.float32)
    t = np.apply_over_axes(lambda a, axis: kept, mt.ones(1, 3), [0])
    kept.shape = (3,)
    assert type(t) is mt.Tensor and t.shape == (1, 3)


def test_owner_of_leads_through_arrays_that_went_out():
    t = mt.ones(4)
    again = mt.from_numpy(t.numpy()[1:])
    assert _C.owner_of(again._array) is _C.owner_of(t._array)
    assert again.storage_offset() == 1


def test_an_array_that_is_written_back_keeps_memory_of_its_own():
    t = mt.ones(4)
    flags = [["readwrite", "copy", "updateifcopy"]]
    with np.nditer([t.numpy()], [], flags, [np.float64], casting="unsafe") as it:
        made = mt.from_numpy(it.operands[0])
        assert it.operands[0].flags.owndata and it.operands[0].base is not None
    gone = [mt.ones(4) * 7 for _ in range(100)]
    assert made.tolist() == [1, 1, 1, 1] and len(gone) == 100
