# SPDX-License-Identifier: BSD-3-Clause
"""One module has one pickle: its bytes are the same whatever was done with the module in between
that changes nothing about it.
"""

from __future__ import annotations

import copy
import gc
import pickle
from collections import OrderedDict

import pytest
from helpers.free_threading import counts_references
from helpers.util import HOOK_TABLES, REGISTRIES, param, tensor


def net_class(impl):
    """One for each implementation, where pickle finds it."""
    name = f"Net_{impl.nn.Module.__module__.split('.')[0]}"
    if name not in globals():

        def init(self):
            impl.nn.Module.__init__(self)
            self.seen = []

        body = {"__init__": init, "forward": lambda self, x: x, "__module__": __name__}
        globals()[name] = type(name, (impl.nn.Module,), body)
    return globals()[name]


def hook(*args, **kwargs):
    return None


def net(impl):
    m = net_class(impl)()
    m.training_plan, m.text = {"training": 1}, "_parameters"
    m.register_parameter("none", None)
    m.register_module("nothing", None)
    m.register_buffer("left_out", None, persistent=False)
    m.a, m.b = impl.nn.Module(), net_class(impl)()
    m.a.inner, m.a.again = impl.nn.Module(), m.b
    m.b.register_forward_hook(hook)
    m.fn = hook
    return m


LOOKS = {
    "__dict__": lambda m: m.__dict__,
    "vars of all": lambda m: [vars(x) for x in m.modules()],
    "vars of a child": lambda m: vars(m.a.inner),
    "dir": dir,
    "registries": lambda m: [getattr(m.a, name) for name in REGISTRIES],
    "hook tables": lambda m: [getattr(m, name) for name in HOOK_TABLES],
    "copy": copy.copy,
    "copies of all": lambda m: [copy.copy(x) for x in m.modules()],
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "__reduce_ex__": lambda m: m.__reduce_ex__(2),
    "__getstate__": lambda m: getattr(m, "__getstate__", dict)(),
    "state_dict": lambda m: m.state_dict(),
    "walks": lambda m: [list(m.parameters()), list(m.named_modules()), list(m.children())],
    "train": lambda m: m.train(),
    "repr": repr,
    "call": lambda m: m(1),
    "load": lambda m: m.load_state_dict(m.state_dict()),
    "hook": lambda m: m.register_forward_hook(hook).remove(),
    "hook with kwargs": lambda m: m.register_forward_pre_hook(hook, with_kwargs=True).remove(),
    "attribute": lambda m: (setattr(m, "more", 1), delattr(m, "more")),
    "buffer": lambda m: (m.register_buffer("more", None, persistent=False), delattr(m, "more")),
    "new __dict__": lambda m: setattr(m, "__dict__", dict(m.__dict__)),
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_bytes_stay_the_same(impl, look, protocol):
    m = net(impl)
    before = pickle.dumps(m, protocol)
    kept = look(m)
    assert pickle.dumps(m, protocol) == before
    del kept
    assert pickle.dumps(m, protocol) == before


def test_bytes_of_a_shallow_copy(impl):
    m = net(impl)
    before = pickle.dumps(m)
    assert pickle.dumps(copy.copy(m)) == before == pickle.dumps(m)


def test_joblib(impl, joblib):
    m = net(impl)
    m.w, m.c = param(impl), impl.nn.Linear(2, 2)
    m.register_buffer("buffer", tensor(impl))
    before = joblib.hash(m)
    for look in LOOKS.values():
        look(m)
        assert joblib.hash(m) == before


@pytest.mark.parametrize("looked", [False, True])
def test_what_a_pickle_shares_stays_shared(impl, looked):
    m = impl.nn.Module()
    m.child = impl.nn.Module()
    if looked:
        assert m.__dict__ and m.child.__dict__
    twin = copy.copy(m.child)
    new, child, registry = pickle.loads(pickle.dumps([m, twin, m.child._buffers]))
    assert child is not new.child
    for name in ("_parameters", "_buffers", "_modules", "_forward_hooks", "_backward_hooks"):
        assert getattr(child, name) is getattr(new.child, name)
    new.child.register_buffer("b", tensor(impl))
    assert list(registry) == ["b"] == [n for n, _ in child.named_buffers()]


@pytest.mark.parametrize("looked", [False, True])
def test_a_module_inside_the_registry_that_it_has(impl, looked):
    m = impl.nn.Module()
    m.child = impl.nn.Module()
    m.child.above = (m,)
    if looked:
        assert m.__dict__ and m.child.__dict__
    children, new = pickle.loads(pickle.dumps([m._modules, m]))
    assert new._modules is children and list(children) == ["child"]
    assert new.child.above[0] is new


def test_a_loaded_module_takes_what_it_is_given(impl):
    new = pickle.loads(pickle.dumps(net(impl)))
    assert type(new._forward_hooks) is OrderedDict and type(new.a.inner._parameters) is dict
    new.a.inner.register_parameter("w", param(impl))
    new.register_forward_pre_hook(lambda m, x: m.seen.append(x))
    new(1)
    assert new.seen == [(1,)] and [n for n, _ in new.named_parameters()] == ["a.inner.w"]


@counts_references
def test_the_first_call_forgets_empty_hook_tables(ours):
    """A loaded module is then called as fast as one that was made."""

    def held(m):
        return {id(x) for x in gc.get_referents(m) if isinstance(x, OrderedDict)}

    new = pickle.loads(pickle.dumps(net_class(ours)()))
    assert held(new)
    new(1)
    assert not held(new) and new._forward_hooks == OrderedDict()


@pytest.mark.parametrize("keep", ["table", "handle", "attribute", "hook"])
def test_a_call_keeps_hook_tables_that_somebody_knows(impl, keep):
    new = pickle.loads(pickle.dumps(net_class(impl)()))
    table, handle = new._forward_hooks, None
    if keep == "handle":
        handle = new.register_forward_hook(hook)
        table.clear()
    elif keep == "attribute":
        table.note = 1
    elif keep == "hook":
        new.register_state_dict_pre_hook(hook)
    address = id(table)
    if keep != "table":
        del table
    new(1)
    assert id(new._forward_hooks) == address or keep == "handle"
    if keep == "handle":
        new._forward_hooks[handle.id] = hook
        handle.remove()
        assert not new._forward_hooks
    assert getattr(new._forward_hooks, "note", 1) == 1
