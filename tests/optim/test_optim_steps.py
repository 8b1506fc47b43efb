# SPDX-License-Identifier: BSD-3-Clause
"""The steps of the optimizers and their state, compared with torch's in float64."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import random

import numpy as np
import pytest

import modtree as mt

torch = pytest.importorskip("torch")

SHAPES = [(), (3,), (2, 3), (0, 2), (4, 1, 2)]
STEPS = 20


def choose(rng, **options):
    return {name: rng.choice(values) for name, values in options.items()}


def config(name, rng):
    """Random arguments of an optimizer, valid in both libraries."""
    decay = [0, 0.05]
    common = choose(rng, lr=[1e-3, 0.1, 0.5], weight_decay=decay, maximize=[False, True])
    betas = [(0.9, 0.999), (0.5, 0.75), (0.0, 0.3)]
    if name == "SGD":
        common |= choose(rng, momentum=[0, 0.5, 0.9], dampening=[0, 0.3])
        if common["momentum"] and not common["dampening"]:
            common["nesterov"] = rng.choice([False, True])
    elif name in ("Adam", "AdamW"):
        common |= choose(rng, betas=betas, eps=[1e-8, 1e-2], amsgrad=[False, True])
    elif name == "RMSprop":
        common |= choose(
            rng, alpha=[0.99, 0.5], eps=[1e-8, 0.1], momentum=[0, 0.8], centered=[False, True]
        )
    elif name == "Adagrad":
        common |= choose(
            rng, lr_decay=[0, 0.1], initial_accumulator_value=[0, 0.5], eps=[1e-10, 0.1]
        )
    elif name == "Adadelta":
        common |= choose(rng, rho=[0.9, 0.3], eps=[1e-6, 0.1])
    elif name == "NAdam":
        common |= choose(
            rng, betas=betas, momentum_decay=[4e-3, 0.1], decoupled_weight_decay=[False, True]
        )
    elif name == "RAdam":
        common |= choose(rng, betas=betas[:2], decoupled_weight_decay=[False, True])
    elif name == "Adamax":
        common |= choose(rng, betas=betas, eps=[1e-8, 1e-2])
    elif name == "Rprop":
        common |= choose(rng, etas=[(0.5, 1.2), (0.25, 3.0)], step_sizes=[(1e-6, 50), (0.01, 0.3)])
    elif name == "ASGD":
        common |= choose(rng, lambd=[1e-4, 0.1], alpha=[0.75, 0.5, -1.0], t0=[1e6, 1, 4.0])
    elif name == "Adafactor":
        common |= choose(
            rng, beta2_decay=[-0.8, -0.3], eps=[(None, 1e-3), (1e-3, 0.1)], d=[1.0, 2.0]
        )
    return taken(name, common)


def taken(name, options):
    """Those of the options that the optimizer has."""
    parameters = inspect.signature(getattr(torch.optim, name)).parameters
    return {k: v for k, v in options.items() if k in parameters}


NAMES = "SGD Adam AdamW RMSprop Adagrad Adadelta NAdam RAdam Adamax Rprop ASGD Adafactor".split()
COMPLEX = [name for name in NAMES if name != "Adafactor"]


def make(lib, name, arrays, options, **of_second_group):
    """An optimizer over two groups: all but the first parameter are in the second."""
    if name == "Adafactor":  # torch's fails with an empty parameter
        arrays = [a for a in arrays if a.size]
    params = [lib.nn.Parameter(lib.tensor(a)) for a in arrays]
    groups = [{"params": params[:1]}, {"params": params[1:], **of_second_group}]
    return params, getattr(lib.optim, name)(groups, **options)


def arrays_of(rng, dtype=np.float64):
    out = []
    for shape in SHAPES:
        a = rng.standard_normal(shape)
        if np.dtype(dtype).kind == "c":
            a = a + 1j * rng.standard_normal(shape)
        out.append(np.asarray(a, dtype))
    return out


def set_grads(lib, params, grads):
    for p, g in zip(params, grads, strict=True):
        p.grad = None if g is None else lib.tensor(g)


def plain(value):
    """A state without its library: tensors as arrays with the name of their dtype."""
    if isinstance(value, mt.Tensor | torch.Tensor):
        array = value.detach().numpy()
        return {"dtype": str(array.dtype), "array": np.array(array)}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def assert_close(ours, theirs, where=""):
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), where
        for key in theirs:
            assert_close(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for i, pair in enumerate(zip(ours, theirs, strict=True)):
            assert_close(*pair, f"{where}/{i}")
    elif isinstance(theirs, np.ndarray):
        assert ours.shape == theirs.shape, where
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12, err_msg=where)
    else:
        assert ours == theirs, where


def assert_same(ours, theirs):
    (params, optimizer), (torch_params, torch_optimizer) = ours, theirs
    assert_close(plain(params), plain(torch_params), "params")
    assert_close(plain(optimizer.state_dict()), plain(torch_optimizer.state_dict()), "state_dict")


def run(pairs, rng, steps, dtype=np.float64):
    """The same random gradients for all; now and then a parameter has none."""
    shapes = {tuple(p.shape) for p in pairs[0][1][0]}
    for _ in range(steps):
        grads = [g for g in arrays_of(rng, dtype) if g.shape in shapes]
        grads = [None if rng.random() < 0.1 else g for g in grads]
        for lib, (params, optimizer) in pairs:
            set_grads(lib, params, grads)
            optimizer.step()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", NAMES)
def test_steps(name, seed):
    options = config(name, random.Random(f"{name} {seed}"))
    print(name, options)
    rng = np.random.default_rng(seed)
    arrays = arrays_of(rng)
    ours = make(mt, name, arrays, options, lr=0.02)
    theirs = make(torch, name, arrays, options, lr=0.02)
    assert_same(ours, theirs)
    for _ in range(4):
        run([(mt, ours), (torch, theirs)], rng, STEPS // 4)
        assert_same(ours, theirs)


@pytest.mark.parametrize("name", COMPLEX)
def test_steps_of_complex_parameters(name):
    rng = np.random.default_rng(5)
    options = config(name, random.Random(name))
    if name == "RMSprop":
        options |= {"centered": True, "eps": 0.1}
    arrays = arrays_of(rng, np.complex128)
    ours, theirs = (make(lib, name, arrays, options) for lib in (mt, torch))
    run([(mt, ours), (torch, theirs)], rng, STEPS, np.complex128)
    assert_same(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_steps_in_float32_stay_float32(name):
    rng = np.random.default_rng(6)
    arrays = arrays_of(rng, np.float32)
    (params, optimizer), (torch_params, torch_optimizer) = (
        make(lib, name, arrays, taken(name, {"lr": 0.01, "weight_decay": 0.1}))
        for lib in (mt, torch)
    )
    run(
        [(mt, (params, optimizer)), (torch, (torch_params, torch_optimizer))],
        rng,
        STEPS,
        np.float32,
    )
    for p, q in zip(params, torch_params, strict=True):
        assert p.dtype == mt.float32
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=2e-4, atol=2e-5)
    for state in optimizer.state.values():
        assert all(v.dtype == mt.float32 for v in state.values())


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_non_contiguous_parameters_and_gradients(name):
    rng = np.random.default_rng(7)
    a, g = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    results = []
    for lib in (mt, torch):
        p = lib.nn.Parameter(lib.tensor(a).t())
        optimizer = getattr(lib.optim, name)([p], **taken(name, {"lr": 0.1, "weight_decay": 0.2}))
        for _ in range(3):
            p.grad = lib.tensor(g).t()
            optimizer.step()
        results.append(plain([p, optimizer.state_dict()]))
    assert_close(*results)
    assert not np.array_equal(results[0][0]["array"], a.T)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_kernels_and_ufuncs_agree(name, monkeypatch):
    """What the kernels do for contiguous arrays, in ufuncs."""
    results = []
    module = importlib.import_module(f"modtree.optim.{name.lower()}")
    for fits in (module.fits_kernel, lambda *arrays: False):
        monkeypatch.setattr(module, "fits_kernel", fits)
        for seed in range(6):
            rng = np.random.default_rng(seed)
            options = config(name, random.Random(f"{name} both {seed}"))
            pair = make(mt, name, arrays_of(rng), options)
            run([(mt, pair)], rng, STEPS)
            results.append(plain([*pair[0], pair[1].state_dict()]))
    for ufuncs, kernels in zip(results[6:], results[:6], strict=True):
        assert_close(ufuncs, kernels)


@pytest.mark.parametrize("name", NAMES)
def test_state_of_torch_goes_on_in_modtree(name):
    rng = np.random.default_rng(8)
    options = config(name, random.Random(name + " resume"))
    theirs = make(torch, name, arrays_of(rng), options)
    run([(torch, theirs)], rng, 7)
    values = [p.detach().numpy() for p in theirs[0]]
    reload(theirs)
    for convert in (lambda state: state, as_modtree):
        ours = make(mt, name, values, {"lr": 123.0})
        copied = copy.deepcopy(theirs[1].state_dict())
        ours[1].load_state_dict(convert(copied))
        assert_same(ours, theirs)
    run([(mt, ours), (torch, theirs)], rng, 7)
    assert_same(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_state_of_modtree_goes_on_in_torch(name):
    rng = np.random.default_rng(9)
    options = config(name, random.Random(name + " resume"))
    ours = make(mt, name, arrays_of(rng), options)
    run([(mt, ours)], rng, 7)
    theirs = make(torch, name, [np.array(p.detach().numpy()) for p in ours[0]], {"lr": 123.0})
    theirs[1].load_state_dict(as_torch(ours[1].state_dict()))
    reload(ours)
    assert_same(ours, theirs)
    run([(mt, ours), (torch, theirs)], rng, 7)
    assert_same(ours, theirs)


def reload(pair):
    """Loading casts NAdam's product to the dtype of the parameter: do that on both sides."""
    pair[1].load_state_dict(pair[1].state_dict())


def _converted(value, kind, make):
    if isinstance(value, kind):
        return make(value)
    if isinstance(value, dict):
        return {k: _converted(v, kind, make) for k, v in value.items()}
    if isinstance(value, list):
        return [_converted(v, kind, make) for v in value]
    return value


def as_modtree(state):
    return _converted(state, torch.Tensor, lambda t: mt.from_numpy(np.array(t.numpy())))


def as_torch(state):
    return _converted(state, mt.Tensor, lambda t: torch.tensor(np.array(t.numpy())))


@pytest.mark.parametrize("name", NAMES)
def test_copies_go_on_alone(name):
    """deepcopy and pickle of parameters and optimizer together."""
    rng = np.random.default_rng(10)
    first = make(mt, name, arrays_of(rng), {"lr": 0.1})
    run([(mt, first)], rng, 3)
    copies = [copy.deepcopy(first), pickle.loads(pickle.dumps(first))]
    before = plain(list(first[0]))
    run([(mt, pair) for pair in copies], rng, 3)
    assert_close(plain(list(first[0])), before)
    assert_close(plain(list(copies[0][0])), plain(list(copies[1][0])))
    assert not np.array_equal(copies[0][0][1].detach().numpy(), before[1]["array"])


# torch asks for values of these two.
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("ASGD", "Adafactor")])
def test_meta_parameters(name):
    results = []
    for lib in (mt, torch):
        p = lib.nn.Parameter(lib.zeros(2, 3, device="meta"))
        p.grad = lib.zeros(2, 3, device="meta")
        optimizer = getattr(lib.optim, name)([p])
        optimizer.step()
        state = optimizer.state_dict()["state"]
        results.append({k: {n: tuple(v.shape) for n, v in s.items()} for k, s in state.items()})
    assert results[0] == results[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_one_change_in_place(name):
    p = mt.nn.Parameter(mt.ones(2, 2))
    p.grad = mt.ones(2, 2)
    array, version = p._array, p._version
    optimizer = getattr(mt.optim, name)([p])
    optimizer.step()
    assert p._array is array
    assert p._version > version
    assert p.requires_grad and p.is_leaf
    assert np.array_equal(p.grad.numpy(), np.ones((2, 2)))


def test_values_without_bound_go_on_silently():
    p = mt.nn.Parameter(mt.tensor([1.0, 2.0, 3.0]))
    p.grad = mt.tensor([float("inf"), float("nan"), 1e30])
    mt.optim.Adam([p]).step()
    q = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    q.grad = torch.tensor([float("inf"), float("nan"), 1e30])
    torch.optim.Adam([q]).step()
    np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())


def test_scratch_grows_and_is_shared():
    # No kernel takes float16.
    params = [mt.nn.Parameter(mt.ones(n, dtype=mt.float16)) for n in (2, 500, 3)]
    optimizer = mt.optim.SGD(params, lr=1.0)
    for p in params:
        p.grad = mt.ones_like(p)
    for _ in range(2):
        optimizer.step()
    assert all((p.detach().numpy() == -1).all() for p in params)
    pool = optimizer._scratch_pools[1, np.dtype(np.float16)]
    assert all(np.shares_memory(view, pool) for view in optimizer._scratch_views.values())


def test_default_dtype_float64_counts_in_float64():
    p = mt.nn.Parameter(mt.ones(2))
    p.grad = mt.ones(2)
    optimizer = mt.optim.Adam([p])
    mt.set_default_dtype(mt.float64)
    try:
        optimizer.step()
    finally:
        mt.set_default_dtype(mt.float32)
    assert optimizer.state[p]["step"].dtype == mt.float64


def test_tensor_options():
    results = []
    for lib in (mt, torch):
        p = lib.nn.Parameter(lib.tensor([1.0, -2.0], dtype=lib.float64))
        lr = lib.tensor(0.25, dtype=lib.float64)
        betas = (lib.tensor(0.5, dtype=lib.float64), lib.tensor(0.75, dtype=lib.float64))
        adam = lib.optim.Adam([p], lr=lr, betas=betas, weight_decay=0.1)
        sgd = lib.optim.SGD([p], lr=lr)
        for _ in range(3):
            p.grad = lib.tensor([0.3, -0.1], dtype=lib.float64)
            adam.step()
            sgd.step()
            lr.mul_(0.5)
        results.append(plain([p, adam.param_groups[0]["betas"]]))
    assert_close(*results)


def test_state_of_arrays():
    """A checkpoint that was kept as NumPy arrays."""
    p, q = mt.nn.Parameter(mt.ones(2)), mt.nn.Parameter(mt.ones(2))
    p.grad = mt.tensor([1.0, -2.0])
    first, second = mt.optim.Adam([p]), mt.optim.Adam([q])
    first.step()
    q.data.copy_(p.data)
    state = first.state_dict()
    arrays = _converted(state, mt.Tensor, lambda t: np.array(t.numpy()))
    second.load_state_dict(arrays)
    for _ in range(2):
        q.grad = p.grad
        first.step()
        second.step()
    assert_same((([p], first)), ([q], second))
    assert arrays["state"][0]["step"] == 1


def test_old_checkpoints_get_what_they_lack():
    state = {
        "state": {0: {"step": 3, "exp_avg": mt.zeros(2), "exp_avg_sq": mt.ones(2)}},
        "param_groups": [
            {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0, "params": [0]}
        ],
    }
    p = mt.nn.Parameter(mt.zeros(2))
    optimizer = mt.optim.Adam([p], maximize=True)
    optimizer.load_state_dict(state)
    group = optimizer.param_groups[0]
    assert group["amsgrad"] is False and group["maximize"] is False and group["fused"] is None
    p.grad = mt.ones(2)
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 4
    optimizer = mt.optim.AdamW([p])
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True
