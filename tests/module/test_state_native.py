# SPDX-License-Identifier: BSD-3-Clause
"""What modtree's state dicts do better than torch's: linear loads, nothing half loaded, copies that
keep metadata.
"""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref
from collections import OrderedDict

import pytest
from helpers.implementations import needs_torch
from helpers.support import leaf, quiet, raises, storage_shared, tree, values, warns


def wide(impl, count):
    root = impl.nn.Module()
    for i in range(count):
        root.add_module(f"c{i}", leaf(impl, "w"))
    return root


# -- the result of state_dict ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "copied",
    [lambda sd: sd.copy(), copy.copy, copy.deepcopy],
    ids=["copy", "copy.copy", "deepcopy"],
)
@pytest.mark.parametrize("looked_at", [False, True])
def test_copies_keep_the_metadata(ours, copied, looked_at):
    sd = tree(ours).state_dict()
    if looked_at:
        assert sd._metadata[""] == {"version": 1}
    other = copied(sd)
    assert type(other) is type(sd)
    assert list(other) == list(sd)
    assert other._metadata == sd._metadata
    assert list(other._metadata) == ["", "body", "body.first", "body.second", "head"]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("looked_at", [False, True])
def test_pickled_as_torch_does_it(impl, protocol, looked_at):
    """Files of checkpoints name no class of ours: torch alone can read them."""
    sd = tree(impl).state_dict()
    if looked_at:
        assert sd._metadata[""] == {"version": 1}
    other = pickle.loads(pickle.dumps(sd, protocol))
    assert type(other) is OrderedDict
    assert list(other) == list(sd)
    assert other._metadata == sd._metadata
    assert list(other._metadata) == ["", "body", "body.first", "body.second", "head"]


@needs_torch
def test_the_restricted_unpickler_of_torch_reads_state_dicts():
    import torch

    import modtree

    m = modtree.nn.Module()
    m.p = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    file = io.BytesIO()
    torch.save(m.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert loaded["p"].tolist() == [1.0, 2.0]
    assert loaded._metadata == {"": {"version": 1}}
    assert m.load_state_dict(loaded) == ([], [])


def test_deepcopy_of_a_state_dict_keeps_sharing(ours):
    sd = tree(ours).state_dict()
    sd["again"] = sd["gain"]
    sd._metadata["own"] = sd
    other = copy.deepcopy(sd)
    assert other["again"] is other["gain"] is not sd["gain"]
    assert other._metadata["own"] is other


def test_shallow_copies_share_values_and_metadata(ours):
    sd = tree(ours).state_dict()
    other = sd.copy()
    assert other is not sd
    assert other._metadata is sd._metadata
    assert all(other[k] is sd[k] for k in sd)
    other["new"] = 1
    assert "new" not in sd


def test_metadata_can_be_replaced_and_deleted(ours):
    sd = tree(ours).state_dict()
    sd._metadata = given = OrderedDict()
    assert sd._metadata is given
    sd = tree(ours).state_dict()
    assert hasattr(sd, "_metadata")
    del sd._metadata
    assert not hasattr(sd, "_metadata")
    sd = tree(ours).state_dict()
    del sd._metadata
    assert not hasattr(sd, "_metadata")
    assert not hasattr(sd.copy(), "_metadata")


def test_metadata_is_of_the_time_of_the_walk(ours):
    net = tree(ours)
    sd = net.state_dict()
    type(net)._version = 7
    net.added = leaf(ours, "w")
    assert list(sd._metadata) == ["", "body", "body.first", "body.second", "head"]
    assert sd._metadata[""] == {"version": 1}
    assert net.state_dict()._metadata[""] == {"version": 7}


def test_metadata_of_a_walk_in_which_python_code_starts_late(ours):
    seen = []

    class Late(ours.nn.Module):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            seen.append(list(destination._metadata))

    root = leaf(ours, "w")
    root.a = leaf(ours, "w")
    root.b = Late()
    root.c = leaf(ours, "w")
    root.register_state_dict_post_hook(lambda m, sd, prefix, local: local.update(extra=1))
    sd = root.state_dict()
    assert seen == [["", "a", "b"]]
    assert list(sd._metadata) == ["", "a", "b", "c"]
    assert sd._metadata[""] == {"version": 1, "extra": 1}


def test_state_dict_does_not_keep_the_module_alive(ours):
    net = tree(ours)
    sd = net.state_dict()
    ref = weakref.ref(net)
    del net
    gc.collect()
    assert ref() is None
    assert len(sd._metadata) == 5


def test_clone_makes_copies(ours):
    net = tree(ours)
    given = {"mine": net.gain}
    with quiet():
        sd = net.state_dict(clone=True)
        net.state_dict(clone=True, destination=given)
    assert list(sd) == list(net.state_dict())
    assert not storage_shared(sd["gain"], net.gain)
    assert values(sd["gain"]) == values(net.gain)
    assert not sd["gain"].requires_grad
    assert given["mine"] is net.gain
    with raises(ValueError, "clone=True"):
        net.state_dict(clone=True, keep_vars=True)


def test_clone_reaches_children_with_a_state_dict_of_their_own(ours):
    class Own(ours.nn.Module):
        def state_dict(self, destination, prefix, keep_vars):
            return super().state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)

    root = ours.nn.Module()
    root.own = Own()
    root.own.w = ours.nn.Parameter(ours.lib.zeros(2))
    assert not storage_shared(root.state_dict(clone=True)["own.w"], root.own.w)


# -- hooks -----------------------------------------------------------------------------------------


class Counter:
    def __init__(self):
        self.calls = 0

    def hook(self, module, state_dict, prefix, local_metadata):
        self.calls += 1


def test_any_callable_may_be_a_post_hook(ours):
    counter = Counter()
    m = leaf(ours, "w")
    handle = m.register_state_dict_post_hook(counter.hook)
    m.register_state_dict_post_hook(print)
    m.state_dict()
    assert counter.calls == 1
    handle.remove()
    m.state_dict()
    assert counter.calls == 1


def test_public_registration_does_not_change_private_ones_elsewhere(ours):
    def hook(module, state_dict, prefix, local_metadata):
        return {"replaced": True}

    private, public = leaf(ours, "w"), leaf(ours, "w")
    private._register_state_dict_hook(hook)
    public.register_state_dict_post_hook(hook)
    assert private.state_dict() == {"replaced": True}
    with raises(RuntimeError, "state_dict post-hook must return None"):
        public.state_dict()
    assert list(public._state_dict_hooks.values()) == [hook]


# -- trees -----------------------------------------------------------------------------------------


def test_chain_of_100000_modules(ours):
    root = m = ours.nn.Module()
    for _ in range(100_000):
        m.c = ours.nn.Module()
        m = m.c
    m.w = ours.nn.Parameter(ours.lib.zeros(1))
    sd = root.state_dict()
    assert [len(k) for k in sd] == [200_001]
    sd = {k: ours.lib.tensor([3.0]) for k in sd}
    assert root.load_state_dict(sd) == ([], [])
    assert values(m.w) == [3.0]


def test_cycle_is_named(ours):
    root = leaf(ours, "w")
    root.a = leaf(ours, "w")
    root.a.b = leaf(ours, "w")
    sd = root.state_dict()
    root.a.b.up = root.a
    for run in (root.state_dict, lambda: root.load_state_dict(sd, strict=False)):
        with pytest.raises(RecursionError, match="'up' of module 'a.b'.*at 'a' again"):
            run()
    for _ in range(200):
        new = leaf(ours, "w")
        new.down = root
        root = new
    with pytest.raises(RecursionError, match="cycle"):
        root.state_dict()


def test_cycle_through_overrides_is_an_error(ours):
    class Own(ours.nn.Module):
        def _load_from_state_dict(self, *args):
            super()._load_from_state_dict(*args)

        def _save_to_state_dict(self, *args):
            super()._save_to_state_dict(*args)

    m = Own()
    m.down = Own()
    m.down.up = m
    with pytest.raises(RecursionError):
        m.state_dict()
    with pytest.raises(RecursionError, match="cycle"):
        m.load_state_dict({}, strict=False)


# -- loads are linear ------------------------------------------------------------------------------


class CountingKey(str):
    """Counts the prefix tests that torch makes for every child."""

    tests = 0

    def startswith(self, *args):
        CountingKey.tests += 1
        return super().startswith(*args)


def test_no_prefix_tests_however_wide_the_tree(ours):
    root = wide(ours, 300)
    sd = {CountingKey(k): v for k, v in root.state_dict().items()}
    CountingKey.tests = 0
    assert root.load_state_dict(sd) == ([], [])
    assert CountingKey.tests == 0


def test_overrides_get_only_their_own_entries_in_order(ours):
    seen = []

    class Own(ours.nn.Module):
        def _load_from_state_dict(self, state_dict, prefix, *rest):
            assert type(state_dict) is dict
            seen.append((prefix, list(state_dict)))
            super()._load_from_state_dict(state_dict, prefix, *rest)

    root = leaf(ours, "w")
    for i in range(20):
        own = Own()
        own.w = ours.nn.Parameter(ours.lib.zeros(1))
        own.inner = leaf(ours, "x")
        own.deep = Own()
        own.deep.y = ours.nn.Parameter(ours.lib.zeros(1))
        root.add_module(f"o{i}", own)
    sd = root.state_dict()
    backwards = dict(reversed(list(sd.items())))
    root.load_state_dict(backwards)
    want = []
    for i in range(20):
        want.append((f"o{i}.", [f"o{i}.deep.y", f"o{i}.inner.x", f"o{i}.w"]))
        want.append((f"o{i}.deep.", [f"o{i}.deep.y"]))
    assert seen == want


def test_changes_of_an_override_reach_its_descendants_only(ours):
    class Renaming(ours.nn.Module):
        def _load_from_state_dict(self, state_dict, prefix, *rest):
            for key in [k for k in state_dict if k.endswith("old")]:
                state_dict[key[:-3] + "w"] = state_dict.pop(key)
            super()._load_from_state_dict(state_dict, prefix, *rest)

    root = ours.nn.Module()
    root.a = Renaming()
    root.a.inner = leaf(ours, "w")
    root.a.inner.deep = leaf(ours, "w")
    root.b = leaf(ours, "w")
    new = ours.lib.tensor([8.0, 9.0])
    sd = {"a.inner.old": new, "a.inner.deep.old": new, "b.old": new}
    assert root.load_state_dict(sd, strict=False) == (["b.w"], ["b.old"])
    assert values(root.a.inner.deep.w) == values(root.a.inner.w) == [8.0, 9.0]
    assert list(sd) == ["a.inner.old", "a.inner.deep.old", "b.old"]


# -- all or nothing --------------------------------------------------------------------------------

BROKEN = {
    "missing": lambda lib, sd: sd.pop("b"),
    "unexpected": lambda lib, sd: sd.update(more=lib.zeros(1)),
    "shape": lambda lib, sd: sd.update(b=lib.zeros(3)),
    "type": lambda lib, sd: sd.update(b=3),
}


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("broken", BROKEN)
def test_nothing_is_written_when_a_load_fails(ours, broken, assign):
    m = leaf(ours, "a", "b")
    m.inner = leaf(ours, "a")
    old = dict(m.named_parameters())
    sd = {k: ours.lib.zeros(2) for k in m.state_dict()}
    BROKEN[broken](ours.lib, sd)
    with pytest.raises(RuntimeError, match="Error"):
        m.load_state_dict(sd, assign=assign)
    assert dict(m.named_parameters()) == old
    assert values(m.a) == [1.0, 2.0] and values(m.inner.a) == [1.0, 2.0]


def test_lenient_load_still_writes_what_fits(ours):
    m = leaf(ours, "a", "b")
    zeros = ours.lib.zeros(2)
    assert m.load_state_dict({"a": zeros, "more": zeros}, strict=False) == (["b"], ["more"])
    assert values(m.a) == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="size mismatch for b"):
        m.load_state_dict({"a": zeros + 1, "b": ours.lib.zeros(3)}, strict=False)
    assert values(m.a) == [0.0, 0.0]


def test_native_modules_before_an_override_stay_whole_too(ours):
    class Own(ours.nn.Module):
        def _load_from_state_dict(self, *args):
            super()._load_from_state_dict(*args)

    m = leaf(ours, "a")
    m.own = Own()
    m.own.w = ours.nn.Parameter(ours.lib.tensor([1.0]))
    m.last = leaf(ours, "a")
    sd = {k: v * 0 for k, v in m.state_dict().items()}
    sd["last.a"] = ours.lib.zeros(5)
    with pytest.raises(RuntimeError, match=r"size mismatch for last\.a"):
        m.load_state_dict(sd)
    assert values(m.a) == [1.0, 2.0]
    assert values(m.own.w) == [0.0]  # as in torch: it loads when its turn comes


def test_hook_that_forgives_missing_keys_gets_everything_loaded(ours):
    m = leaf(ours, "a", "b")
    m.inner = leaf(ours, "a")

    def forgive(module, keys):
        assert values(module.a) == [0.0, 0.0]
        keys.missing_keys.clear()

    m.register_load_state_dict_post_hook(forgive)
    zeros = ours.lib.zeros(2)
    m.load_state_dict({"a": zeros, "inner.a": zeros})
    assert values(m.a) == values(m.inner.a) == [0.0, 0.0]


def test_override_that_forgives_gets_everything_loaded(ours):
    class Forgiving(ours.nn.Module):
        def _load_from_state_dict(self, sd, prefix, local, strict, missing, unexpected, errors):
            missing.clear()

    m = leaf(ours, "a", "b")
    m.last = Forgiving()
    m.load_state_dict({"a": ours.lib.zeros(2)})
    assert values(m.a) == [0.0, 0.0]
    assert values(m.b) == [2.0, 3.0]


# -- checkpoints that are not what they should be --------------------------------------------------


@pytest.mark.parametrize("child", [False, True])
def test_key_that_is_no_string(ours, child):
    m = leaf(ours, "w")
    if child:
        m.child = leaf(ours, "w")
    with raises(TypeError, "must be str", "int: 3"):
        m.load_state_dict({**m.state_dict(), 3: 1})


@pytest.mark.parametrize("junk", [5, "text", {"": 5}, {"child": None}], ids=repr)
def test_junk_metadata(ours, junk):
    m = leaf(ours, "w")
    m.child = leaf(ours, "w")
    sd = m.state_dict()
    sd._metadata = junk
    with raises(TypeError, "_metadata"):
        m.load_state_dict(sd)
    sd._metadata = {"elsewhere": 5}
    m.load_state_dict(sd)


def test_assign_leaves_the_metadata_of_the_checkpoint_alone(ours):
    m = leaf(ours, "w")
    sd = m.state_dict()
    assert m.load_state_dict(sd, assign=True) == ([], [])
    assert sd._metadata == {"": {"version": 1}}
    with_hook = leaf(ours, "w")
    with_hook._register_load_state_dict_pre_hook(lambda *args: None)
    with_hook.load_state_dict(sd, assign=True)
    assert sd._metadata == {"": {"version": 1}}
    old = with_hook.w
    with_hook.load_state_dict(sd)
    assert with_hook.w is old


def test_dotted_names_follow_torch(impl):
    m = leaf(impl, "w")
    with quiet():
        setattr(m, "a.b", leaf(impl, "w"))
    sd = m.state_dict()
    assert list(sd) == ["w", "a.b.w"]
    assert m.load_state_dict(sd, strict=False) == ([], ["a.b.w"])


def test_order_of_unexpected_keys(impl):
    m = leaf(impl, "w")
    m.a = leaf(impl, "w")
    m.a.b = leaf(impl, "w")
    m.add_module("none", None)
    one = impl.lib.tensor([1.0, 2.0])
    keys = [
        "x.y",
        "a.b.q",
        "a._extra_state",
        "a.z",
        "a.b.c.d",
        "w",
        "a.w",
        "a.b.w",
        "none.w",
        "a",
        "_extra_state",
        "x",
    ]
    got = m.load_state_dict({k: one for k in keys}, strict=False)
    assert got.missing_keys == []
    assert got.unexpected_keys == [
        *("_extra_state", "x.y", "a", "x"),
        *("a._extra_state", "a.z", "a.b.q", "a.b.c.d"),
    ]


def test_meta_load_warns(impl):
    m = impl.nn.Module()
    m.w = impl.nn.Parameter(impl.lib.zeros(2, device="meta"))
    with warns(UserWarning, "which is a no-op"):
        m.load_state_dict({"w": impl.lib.zeros(2)})


def test_module_changed_by_a_hook_during_a_walk(ours):
    m = leaf(ours, "a")
    m.child = leaf(ours, "w")

    def drop(module, prefix, keep_vars):
        del m.child

    m.child.register_state_dict_pre_hook(drop)
    with raises(RuntimeError, "changed size"):
        m.state_dict()
