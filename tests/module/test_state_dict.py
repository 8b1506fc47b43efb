# SPDX-License-Identifier: BSD-3-Clause
"""``state_dict``: keys, order, values, metadata, overrides."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import pytest
from helpers.support import dtype, leaf, raises, storage_shared, tree, values, warns

KEYS = [
    *("gain", "offset", "body.scale"),
    *("body.first.weight", "body.first.count", "body.first.mean"),
    *("body.second.weight", "body.second.count", "body.second.mean"),
    *("head.weight", "head.count", "head.mean"),
]


def test_keys_and_their_order(impl):
    assert list(tree(impl).state_dict()) == KEYS


def test_result_is_an_ordered_dict_with_metadata(impl):
    sd = tree(impl).state_dict()
    assert isinstance(sd, OrderedDict)
    assert type(sd._metadata) is OrderedDict
    assert list(sd._metadata.items()) == [
        (name, {"version": 1}) for name in ("", "body", "body.first", "body.second", "head")
    ]


def test_values_are_detached_and_share_storage(impl):
    net = tree(impl)
    sd = net.state_dict()
    value = sd["gain"]
    assert value is not net.gain
    assert type(value) is impl.lib.Tensor
    assert value.requires_grad is False and not isinstance(value, impl.nn.Parameter)
    assert storage_shared(value, net.gain)
    assert sd["offset"] is not net.offset
    with impl.lib.no_grad():
        net.gain.fill_(8.0)
    assert values(value) == [8.0]


def test_keep_vars_gives_the_objects(impl):
    net = tree(impl)
    sd = net.state_dict(keep_vars=True)
    assert sd["gain"] is net.gain
    assert sd["offset"] is net.offset
    assert sd["head.weight"] is net.head.weight


def test_values_keep_their_dtype(impl):
    sd = tree(impl).double().state_dict()
    assert dtype(sd["gain"]) == "float64"
    assert dtype(sd["head.count"]) == "int64"


def test_none_entries_and_non_persistent_buffers_are_absent(impl):
    m = impl.nn.Module()
    m.register_parameter("p", None)
    m.register_buffer("b", None)
    m.register_buffer("n", impl.lib.tensor([1.0]), persistent=False)
    m.add_module("child", None)
    assert list(m.state_dict()) == []


def test_shared_tensors_and_modules_appear_under_every_name(impl):
    m = leaf(impl, "a")
    m.b = m.a
    m.x = leaf(impl, "w")
    m.y = m.x
    sd = m.state_dict()
    assert list(sd) == ["a", "b", "x.w", "y.w"]
    assert sd["a"] is not sd["b"]
    assert storage_shared(sd["a"], sd["b"])
    assert list(sd._metadata) == ["", "x", "y"]


def test_prefix(impl):
    net = tree(impl)
    sd = net.state_dict(prefix="m.")
    assert list(sd) == ["m." + k for k in KEYS]
    assert list(sd._metadata) == ["m", "m.body", "m.body.first", "m.body.second", "m.head"]


def test_last_character_of_the_prefix_is_dropped_in_metadata(impl):
    m = leaf(impl, "w")
    m.child = impl.nn.Module()
    sd = m.state_dict(prefix="mod")
    assert list(sd) == ["modw"]
    assert list(sd._metadata) == ["mo", "modchild"]


def test_destination_is_filled_and_returned(impl):
    m = leaf(impl, "w")
    given = {"other": 1}
    assert m.state_dict(destination=given, prefix="p.") is given
    assert list(given) == ["other", "p.w"]
    empty = {}
    assert m.state_dict(destination=empty) is empty
    assert list(empty) == ["w"]


def test_destination_with_metadata(impl):
    m = leaf(impl, "w")
    m.child = impl.nn.Module()
    given = OrderedDict()
    m.state_dict(destination=given)
    assert not hasattr(given, "_metadata")
    given._metadata = {}
    m.state_dict(destination=given, prefix="p.")
    assert given._metadata == {"p": {"version": 1}, "p.child": {"version": 1}}


def test_destination_may_be_another_mapping(impl):
    class Recorder:
        def __init__(self):
            self.log = []

        def __setitem__(self, key, value):
            self.log.append(key)

    recorder = Recorder()
    assert tree(impl).state_dict(destination=recorder) is recorder
    assert recorder.log == KEYS


def test_destination_with_own_setitem(impl):
    class Upper(OrderedDict):
        def __setitem__(self, key, value):
            super().__setitem__(key.upper(), value)

    sd = leaf(impl, "a", "b").state_dict(destination=Upper())
    assert list(sd) == ["A", "B"]


def test_positional_arguments_are_deprecated(impl):
    m = leaf(impl, "w")
    given = {}
    with warns(FutureWarning, "Positional args are being deprecated"):
        assert m.state_dict(given, "a.", True) is given
    assert given["a.w"] is m.w
    with warns(FutureWarning, "Positional args are being deprecated"):
        sd = m.state_dict(None, "b.")
    assert list(sd) == ["b.w"]


def test_keywords_win_over_positional_arguments(impl):
    m = leaf(impl, "w")
    one, two = {}, {}
    with warns(FutureWarning, "Positional args are being deprecated"):
        assert m.state_dict(one, "a.", destination=two, prefix="b.") is two
    assert one == {} and list(two) == ["b.w"]


def test_destination_that_takes_no_items(impl):
    with raises(TypeError, "does not support item assignment"):
        leaf(impl, "w").state_dict(destination=5)


def test_unknown_keyword(impl):
    with raises(TypeError, "unexpected keyword"):
        leaf(impl, "w").state_dict(nonsense=1)


# -- versions and metadata -----------------------------------------------------------------------


def test_version_of_the_class_and_of_the_instance(impl):
    class Two(impl.nn.Module):
        _version = 2

    m = impl.nn.Module()
    m.a, m.b, m.c = Two(), Two(), impl.nn.Module()
    m.b._version = 7
    m.c._version = None
    assert {k: v["version"] for k, v in m.state_dict()._metadata.items()} == {
        **{"": 1, "a": 2},
        **{"b": 7, "c": None},
    }


def test_metadata_survives_copies(impl):
    sd = tree(impl).state_dict()
    for again in (copy.copy(sd), copy.deepcopy(sd), pickle.loads(pickle.dumps(sd))):
        assert isinstance(again, OrderedDict)
        assert list(again) == KEYS
        assert again._metadata == sd._metadata


def test_deepcopy_owns_its_storage(impl):
    net = tree(impl)
    twin = copy.deepcopy(net.state_dict())
    assert not storage_shared(twin["gain"], net.gain)


def test_two_results_share_no_metadata(impl):
    net = tree(impl)
    one, two = net.state_dict(), net.state_dict()
    assert one._metadata == two._metadata
    assert one._metadata is not two._metadata
    assert one._metadata[""] is not two._metadata[""]


def test_ordered_dict_methods_work_on_the_result(impl):
    sd = leaf(impl, "a", "b").state_dict()
    sd.move_to_end("a")
    assert list(sd) == ["b", "a"]
    sd["c"] = 1
    assert list(sd.pop("c") for _ in range(1)) == [1]
    assert sd.popitem(last=False)[0] == "b"
    assert len(sd) == 1


# -- extra state ---------------------------------------------------------------------------------


def test_extra_state_comes_last_of_its_module(impl):
    class Extra(impl.nn.Module):
        def get_extra_state(self):
            return {"n": 1}

    m = impl.nn.Module()
    m.child = Extra()
    m.child.register_buffer("b", impl.lib.tensor([1.0]))
    m.child.grandchild = leaf(impl, "w")
    sd = m.state_dict(prefix="p.")
    assert list(sd) == ["p.child.b", "p.child._extra_state", "p.child.grandchild.w"]
    assert sd["p.child._extra_state"] == {"n": 1}


def test_extra_state_may_be_none(impl):
    class Extra(impl.nn.Module):
        def get_extra_state(self):
            return None

    assert dict(Extra().state_dict()) == {"_extra_state": None}


def test_extra_state_of_an_instance_is_ignored(impl):
    m = impl.nn.Module()
    m.get_extra_state = lambda: 1
    assert dict(m.state_dict()) == {}


def test_extra_state_overwrites_a_buffer_of_that_name(impl):
    class Extra(impl.nn.Module):
        def get_extra_state(self):
            return "mine"

    m = Extra()
    m.register_buffer("_extra_state", impl.lib.tensor([1.0]))
    assert dict(m.state_dict()) == {"_extra_state": "mine"}


def test_exception_in_extra_state(impl):
    class Extra(impl.nn.Module):
        def get_extra_state(self):
            raise LookupError("extra")

    with raises(LookupError, "extra"):
        impl.nn.Sequential(Extra()).state_dict()


# -- overrides -----------------------------------------------------------------------------------


def test_save_to_state_dict_is_virtual_and_positional(impl):
    calls = []

    class Own(impl.nn.Module):
        def _save_to_state_dict(self, *args, **kwargs):
            calls.append((args, kwargs))
            args[0][args[1] + "mine"] = 1

    m = impl.nn.Sequential(Own())
    m[0].w = impl.nn.Parameter(impl.lib.tensor([1.0]))
    sd = m.state_dict(keep_vars=True)
    assert dict(sd) == {"0.mine": 1}
    (args, kwargs) = calls[0]
    assert args[0] is sd and args[1:] == ("0.", True) and kwargs == {}


def test_save_to_state_dict_may_call_super(impl):
    class Own(impl.nn.Module):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "renamed"] = destination.pop(prefix + "w")

    m = impl.nn.Module()
    m.child = Own()
    m.child.w = impl.nn.Parameter(impl.lib.tensor([1.0]))
    m.child.register_buffer("b", impl.lib.tensor([1.0]))
    assert list(m.state_dict()) == ["child.b", "child.renamed"]


def test_save_to_state_dict_as_an_instance_attribute(impl):
    m = impl.nn.Sequential(leaf(impl, "w"))
    m[0]._save_to_state_dict = lambda d, prefix, keep: d.update({prefix + "x": keep})
    assert dict(m.state_dict()) == {"0.x": False}


def test_save_to_state_dict_direct(impl):
    m = leaf(impl, "w")
    m.child = leaf(impl, "v")
    d = {}
    assert m._save_to_state_dict(d, "p.", False) is None
    assert list(d) == ["p.w"]


def test_child_state_dict_is_virtual_and_its_result_ignored(impl):
    calls = []

    class Own(impl.nn.Module):
        def state_dict(self, *args, **kwargs):
            calls.append((args, kwargs))
            return "ignored"

    m = impl.nn.Module()
    m.child = Own()
    m.last = leaf(impl, "w")
    sd = m.state_dict(prefix="p.")
    assert calls == [((), {"destination": sd, "prefix": "p.child.", "keep_vars": False})]
    assert calls[0][1]["destination"] is sd
    assert list(sd) == ["p.last.w"]


def test_child_state_dict_with_the_old_signature(impl):
    class Old(impl.nn.Module):
        def state_dict(self, destination=None, prefix="", keep_vars=False):
            destination[prefix + "old"] = keep_vars
            return destination

    m = impl.nn.Sequential(Old())
    assert dict(m.state_dict(keep_vars=True)) == {"0.old": True}


def test_child_state_dict_as_an_instance_attribute(impl):
    m = impl.nn.Sequential(leaf(impl, "w"))
    m[0].state_dict = lambda **k: k["destination"].update(x=1)
    assert dict(m.state_dict()) == {"x": 1}


def test_child_state_dict_may_call_super(impl):
    class Own(impl.nn.Module):
        def state_dict(self, *args, **kwargs):
            sd = super().state_dict(*args, **kwargs)
            sd[kwargs["prefix"] + "more"] = 1
            return sd

    m = impl.nn.Sequential(Own())
    m[0].w = impl.nn.Parameter(impl.lib.tensor([1.0]))
    assert list(m.state_dict()) == ["0.w", "0.more"]


def test_overridden_children_are_not_used(impl):
    class Hidden(impl.nn.Module):
        def children(self):
            return iter(())

        def named_children(self):
            return iter(())

    m = Hidden()
    m.child = leaf(impl, "w")
    assert list(m.state_dict()) == ["child.w"]


def test_entries_put_directly_into_the_registries(impl):
    m = impl.nn.Module()
    m._parameters["p"] = impl.lib.tensor([1.0])
    m._modules["c"] = leaf(impl, "w")
    assert list(m.state_dict()) == ["p", "c.w"]


def test_entries_that_are_no_tensors(impl):
    m = impl.nn.Module()
    m._parameters["p"] = 5
    with raises(AttributeError, "detach"):
        m.state_dict()
    assert dict(m.state_dict(keep_vars=True)) == {"p": 5}


def test_missing_init(impl):
    class Forgot(impl.nn.Module):
        def __init__(self):
            pass

    with raises(AttributeError, "'Forgot' object has no attribute '_state_dict_pre_hooks'"):
        Forgot().state_dict()


def test_cycle_is_a_recursion_error(impl):
    m = impl.nn.Module()
    m.again = m
    with pytest.raises(RecursionError):
        m.state_dict()


# -- better than torch ---------------------------------------------------------------------------


def test_copy_keeps_the_metadata(ours):
    sd = tree(ours).state_dict()
    again = sd.copy()
    assert type(again) is type(sd)
    assert list(again) == KEYS and again["gain"] is sd["gain"]
    assert again._metadata == sd._metadata
    again["new"] = 1
    assert "new" not in sd


def test_clone_gives_values_of_their_own(ours):
    net = tree(ours)
    sd = net.state_dict(clone=True)
    assert list(sd) == KEYS
    assert values(sd["gain"]) == [5.0]
    assert not any(storage_shared(sd[k], v) for k, v in net.state_dict(keep_vars=True).items())
    assert sd._metadata == net.state_dict()._metadata
    with ours.lib.no_grad():
        net.gain.fill_(8.0)
    assert values(sd["gain"]) == [5.0]


def test_cycle_is_named(ours):
    a, b = ours.nn.Module(), ours.nn.Module()
    a.down, b.up = b, a
    with pytest.raises(RecursionError, match="(?s)(down.*up)|(up.*down)"):
        a.state_dict()
