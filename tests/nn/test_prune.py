# SPDX-License-Identifier: BSD-3-Clause
"""nn.utils.prune: names, masks, gradients and errors are torch's."""

from __future__ import annotations

import copy
import importlib
import math
import pickle

import numpy as np
import pytest
from helpers.small_modules import array, linear, values


def module_of(impl):
    return importlib.import_module(f"{impl.nn.__name__}.utils.prune")


def zeros(tensor):
    return int((array(tensor) == 0).sum())


def pruned(impl, layer, name="weight"):
    """Is the parameter pruned, with all that belongs to it?"""
    assert name + "_orig" in layer._parameters and name not in layer._parameters
    assert name + "_mask" in layer._buffers
    mask, original = getattr(layer, name + "_mask"), getattr(layer, name + "_orig")
    np.testing.assert_array_equal(array(getattr(layer, name)), array(mask) * array(original))
    assert mask.dtype == original.dtype and set(array(mask).ravel()) <= {0.0, 1.0}
    assert not mask.requires_grad
    return True


def test_names_hook_and_gradients(impl):
    prune = module_of(impl)
    layer = linear(impl, 4, 3)
    weight, before = layer.weight, array(layer.weight).copy()
    assert not prune.is_pruned(layer)
    assert prune.l1_unstructured(layer, "weight", amount=5) is layer
    assert pruned(impl, layer) and prune.is_pruned(layer)
    assert prune.is_pruned(impl.nn.Sequential(impl.nn.Sequential(layer)))
    assert layer.weight_orig is weight
    assert list(layer.state_dict()) == ["bias", "weight_orig", "scale", "weight_mask"]
    smallest = np.argsort(np.abs(before).ravel())[:5]
    mask = np.ones(12)
    mask[smallest] = 0
    np.testing.assert_array_equal(array(layer.weight_mask), mask.reshape(3, 4))
    (hook,) = layer._forward_pre_hooks.values()
    assert isinstance(hook, prune.L1Unstructured) and hook._tensor_name == "weight"
    with impl.lib.no_grad():
        layer.weight_orig.mul_(2)
    x = values(impl, 2, 4, seed=3)
    layer(x).sum().backward()
    np.testing.assert_array_equal(array(layer.weight), mask.reshape(3, 4) * before * 2)
    np.testing.assert_allclose(array(layer.weight_orig.grad), mask.reshape(3, 4) * array(x).sum(0))


def test_remove_makes_it_permanent(impl):
    prune = module_of(impl)
    layer = linear(impl, 4, 3)
    weight = layer.weight
    prune.ln_structured(layer, "weight", amount=2, n=2, dim=1)
    value = array(layer.weight).copy()
    assert prune.remove(layer, "weight") is layer
    assert layer.weight is weight and [n for n, _ in layer.named_parameters()] == ["bias", "weight"]
    assert list(layer._buffers) == ["scale"] and not layer._forward_pre_hooks
    np.testing.assert_array_equal(array(weight), value)
    assert weight.requires_grad and weight.is_leaf and not prune.is_pruned(layer)
    with pytest.raises(ValueError, match="has to be pruned before pruning can be removed"):
        prune.remove(layer, "weight")


@pytest.mark.parametrize(
    ("amount", "count"), [(0, 0), (5, 5), (12, 12), (0.0, 0), (0.5, 6), (0.3, 4), (1.0, 12)]
)
@pytest.mark.parametrize("kind", ["l1_unstructured", "random_unstructured"])
def test_amounts(impl, kind, amount, count):
    layer = linear(impl, 4, 3)
    getattr(module_of(impl), kind)(layer, "weight", amount=amount)
    assert pruned(impl, layer) and zeros(layer.weight_mask) == count


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize(("amount", "parts"), [(0, 0), (1, 1), (0.5, 0.5), (1.0, 1.0)])
def test_structured(impl, dim, amount, parts):
    prune = module_of(impl)
    shape = (4, 6)
    count = parts if isinstance(parts, int) else int(parts * shape[dim])
    for order in (1, 2, math.inf, "fro"):
        layer = linear(impl, 6, 4)
        before = array(layer.weight).copy()
        prune.ln_structured(layer, "weight", amount=amount, n=order, dim=dim)
        assert pruned(impl, layer)
        norms = np.linalg.norm(before, 2 if order == "fro" else order, axis=1 - dim % 2)
        kept = np.ones(shape[dim])
        kept[np.argsort(norms)[:count]] = 0
        mask = np.expand_dims(kept, 1 - dim % 2) * np.ones(shape)
        np.testing.assert_array_equal(array(layer.weight_mask), mask)
    layer = linear(impl, 6, 4)
    prune.random_structured(layer, "weight", amount=amount, dim=dim)
    assert pruned(impl, layer)
    channels = np.moveaxis(array(layer.weight_mask), dim, 0).sum(1)
    assert sorted(set(channels)) in ([0.0, 24 / shape[dim]], [24 / shape[dim]], [0.0])
    assert int((channels == 0).sum()) == count


def test_scores_decide_in_place_of_the_values(impl):
    prune = module_of(impl)
    scores = np.arange(12.0)[::-1].reshape(3, 4).copy()
    layer = linear(impl, 4, 3)
    prune.l1_unstructured(layer, "weight", 3, importance_scores=impl.lib.tensor(scores))
    np.testing.assert_array_equal(array(layer.weight_mask), scores > 2)
    layer = linear(impl, 4, 3)
    prune.ln_structured(layer, "weight", 1, 2, 0, importance_scores=impl.lib.tensor(scores))
    np.testing.assert_array_equal(array(layer.weight_mask)[:, 0], [1, 1, 0])
    with pytest.raises(AssertionError, match="importance_scores should have the same shape"):
        prune.l1_unstructured(layer, "bias", 1, importance_scores=impl.lib.ones(2))


def test_identity_and_custom_masks(impl):
    prune = module_of(impl)
    layer = linear(impl)
    assert prune.identity(layer, "weight") is layer
    assert pruned(impl, layer) and zeros(layer.weight_mask) == 0
    mask = impl.lib.tensor([[1, 0, 1], [0, 0, 1]])
    assert prune.custom_from_mask(layer, "weight", mask) is layer
    assert pruned(impl, layer)
    np.testing.assert_array_equal(array(layer.weight_mask), array(mask))
    prune.custom_from_mask(layer, "bias", mask=impl.lib.tensor([True, False]))
    assert array(layer.bias_mask).tolist() == [1.0, 0.0]
    with pytest.raises(AssertionError, match="must match self.mask shape"):
        prune.custom_from_mask(linear(impl), "weight", impl.lib.ones(2))


def test_repeated_pruning(impl):
    """The second method sees what the first has left."""
    prune = module_of(impl)
    layer = linear(impl, 4, 3)
    before = array(layer.weight).copy()
    prune.l1_unstructured(layer, "weight", amount=3)
    prune.l1_unstructured(layer, "weight", amount=4)
    assert pruned(impl, layer)
    kept = np.argsort(np.abs(before).ravel())[7:]
    assert sorted(np.flatnonzero(array(layer.weight_mask))) == sorted(kept)
    (container,) = layer._forward_pre_hooks.values()
    assert isinstance(container, prune.PruningContainer) and len(container) == 2
    assert [type(m) for m in container] == [prune.L1Unstructured] * 2
    prune.l1_unstructured(layer, "weight", amount=0.5)
    assert zeros(layer.weight_mask) == 7 + round(5 * 0.5)
    prune.random_unstructured(layer, "weight", amount=1)
    (container,) = layer._forward_pre_hooks.values()
    assert len(container) == 4 and isinstance(container[3], prune.RandomUnstructured)
    assert zeros(layer.weight_mask) == 10
    prune.remove(layer, "weight")
    assert not layer._forward_pre_hooks and zeros(layer.weight) == 10


def test_structured_after_structured(impl):
    prune = module_of(impl)
    layer = linear(impl, 4, 3)
    with impl.lib.no_grad():
        layer.weight.copy_(impl.lib.tensor(np.outer([1.0, 3.0, 2.0], [4.0, 2.0, 3.0, 1.0])))
    prune.ln_structured(layer, "weight", amount=1, n=2, dim=0)
    assert array(layer.weight_mask).sum(1).tolist() == [0, 4, 4]
    prune.ln_structured(layer, "weight", amount=2, n=1, dim=1)
    np.testing.assert_array_equal(
        array(layer.weight_mask), np.outer([0, 1, 1], [1, 0, 1, 0]).astype(float)
    )
    prune.ln_structured(layer, "weight", amount=0.5, n=1, dim=-2)
    assert array(layer.weight_mask).sum(1).tolist() == [0, 2, 0]


def test_several_parameters_of_a_module(impl):
    prune = module_of(impl)
    layer = linear(impl)
    prune.l1_unstructured(layer, "weight", 2)
    prune.l1_unstructured(layer, "bias", 1)
    assert pruned(impl, layer) and pruned(impl, layer, "bias")
    prune.remove(layer, "weight")
    assert prune.is_pruned(layer) and pruned(impl, layer, "bias")
    layer(values(impl, 1, 3))


def test_global(impl):
    prune = module_of(impl)
    model = impl.nn.Sequential(linear(impl, 4, 3), linear(impl, 3, 5))
    with impl.lib.no_grad():
        model[1].weight.mul_(1.1)  # no value twice
    before = [array(layer.weight).copy() for layer in model]
    pairs = [(layer, "weight") for layer in model]
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=10)
    limit = np.sort(np.abs(np.concatenate([w.ravel() for w in before])))[10]
    for layer, weight in zip(model, before, strict=True):
        assert pruned(impl, layer)
        np.testing.assert_array_equal(array(layer.weight_mask), np.abs(weight) >= limit)
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=0.5)
    assert sum(zeros(layer.weight_mask) for layer in model) == 10 + 17 // 2
    prune.global_unstructured(pairs, prune.RandomUnstructured, amount=1.0)
    assert sum(zeros(layer.weight_mask) for layer in model) == 27


def test_global_with_scores(impl):
    prune = module_of(impl)
    model = impl.nn.Sequential(linear(impl), linear(impl))
    scores = {(model[0], "weight"): impl.lib.full((2, 3), 100.0, dtype=impl.lib.float64)}
    prune.global_unstructured(
        [(model[0], "weight"), (model[1], "weight")],
        prune.L1Unstructured,
        importance_scores=scores,
        amount=6,
    )
    assert [zeros(layer.weight_mask) for layer in model] == [0, 6]


def test_errors_of_global(impl):
    prune = module_of(impl)
    layer = linear(impl)
    with pytest.raises(TypeError, match="parameters is not an Iterable"):
        prune.global_unstructured(3, prune.L1Unstructured, amount=1)
    with pytest.raises(TypeError, match="must be of type dict"):
        prune.global_unstructured(
            [(layer, "weight")], prune.L1Unstructured, importance_scores=[1], amount=1
        )
    with pytest.raises(TypeError, match='Only "unstructured" PRUNING_TYPE supported'):
        prune.global_unstructured([(layer, "weight")], prune.LnStructured, amount=1, n=1)


@pytest.mark.parametrize(
    ("amount", "error", "message"),
    [
        ("3", TypeError, "Invalid type for amount"),
        (None, TypeError, "Invalid type for amount"),
        (-1, ValueError, "amount=-1 should either be"),
        (1.5, ValueError, "amount=1.5 should either be"),
        (-0.1, ValueError, "amount=-0.1 should either be"),
        (7, ValueError, "amount=7 should be smaller than"),
    ],
)
def test_amounts_that_are_refused(impl, amount, error, message):
    prune = module_of(impl)
    for kind in ("l1_unstructured", "random_unstructured"):
        layer = linear(impl)
        weight = layer.weight
        with pytest.raises(error, match=message):
            getattr(prune, kind)(layer, "weight", amount=amount)
        assert layer.weight is weight and weight is layer._parameters["weight"]
        assert not layer._forward_pre_hooks and list(layer._buffers) == ["scale"]


def test_errors_of_structured_pruning(impl):
    prune = module_of(impl)
    layer = linear(impl)
    with pytest.raises(ValueError, match="can only be applied to multidimensional tensors"):
        prune.ln_structured(layer, "bias", amount=1, n=1, dim=0)
    with pytest.raises(ValueError, match="can only be applied to multidimensional tensors"):
        prune.random_structured(layer, "bias", amount=1, dim=0)
    for kind, options in (("ln_structured", {"n": 1}), ("random_structured", {})):
        with pytest.raises(IndexError, match="Invalid index 2 for tensor of size"):
            getattr(prune, kind)(layer, "weight", amount=1, dim=2, **options)
        with pytest.raises(ValueError, match="amount=4 should be smaller than"):
            getattr(prune, kind)(layer, "weight", amount=4, dim=1, **options)


def test_prune_of_a_tensor_alone(impl):
    prune = module_of(impl)
    t = impl.lib.tensor([[1.0, -5.0, 3.0], [0.5, 2.0, -4.0]])
    method = prune.L1Unstructured(amount=2)
    assert array(method.prune(t)).tolist() == [[0, -5, 3], [0, 2, -4]]
    mask = impl.lib.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    assert array(method.prune(t, default_mask=mask)).tolist() == [[0, 0, 3], [0, 2, -4]]
    scores = impl.lib.tensor([[6.0, 5.0, 4.0], [3.0, 2.0, 1.0]])
    assert array(method.prune(t, importance_scores=scores)).tolist() == [[1, -5, 3], [0.5, 0, 0]]
    with pytest.raises(AssertionError, match="same shape as tensor t"):
        method.prune(t, importance_scores=scores[:1])


def own_method(impl, kind, **attributes):
    """A class of a user."""

    class Own(module_of(impl).BasePruningMethod):
        PRUNING_TYPE = kind

        def compute_mask(self, t, default_mask):
            self.seen = tuple(t.shape)
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    for name, value in attributes.items():
        setattr(Own, name, value)
    return Own


def test_methods_of_users(impl):
    layer = linear(impl, 4, 3)
    own = own_method(impl, "unstructured")
    method = own.apply(layer, "weight")
    assert pruned(impl, layer) and isinstance(method, own) and method.seen == (3, 4)
    assert array(layer.weight_mask).tolist() == [[0, 1, 0, 1]] * 3
    container = own.apply(layer, "weight")
    assert container[1].seen == (6,) and zeros(layer.weight_mask) == 9
    container = own_method(impl, "global").apply(layer, "weight")
    assert container[2].seen == (3, 4)
    with pytest.raises(AttributeError, match="need to have the attribute `dim`"):
        own_method(impl, "structured").apply(layer, "weight")
    with pytest.raises(ValueError, match="Unrecognized PRUNING_TYPE other"):
        own_method(impl, "other").apply(linear_pruned(impl), "weight")
    with pytest.raises(IndexError, match="Index is out of bounds"):
        own_method(impl, "structured", dim=-3).apply(linear_pruned(impl), "weight")
    with pytest.raises(TypeError, match="abstract"):
        module_of(impl).BasePruningMethod()


def linear_pruned(impl):
    return module_of(impl).l1_unstructured(linear(impl), "weight", 1)


def test_containers(impl):
    prune = module_of(impl)
    first, second = prune.L1Unstructured(1), prune.RandomUnstructured(1)
    first._tensor_name = second._tensor_name = "weight"
    container = prune.PruningContainer(first)
    container.add_pruning_method(second)
    assert list(container) == [first, second] and container[-1] is second
    with pytest.raises(TypeError, match="is not a BasePruningMethod subclass"):
        container.add_pruning_method("method")
    other = prune.Identity()
    other._tensor_name = "bias"
    with pytest.raises(ValueError, match="acting on the parameter named 'weight'"):
        container.add_pruning_method(other)


def test_state_dicts(impl):
    prune = module_of(impl)
    layer, other = linear_pruned(impl), linear(impl)
    prune.identity(other, "weight")
    with impl.lib.no_grad():
        layer.weight_orig.mul_(3)
    other.load_state_dict(layer.state_dict())
    x = values(impl, 2, 3)
    np.testing.assert_array_equal(array(other(x)), array(layer(x)))
    layer.float()
    assert layer(x.float()).dtype == impl.lib.float32


def test_pruned_modules_cannot_be_copied(impl):
    layer = linear_pruned(impl)
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(layer)
    module_of(impl).remove(layer, "weight")
    np.testing.assert_array_equal(array(copy.deepcopy(layer).weight), array(layer.weight))


def test_hooks_are_pickled(impl):
    prune = module_of(impl)
    method = prune.PruningContainer(*linear_pruned(impl)._forward_pre_hooks.values())
    again = pickle.loads(pickle.dumps(method))
    assert type(again) is prune.PruningContainer and again._tensor_name == "weight"
    assert prune.BasePruningMethod.__module__ == prune.__name__


def test_pruned_layers_are_pickled(lib):
    prune = importlib.import_module(f"{lib.__name__}.nn.utils.prune")
    layer = lib.nn.Linear(5, 7)
    for name in ("weight", "bias"):
        prune.random_unstructured(layer, name, amount=0.3)
        prune.l1_unstructured(layer, name, amount=0.3)
        again = pickle.loads(pickle.dumps(layer))
        assert prune.is_pruned(again) and list(again.state_dict()) == list(layer.state_dict())
        x = lib.ones(2, 5)
        np.testing.assert_array_equal(array(again(x)), array(layer(x)))
    again(x).sum().backward()
    np.testing.assert_array_equal(array(again.bias_orig.grad), 2 * array(layer.bias_mask))


def test_checks_that_methods_of_users_call(impl):
    prune = module_of(impl)
    assert prune._compute_nparams_toprune(0.4, 17) == 7
    assert prune._compute_nparams_toprune(1, 17) == 1
    t = values(impl, 2, 3)
    np.testing.assert_allclose(
        array(prune._compute_norm(t, 2, -1)), np.linalg.norm(array(t), axis=0)
    )
    for check, arguments, error in (
        ("_validate_pruning_amount_init", (1.1,), ValueError),
        ("_validate_pruning_amount", (20, 19), ValueError),
        ("_validate_structured_pruning", (t[0],), ValueError),
        ("_validate_pruning_dim", (t, 2), IndexError),
    ):
        with pytest.raises(error):
            getattr(prune, check)(*arguments)
    prune._validate_pruning_amount(0.3, 0)


# -- what torch does differently -------------------------------------------------------------------


def test_further_pruning_that_fails_changes_nothing(ours):
    prune = module_of(ours)
    layer = linear_pruned(ours)
    prune.l1_unstructured(layer, "weight", 1)
    hooks, mask = dict(layer._forward_pre_hooks), array(layer.weight_mask).copy()
    with pytest.raises(ValueError, match="amount=5 should be smaller"):
        prune.l1_unstructured(layer, "weight", 5)
    assert layer._forward_pre_hooks == hooks and len(*hooks.values()) == 2
    np.testing.assert_array_equal(array(layer.weight_mask), mask)


def test_containers_of_several(ours):
    prune = module_of(ours)
    methods = [prune.Identity(), prune.L1Unstructured(2)]
    for method in methods:
        method._tensor_name = "weight"
    container = prune.PruningContainer(*methods)
    t = values(ours, 2, 3)
    assert zeros(container.compute_mask(t, ours.lib.ones_like(t))) == 2


def test_global_takes_pairs_once(ours):
    prune = module_of(ours)
    model = ours.nn.Sequential(linear(ours), linear(ours))
    pairs = ((layer, "weight") for layer in model)
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=5)
    assert sum(zeros(layer.weight_mask) for layer in model) == 5
