# SPDX-License-Identifier: BSD-3-Clause
"""``load_state_dict``: matching, messages, values and ``strict``."""

from __future__ import annotations

import collections
import copy
import gc
import pickle
import types

import pytest
from helpers.support import (
    dtype,
    leaf,
    raises,
    same_shapes,
    storage_shared,
    tree,
    values,
)

import modtree as mt


def other_values(impl, net):
    """A checkpoint of ``net`` with different numbers."""
    return collections.OrderedDict((k, v * 2 + 1) for k, v in net.state_dict().items())


def state_values(net):
    return {k: values(v) for k, v in net.state_dict().items()}


# -- success ---------------------------------------------------------------------------------------


def test_values_are_copied_in_place(impl):
    net = tree(impl)
    before = dict(net.state_dict(keep_vars=True))
    sd = other_values(impl, net)
    net.gain.requires_grad_(False)
    grad = net.head.weight.grad = impl.lib.ones(1, 2)
    result = net.load_state_dict(sd)
    assert result == ([], [])
    assert state_values(net) == {k: values(v) for k, v in sd.items()}
    after = net.state_dict(keep_vars=True)
    assert all(after[k] is before[k] for k in before)
    assert net.gain.requires_grad is False and net.head.weight.requires_grad is True
    assert net.head.weight.grad is grad and values(grad) == [[1.0, 1.0]]
    assert not storage_shared(net.gain, sd["gain"])


def test_result(impl):
    net = leaf(impl, "a")
    result = net.load_state_dict(net.state_dict())
    assert type(result).__name__ == "_IncompatibleKeys"
    assert isinstance(result, tuple) and result._fields == ("missing_keys", "unexpected_keys")
    assert repr(result) == str(result) == "<All keys matched successfully>"
    missing, unexpected = net.load_state_dict({"b": impl.lib.tensor([1.0])}, strict=False)
    assert (missing, unexpected) == (["a"], ["b"])
    assert type(missing) is list and type(unexpected) is list
    result = net.load_state_dict({"b": 1}, strict=False)
    assert (
        repr(result)
        == str(result)
        == "_IncompatibleKeys(missing_keys=['a'], unexpected_keys=['b'])"
    )


def test_the_result_tells_what_is_on_meta(ours):
    with ours.lib.device("meta"):
        net = ours.nn.Sequential(ours.nn.Linear(2, 2), ours.nn.Linear(2, 2))
        net.register_buffer("inv_freq", ours.lib.ones(2), persistent=False)
    given = ours.nn.Sequential(ours.nn.Linear(2, 2), ours.nn.Linear(2, 2)).state_dict()
    result = net.load_state_dict(given, assign=True)
    assert (result, result.meta_keys) == (([], []), ["inv_freq"])
    assert str(result) == ("<All keys matched successfully; on meta, without values: inv_freq>")
    del given["1.bias"]
    with ours.lib.device("meta"):
        net[1].bias = ours.nn.Parameter(ours.lib.ones(2))
    result = net.load_state_dict(given, assign=True, strict=False)
    assert str(result) == (
        "_IncompatibleKeys(missing_keys=['1.bias'], unexpected_keys=[], "
        "not persistent and on meta: ['inv_freq'])"
    )
    assert result.meta_keys == ["1.bias", "inv_freq"]
    for copied in (copy.copy(result), pickle.loads(pickle.dumps(result))):
        assert type(copied) is type(result) and copied == result and copied.meta_keys == []
    net.inv_freq = ours.lib.ones(2)
    assert net.load_state_dict(given, assign=True, strict=False).meta_keys == ["1.bias"]
    del net
    gc.collect()
    assert result.meta_keys == [] and "meta" not in str(result)


def test_round_trip_restores_everything(impl):
    a, b = tree(impl), tree(impl)
    a.load_state_dict(other_values(impl, a))
    b.load_state_dict(a.state_dict())
    assert state_values(a) == state_values(b)


@pytest.mark.parametrize(
    "wrap",
    [
        dict,
        collections.OrderedDict,
        types.MappingProxyType,
        collections.UserDict,
        collections.ChainMap,
    ],
    ids=lambda w: w.__name__,
)
def test_any_mapping_is_accepted(impl, wrap):
    net = leaf(impl, "a")
    net.load_state_dict(wrap({"a": impl.lib.tensor([7.0, 8.0])}))
    assert values(net.a) == [7.0, 8.0]


@pytest.mark.parametrize("given", [[1], None, 3, "text", iter(())], ids=lambda g: type(g).__name__)
def test_other_objects_are_refused(impl, given):
    with raises(TypeError, f"Expected state_dict to be dict-like, got {type(given)}."):
        leaf(impl, "a").load_state_dict(given)


def test_the_given_mapping_is_not_changed(impl):
    class Pops(impl.nn.Module):
        def _load_from_state_dict(self, state_dict, prefix, *args):
            state_dict.clear()

    net = Pops()
    sd = {"a": impl.lib.tensor([1.0])}
    net.load_state_dict(sd)
    assert list(sd) == ["a"]


def test_nothing_to_load(impl):
    assert impl.nn.Module().load_state_dict({}) == ([], [])


def test_arguments_by_position_and_name(impl):
    net = leaf(impl, "a")
    assert net.load_state_dict({}, False) == (["a"], [])
    assert net.load_state_dict(state_dict={}, strict=False, assign=True) == (["a"], [])
    with raises(TypeError):
        net.load_state_dict({}, True, False, 1)
    with raises(TypeError, "state_dict"):
        net.load_state_dict()


# -- conversion and shapes -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float64", "float16", "int64", "int32", "bool"])
def test_dtype_is_converted(impl, name):
    net = leaf(impl, "a")
    net.load_state_dict({"a": impl.lib.tensor([1, 0]).to(getattr(impl.lib, name))})
    assert dtype(net.a) == "float32"
    assert values(net.a) == [1.0, 0.0]


def test_float_loads_into_an_integer_buffer(impl):
    net = impl.nn.Module()
    net.register_buffer("n", impl.lib.tensor([1, 2]))
    net.load_state_dict({"n": impl.lib.tensor([3.7, -1.2])})
    assert dtype(net.n) == "int64"
    assert values(net.n) == [3, -1]


def test_one_element_vector_loads_into_a_scalar(impl):
    net = impl.nn.Module()
    net.s = impl.nn.Parameter(impl.lib.tensor(1.0))
    net.load_state_dict({"s": impl.lib.tensor([4.0])})
    assert values(net.s) == 4.0
    with raises(RuntimeError, "size mismatch for s"):
        net.load_state_dict({"s": impl.lib.tensor([[4.0]])})
    with raises(RuntimeError, "size mismatch for s"):
        net.load_state_dict({"s": impl.lib.tensor([4.0, 5.0])})


def test_scalar_does_not_load_into_a_one_element_vector(impl):
    net = impl.nn.Module()
    net.s = impl.nn.Parameter(impl.lib.tensor([1.0]))
    with raises(RuntimeError, "size mismatch for s"):
        net.load_state_dict({"s": impl.lib.tensor(4.0)})


@pytest.mark.parametrize("shape", [(1,), (2, 2), (1, 2), (3,), ()], ids=str)
def test_nothing_is_broadcast(impl, shape):
    net = leaf(impl, "a")
    with raises(RuntimeError, "size mismatch for a: copying a param with shape"):
        net.load_state_dict({"a": impl.lib.zeros(shape)})
    assert values(net.a) == [1.0, 2.0]


def test_empty_tensors(impl):
    net = impl.nn.Module()
    net.e = impl.nn.Parameter(impl.lib.zeros(0, 3))
    net.load_state_dict({"e": impl.lib.zeros(0, 3)})
    with raises(RuntimeError, "size mismatch for e"):
        net.load_state_dict({"e": impl.lib.zeros(3, 0)})


def test_loading_its_own_live_values(impl):
    net = leaf(impl, "a")
    net.load_state_dict({"a": net.a})
    assert values(net.a) == [1.0, 2.0]


def test_checkpoint_that_requires_gradients(impl):
    net = leaf(impl, "a")
    given = impl.nn.Parameter(impl.lib.tensor([5.0, 6.0]))
    net.load_state_dict({"a": given})
    assert values(net.a) == [5.0, 6.0] and net.a is not given
    assert net.a.grad_fn is None


def test_tied_parameters_take_the_last_value(impl):
    net = leaf(impl, "a")
    net.b = net.a
    net.load_state_dict({"b": impl.lib.tensor([3.0, 3.0]), "a": impl.lib.tensor([9.0, 9.0])})
    assert values(net.a) == [3.0, 3.0]


def test_shared_module_loads_once_per_path(impl):
    net = impl.nn.Module()
    net.x = leaf(impl, "w")
    net.y = net.x
    with raises(RuntimeError, 'Missing key(s) in state_dict: "y.w". '):
        net.load_state_dict({"x.w": impl.lib.tensor([1.0, 1.0])})
    net.load_state_dict({"y.w": impl.lib.tensor([3.0, 3.0]), "x.w": impl.lib.tensor([9.0, 9.0])})
    assert values(net.x.w) == [3.0, 3.0]


# -- messages --------------------------------------------------------------------------------------


def torchs_part(info):
    """The message without the explanation that ours adds below (test_load_explained.py)."""
    return str(info.value).partition("\n\n")[0]


def test_missing_and_unexpected_keys(impl):
    net = leaf(impl, "a", "b")
    with pytest.raises(RuntimeError) as info:
        net.load_state_dict({k: impl.lib.tensor([1.0, 1.0]) for k in ("y", "a", "x")})
    assert torchs_part(info) == (
        "Error(s) in loading state_dict for Module:\n"
        '\tMissing key(s) in state_dict: "b". \n'
        '\tUnexpected key(s) in state_dict: "y", "x". '
    )


def test_all_messages_of_a_tree(impl):
    net = tree(impl)
    lib = impl.lib
    sd = net.state_dict()
    for key in ("gain", "head.count", "body.second.weight"):
        del sd[key]
    sd["zzz"] = lib.tensor([1.0])
    sd["body.first.weight"] = lib.zeros(3)
    sd["offset"] = "text"
    sd["body.extra.deep"] = 1
    sd["head.mean.x"] = 1
    with pytest.raises(RuntimeError) as info:
        net.load_state_dict(sd)
    lines = same_shapes(torchs_part(info)).split("\n\t")
    assert lines[0] == "Error(s) in loading state_dict for Net:"
    assert lines[1] == 'Missing key(s) in state_dict: "gain", "body.second.weight", "head.count". '
    assert lines[2] == (
        'Unexpected key(s) in state_dict: "zzz", "body.extra.deep", "head.mean.x". '
    )
    assert lines[3].startswith(
        'While copying the parameter named "offset", expected torch.Tensor or Tensor-like '
        "object from checkpoint but received <class 'str'>"
    )
    assert lines[4] == (
        "size mismatch for body.first.weight: copying a param with shape (3) from "
        "checkpoint, the shape in current model is (1, 2)."
    )
    assert len(lines) == 5


def test_copies_are_not_tried_when_the_load_fails(ours):
    net = leaf(ours, "a", "b")
    state = {"a": ours.lib.tensor([1, 2]), "x": 1}
    with pytest.raises(RuntimeError) as info:
        net.load_state_dict({**state, "b": net.b}, assign=True)
    assert "While copying" not in str(info.value)
    state.pop("x")
    with raises(RuntimeError, 'While copying the parameter named "a"'):
        net.load_state_dict({**state, "b": net.b}, assign=True)


def test_strict_false_drops_only_the_key_messages(impl):
    net = leaf(impl, "a", "b")
    with pytest.raises(RuntimeError) as info:
        net.load_state_dict({"a": impl.lib.zeros(3), "x": 1}, strict=False)
    lines = torchs_part(info).split("\n\t")
    assert len(lines) == 2 and lines[1].startswith("size mismatch for a")


@pytest.mark.parametrize("strict", [0, None, ""], ids=repr)
def test_strict_may_be_any_false_value(impl, strict):
    assert leaf(impl, "a").load_state_dict({"x": 1}, strict=strict) == (["a"], ["x"])


@pytest.mark.parametrize("value", [3, None, [1.0, 2.0], "text", object], ids=repr)
def test_values_that_are_no_tensors(impl, value):
    with raises(
        RuntimeError,
        'While copying the parameter named "a", expected torch.Tensor or Tensor-like object '
        f"from checkpoint but received {type(value)}",
    ):
        leaf(impl, "a").load_state_dict({"a": value})


@pytest.mark.parametrize(
    ("key", "unexpected"),
    [
        ("a", False),
        ("zzz", True),
        ("a.x", True),
        ("child", True),
        ("child.w", False),
        ("child.zzz", True),
        ("child.w.x", True),
        ("child.", True),
        ("gone", True),
        ("gone.x", False),
        ("gone.x.y", False),
        ("scratch", True),
        ("none", True),
        ("", True),
        (".", True),
        (".a", True),
        ("a.", True),
        ("childx.w", True),
        ("_extra_state", True),
        ("child._extra_state", True),
        ("gone._extra_state", False),
        ("_extra_state.x", True),
        ("x_extra_state", True),
    ],
)
def test_what_is_unexpected(impl, key, unexpected):
    m = leaf(impl, "a")
    m.child = leaf(impl, "w")
    m.gone = impl.nn.Module()
    m.gone = None
    m.register_parameter("none", None)
    m.register_buffer("scratch", impl.lib.tensor([1.0]), persistent=False)
    result = m.load_state_dict({key: impl.lib.tensor([1.0, 2.0])}, strict=False)
    assert result.unexpected_keys == ([key] if unexpected else [])


def test_unexpected_order_follows_the_modules_then_the_mapping(impl):
    net = tree(impl)
    extra = ["head.z", "z", "body.second.z", "body.z", "_extra_state", "body._extra_state", "b"]
    result = net.load_state_dict(dict.fromkeys(extra, 1), strict=False)
    assert result.unexpected_keys == [
        *("_extra_state", "z", "b"),
        *("body._extra_state", "body.z"),
        *("body.second.z", "head.z"),
    ]
    assert result.missing_keys == list(net.state_dict())


def test_names_with_dots(impl):
    m = impl.nn.Module()
    m._modules["x.y"] = leaf(impl, "w")
    m._modules["x"] = leaf(impl, "v")
    sd = {"x.y.w": impl.lib.tensor([5.0, 5.0]), "x.v": impl.lib.tensor([6.0, 6.0])}
    result = m.load_state_dict(sd, strict=False)
    assert values(m._modules["x.y"].w) == [5.0, 5.0]
    assert values(m.x.v) == [6.0, 6.0]
    assert result.unexpected_keys == ["x.y.w"]
    m = impl.nn.Module()
    m._modules["x.y"] = leaf(impl, "w")
    result = m.load_state_dict({"x.y.w": impl.lib.tensor([5.0, 5.0])}, strict=False)
    assert values(m._modules["x.y"].w) == [5.0, 5.0]
    assert result == ([], ["x.y.w"])


def test_empty_child_name(impl):
    m = impl.nn.Module()
    m._modules[""] = leaf(impl, "w")
    result = m.load_state_dict({".w": impl.lib.tensor([5.0, 5.0])}, strict=False)
    assert values(m._modules[""].w) == [5.0, 5.0]
    assert result == ([], [])


def test_root_class_is_named_even_for_a_child_error(impl):
    class Root(impl.nn.Module):
        pass

    m = Root()
    m.child = leaf(impl, "w")
    with raises(RuntimeError, "Error(s) in loading state_dict for Root:"):
        m.load_state_dict({})


def test_entries_put_directly_into_the_registry(impl):
    m = impl.nn.Module()
    m._parameters["p"] = impl.lib.tensor([1.0, 2.0])
    m.load_state_dict({"p": impl.lib.tensor([3.0, 4.0])})
    assert values(m.p) == [3.0, 4.0]


# -- better than torch -----------------------------------------------------------------------------


def test_assign_does_not_mark_the_metadata(ours):
    net = leaf(ours, "a")
    net.child = leaf(ours, "w")
    sd = net.state_dict()
    other = leaf(ours, "a")
    other.child = leaf(ours, "w")
    other.load_state_dict(sd, assign=True)
    assert sd._metadata == {"": {"version": 1}, "child": {"version": 1}}
    third = leaf(ours, "a")
    third.child = leaf(ours, "w")
    a = third.a
    third.load_state_dict(sd)
    assert third.a is a


def broken(impl, kind):
    net = tree(impl)
    sd = other_values(impl, net)
    if kind == "missing":
        del sd["head.mean"]
    elif kind == "unexpected":
        sd["head.zzz"] = impl.lib.tensor([1.0])
    elif kind == "shape":
        sd["head.mean"] = impl.lib.zeros(5)
    elif kind == "type":
        sd["head.mean"] = "text"
    return net, sd


@pytest.mark.parametrize("assign", [False, True], ids=["copy", "assign"])
@pytest.mark.parametrize("kind", ["missing", "unexpected", "shape", "type"])
def test_nothing_is_written_when_there_is_an_error(ours, kind, assign):
    net, sd = broken(ours, kind)
    before, objects = state_values(net), dict(net.state_dict(keep_vars=True))
    with pytest.raises(RuntimeError, match="head."):
        net.load_state_dict(sd, assign=assign)
    assert state_values(net) == before
    assert all(objects[k] is v for k, v in net.state_dict(keep_vars=True).items())


@pytest.mark.parametrize("kind", ["missing", "unexpected"])
def test_strict_false_writes_what_fits(ours, kind):
    net, sd = broken(ours, kind)
    before = state_values(net)
    net.load_state_dict(sd, strict=False)
    for key, now in state_values(net).items():
        assert now == (values(sd[key]) if key in sd else before[key])


@pytest.mark.parametrize("kind", ["shape", "type"])
def test_strict_false_writes_nothing_when_a_value_is_wrong(ours, kind):
    net, sd = broken(ours, kind)
    before = state_values(net)
    with pytest.raises(RuntimeError, match="head.mean"):
        net.load_state_dict(sd, strict=False)
    assert state_values(net) == before


@pytest.mark.parametrize("key", [1, None, b"a", ("a",)], ids=repr)
def test_key_that_is_no_string(ours, key):
    net = tree(ours)
    before = state_values(net)
    sd = other_values(ours, net)
    sd[key] = 1
    with raises(TypeError, repr(key)):
        net.load_state_dict(sd)
    assert state_values(net) == before


@pytest.mark.parametrize(
    "metadata", [5, {"": 5}, {"head": "x"}, [1]], ids=["int", "root", "child", "list"]
)
def test_metadata_of_the_wrong_type(ours, metadata):
    net = tree(ours)
    before = state_values(net)
    sd = other_values(ours, net)
    sd._metadata = metadata
    with raises(TypeError, "_metadata"):
        net.load_state_dict(sd)
    assert state_values(net) == before


def test_str_subclass_keys(impl):
    class Key(str):
        pass

    net = leaf(impl, "a")
    net.child = leaf(impl, "w")
    value = impl.lib.tensor([5.0, 6.0])
    result = net.load_state_dict({Key("a"): value, Key("child.w"): value, Key("x"): value}, False)
    assert result == ([], ["x"])
    assert values(net.a) == values(net.child.w) == [5.0, 6.0]


class CountedKey(str):
    """Counts how often anything compares, hashes or inspects it."""

    count = 0

    def __hash__(self):
        CountedKey.count += 1
        return super().__hash__()

    def __eq__(self, other):
        CountedKey.count += 1
        return super().__eq__(other)

    def startswith(self, *args):
        CountedKey.count += 1
        return super().startswith(*args)

    def split(self, *args):
        CountedKey.count += 1
        return super().split(*args)


def operations(ours, width, child):
    net = ours.nn.Module()
    for i in range(width):
        net.add_module(f"n{i}", child())
    sd = {CountedKey(k): v for k, v in net.state_dict().items()}
    CountedKey.count = 0
    net.load_state_dict(sd)
    return CountedKey.count


def test_work_per_entry_does_not_grow_with_the_width(ours):
    class Own(ours.nn.Module):
        def _load_from_state_dict(self, state_dict, *args):
            assert type(state_dict) is dict and len(state_dict) == 1
            super()._load_from_state_dict(state_dict, *args)

    def native():
        return leaf(ours, "w")

    def own():
        m = Own()
        m.w = ours.nn.Parameter(ours.lib.tensor([1.0]))
        return m

    for child in (native, own):
        narrow, wide = operations(ours, 50, child), operations(ours, 400, child)
        assert wide <= 8 * narrow * 1.5 + 100, (narrow, wide)


def test_a_name_in_both_registries_is_one_entry_with_the_buffer_as_its_value(impl):
    m = impl.nn.Module()
    m.register_parameter("p", impl.nn.Parameter(impl.lib.zeros(1)))
    m.register_buffer("x", impl.lib.zeros(2))
    m._parameters["x"] = impl.nn.Parameter(impl.lib.zeros(3))
    checkpoint = {"p": impl.lib.ones(1), "x": impl.lib.ones(2)}
    m.load_state_dict(checkpoint)
    assert values(m._buffers["x"]) == [1.0, 1.0] and values(m._parameters["x"]) == [0.0] * 3
    with raises(RuntimeError, 'Missing key(s) in state_dict: "p", "x". '):
        m.load_state_dict({})
    m._non_persistent_buffers_set.add("x")  # now the parameter is what is saved
    with raises(RuntimeError, "size mismatch for x"):
        m.load_state_dict(checkpoint)
    m._parameters["x"] = None
    with raises(RuntimeError, 'Unexpected key(s) in state_dict: "x". '):
        m.load_state_dict(checkpoint)


def test_an_error_of_a_shape_is_the_one_that_is_raised():
    """The shape of the other tensor is not asked for after it."""
    asked = []

    class Shapeless(mt.Tensor):
        def __getattribute__(self, name):
            if name == "shape":
                asked.append(name)
                raise KeyboardInterrupt(super().__getattribute__("ndim"))
            return super().__getattribute__(name)

    net = mt.nn.Module()
    net.w = mt.nn.Parameter(mt.ones(2).as_subclass(Shapeless))
    with pytest.raises(KeyboardInterrupt, match="1"):
        net.load_state_dict({"w": mt.ones(2).as_subclass(Shapeless)})
    assert asked == ["shape"]
