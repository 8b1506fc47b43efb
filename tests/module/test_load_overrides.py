# SPDX-License-Identifier: BSD-3-Clause
"""Classes with their own ``_load_from_state_dict``, versions and extra state."""

from __future__ import annotations

import pytest
from helpers.support import leaf, raises, values


def numbers(impl, *keys):
    return {k: impl.lib.tensor([float(i), float(i)]) for i, k in enumerate(keys)}


def with_w(impl, cls, *names):
    m = cls()
    for name in names or ("w",):
        m.register_parameter(name, impl.nn.Parameter(impl.lib.tensor([-1.0, -2.0])))
    return m


def recorder(impl, calls):
    class Records(impl.nn.Module):
        def _load_from_state_dict(self, *args, **kwargs):
            calls.append((self, args, kwargs))
            super()._load_from_state_dict(*args, **kwargs)

    return Records


# -- the contract --------------------------------------------------------------------------------


def test_arguments(impl):
    calls = []
    cls = recorder(impl, calls)
    m = with_w(impl, cls)
    m.child = with_w(impl, cls)
    sd = m.state_dict()
    m.load_state_dict(sd, strict=False)
    (root, root_args, root_kwargs), (child, child_args, child_kwargs) = calls
    assert (root, child) == (m, m.child) and root_kwargs == child_kwargs == {}
    assert len(root_args) == len(child_args) == 7
    assert root_args[0] is not sd and list(root_args[0]) == ["w", "child.w"]
    assert root_args[0]._metadata == sd._metadata
    assert type(child_args[0]) is dict and list(child_args[0]) == ["child.w"]
    assert not hasattr(child_args[0], "_metadata")
    assert (root_args[1], child_args[1]) == ("", "child.")
    assert root_args[2] == child_args[2] == {"version": 1}
    assert root_args[3] is child_args[3] is True
    assert all(a is b for a, b in zip(root_args[4:], child_args[4:], strict=True))


def test_local_metadata_without_metadata(impl):
    calls = []
    m = with_w(impl, recorder(impl, calls))
    m.load_state_dict(numbers(impl, "w"))
    assert calls[0][1][2] == {}
    m.load_state_dict(numbers(impl, "w"), assign=True)
    assert calls[1][1][2] == {"assign_to_params_buffers": True}


def test_order_of_the_calls(impl):
    calls = []
    cls = recorder(impl, calls)
    root = cls()
    root.a = cls()
    root.a.x = cls()
    root.none = cls()
    root.none = None
    root.b = cls()
    root.again = root.a
    root.load_state_dict({})
    assert [c[1][1] for c in calls] == ["", "a.", "a.x.", "b.", "again.", "again.x."]


def test_child_dict_is_a_new_one_in_the_order_of_the_parent(impl):
    calls = []
    cls = recorder(impl, calls)
    m = impl.nn.Module()
    m.c = cls()
    m.c.d = cls()
    keys = ["c.z", "x", "c.d.q", "c.a", "cc.y", "c", "c.d", "c.d.b"]
    m.load_state_dict(numbers(impl, *keys), strict=False)
    assert [list(c[1][0]) for c in calls] == [
        ["c.z", "c.d.q", "c.a", "c.d", "c.d.b"],
        ["c.d.q", "c.d.b"],
    ]
    assert calls[0][1][0] is not calls[1][1][0]


def test_child_load_state_dict_is_never_called(impl):
    class Own(impl.nn.Module):
        def load_state_dict(self, *args, **kwargs):
            raise AssertionError("not used by the parent")

    m = impl.nn.Sequential(with_w(impl, Own))
    m.load_state_dict(numbers(impl, "x", "0.w"), strict=False)
    assert values(m[0].w) == [1.0, 1.0]


def test_override_that_loads_nothing(impl):
    class Own(impl.nn.Module):
        def _load_from_state_dict(self, *args):
            return "ignored"

    m = impl.nn.Module()
    m.own = with_w(impl, Own)
    m.own.inner = leaf(impl, "v")
    assert m.load_state_dict(numbers(impl, "own.zzz", "own.inner.v")) == ([], [])
    assert values(m.own.w) == [-1.0, -2.0]
    assert values(m.own.inner.v) == [1.0, 1.0]


def test_override_as_an_instance_attribute(impl):
    m = impl.nn.Sequential(leaf(impl, "w"))
    seen = []
    m[0]._load_from_state_dict = lambda *a: seen.append(a[1])
    assert m.load_state_dict({}) == ([], [])
    assert seen == ["0."]


def test_override_patched_into_the_class_later(impl):
    class Own(impl.nn.Module):
        pass

    m = impl.nn.Sequential(with_w(impl, Own))
    m.load_state_dict(numbers(impl, "0.w"))
    seen = []
    Own._load_from_state_dict = lambda self, *a: seen.append(a[1])
    m.load_state_dict(numbers(impl, "0.w"))
    del Own._load_from_state_dict
    m.load_state_dict(numbers(impl, "0.w"))
    assert seen == ["0."]


def test_override_in_a_mixin(impl):
    class Mixin:
        def _load_from_state_dict(self, state_dict, prefix, *args):
            state_dict[prefix + "w"] = state_dict.pop(prefix + "old")
            super()._load_from_state_dict(state_dict, prefix, *args)

    class Own(Mixin, impl.nn.Module):
        pass

    m = impl.nn.Sequential(with_w(impl, Own))
    m.load_state_dict(numbers(impl, "0.old"))
    assert values(m[0].w) == [0.0, 0.0]


def test_exceptions_propagate(impl):
    class Own(impl.nn.Module):
        def _load_from_state_dict(self, *args):
            raise LookupError("own")

    with raises(LookupError, "own"):
        impl.nn.Sequential(Own()).load_state_dict({})


def test_direct_call(impl):
    m = leaf(impl, "w", "v")
    m.child = leaf(impl, "x")
    missing, unexpected, errors = [], [], []
    sd = numbers(impl, "p.w", "p.zzz", "p.child.x", "p.other.x", "q")
    assert m._load_from_state_dict(sd, "p.", {}, True, missing, unexpected, errors) is None
    assert values(m.w) == [0.0, 0.0] and values(m.child.x) == [1.0, 2.0]
    assert (missing, unexpected, errors) == (["p.v"], ["p.zzz", "p.other.x"], [])
    missing, unexpected = [], []
    m._load_from_state_dict(sd, "p.", {}, False, missing, unexpected, errors)
    assert (missing, unexpected) == ([], [])
    m._load_from_state_dict({"p.w": 3}, "p.", {}, False, missing, unexpected, errors)
    assert len(errors) == 1 and 'parameter named "p.w"' in errors[0]


def test_direct_call_with_the_assign_flag(impl):
    m = leaf(impl, "w")
    old = m.w
    flags = {"assign_to_params_buffers": True}
    m._load_from_state_dict(numbers(impl, "w"), "", flags, True, [], [], [])
    assert m.w is not old and values(m.w) == [0.0, 0.0]


# -- renaming ------------------------------------------------------------------------------------


def renaming(impl, old, new):
    class Renames(impl.nn.Module):
        def _load_from_state_dict(self, state_dict, prefix, *args):
            for key in list(state_dict):
                if key.startswith(prefix + old):
                    state_dict[prefix + new + key[len(prefix + old) :]] = state_dict.pop(key)
            super()._load_from_state_dict(state_dict, prefix, *args)

    return Renames


def test_child_renames_its_own_keys(impl):
    m = impl.nn.Module()
    m.child = with_w(impl, renaming(impl, "old", "w"))
    m.sibling = leaf(impl, "w")
    m.load_state_dict(numbers(impl, "child.old", "sibling.w"))
    assert values(m.child.w) == [0.0, 0.0]


def test_parent_renames_keys_of_its_children(impl):
    m = renaming(impl, "before.", "after.")()
    m.after = leaf(impl, "w")
    m.other = leaf(impl, "w")
    m.load_state_dict(numbers(impl, "before.w", "other.w"))
    assert values(m.after.w) == [0.0, 0.0]
    assert values(m.other.w) == [1.0, 1.0]


def test_middle_renames_for_its_descendants_only(impl):
    m = impl.nn.Module()
    m.x = renaming(impl, "old.", "new.")()
    m.x.new = leaf(impl, "w")
    m.y = impl.nn.Module()
    m.y.new = leaf(impl, "w")
    result = m.load_state_dict(numbers(impl, "x.old.w", "y.old.w"), strict=False)
    assert values(m.x.new.w) == [0.0, 0.0]
    assert result == (["y.new.w"], ["y.old.w"])


def test_keys_outside_the_prefix_are_lost(impl):
    class Leaks(impl.nn.Module):
        def _load_from_state_dict(self, state_dict, prefix, *args):
            state_dict["b.w"] = state_dict[prefix + "w"]
            super()._load_from_state_dict(state_dict, prefix, *args)

    m = impl.nn.Module()
    m.a = with_w(impl, Leaks)
    m.b = leaf(impl, "w")
    result = m.load_state_dict(numbers(impl, "a.w"), strict=False)
    assert result == (["b.w"], [])


def test_key_order_after_a_rename_decides_the_order_of_unexpected_keys(impl):
    m = renaming(impl, "old", "zzz")()
    result = m.load_state_dict(numbers(impl, "old", "a", "b"), strict=False)
    assert result == ([], ["a", "b", "zzz"])


def test_values_replaced_by_a_parent(impl):
    class Scales(impl.nn.Module):
        def _load_from_state_dict(self, state_dict, prefix, *args):
            for key in state_dict:
                state_dict[key] = state_dict[key] * 10
            super()._load_from_state_dict(state_dict, prefix, *args)

    m = Scales()
    m.child = leaf(impl, "w")
    m.load_state_dict({"child.w": impl.lib.tensor([1.0, 2.0])})
    assert values(m.child.w) == [10.0, 20.0]


def test_child_added_by_an_override_is_loaded(impl):
    class Grows(impl.nn.Module):
        def _load_from_state_dict(self, state_dict, prefix, *args):
            if not hasattr(self, "late"):
                self.late = leaf(impl, "w")
            super()._load_from_state_dict(state_dict, prefix, *args)

    m = impl.nn.Sequential(Grows())
    m.load_state_dict(numbers(impl, "0.late.w"))
    assert values(m[0].late.w) == [0.0, 0.0]


def test_messages_added_by_an_override(impl):
    class Complains(impl.nn.Module):
        def _load_from_state_dict(self, sd, prefix, meta, strict, missing, unexpected, errors):
            errors.append("complaint about " + prefix)
            missing.append(prefix + "dream")

    m = impl.nn.Module()
    m.first = leaf(impl, "w")
    m.own = Complains()
    m.last = leaf(impl, "w")
    with pytest.raises(RuntimeError) as info:
        m.load_state_dict({"last.w": 3})
    lines = str(info.value).split("\n\t")
    assert lines[1] == 'Missing key(s) in state_dict: "first.w", "own.dream". '
    assert lines[2] == "complaint about own."
    assert lines[3].startswith('While copying the parameter named "last.w"')
    assert len(lines) == 4


def test_overrides_see_native_siblings_messages(impl):
    seen = []

    class Looks(impl.nn.Module):
        def _load_from_state_dict(self, sd, prefix, meta, strict, missing, unexpected, errors):
            seen.append((list(missing), list(unexpected), len(errors)))

    m = leaf(impl, "a")
    m.first = leaf(impl, "w", "v")
    m.own = Looks()
    m.last = leaf(impl, "w")
    m.load_state_dict(
        {"first.zzz": 1, "first.w": impl.lib.tensor([1.0, 1.0]), "q": 1}, strict=False
    )
    assert seen == [(["a", "first.v"], ["q", "first.zzz"], 0)]


# -- versions ------------------------------------------------------------------------------------


def versioned(impl, seen):
    class Versioned(impl.nn.Module):
        _version = 3

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *args):
            seen.append(local_metadata.get("version"))
            if local_metadata.get("version") is None:
                state_dict.setdefault(prefix + "w", impl.lib.tensor([0.5, 0.5]))
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    return with_w(impl, Versioned)


def test_versions_reach_their_modules(impl):
    seen = []
    m = impl.nn.Module()
    m.child = impl.nn.Sequential(versioned(impl, seen))
    sd = m.state_dict()
    m.load_state_dict(sd)
    sd._metadata["child.0"]["version"] = 9
    m.load_state_dict(sd)
    del sd._metadata["child.0"]
    m.load_state_dict(sd)
    m.load_state_dict(dict(sd))
    m.load_state_dict({})
    assert seen == [3, 9, None, None, None]
    assert values(m.child[0].w) == [0.5, 0.5]


def test_metadata_none_is_no_metadata(impl):
    seen = []
    m = versioned(impl, seen)
    sd = m.state_dict()
    sd._metadata = None
    m.load_state_dict(sd)
    assert seen == [None]


def test_local_metadata_is_the_entry_itself(impl):
    calls = []
    m = with_w(impl, recorder(impl, calls))
    sd = m.state_dict()
    m.load_state_dict(sd)
    assert calls[0][1][2] is sd._metadata[""]


def test_metadata_of_any_dict_subclass(impl):
    class Checkpoint(dict):
        pass

    seen = []
    m = versioned(impl, seen)
    sd = Checkpoint(m.state_dict())
    sd._metadata = {"": {"version": 5}}
    m.load_state_dict(sd)
    assert seen == [5]


# -- extra state ---------------------------------------------------------------------------------


def extra(impl):
    class Extra(impl.nn.Module):
        state = None

        def get_extra_state(self):
            return self.state

        def set_extra_state(self, state):
            self.state = state

    return Extra


def test_extra_state_round_trip(impl):
    cls = extra(impl)
    a, b = impl.nn.Sequential(cls()), impl.nn.Sequential(cls())
    a[0].state = {"any": object}
    b.load_state_dict(a.state_dict())
    assert b[0].state is a[0].state


def test_missing_extra_state(impl):
    m = impl.nn.Module()
    m.child = with_w(impl, extra(impl))
    with raises(RuntimeError, 'Missing key(s) in state_dict: "child.w", "child._extra_state". '):
        m.load_state_dict({})


def test_unexpected_extra_state_comes_first(impl):
    m = leaf(impl, "w")
    result = m.load_state_dict({"z": 1, "_extra_state": 2}, strict=False)
    assert result == (["w"], ["_extra_state", "z"])


def test_getter_alone_cannot_load_its_own_state(impl):
    class Getter(impl.nn.Module):
        def get_extra_state(self):
            return 1

    m = Getter()
    with raises(RuntimeError, 'Unexpected key(s) in state_dict: "_extra_state". '):
        m.load_state_dict(m.state_dict())


def test_setter_of_an_instance_is_ignored(impl):
    m = impl.nn.Module()
    m.set_extra_state = lambda state: None
    assert m.load_state_dict({"_extra_state": 1}, strict=False) == ([], ["_extra_state"])


def test_exception_in_the_setter_propagates(impl):
    class Fails(impl.nn.Module):
        def set_extra_state(self, state):
            raise LookupError("extra")

    with raises(LookupError, "extra"):
        impl.nn.Sequential(Fails()).load_state_dict({"0._extra_state": 1})


def test_extra_state_is_set_with_strict_false_too(impl):
    m = extra(impl)()
    m.load_state_dict({"_extra_state": 5}, strict=False)
    assert m.state == 5


# -- extra state that makes children -------------------------------------------------------------


def growing(impl):
    class Grows(impl.nn.Module):
        """Has as many children as its extra state says."""

        def __init__(self, size=0):
            super().__init__()
            self.own = impl.nn.Parameter(impl.lib.tensor([-1.0]))
            self.grow(size)

        def grow(self, size):
            self.size = size
            for i in range(size):
                setattr(self, f"c{i}", leaf(impl, "w"))

        def get_extra_state(self):
            return self.size

        def set_extra_state(self, size):
            self.grow(size)

    return Grows


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("nested", [False, True])
def test_children_that_extra_state_makes_are_loaded(impl, nested, strict):
    cls = growing(impl)

    def net(size):
        grown = cls(size)
        return impl.nn.Sequential(leaf(impl, "w"), grown, leaf(impl, "w")) if nested else grown

    target, path = net(0), "1." if nested else ""
    sd = numbers(impl, *(k for k in net(2).state_dict() if not k.endswith(("own", "_extra_state"))))
    sd |= {path + "own": impl.lib.tensor([5.0]), path + "_extra_state": 2}
    assert target.load_state_dict(sd, strict) == ([], [])
    assert sorted(target.state_dict()) == sorted(sd)
    assert all(values(v) == values(sd[k]) for k, v in target.named_parameters())


def test_children_that_extra_state_replaces_are_loaded(impl):
    class Rebuilds(impl.nn.Module):
        def __init__(self, size):
            super().__init__()
            self.set_extra_state(size)

        def get_extra_state(self):
            return self.inner.w.shape[0]

        def set_extra_state(self, size):
            self.inner = impl.nn.Module()
            self.inner.w = impl.nn.Parameter(impl.lib.zeros(size))

    for size in (2, 3):
        m = impl.nn.Sequential(Rebuilds(2), impl.nn.Sequential(Rebuilds(1)))
        old = m[0].inner
        sd = {"0.inner.w": impl.lib.ones(size), "0._extra_state": size}
        sd |= {"1.0.inner.w": impl.lib.ones(2), "1.0._extra_state": 2}
        m.load_state_dict(sd)
        assert m[0].inner is not old and values(m[0].inner.w) == [1.0] * size
        assert values(m[1][0].inner.w) == [1.0, 1.0]


def test_extra_state_inside_extra_state(impl):
    cls = growing(impl)

    class Outer(cls):
        def grow(self, size):
            self.size = size
            self.inner = impl.nn.Sequential(*(cls() for _ in range(size)))

    a, b = Outer(2), Outer(1)
    a.inner[1].grow(2)
    a.inner[1].c1.w.requires_grad_(False).copy_(impl.lib.tensor([7.0, 8.0]))
    assert b.load_state_dict(a.state_dict()) == ([], [])
    assert list(a.state_dict()) == list(b.state_dict())
    assert values(b.inner[1].c1.w) == [7.0, 8.0]


def test_keys_below_what_extra_state_made_are_judged(impl):
    cls = growing(impl)
    sd = numbers(impl, "c0.w", "c1.x", "c2.w") | {"own": impl.lib.ones(1), "_extra_state": 2}
    expected = (["c1.w"], ["c2.w", "c1.x"])
    assert cls().load_state_dict(dict(sd), strict=False) == expected
    with raises(RuntimeError, 'Missing key(s) in state_dict: "c1.w"', '"c2.w", "c1.x"'):
        cls().load_state_dict(sd)
    # Children for which there is no key at all.
    assert cls().load_state_dict({"_extra_state": 1}, strict=False) == (["own", "c0.w"], [])
    # A parameter that the setter makes comes too late.
    cls.grow = lambda self, size: size and self.register_parameter("late", self.own)
    sd = {"own": impl.lib.ones(1), "late": impl.lib.ones(1), "_extra_state": 2}
    assert cls().load_state_dict(sd, strict=False) == ([], ["late"])


def test_post_hooks_around_extra_state_that_makes_children(impl):
    seen = []
    for keys in (["0.c0.w"], []):
        m = impl.nn.Sequential(growing(impl)())
        for name, module in m.named_modules():
            module.register_load_state_dict_post_hook(
                lambda m, keys, name=name: seen.append((name, list(keys.missing_keys)))
            )
        sd = numbers(impl, *keys) | {"0.own": impl.lib.ones(1), "0._extra_state": 1}
        m.load_state_dict(sd, strict=False)
    assert seen == [("0", []), ("", []), ("0", ["0.c0.w"]), ("", ["0.c0.w"])]


def test_extra_state_is_not_set_when_the_load_fails_without_it(ours):
    cls = growing(ours)
    for wrong in ("0.w", "2.w"):
        m = ours.nn.Sequential(leaf(ours, "w"), cls(), leaf(ours, "w"))
        sd = numbers(ours, "0.w", "1.c0.w", "2.w") | {
            "1.own": ours.lib.ones(1),
            "1._extra_state": 1,
        }
        sd[wrong] = ours.lib.ones(5)
        with raises(RuntimeError, f"size mismatch for {wrong}"):
            m.load_state_dict(sd)
        assert m[1].size == 0 and values(m[0].w) == [1.0, 2.0] and values(m[1].own) == [-1.0]


def test_below_extra_state_nothing_is_written_when_something_is_wrong_there(ours):
    """Only the setter could tell, so it ran; see docs/compat.md."""
    m = ours.nn.Sequential(growing(ours)(), leaf(ours, "w"))
    sd = numbers(ours, "0.c0.w", "1.w") | {"0.own": ours.lib.ones(1), "0._extra_state": 2}
    with raises(RuntimeError, 'Missing key(s) in state_dict: "0.c1.w"'):
        m.load_state_dict(sd)
    assert m[0].size == 2 and values(m[0].c0.w) == [1.0, 2.0] == values(m[1].w)


def test_default_methods_refuse(impl):
    m = impl.nn.Module()
    with raises(RuntimeError, "get_extra_state"):
        m.get_extra_state()
    with raises(RuntimeError, "set_extra_state"):
        m.set_extra_state(1)
