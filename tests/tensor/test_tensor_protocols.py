# SPDX-License-Identifier: BSD-3-Clause
"""NumPy's protocols, meta tensors, random numbers, and the native family."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

import modtree as mt
from modtree import _C
from modtree.families import family_of


def test_ufuncs_and_functions_give_tensors():
    t, u = mt.ones(2, 3), mt.zeros(2, 3)
    for result, shape in (
        (np.exp(t), (2, 3)),
        (np.add(t, np.ones(3, np.float32)), (2, 3)),
        (np.ones(3, np.float32) + t, (2, 3)),
        (np.float32(2) * t, (2, 3)),
        (np.concatenate([t, u]), (4, 3)),
        (np.stack([t, u]), (2, 2, 3)),
        (np.sum(t, axis=0), (3,)),
        (np.mean(t), ()),
        (np.transpose(t), (3, 2)),
        (np.where(t > 0, t, u), (2, 3)),
        (np.add.reduce(t), (3,)),
        (np.take(t, 0, axis=0), (3,)),
    ):
        assert type(result) is mt.Tensor and result.shape == shape and result.dtype is mt.float32
    assert np.shape(t) == (2, 3) and np.allclose(t, t) is True
    assert np.concatenate([t, mt.arange(6).view(2, 3)]).dtype is mt.float32


def test_asarray_shares_memory_unless_gradients_would_be_lost():
    t = mt.ones(2)
    array = np.asarray(t)
    array[0] = 5
    assert t.tolist() == [5, 1]
    assert np.array(t) is not t.numpy() and np.asarray(t, np.float64).dtype == np.float64
    t.requires_grad_()
    for use in (np.asarray, np.array, lambda x: x.numpy()):
        with pytest.raises(RuntimeError, match=r"detach\(\)\.numpy\(\)"):
            use(t)
    with pytest.raises(RuntimeError, match="would lose its gradient"):
        np.convolve(t, t)
    with mt.no_grad():
        assert np.convolve(t, t).tolist() == [25, 10, 1]
    with pytest.raises(TypeError):
        np.asarray(mt.ones(2, device="meta"))


def test_out_must_be_a_tensor():
    t = mt.ones(2)
    for call in (lambda out: np.exp(t, out=out), lambda out: np.sum(t, out=out)):
        with pytest.raises(TypeError, match="out= must be a modtree.Tensor"):
            call(np.zeros(2, np.float32))
    out = mt.zeros(2)
    assert np.exp(t, out=out) is out and out.tolist() == pytest.approx([2.71828, 2.71828])
    total = np.zeros(2, np.float32)
    with pytest.raises(TypeError):
        total += t


def test_dlpack():
    t = mt.arange(3)
    assert np.from_dlpack(t).tolist() == [0, 1, 2]
    assert t.__dlpack_device__() == (1, 0)


def test_floating_errors_are_silent_here_and_stay_loud_elsewhere():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        t = mt.tensor([0.0, -1.0, 1e30])
        t.log(), t / 0, t * 1e30, t.exp(), t.rsqrt(), t.std(), t.to(mt.int32), t.half(), t.sigmoid()
        t.mul_(1e30)
        mt.zeros(2).copy_(mt.tensor([1e300, 1.0], dtype=mt.float64))
        np.log(t)
    with pytest.warns(RuntimeWarning):
        np.log(np.zeros(1))
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        np.log(np.zeros(1))
    with np.errstate(all="raise"):
        mt.zeros(1).log()


def test_operations_keep_context_variables():
    import contextvars

    variable = contextvars.ContextVar("variable")
    variable.set(1)
    seen = []

    def forward(x):
        seen.append(variable.get(None))
        return x

    op = _C.Op("probe", forward)
    op(mt.ones(1))
    mt.ones(1) + 1
    assert seen == [1] and variable.get() == 1


def test_operations_in_threads():
    def work():
        t = mt.ones(200, 200)
        for _ in range(30):
            t = (t @ t / 200 + 1).log().exp()
        results.append(t.sum().item())

    results: list[float] = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and len(set(results)) == 1


def test_meta_tensors_have_shapes_and_no_storage():
    m = mt.empty(10**6, 10**6, device="meta")
    assert m.is_meta and m.device.type == "meta" and m.numel() == 10**12
    n = mt.ones(10**6, device="meta", dtype=mt.int64)
    for result, shape, dtype in (
        (m + n, (10**6, 10**6), mt.float32),
        (n / 2, (10**6,), mt.float32),
        (n * 2, (10**6,), mt.int64),
        (m == m, (10**6, 10**6), mt.bool),
        (m.exp(), (10**6, 10**6), mt.float32),
        (m.T, (10**6, 10**6), mt.float32),
        (m.reshape(10**12), (10**12,), mt.float32),
        (m[0], (10**6,), mt.float32),
        (m[:, None, :5], (10**6, 1, 5), mt.float32),
        (m @ m, (10**6, 10**6), mt.float32),
        (m.sum(0), (10**6,), mt.float32),
        (n.sum(), (), mt.int64),
        (m.mean(dim=1, keepdim=True), (10**6, 1), mt.float32),
        (m.softmax(-1), (10**6, 10**6), mt.float32),
        (mt.cat([m, m]), (2 * 10**6, 10**6), mt.float32),
        (mt.stack([n, n], 1), (10**6, 2), mt.int64),
        (m.double(), (10**6, 10**6), mt.float64),
        (mt.zeros_like(m), (10**6, 10**6), mt.float32),
        (m + mt.tensor(1.0), (10**6, 10**6), mt.float32),
    ):
        assert result.is_meta and tuple(result.shape) == shape and result.dtype is dtype
    assert m.add_(1) is m and m.zero_() is m and m.copy_(m) is m
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        n + mt.ones(3)
    with pytest.raises(NotImplementedError, match="meta"):
        n.nonzero()
    with pytest.raises(RuntimeError):
        n.add_(mt.ones(2, 10**6, device="meta", dtype=mt.int64))
    for ask in (lambda: n[0].item(), lambda: n.tolist(), lambda: bool(n[0])):
        with pytest.raises((RuntimeError, NotImplementedError)):
            ask()


def test_random_numbers_follow_the_seed():
    def draw():
        return [
            mt.rand(3).tolist(),
            mt.randn(2, 2).tolist(),
            mt.randint(10, (4,)).tolist(),
            mt.randperm(6).tolist(),
            mt.zeros(3).uniform_(-1, 1).tolist(),
            mt.zeros(3).normal_(1, 2).tolist(),
            mt.bernoulli(mt.full((4,), 0.5)).tolist(),
        ]

    mt.manual_seed(3)
    first = draw()
    mt.manual_seed(3)
    assert draw() == first
    assert draw() != first
    state = mt.get_rng_state()
    following = draw()
    mt.set_rng_state(state)
    assert draw() == following
    own = mt.Generator().manual_seed(3)
    assert mt.rand(3, generator=own).tolist() == first[0]


def test_meta_consumes_no_random_numbers():
    mt.manual_seed(0)
    expected = mt.rand(3).tolist()
    mt.manual_seed(0)
    meta = mt.rand(3, device="meta")
    (
        meta.uniform_(),
        meta.normal_(),
        mt.randn_like(meta),
        mt.randperm(4, device="meta"),
        mt.bernoulli(meta),
    )
    assert mt.rand(3).tolist() == expected


def test_distributions():
    mt.manual_seed(1)
    u = mt.rand(20000)
    assert 0 <= u.min().item() and u.max().item() < 1 and abs(u.mean().item() - 0.5) < 0.02
    n = mt.randn(20000, dtype=mt.float64)
    assert abs(n.mean().item()) < 0.05 and abs(n.std().item() - 1) < 0.05
    e = mt.zeros(20000).exponential_(2)
    assert abs(e.mean().item() - 0.5) < 0.05
    with pytest.raises(NotImplementedError):
        mt.zeros(2, dtype=mt.int64).uniform_()
    with pytest.raises(RuntimeError):
        mt.zeros(2).uniform_(2, 1)
    with pytest.raises(RuntimeError):
        mt.zeros(2).normal_(0, -1)


def test_from_numpy_shares_and_checks():
    array = np.arange(3.0)
    t = mt.from_numpy(array)
    t.add_(1)
    assert array.tolist() == [1, 2, 3] and t.dtype is mt.float64
    for bad in (
        np.array(["a"]),
        np.array([None]),
        np.zeros(2, "M8[s]"),
        np.zeros(2, np.longdouble),
    ):
        with pytest.raises(TypeError, match="can't convert np.ndarray of type"):
            mt.from_numpy(bad)
    with pytest.raises(ValueError, match="byte order"):
        mt.from_numpy(np.zeros(2, ">f4"))
    with pytest.raises(ValueError, match="negative"):
        mt.from_numpy(np.arange(3)[::-1])
    with pytest.raises(TypeError):
        mt.from_numpy([1])
    assert mt.from_numpy(np.zeros(2, np.longlong)).dtype is mt.int64
    locked = np.zeros(2)
    locked.flags.writeable = False
    frozen = mt.from_numpy(locked)
    for change in (
        lambda: frozen.add_(1),
        lambda: frozen.zero_(),
        lambda: frozen.copy_(mt.ones(2)),
    ):
        with pytest.raises((RuntimeError, ValueError)):
            change()


def test_copies_from_other_libraries(torch):
    t = mt.zeros(2, 2)
    t.copy_(torch.ones(2, 2, dtype=torch.float64, requires_grad=True))
    assert t.tolist() == [[1, 1], [1, 1]]
    t.copy_(torch.full((2,), 3, dtype=torch.bfloat16))
    assert t.tolist() == [[3, 3], [3, 3]]
    assert mt.tensor(torch.ones(2)).tolist() == [1, 1]
    with pytest.raises(NotImplementedError, match="no data"):
        t.copy_(torch.ones(2, 2, device="meta"))
    for bad in ([1, 2], "x", None, object()):
        with pytest.raises(TypeError):
            t.copy_(bad)
    with pytest.raises(RuntimeError):
        t.copy_(mt.ones(3))


def test_family_faces_agree():
    p = mt.nn.Parameter(mt.ones(2))
    family = family_of(p)
    assert family.name == "numpy" and family_of(mt.ones(1)) is family
    assert family.type_name(p) == "modtree.FloatTensor" and family.dtype_name(p) == "float32"
    assert type(family.detach(p)) is mt.Tensor
    assert family.to(p, None, mt.float64, False, None).dtype is mt.float64
    assert family.empty_like(p, "meta").is_meta
    assert not family.can_set_data(p, mt.ones(2, device="meta"))
    a, b = mt.ones(2), mt.zeros(3)
    a.note = 1
    family.swap_tensors(a, b)
    assert a.tolist() == [0, 0, 0] and b.tolist() == [1, 1] and b.note == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_share_memory_is_seen_by_a_child():
    import os

    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    t = mt.zeros(3)
    assert not t.is_shared()
    assert t.share_memory_() is t and t.is_shared() and t.tolist() == [0, 0, 0]
    pid = os.fork()
    if pid == 0:
        t.add_(1)
        os._exit(0)
    os.waitpid(pid, 0)
    assert t.tolist() == [1, 1, 1]


def test_share_memory_leaves_views_behind():
    t = mt.zeros(3)
    view = t.detach()
    t.share_memory_()
    t.add_(1)
    assert t.is_shared() and not view.is_shared() and view.tolist() == [0, 0, 0]
