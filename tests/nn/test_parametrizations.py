# SPDX-License-Identifier: BSD-3-Clause
"""nn.utils.parametrizations: orthogonal, weight_norm, spectral_norm."""

from __future__ import annotations

import copy
import importlib
import itertools

import numpy as np
import pytest
from helpers.implementations import implementation, needs_torch
from helpers.small_modules import array, linear, values


def module_of(impl):
    return importlib.import_module(f"{impl.nn.__name__}.utils.parametrizations")


def holder(impl, *shape, dtype="float64", seed=0):
    """A module with one parameter."""
    module = impl.nn.Module()
    module.weight = impl.nn.Parameter(values(impl, *shape, dtype=dtype, seed=seed))
    return module


def wants_orthonormal(q, tolerance=1e-10):
    """Columns, or rows of a wide one."""
    q = q.swapaxes(-1, -2) if q.shape[-2] < q.shape[-1] else q
    unit = np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1]))
    np.testing.assert_allclose(np.conj(q).swapaxes(-1, -2) @ q, unit, atol=tolerance)


SHAPES = [(4, 4), (5, 3), (3, 5), (2, 4, 4), (2, 5, 3), (1, 1)]
MAPS = ["matrix_exp", "cayley", "householder"]
FORMS = [
    form
    for form in itertools.product(SHAPES, MAPS, [True, False], ["float64", "complex128"])
    if form[1] != "householder" or form[3] == "float64"
]


@pytest.mark.parametrize(("shape", "kind", "trivial", "dtype"), FORMS)
def test_orthogonal(impl, shape, kind, trivial, dtype):
    module = holder(impl, *shape, dtype=dtype)
    module_of(impl).orthogonal(module, "weight", kind, use_trivialization=trivial)
    wants_orthonormal(array(module.weight))
    expected = ["parametrizations.weight.original"]
    assert list(module.state_dict()) == expected + ["parametrizations.weight.0.base"] * trivial
    loss = (module.weight * values(impl, *shape, seed=5, dtype=dtype)).sum()
    (loss.real if dtype == "complex128" else loss).backward()
    grad = array(module.parametrizations.weight.original.grad)
    assert np.isfinite(grad).all() and (grad.any() or shape == (1, 1))
    with impl.lib.no_grad():
        change = values(impl, *shape, seed=7, dtype=dtype)
        # The diagonal of what describes reflections holds the signs of the columns.
        change.diagonal(dim1=-2, dim2=-1).zero_()
        module.parametrizations.weight.original.add_(change)
    wants_orthonormal(array(module.weight))


@needs_torch
@pytest.mark.parametrize(("shape", "kind", "trivial", "dtype"), FORMS)
def test_orthogonal_matrices_and_gradients_are_those_of_torch(shape, kind, trivial, dtype):
    """From the same unrestricted matrix and base."""
    found = []
    names = ["modtree", "modtree-torch", "torch"]
    state = None
    for impl in reversed([implementation(name) for name in names]):
        module = holder(impl, *shape, dtype=dtype)
        module_of(impl).orthogonal(module, "weight", kind, use_trivialization=trivial)
        if state is None:
            original = values(impl, *shape, seed=9, dtype=dtype)
            # The diagonal says the signs.
            if kind == "householder":
                original.diagonal(dim1=-2, dim2=-1).sign_()
            state = {k: v.numpy().copy() for k, v in module.state_dict().items()}
            state["parametrizations.weight.original"] = array(original)
        module.load_state_dict({k: impl.lib.tensor(v) for k, v in state.items()})
        loss = (module.weight * values(impl, *shape, seed=5, dtype=dtype)).sum()
        (loss.real if dtype == "complex128" else loss).backward()
        original = module.parametrizations.weight.original
        found.append((array(module.weight), array(original.grad)))
    for pair in found[1:]:
        for ours, theirs in zip(pair, found[0], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_assigned_orthogonal_matrices_are_kept(impl, shape):
    tall = (*shape[:-2], max(shape[-2:]), max(shape[-2:]))
    q = np.linalg.qr(np.random.default_rng(3).standard_normal(tall))[0]
    q = np.ascontiguousarray(q[..., : shape[-2], : shape[-1]])
    for kind, trivial in [*itertools.product(MAPS, [True]), ("householder", False)]:
        module = holder(impl, *shape)
        module_of(impl).orthogonal(module, "weight", kind, use_trivialization=trivial)
        module.weight = impl.lib.tensor(q)
        np.testing.assert_allclose(array(module.weight), q, atol=1e-10)


def test_assigned_matrices_that_are_not_orthogonal_become_so(impl):
    for kind in MAPS:
        module = holder(impl, 4, 3)
        module_of(impl).orthogonal(module, "weight", kind)
        module.weight = values(impl, 4, 3, seed=8)
        wants_orthonormal(array(module.weight))
    module = holder(impl, 4, 3)
    with pytest.raises(ValueError, match="Expected a matrix or batch of matrices of shape"):
        module_of(impl).orthogonal(module).weight = values(impl, 3, 3)
    module = holder(impl, 4, 4)
    module_of(impl).orthogonal(module, "weight", "cayley", use_trivialization=False)
    with pytest.raises(NotImplementedError, match="It is not possible to assign"):
        module.weight = values(impl, 4, 4)


def test_default_maps_of_orthogonal(impl):
    for shape, dtype, kind in (
        ((3, 3), "float64", "matrix_exp"),
        ((4, 3), "float64", "householder"),
        ((4, 3), "complex128", "matrix_exp"),
    ):
        module = module_of(impl).orthogonal(holder(impl, *shape, dtype=dtype))
        assert module.parametrizations.weight[0].orthogonal_map.name == kind


def test_errors_of_orthogonal(impl):
    orthogonal = module_of(impl).orthogonal
    with pytest.raises(ValueError, match="has no parameter or buffer with name"):
        orthogonal(holder(impl, 3, 3), "missing")
    with pytest.raises(ValueError, match="Got a tensor of 1 dimensions"):
        orthogonal(holder(impl, 3))
    with pytest.raises(ValueError, match="orthogonal_map has to be one of"):
        orthogonal(holder(impl, 3, 3), orthogonal_map="givens")
    with pytest.raises(ValueError, match="does not support complex"):
        orthogonal(holder(impl, 3, 3, dtype="complex128"), orthogonal_map="householder")


def test_orthogonal_copies_and_loads(impl):
    module = module_of(impl).orthogonal(holder(impl, 4, 3))
    other = module_of(impl).orthogonal(holder(impl, 4, 3, seed=4))
    other.load_state_dict(module.state_dict())
    for each in (other, copy.deepcopy(module)):
        np.testing.assert_array_equal(array(each.weight), array(module.weight))


# -- weight_norm -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, 2, None, -1, -2])
def test_weight_norm(impl, dim):
    module = holder(impl, 2, 3, 4)
    before = array(module.weight).copy()
    assert module_of(impl).weight_norm(module, dim=dim) is module
    np.testing.assert_allclose(array(module.weight), before)
    assert list(module.state_dict()) == [
        "parametrizations.weight.original0",
        "parametrizations.weight.original1",
    ]
    shape = tuple(module.parametrizations.weight.original0.shape)
    if dim in (None, -1):
        assert shape == ()
        lengths = np.linalg.norm(before)
    else:
        others = tuple(d for d in range(3) if d != dim % 3)
        lengths = np.sqrt((before**2).sum(axis=others, keepdims=True))
    assert shape == lengths.shape
    np.testing.assert_allclose(array(module.parametrizations.weight.original0), lengths)
    factor = array(values(impl, 2, 3, 4, seed=2))
    (module.weight * values(impl, 2, 3, 4, seed=2)).sum().backward()
    # The value grows with the length alone.
    along = factor * before / lengths
    if shape:
        along = along.sum(axis=others, keepdims=True)
    else:
        along = along.sum()
    np.testing.assert_allclose(
        array(module.parametrizations.weight.original0.grad), along, atol=1e-12
    )
    across = array(module.parametrizations.weight.original1.grad) * before
    np.testing.assert_allclose(
        across.sum(axis=others, keepdims=True) if shape else across.sum(), 0, atol=1e-12
    )


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weight_norm_loads_state_dicts_of_the_older_one(impl):
    old, new = linear(impl), linear(impl)
    with impl.lib.no_grad():
        old.weight.mul_(3)
    impl.nn.utils.weight_norm(old)
    state = old.state_dict()
    assert "weight_g" in state and "weight_v" in state
    new = impl.nn.Sequential(module_of(impl).weight_norm(new))
    prefixed = {f"0.{key}": value for key, value in state.items()}
    new.load_state_dict(prefixed)
    assert "0.weight_g" in prefixed
    old(values(impl, 1, 3))
    np.testing.assert_allclose(array(new[0].weight), array(old.weight))
    new.load_state_dict(new.state_dict())


def test_weight_norm_can_be_copied_and_removed(impl):
    layer = linear(impl)
    before = array(layer.weight).copy()
    module_of(impl).weight_norm(layer)
    other = copy.deepcopy(layer)
    np.testing.assert_allclose(array(other.weight), before)
    parametrize = importlib.import_module(f"{impl.nn.__name__}.utils.parametrize")
    parametrize.remove_parametrizations(layer, "weight")
    assert sorted(layer.state_dict()) == ["bias", "scale", "weight"]
    np.testing.assert_allclose(array(layer.weight), before)


def test_removed_weight_norm_leaves_no_hook(ours):
    parametrize = importlib.import_module("modtree.nn.utils.parametrize")
    layer = linear(ours)
    for name in ("weight", "bias"):
        module_of(ours).weight_norm(layer, name)
    other = copy.deepcopy(layer)
    parametrize.remove_parametrizations(layer, "weight")
    assert [h.hook.name for h in layer._load_state_dict_pre_hooks.values()] == ["bias"]
    parametrize.remove_parametrizations(layer, "bias")
    assert not layer._load_state_dict_pre_hooks
    assert len(other._load_state_dict_pre_hooks) == 2


# -- spectral_norm ---------------------------------------------------------------------------------


def as_matrix(weight, dim):
    return np.moveaxis(weight, dim, 0).reshape(weight.shape[dim], -1)


@pytest.mark.parametrize("dim", [None, 0, 1, -1])
@pytest.mark.parametrize("shape", [(4, 3), (3, 4, 2)])
def test_spectral_norm(impl, shape, dim):
    module = holder(impl, *shape)
    before = array(module.weight).copy()
    assert module_of(impl).spectral_norm(module, n_power_iterations=40, dim=dim) is module
    assert list(module.state_dict()) == [
        "parametrizations.weight.original",
        "parametrizations.weight.0._u",
        "parametrizations.weight.0._v",
    ]
    largest = np.linalg.norm(as_matrix(before, dim or 0), 2)
    module.weight  # noqa: B018
    np.testing.assert_allclose(array(module.weight), before / largest, rtol=1e-6)
    factor = values(impl, *shape, seed=2)
    (module.weight * factor).sum().backward()
    u, _, v = np.linalg.svd(as_matrix(before, dim or 0), full_matrices=False)
    inner = (array(factor) * before).sum() / largest**2
    grad = as_matrix(array(factor), dim or 0) / largest - inner * np.outer(u[:, 0], v[0])
    original = module.parametrizations.weight.original
    np.testing.assert_allclose(as_matrix(array(original.grad), dim or 0), grad, atol=1e-5)


def test_reads_of_spectral_norm_improve_while_training(impl):
    layer = linear(impl, 6, 5)
    module_of(impl).spectral_norm(layer)
    own = layer.parametrizations.weight[0]
    with impl.lib.no_grad():
        for vector in (own._u, own._v):
            vector.copy_(vector + 0.5)
    buffers = own._u, own._v
    layer.eval()
    first = array(layer.weight)
    np.testing.assert_array_equal(array(layer.weight), first)
    layer.train()
    assert not np.array_equal(array(layer.weight), first)
    assert buffers == (own._u, own._v) or (own._u is buffers[0] and own._v is buffers[1])
    before = array(own._u).copy()
    x = values(impl, 2, 6)
    layer(x).sum().backward()
    (layer(x).sum() + layer(x).sum()).backward()
    assert not np.array_equal(array(own._u), before)
    assert not own._u.requires_grad


@needs_torch
def test_spectral_norm_is_that_of_torch():
    found, state = [], None
    for name in ("torch", "modtree", "modtree-torch"):
        impl = implementation(name)
        layer = module_of(impl).spectral_norm(linear(impl, 6, 5), n_power_iterations=2)
        if state is None:
            state = {k: v.numpy().copy() for k, v in layer.state_dict().items()}
        layer.load_state_dict({k: impl.lib.tensor(v) for k, v in state.items()})
        x = values(impl, 4, 6, seed=3)
        for _ in range(3):
            layer(x).pow(2).sum().backward()
        found.append([array(layer.parametrizations.weight.original.grad)])
        found[-1] += [array(v) for v in layer.state_dict().values()]
        found[-1].append(array(layer.eval()(x)))
    for ours in found[1:]:
        for a, b in zip(ours, found[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_spectral_norm_of_a_vector_is_its_direction(impl):
    module = holder(impl, 4)
    before = array(module.weight).copy()
    module_of(impl).spectral_norm(module)
    np.testing.assert_allclose(array(module.weight), before / np.linalg.norm(before))
    assert list(module.state_dict()) == ["parametrizations.weight.original"]


def test_spectral_norm_of_transposed_convolutions_is_along_dimension_1(lib):
    utils = importlib.import_module(f"{lib.__name__}.nn.utils.parametrizations")
    for layer, dim in ((lib.nn.Conv2d(2, 3, 2), 0), (lib.nn.ConvTranspose2d(2, 3, 2), 1)):
        utils.spectral_norm(layer)
        assert layer.parametrizations.weight[0].dim == dim
        assert tuple(layer.parametrizations.weight[0]._u.shape) == (3,)


def test_spectral_norm_can_be_assigned_copied_and_loaded(impl):
    layer = module_of(impl).spectral_norm(linear(impl))
    other = copy.deepcopy(layer)
    layer.weight = values(impl, 2, 3, seed=6)
    np.testing.assert_array_equal(
        array(layer.parametrizations.weight.original), array(values(impl, 2, 3, seed=6))
    )
    other.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(array(other.eval().weight), array(layer.eval().weight))


def test_errors_of_spectral_norm(impl):
    spectral_norm = module_of(impl).spectral_norm
    with pytest.raises(ValueError, match="has no parameter or buffer with name"):
        spectral_norm(linear(impl), "missing")
    with pytest.raises(ValueError, match="n_power_iterations to be positive"):
        spectral_norm(linear(impl), n_power_iterations=0)
    with pytest.raises(IndexError, match=r"range of \[-2, 1\] but got 2"):
        spectral_norm(linear(impl), dim=2)
