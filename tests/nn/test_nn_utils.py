# SPDX-License-Identifier: BSD-3-Clause
"""Parameters as vectors, construction without initialization, prefixes of state dicts."""

from __future__ import annotations

import importlib
from collections import OrderedDict

import pytest
from helpers.support import dtype, raises, storage_shared, values


def params(impl):
    lib, nn = impl.lib, impl.nn
    return [
        nn.Parameter(lib.tensor([1.0, 2.0])),
        nn.Parameter(lib.tensor([[3.0, 4.0], [5.0, 6.0]])),
    ]


def utils(impl):
    return impl.nn.utils


# -- parameters_to_vector ------------------------------------------------------------------------


def test_parameters_to_vector(impl):
    vector = utils(impl).parameters_to_vector(iter(params(impl)))
    assert values(vector) == [1, 2, 3, 4, 5, 6]
    assert tuple(vector.shape) == (6,)
    assert not isinstance(vector, impl.nn.Parameter)
    assert not storage_shared(vector, params(impl)[0])


def test_parameters_to_vector_of_scalars_and_a_module(impl):
    m = impl.nn.Module()
    m.a = impl.nn.Parameter(impl.lib.tensor(7.0))
    m.b = params(impl)[1]
    assert values(utils(impl).parameters_to_vector(m.parameters())) == [7, 3, 4, 5, 6]


def test_parameters_to_vector_of_none(impl):
    with raises(ValueError, "non-empty list"):
        utils(impl).parameters_to_vector([])


def test_parameters_to_vector_needs_contiguous_tensors(impl):
    with pytest.raises(RuntimeError):
        utils(impl).parameters_to_vector([impl.lib.zeros(2, 3).t()])


def test_parameters_to_vector_on_two_devices(impl):
    with raises(RuntimeError):
        tensors = [impl.lib.zeros(2), impl.lib.zeros(2, device="meta")]
        utils(impl).parameters_to_vector(tensors)


def test_parameters_to_vector_is_differentiable(impl):
    ps = params(impl)
    vector = utils(impl).parameters_to_vector(ps)
    (vector * impl.lib.arange(6.0)).sum().backward()
    assert values(ps[0].grad) == [0, 1]
    assert values(ps[1].grad) == [[2, 3], [4, 5]]


def test_vector_to_parameters_leaves_them_leaves(impl):
    """The values come without the vector's history, as from ``.data``."""
    ps = params(impl)
    vector = utils(impl).parameters_to_vector(ps) * 2
    utils(impl).vector_to_parameters(vector, ps)
    assert all(p.is_leaf and p.requires_grad and p.grad_fn is None for p in ps)
    (ps[1] ** 2).sum().backward()
    assert values(ps[1].grad) == [[12, 16], [20, 24]]


def test_parameters_to_vector_errors(ours):
    join = utils(ours).parameters_to_vector
    with raises(TypeError, "expected tensors, got int"):
        join([3])
    with raises(RuntimeError, "on different devices", "tensor 1, meta"):
        join([ours.lib.zeros(2), ours.lib.zeros(2, device="meta")])


def test_parameters_to_vector_of_two_libraries(ours):
    if ours.leaves != "torch":
        pytest.skip("needs two libraries")
    import modtree as mt

    with raises(TypeError, "tensor 0 is of torch, tensor 1 of numpy"):
        utils(ours).parameters_to_vector([ours.lib.zeros(2), mt.zeros(2)])


# -- vector_to_parameters ------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [0, 2])
def test_vector_to_parameters(impl, extra):
    ps = params(impl)
    same = list(ps)
    vector = impl.lib.zeros(6 + extra)
    vector += 9
    assert utils(impl).vector_to_parameters(vector, iter(ps)) is None
    assert all(a is b for a, b in zip(ps, same, strict=True))
    assert values(ps[0]) == [9, 9]
    assert values(ps[1]) == [[9, 9], [9, 9]]
    assert all(p.requires_grad for p in ps)
    assert all(storage_shared(p, vector) for p in ps)
    vector += 1
    assert values(ps[1]) == [[10, 10], [10, 10]]


def test_round_trip(impl):
    ps = params(impl)
    u = utils(impl)
    u.vector_to_parameters(u.parameters_to_vector(ps), ps)
    assert values(ps[0]) == [1, 2]
    assert values(ps[1]) == [[3, 4], [5, 6]]
    assert all(p.is_leaf for p in ps)


def test_vector_of_another_dtype(impl):
    ps = params(impl)
    utils(impl).vector_to_parameters(impl.lib.zeros(6, dtype=impl.lib.float64), ps)
    assert [dtype(p) for p in ps] == ["float64", "float64"]


def test_vector_must_be_a_tensor(impl):
    with raises(TypeError, "but got: list"):
        utils(impl).vector_to_parameters([1.0], params(impl))


def test_vector_too_short(impl):
    with raises(RuntimeError):
        utils(impl).vector_to_parameters(impl.lib.zeros(5), params(impl))


def test_vector_too_short_changes_nothing(ours):
    ps = params(ours)
    with raises(RuntimeError, "the parameters have 6 elements, the vector 5"):
        utils(ours).vector_to_parameters(ours.lib.zeros(5), ps)
    assert values(ps[0]) == [1, 2]


# -- skip_init -----------------------------------------------------------------------------------


def layer(impl):
    """A layer with a device argument, and a log of the devices that it was built on."""

    class Layer(impl.nn.Module):
        built_on = []

        def __init__(self, n, device=None, dtype=None):
            super().__init__()
            self.built_on.append(device)
            lib = impl.lib
            self.weight = impl.nn.Parameter(lib.zeros(n, 2, device=device, dtype=dtype))
            self.frozen = impl.nn.Parameter(lib.zeros(n, device=device), requires_grad=False)
            self.register_buffer("mean", lib.zeros(n, device=device))

    return Layer


def test_skip_init(impl):
    cls = layer(impl)
    m = utils(impl).skip_init(cls, 3, dtype=impl.lib.float64)
    assert type(m) is cls
    assert cls.built_on == ["meta"]
    assert tuple(m.weight.shape) == (3, 2)
    assert dtype(m.weight) == "float64"
    assert [p.requires_grad for p in m.parameters()] == [True, False]
    assert not any(t.is_meta for t in (m.weight, m.frozen, m.mean))
    assert isinstance(m.weight, impl.nn.Parameter)
    m.load_state_dict(cls(3, dtype=impl.lib.float64).state_dict())
    assert values(m.weight) == [[0, 0]] * 3


def test_skip_init_on_a_device(impl):
    m = utils(impl).skip_init(layer(impl), n=3, device="meta")
    assert m.weight.is_meta


def test_skip_init_needs_a_module_class_with_a_device(impl):
    skip_init = utils(impl).skip_init
    with raises(RuntimeError, "Expected a Module; got"):
        skip_init(dict)
    with raises(TypeError):
        skip_init(layer(impl)(2))

    class AnyKeyword(impl.nn.Module):
        def __init__(self, **kwargs):
            super().__init__()

    with raises(RuntimeError, "Module must support a 'device' arg to skip initialization"):
        skip_init(AnyKeyword)


# -- prefixes ------------------------------------------------------------------------------------


def consume(impl, state_dict, prefix):
    home = importlib.import_module("torch.nn.modules.utils") if impl.is_torch else utils(impl)
    return home.consume_prefix_in_state_dict_if_present(state_dict, prefix)


def with_metadata(keys, metadata_keys):
    sd = OrderedDict((k, i) for i, k in enumerate(keys))
    sd._metadata = OrderedDict((k, {"version": i}) for i, k in enumerate(metadata_keys))
    return sd


def test_consume_prefix(impl):
    sd = with_metadata(
        ["module.a", "b", "x.module.a", "module", "module.b", "module."],
        ["", "module", "module.a", "mod", "module.b.c", "modulex"],
    )
    assert consume(impl, sd, "module.") is None
    assert list(sd.items()) == [("b", 4), ("x.module.a", 2), ("module", 3), ("a", 0), ("", 5)]
    assert {k: v["version"] for k, v in sd._metadata.items()} == {
        "": 1,
        "mod": 3,
        "modulex": 5,
        "a": 2,
        "b.c": 4,
    }


def test_consume_prefix_without_metadata(impl):
    sd = {"a.x": 1, "y": 2}
    consume(impl, sd, "a.")
    assert list(sd.items()) == [("y", 2), ("x", 1)]
    consume(impl, sd, "never.")
    assert list(sd.items()) == [("y", 2), ("x", 1)]


def test_consume_prefix_of_a_real_module(impl):
    nn = impl.nn
    inner = nn.Module()
    inner.w = nn.Parameter(impl.lib.zeros(2))
    wrapper = nn.Module()
    wrapper.module = inner
    sd = wrapper.state_dict()
    consume(impl, sd, "module.")
    assert list(sd) == ["w"]
    assert sd._metadata[""] == {"version": 1}
    assert not inner.load_state_dict(sd).missing_keys


def test_consume_prefix_of_two_levels(ours):
    sd = with_metadata(["a.b.x"], ["", "a", "a.b", "a.b.c"])
    consume(ours, sd, "a.b.")
    assert list(sd) == ["x"]
    assert {k: v["version"] for k, v in sd._metadata.items()} == {"": 2, "a": 1, "c": 3}
