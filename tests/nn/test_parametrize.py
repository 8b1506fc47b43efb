# SPDX-License-Identifier: BSD-3-Clause
"""nn.utils.parametrize: names, values, gradients, copies and errors are torch's."""

from __future__ import annotations

import copy
import importlib
import pickle
import threading

import numpy as np
import pytest
from helpers.small_modules import array, linear, values


def module_of(impl):
    return importlib.import_module(f"{impl.nn.__name__}.utils.parametrize")


def symmetric(impl):
    class Symmetric(impl.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).mT

    return Symmetric()


def exponential(impl):
    """Has a right_inverse."""

    class Exponential(impl.nn.Module):
        def forward(self, x):
            return x.exp()

        def right_inverse(self, y):
            return y.log()

    return Exponential()


def product(impl):
    """Of two tensors."""

    class Product(impl.nn.Module):
        def forward(self, a, b):
            return a * b

        def right_inverse(self, y):
            return y.abs().sqrt(), y.sign() * y.abs().sqrt()

    return Product()


def function(impl, forward, right_inverse=None):
    class Function(impl.nn.Module):
        pass

    Function.forward = staticmethod(forward)
    if right_inverse is not None:
        Function.right_inverse = staticmethod(right_inverse)
    return Function()


def names(module):
    return [n for n, _ in module.named_parameters()], [n for n, _ in module.named_buffers()]


# -- registration ----------------------------------------------------------------------------------


def test_names_class_and_value(impl):
    parametrize = module_of(impl)
    layer = linear(impl, 3, 3)
    cls, weight, before = type(layer), layer.weight, array(layer.weight).copy()
    assert not parametrize.is_parametrized(layer)
    assert parametrize.register_parametrization(layer, "weight", symmetric(impl)) is layer
    assert type(layer) is not cls and isinstance(layer, cls)
    assert type(layer).__name__ == "ParametrizedLinear" and type(layer).__bases__ == (cls,)
    assert parametrize.is_parametrized(layer) and parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert parametrize.type_before_parametrizations(layer) is cls
    assert layer.parametrizations.weight.original is weight
    np.testing.assert_array_equal(array(weight), before)
    np.testing.assert_array_equal(array(layer.weight), np.triu(before) + np.triu(before, 1).T)
    assert names(layer) == (["bias", "parametrizations.weight.original"], ["scale"])
    assert list(layer.state_dict()) == ["bias", "scale", "parametrizations.weight.original"]
    assert isinstance(layer.parametrizations, impl.nn.ModuleDict)
    assert isinstance(layer.parametrizations.weight, parametrize.ParametrizationList)
    assert "ParametrizedLinear" in repr(layer) and "ParametrizationList" in repr(layer)
    with pytest.raises(AttributeError):
        layer.get_parameter("weight")


def test_every_read_computes(impl):
    parametrize = module_of(impl)
    layer, calls = linear(impl), []
    parametrize.register_parametrization(
        layer, "weight", function(impl, lambda x: (calls.append(1), x * 2)[1])
    )
    calls.clear()
    layer.state_dict()
    repr(layer)
    dir(layer)
    assert calls == []
    assert layer.weight is not layer.weight
    assert hasattr(layer, "weight")
    assert len(calls) == 3
    assert layer.weight.requires_grad and not layer.weight.is_leaf
    assert not isinstance(layer.weight, impl.nn.Parameter)


def test_gradients_go_to_the_original(impl):
    layer = linear(impl)
    module_of(impl).register_parametrization(layer, "weight", exponential(impl))
    x = values(impl, 4, 3, seed=3)
    (layer(x) ** 2).sum().backward()
    weight = np.random.default_rng(0).standard_normal((2, 3))
    with np.errstate(invalid="ignore"):
        original = np.log(weight)
    np.testing.assert_allclose(array(layer.parametrizations.weight.original), original)
    out = array(layer(x))
    expected = (2 * out).T @ array(x) * np.exp(original)
    np.testing.assert_allclose(array(layer.parametrizations.weight.original.grad), expected)


def test_a_buffer_can_be_parametrized(impl):
    parametrize = module_of(impl)
    layer = linear(impl)
    buffer = layer.scale
    parametrize.register_parametrization(layer, "scale", function(impl, lambda x: x * 3))
    assert layer.parametrizations.scale.original is buffer
    assert names(layer) == (["weight", "bias"], ["parametrizations.scale.original"])
    assert array(layer.scale).tolist() == [3.0, 3.0]
    assert not layer.scale.requires_grad
    parametrize.remove_parametrizations(layer, "scale", leave_parametrized=False)
    assert layer.scale is buffer and names(layer)[1] == ["scale"]


def test_right_inverse_gives_the_original(impl):
    layer = linear(impl)
    with impl.lib.no_grad():
        layer.weight.abs_()
    weight, before = layer.weight, array(layer.weight).copy()
    module_of(impl).register_parametrization(layer, "weight", exponential(impl))
    assert layer.parametrizations.weight.original is weight
    np.testing.assert_allclose(array(weight), np.log(before))
    np.testing.assert_allclose(array(layer.weight), before)
    layer.weight = impl.lib.full((2, 3), 2.0, dtype=impl.lib.float64)
    assert layer.parametrizations.weight.original is weight and weight.requires_grad
    np.testing.assert_allclose(array(weight), np.full((2, 3), np.log(2)))


def test_right_inverse_that_is_not_implemented_leaves_the_original(impl):
    def refuse(value):
        raise NotImplementedError

    layer = linear(impl)
    before = array(layer.weight).copy()
    parametrization = function(impl, lambda x: x * 2, refuse)
    module_of(impl).register_parametrization(layer, "weight", parametrization)
    np.testing.assert_array_equal(array(layer.parametrizations.weight.original), before)
    with pytest.raises(NotImplementedError):
        layer.weight = values(impl, 2, 3)


def test_several_originals(impl):
    parametrize = module_of(impl)
    layer = linear(impl)
    before = array(layer.weight).copy()
    parametrize.register_parametrization(layer, "weight", product(impl))
    parametrizations = layer.parametrizations.weight
    assert parametrizations.ntensors == 2 and not parametrizations.is_tensor
    assert names(layer)[0] == [
        "bias",
        "parametrizations.weight.original0",
        "parametrizations.weight.original1",
    ]
    assert isinstance(parametrizations.original0, impl.nn.Parameter)
    np.testing.assert_allclose(array(layer.weight), before)
    first = parametrizations.original0
    layer.weight = impl.lib.full((2, 3), -4.0, dtype=impl.lib.float64)
    assert parametrizations.original0 is first
    assert array(parametrizations.original1)[0, 0] == -2.0
    with pytest.raises(ValueError, match="Cannot leave unparametrized"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(layer, "weight")
    assert isinstance(layer.weight, impl.nn.Parameter) and layer.weight.is_leaf
    assert names(layer)[0] == ["bias", "weight"]
    assert (array(layer.weight) == -4).all()


def test_originals_need_gradients_where_the_tensor_did(impl):
    layer = linear(impl)
    layer.weight.requires_grad_(False)
    module_of(impl).register_parametrization(layer, "weight", product(impl))
    flags = {n: p.requires_grad for n, p in layer.named_parameters()}
    assert flags["parametrizations.weight.original0"] is False
    assert not layer.weight.requires_grad


def test_parametrizations_are_applied_in_order(impl):
    parametrize = module_of(impl)
    layer = linear(impl)
    before = array(layer.weight).copy()
    for forward, back in (
        (lambda x: x + 1, lambda y: y - 1),
        (lambda x: x * 2, lambda y: y / 2),
        (lambda x: x - 3, lambda y: y + 3),
    ):
        parametrize.register_parametrization(layer, "weight", function(impl, forward, back))
    assert len(layer.parametrizations.weight) == 3
    original = array(layer.parametrizations.weight.original)
    np.testing.assert_allclose(original, before - 1)
    np.testing.assert_allclose(array(layer.weight), before * 2 - 3)
    layer.weight = impl.lib.ones(2, 3, dtype=impl.lib.float64)
    np.testing.assert_allclose(array(layer.parametrizations.weight.original), np.ones((2, 3)))


def test_training_mode_is_that_of_the_module(impl):
    layer, parametrization = linear(impl).eval(), symmetric(impl)
    layer.weight = impl.nn.Parameter(values(impl, 2, 2))
    module_of(impl).register_parametrization(layer, "weight", parametrization)
    assert parametrization.training is False
    layer.train()
    assert parametrization.training is True


def test_conversion_and_loading(impl):
    parametrize = module_of(impl)
    layer, other = linear(impl), linear(impl)
    for each in (layer, other):
        parametrize.register_parametrization(each, "weight", product(impl))
    with impl.lib.no_grad():
        for p in layer.parameters():
            p.mul_(2)
    other.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(array(other.weight), array(layer.weight))
    layer.float()
    assert layer.weight.dtype == impl.lib.float32


def test_an_original_can_be_parametrized(impl):
    parametrize = module_of(impl)
    layer = linear(impl)
    before = array(layer.weight).copy()
    parametrize.register_parametrization(layer, "weight", function(impl, lambda x: x * 2))
    inner = layer.parametrizations.weight
    parametrize.register_parametrization(inner, "original", function(impl, lambda x: x + 1))
    np.testing.assert_allclose(array(layer.weight), (before + 1) * 2)
    assert names(layer)[0] == [
        "bias",
        "parametrizations.weight.parametrizations.original.original",
    ]
    parametrize.remove_parametrizations(inner, "original", leave_parametrized=False)
    assert type(inner) is parametrize.ParametrizationList
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    np.testing.assert_array_equal(array(layer.weight), before)


# -- what is refused -------------------------------------------------------------------------------


def test_names_without_a_tensor(impl):
    layer = linear(impl)
    for name in ("missing", "training", "forward"):
        with pytest.raises(ValueError, match="does not have a parameter, a buffer, or a param"):
            module_of(impl).register_parametrization(layer, name, symmetric(impl))
    with pytest.raises(ValueError, match="does not have a parametrization on"):
        module_of(impl).remove_parametrizations(layer, "weight")


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda x: x[:1], "may not change the shape"),
        (lambda x: x.float(), "may not change the dtype"),
        (lambda x: 3, "A parametrization must return a tensor. Got int"),
    ],
)
@pytest.mark.parametrize("second", [False, True])
def test_what_does_not_fit(impl, forward, message, second):
    parametrize = module_of(impl)
    layer = linear(impl)
    cls, weight, state = type(layer), layer.weight, list(layer.state_dict())
    if second:
        parametrize.register_parametrization(layer, "weight", function(impl, lambda x: x * 2))
        state = list(layer.state_dict())
    with pytest.raises(ValueError, match=message):
        parametrize.register_parametrization(layer, "weight", function(impl, forward))
    assert list(layer.state_dict()) == state
    if second:
        assert len(layer.parametrizations.weight) == 1
    else:
        assert type(layer) is cls and layer.weight is weight


def test_unsafe_may_change_dtype_and_shape(impl):
    parametrize = module_of(impl)
    layer = linear(impl)
    parametrize.register_parametrization(
        layer, "weight", function(impl, lambda x: x[:1].float()), unsafe=True
    )
    assert tuple(layer.weight.shape) == (1, 3) and layer.weight.dtype == impl.lib.float32
    assert layer.parametrizations.weight.unsafe is True
    layer = linear(impl)
    parametrize.register_parametrization(layer, "weight", function(impl, lambda x: x * 2))
    assert layer.parametrizations.weight.unsafe is False
    parametrize.register_parametrization(
        layer, "weight", function(impl, lambda x: x[:1]), unsafe=True
    )
    assert layer.parametrizations.weight.unsafe is True


@pytest.mark.parametrize(
    ("back", "error", "message"),
    [
        (lambda y: 3, ValueError, "must return a Tensor or a Sequence of tensors"),
        (lambda y: (y, 3), ValueError, "Got element 1 of the sequence with type int"),
        (lambda y: y.float(), ValueError, "it may not change the dtype"),
    ],
)
def test_right_inverse_that_does_not_fit(impl, back, error, message):
    layer = linear(impl)
    weight = layer.weight
    with pytest.raises(error, match=message):
        module_of(impl).register_parametrization(
            layer, "weight", function(impl, lambda *x: x[0], back)
        )
    assert layer.weight is weight


def test_right_inverse_of_a_further_parametrization_must_fit(impl):
    parametrize = module_of(impl)
    layer = linear(impl)
    parametrize.register_parametrization(layer, "weight", exponential(impl))
    for back, message in (
        (lambda y: 3, "parametrization.right_inverse must return a tensor. Got: int"),
        (lambda y: y[:1], "the same shape"),
        (lambda y: y.float(), "the same dtype"),
    ):
        with pytest.raises(ValueError, match=message):
            parametrize.register_parametrization(
                layer, "weight", function(impl, lambda x: x * 2, back)
            )
    assert len(layer.parametrizations.weight) == 1


def test_assignments_that_are_refused(impl):
    parametrize = module_of(impl)
    layer = linear(impl)
    parametrize.register_parametrization(layer, "weight", symmetric_of_any_shape(impl))
    with pytest.raises(RuntimeError, match="does not implement right_inverse"):
        layer.weight = values(impl, 2, 3)
    with pytest.raises(KeyError):
        layer.weight = impl.nn.Parameter(values(impl, 2, 3))
    with pytest.raises(AttributeError):
        del layer.weight
    layer = linear(impl)
    parametrize.register_parametrization(layer, "weight", product(impl))
    inverses = {
        "must return a sequence of tensors. Got Tensor": lambda y: y,
        "of length 2. Got a sequence of length 1": lambda y: (y,),
        "Tensor 1 returned by `right_inverse` has dtype": lambda y: (y, y.float()),
        "Got element 1 of type int": lambda y: (y, 3),
    }
    for message, back in inverses.items():
        type(layer.parametrizations.weight[0]).right_inverse = staticmethod(back)
        with pytest.raises(ValueError, match=message):
            layer.weight = values(impl, 2, 3)


def symmetric_of_any_shape(impl):
    return function(impl, lambda x: x + 1)


def test_an_empty_list_of_parametrizations(impl):
    with pytest.raises(ValueError, match="requires one or more modules"):
        module_of(impl).ParametrizationList([], values(impl, 2))


# -- removal ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", [True, False])
def test_removal(impl, leave):
    parametrize = module_of(impl)
    layer = linear(impl)
    cls, weight, before = type(layer), layer.weight, array(layer.weight).copy()
    parametrize.register_parametrization(layer, "weight", function(impl, lambda x: x * 2))
    parametrize.register_parametrization(layer, "bias", function(impl, lambda x: x * 2))
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=leave)
    assert layer.weight is weight and weight.requires_grad
    np.testing.assert_array_equal(array(weight), before * 2 if leave else before)
    assert not parametrize.is_parametrized(layer, "weight")
    assert parametrize.is_parametrized(layer, "bias") and type(layer) is not cls
    assert names(layer)[0] == ["weight", "parametrizations.bias.original"]
    parametrize.remove_parametrizations(layer, "bias")
    assert type(layer) is cls and not hasattr(layer, "parametrizations")
    assert names(layer)[0] == ["weight", "bias"]
    layer.weight = impl.nn.Parameter(values(impl, 2, 3))
    copied = copy.deepcopy(layer)
    assert type(copied) is cls


def test_register_again_after_removal(impl):
    parametrize = module_of(impl)
    layer = linear(impl)
    for _ in range(3):
        parametrize.register_parametrization(layer, "weight", function(impl, lambda x: x * 2))
        assert type(layer).__name__ == "ParametrizedLinear"
        parametrize.remove_parametrizations(layer, "weight")
    weight = np.random.default_rng(0).standard_normal((2, 3))
    np.testing.assert_allclose(array(layer.weight), 8 * weight)


# -- cached ----------------------------------------------------------------------------------------


def test_cached(impl):
    parametrize = module_of(impl)
    layer, other = linear(impl), linear(impl)
    for each in (layer, other):
        parametrize.register_parametrization(each, "weight", function(impl, lambda x: x * 2))
        parametrize.register_parametrization(each, "bias", function(impl, lambda x: x * 2))
    with parametrize.cached():
        first = layer.weight
        assert layer.weight is first and other.weight is not first and layer.bias is not first
        with parametrize.cached():
            assert layer.weight is first
        assert layer.weight is first
    assert layer.weight is not first
    with pytest.raises(ZeroDivisionError), parametrize.cached():
        first = layer.weight
        raise ZeroDivisionError
    assert layer.weight is not layer.weight


def test_the_cache_is_that_of_all_threads(impl):
    parametrize = module_of(impl)
    layer, seen = linear(impl), []
    parametrize.register_parametrization(layer, "weight", function(impl, lambda x: x * 2))
    with parametrize.cached():
        first = layer.weight
        thread = threading.Thread(target=lambda: seen.append(layer.weight is first))
        thread.start()
        thread.join()
    assert seen == [True]


# -- copies ----------------------------------------------------------------------------------------


def test_deepcopy(impl):
    parametrize = module_of(impl)
    layer = linear(impl)
    layer.plain = {"k": [1, 2]}
    parametrize.register_parametrization(layer, "weight", product(impl))
    other = copy.deepcopy(layer)
    assert type(other) is type(layer)
    np.testing.assert_array_equal(array(other.weight), array(layer.weight))
    with impl.lib.no_grad():
        other.parametrizations.weight.original0.zero_()
    assert (array(other.weight) == 0).all() and not (array(layer.weight) == 0).any()
    assert other.plain == layer.plain and other.plain["k"] is not layer.plain["k"]
    pair = copy.deepcopy(impl.nn.ModuleList([layer, layer]))
    assert pair[0] is pair[1] is not layer


def test_deepcopy_of_the_class_is_used(impl):
    class Own(type(linear(impl))):
        def __deepcopy__(self, memo):
            return "copied"

    layer = Own()
    module_of(impl).register_parametrization(layer, "weight", function(impl, lambda x: x * 2))
    assert copy.deepcopy(layer) == "copied"


def test_pickles_are_refused(impl):
    layer = linear(impl)
    module_of(impl).register_parametrization(layer, "weight", function(impl, lambda x: x * 2))
    for refused in (pickle.dumps, copy.copy, lambda m: m.__getstate__()):
        with pytest.raises(RuntimeError, match="only supported through state_dict"):
            refused(layer)


# -- transfer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [exponential, product])
def test_transfer(impl, make):
    parametrize = module_of(impl)
    layer, other = linear(impl), linear(impl)
    with impl.lib.no_grad():
        layer.weight.abs_()
        other.weight.fill_(7.0)
    parametrize.register_parametrization(layer, "weight", make(impl))
    assert parametrize.transfer_parametrizations_and_params(layer, other) is other
    assert parametrize.is_parametrized(other, "weight")
    assert other.parametrizations.weight[0] is layer.parametrizations.weight[0]
    kept = dict(layer.parametrizations.weight.named_parameters())
    assert kept and all(getattr(other.parametrizations.weight, k) is v for k, v in kept.items())
    np.testing.assert_array_equal(array(other.weight), array(layer.weight))


def test_transfer_makes_what_is_missing(impl):
    parametrize = module_of(impl)
    layer, other = linear(impl), impl.nn.Module()
    for name in ("weight", "bias"):
        parametrize.register_parametrization(layer, name, function(impl, lambda x: x * 2))
    parametrize.transfer_parametrizations_and_params(layer, other, "weight")
    np.testing.assert_array_equal(array(other.weight), array(layer.weight))
    assert names(other)[0] == ["parametrizations.weight.original"]
    plain = linear(impl)
    assert parametrize.transfer_parametrizations_and_params(plain, other) is other


def test_an_original_with_an_inverse_can_be_parametrized(ours):
    parametrize = module_of(ours)
    layer = linear(ours)
    double = function(ours, lambda x: x * 2, lambda y: y / 2)
    parametrize.register_parametrization(layer, "weight", double)
    inner = layer.parametrizations.weight
    more = function(ours, lambda x: x + 1, lambda y: y - 1)
    parametrize.register_parametrization(inner, "original", more)
    layer.weight = ours.lib.full((2, 3), 8.0, dtype=ours.lib.float64)
    assert (array(inner.parametrizations.original.original) == 3).all()
    assert (array(layer.weight) == 8).all()


# -- what torch does differently -------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
def test_names_of_attributes_of_a_dict_are_refused_before_anything_changes(ours, first):
    parametrize = module_of(ours)
    layer = linear(ours)
    layer.keys = ours.nn.Parameter(values(ours, 2))
    if not first:
        parametrize.register_parametrization(layer, "weight", function(ours, lambda x: x * 2))
    cls, kept, state = type(layer), layer.keys, list(layer.state_dict())
    with pytest.raises(KeyError, match="attribute 'keys' already exists"):
        parametrize.register_parametrization(layer, "keys", function(ours, lambda x: x * 2))
    assert type(layer) is cls and layer.keys is kept and list(layer.state_dict()) == state


def test_a_first_registration_that_fails_restores_the_original(ours):
    layer = linear(ours)
    before = array(layer.weight).copy()
    with pytest.raises(ValueError, match="may not change the shape"):
        module_of(ours).register_parametrization(
            layer, "weight", function(ours, lambda x: x[:1], lambda y: y * 0)
        )
    np.testing.assert_array_equal(array(layer.weight), before)


def test_a_class_that_has_no_subclasses_loses_nothing(ours):
    kind = type(linear(ours))

    class Final(kind):
        def __init_subclass__(cls):
            raise TypeError("no subclasses")

    layer = Final()
    weight, before = layer.weight, array(layer.weight).copy()
    with pytest.raises(TypeError, match="no subclasses"):
        module_of(ours).register_parametrization(
            layer, "weight", function(ours, lambda x: x * 2, lambda y: y / 2)
        )
    assert layer.weight is weight and type(layer) is Final
    np.testing.assert_array_equal(array(weight), before)


def test_copies_are_cached_apart(ours):
    parametrize = module_of(ours)
    layer = linear(ours)
    parametrize.register_parametrization(layer, "weight", function(ours, lambda x: x * 2))
    other = copy.deepcopy(layer)
    with ours.lib.no_grad():
        other.parametrizations.weight.original.zero_()
    with parametrize.cached():
        assert (array(layer.weight) != 0).all()
        assert (array(other.weight) == 0).all()


def test_copies_lose_and_get_parametrizations_alone(ours):
    parametrize = module_of(ours)
    layer = linear(ours)
    parametrize.register_parametrization(layer, "weight", function(ours, lambda x: x * 2))
    other, third = copy.deepcopy(layer), copy.deepcopy(layer)
    parametrize.register_parametrization(third, "bias", function(ours, lambda x: x * 2))
    assert layer.bias.is_leaf and not third.bias.is_leaf
    parametrize.remove_parametrizations(other, "weight")
    np.testing.assert_array_equal(array(layer.weight), array(other.weight))


def test_the_second_of_two_values_that_fit_not_changes_nothing(ours):
    layer = linear(ours)
    module_of(ours).register_parametrization(layer, "weight", product(ours))
    parametrizations = layer.parametrizations.weight
    before = array(parametrizations.original0).copy()
    type(parametrizations[0]).right_inverse = staticmethod(lambda y: (y * 0, y.float()))
    with pytest.raises(ValueError, match="Tensor 1 returned"):
        layer.weight = values(ours, 2, 3)
    np.testing.assert_array_equal(array(parametrizations.original0), before)


def test_in_swap_mode(impl):
    future = importlib.import_module(f"{impl.nn.__name__.partition('.')[0]}.__future__")
    parametrize = module_of(impl)
    layer = linear(impl)
    with impl.lib.no_grad():
        layer.weight.abs_()
    weight, before = layer.weight, array(layer.weight).copy()
    future.set_swap_module_params_on_conversion(True)
    try:
        parametrize.register_parametrization(layer, "weight", exponential(impl))
        assert layer.parametrizations.weight.original is weight and weight.requires_grad
        np.testing.assert_allclose(array(weight), np.log(before))
        layer.weight = impl.lib.ones(2, 3, dtype=impl.lib.float64)
        assert (array(weight) == 0).all() and isinstance(weight, impl.nn.Parameter)
        parametrize.remove_parametrizations(layer, "weight")
        assert layer.weight is weight and (array(weight) == 1).all()
    finally:
        future.set_swap_module_params_on_conversion(False)


# -- with the rest of the module system ------------------------------------------------------------


def test_functional_call_goes_through_the_property_or_names_the_original(impl):
    stateless = importlib.import_module(f"{impl.nn.__name__}.utils.stateless")
    call = stateless.functional_call
    if impl.is_torch:
        call = impl.lib.func.functional_call
    parametrize = module_of(impl)
    layer = linear(impl)
    double = function(impl, lambda x: x * 2, lambda y: y / 2)
    parametrize.register_parametrization(layer, "weight", double)
    x, new = values(impl, 4, 3, seed=5), values(impl, 2, 3, seed=6)
    kept = layer.parametrizations.weight.original
    before = array(kept).copy()
    out = call(layer, {"parametrizations.weight.original": new}, (x,))
    np.testing.assert_allclose(array(out), array(x) @ (2 * array(new)).T + array(layer.bias))
    out = call(layer, {"weight": new}, (x,))
    np.testing.assert_allclose(array(out), array(x) @ array(new).T + array(layer.bias))
    assert layer.parametrizations.weight.original is kept
    np.testing.assert_allclose(array(kept), before)


def test_hooks_and_apply_see_the_parametrizations(impl):
    parametrize = module_of(impl)
    layer, seen = linear(impl), []
    parametrization = function(impl, lambda x: x * 2)
    parametrize.register_parametrization(layer, "weight", parametrization)
    parametrization.register_forward_hook(lambda m, args, out: seen.append(m))
    layer(values(impl, 1, 3))
    assert seen == [parametrization]
    visited = []
    layer.apply(visited.append)
    parametrizations = layer.parametrizations
    assert visited == [parametrization, parametrizations.weight, parametrizations, layer]
    layer.requires_grad_(False)
    assert not layer.weight.requires_grad


def test_parametrized_modules_die(impl, gc_tester):
    def make():
        layer = linear(impl)
        for name in ("weight", "bias"):
            module_of(impl).register_parametrization(layer, name, function(impl, lambda x: x * 2))
        return layer

    gc_tester(make)
