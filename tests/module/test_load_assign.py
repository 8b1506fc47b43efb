# SPDX-License-Identifier: BSD-3-Clause
"""``load_state_dict``: into and from meta tensors, and with ``assign``."""

from __future__ import annotations

import pytest
from helpers.support import (
    dtype,
    leaf,
    parameter_type,
    raises,
    storage_shared,
    swap_mode,
    tree,
    values,
    warns,
)
from helpers.util import param, tensor

# -- meta ------------------------------------------------------------------------------------------


def test_loading_into_meta_warns(impl):
    m = leaf(impl, "w").to("meta")
    with warns(
        UserWarning,
        "copying from a non-meta parameter in the checkpoint to a meta parameter in the current "
        "model, "
        "which is a no-op. (Did you mean to pass `assign=True`",
    ):
        m.load_state_dict({"w": impl.lib.tensor([3.0, 4.0])})
    assert m.w.is_meta


def test_warning_names_key_and_assign(impl):
    m = impl.nn.Module()
    m.child = leaf(impl, "w").to("meta")
    with pytest.warns(UserWarning) as record:
        m.load_state_dict({"child.w": impl.lib.tensor([3.0, 4.0])})
    assert len(record) == 1
    assert "child.w" in str(record[0].message) and "assign=True" in str(record[0].message)


def test_meta_checkpoint_cannot_be_copied(impl):
    m = leaf(impl, "w")
    with raises(
        RuntimeError,
        'While copying the parameter named "w", whose dimensions in the model are',
        "an exception occurred",
        "meta",
    ):
        m.load_state_dict({"w": impl.lib.zeros(2, device="meta")})
    assert values(m.w) == [1.0, 2.0]


def test_meta_into_meta(impl):
    m = leaf(impl, "w").to("meta")
    m.load_state_dict({"w": impl.lib.zeros(2, device="meta")})
    assert m.w.is_meta


# -- assign ----------------------------------------------------------------------------------------


def test_assign_installs_new_parameters_on_the_checkpoints_storage(impl):
    net = leaf(impl, "a")
    net.a.requires_grad_(False)
    old = net.a
    given = impl.lib.tensor([7.0, 8.0]).to(impl.lib.float64)
    net.load_state_dict({"a": given}, assign=True)
    assert net.a is not old and net.a is not given
    assert type(net.a) is parameter_type(impl)
    assert net.a.requires_grad is False
    assert dtype(net.a) == "float64"
    assert storage_shared(net.a, given)
    assert values(old) == [1.0, 2.0]


def test_assign_installs_a_given_parameter_itself(impl):
    net = leaf(impl, "a")
    net.a.requires_grad_(False)
    given = impl.nn.Parameter(impl.lib.tensor([7.0, 8.0]))
    net.load_state_dict({"a": given}, assign=True)
    assert net.a is given
    assert given.requires_grad is False


def test_assign_installs_buffers_themselves(impl):
    net = impl.nn.Module()
    net.register_buffer("b", impl.lib.tensor([1.0, 2.0]))
    given = impl.lib.tensor([3, 4])
    net.load_state_dict({"b": given}, assign=True)
    assert net.b is given
    assert list(net._buffers) == ["b"] and not net._non_persistent_buffers_set


def test_assign_of_a_parameter_for_a_buffer_moves_the_name(impl):
    net = impl.nn.Module()
    net.register_buffer("b", impl.lib.tensor([1.0]))
    given = impl.nn.Parameter(impl.lib.tensor([3.0]))
    net.load_state_dict({"b": given}, assign=True)
    assert net._parameters == {"b": given} and net._buffers == {}


def test_assign_of_a_non_persistent_buffer_object(impl):
    net = impl.nn.Module()
    net.register_buffer("b", impl.lib.tensor([1.0]))
    given = impl.nn.Buffer(impl.lib.tensor([3.0]), persistent=False)
    net.load_state_dict({"b": given}, assign=True)
    assert net.b is given
    assert net._non_persistent_buffers_set == {"b"}


def test_assign_makes_a_meta_model_real(impl):
    net = tree(impl)
    sd = net.state_dict()
    twin = tree(impl).to("meta")
    twin.load_state_dict(sd, assign=True)
    assert not any(t.is_meta for t in twin.state_dict().values())
    loaded, saved = twin.state_dict(), net.state_dict()
    assert {k: values(v) for k, v in loaded.items()} == {k: values(v) for k, v in saved.items()}


def test_assign_needs_the_same_shape(impl):
    net = leaf(impl, "a")
    with raises(RuntimeError, "size mismatch for a"):
        net.load_state_dict({"a": impl.lib.zeros(3)}, assign=True)


def test_assign_of_integers_where_gradients_are_wanted(impl):
    net = leaf(impl, "a")
    with raises(RuntimeError, 'While copying the parameter named "a"', "an exception occurred"):
        net.load_state_dict({"a": impl.lib.tensor([1, 2])}, assign=True)
    net.a.requires_grad_(False)
    net.load_state_dict({"a": impl.lib.tensor([1, 2])}, assign=True)
    assert dtype(net.a) == "int64"


def test_nothing_is_assigned_when_a_plain_tensor_among_the_parameters_is_refused(ours):
    m = ours.nn.Module()
    m.a, m.b = param(ours), param(ours)
    first, last = m.a, m.b
    m._parameters["plain"] = tensor(ours)
    m._parameters["b"] = m._parameters.pop("b")
    state = m.state_dict()
    with raises(RuntimeError, 'named "plain"', "torch.nn.Parameter or None expected"):
        m.load_state_dict(state, assign=True)
    assert m.a is first and m.b is last
    state["plain"] = param(ours)  # but another Parameter is taken
    m.load_state_dict(state, assign=True)
    assert m.plain is state["plain"] and m.a is not first and m.b is not last


def test_assign_goes_through_setattr(impl):
    seen = []

    class Own(impl.nn.Module):
        def __setattr__(self, name, value):
            seen.append(name)
            super().__setattr__(name, value)

    net = impl.nn.Sequential(Own())
    net[0].w = impl.nn.Parameter(impl.lib.tensor([1.0]))
    net[0].register_buffer("b", impl.lib.tensor([1.0]))
    seen.clear()
    net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()}, assign=True)
    assert seen == ["w", "b"]


def test_assign_runs_registration_hooks(impl):
    net = leaf(impl, "a")
    net.register_buffer("b", impl.lib.tensor([1.0]))
    seen = []
    g = impl.module
    with (
        g.register_module_parameter_registration_hook(lambda m, n, v: seen.append(("p", n))),
        g.register_module_buffer_registration_hook(lambda m, n, v: seen.append(("b", n))),
    ):
        net.load_state_dict(net.state_dict(), assign=True)
    assert seen == [("p", "a"), ("b", "b")]


def test_assign_breaks_ties(impl):
    net = leaf(impl, "a")
    net.b = net.a
    sd = net.state_dict()
    net.load_state_dict(sd, assign=True)
    assert net.a is not net.b
    assert storage_shared(net.a, net.b)


def test_assign_with_kept_variables_keeps_ties(impl):
    source = leaf(impl, "a")
    source.b = source.a
    net = leaf(impl, "a", "b")
    net.load_state_dict(source.state_dict(keep_vars=True), assign=True)
    assert net.a is net.b is source.a


def test_assign_keeps_the_order_of_the_registry(impl):
    net = leaf(impl, "a", "b")
    sd = net.state_dict()
    net.load_state_dict(dict(reversed(sd.items())), assign=True)
    assert list(net._parameters) == ["a", "b"]


def test_swap_mode_keeps_the_parameter(impl):
    net = leaf(impl, "a")
    old = net.a
    given = impl.lib.tensor([7.0, 8.0])
    with swap_mode(impl):
        net.load_state_dict({"a": given})
    assert net.a is old
    assert values(old) == [7.0, 8.0]
    assert old.requires_grad
