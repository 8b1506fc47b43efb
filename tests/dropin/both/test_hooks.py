# SPDX-License-Identifier: BSD-3-Clause
"""Hooks that there are once in a process, handles, and the switches of ``torch.__future__``."""

from __future__ import annotations

import collections
import pickle
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
file = torch.nn.modules.module
RemovableHandle = torch.utils.hooks.RemovableHandle

TABLES = [
    name
    for name, value in vars(file).items()
    if name.startswith("_global_") and isinstance(value, dict)
]
ON_MODULES = [name for name in dir(nn.Module) if "register" in name and name.endswith("_hook")]
FOR_ALL = [name for name in dir(file) if name.startswith("register_module_")]


@pytest.fixture(autouse=True)
def _tables_are_left_empty():
    yield
    file._global_is_full_backward_hook = None
    # torch leaves the id of a removed hook there.
    file._global_forward_hooks_with_kwargs.clear()
    left = file._has_any_global_hook()
    for name in TABLES:
        getattr(file, name).clear()
    assert not left


def ignore(*args, **kwargs):
    return None


# -- handles -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ON_MODULES, *FOR_ALL])
def test_one_class_of_handles(name):
    module = nn.Linear(2, 2)
    handle = getattr(module if name in ON_MODULES else file, name)(ignore)
    assert type(handle) is RemovableHandle and type(handle).__module__ == "torch.utils.hooks"
    assert handle.id in handle.hooks_dict_ref()
    handle.remove()
    handle.remove()
    assert handle.id not in (handle.hooks_dict_ref() or {})


def test_one_counter():
    module, tensor = nn.Linear(2, 2), torch.ones(1, requires_grad=True)
    start = RemovableHandle.next_id
    handles = [
        module.register_forward_hook(ignore),
        RemovableHandle(collections.OrderedDict()),
        tensor.register_hook(ignore),
        file.register_module_forward_pre_hook(ignore),
        module.register_state_dict_pre_hook(ignore),
        module._register_load_state_dict_pre_hook(ignore),
    ]
    assert [handle.id for handle in handles] == list(range(start, start + 6))
    handles[3].remove()
    assert RemovableHandle.next_id == start + 6


def test_handles_as_contexts_and_in_pickles():
    module = nn.Linear(2, 2)
    with module.register_forward_hook(ignore) as handle:
        assert list(module._forward_hooks) == [handle.id]
        again = pickle.loads(pickle.dumps(handle))
        assert type(again) is RemovableHandle and again.id == handle.id
        both = pickle.loads(pickle.dumps((module, handle)))
        assert both[1].hooks_dict_ref() is both[0]._forward_hooks
    assert module._forward_hooks == {}


def test_tables_of_flags():
    module = nn.Linear(2, 2)
    handle = module.register_forward_hook(ignore, with_kwargs=True, always_call=True)
    assert list(module._forward_hooks_with_kwargs) == [handle.id]
    assert list(module._forward_hooks_always_called) == [handle.id]
    first = module.register_forward_hook(ignore, prepend=True)
    assert list(module._forward_hooks) == [first.id, handle.id]
    handle.remove()
    assert not module._forward_hooks_with_kwargs and not module._forward_hooks_always_called


# -- hooks for all modules -----------------------------------------------------------------------


def test_every_kind_runs():
    log = []
    handles = [
        file.register_module_forward_pre_hook(lambda module, args: log.append("pre")),
        file.register_module_forward_hook(lambda module, args, result: log.append("forward")),
        file.register_module_full_backward_pre_hook(
            lambda module, grad: log.append("backward-pre")
        ),
        file.register_module_full_backward_hook(lambda module, grad, out: log.append("backward")),
        file.register_module_parameter_registration_hook(lambda module, name, p: log.append(name)),
        file.register_module_buffer_registration_hook(lambda module, name, b: log.append(name)),
        file.register_module_module_registration_hook(lambda module, name, m: log.append(name)),
    ]
    assert file._has_any_global_hook()
    module = nn.Linear(2, 2)
    module.register_buffer("count", torch.zeros(1))
    module.child = nn.ReLU()
    assert log == ["weight", "bias", "count", "child"]
    log.clear()
    module(torch.ones(2, requires_grad=True)).sum().backward()
    assert log == ["pre", "forward", "backward-pre", "backward"]
    for handle in handles:
        handle.remove()
    log.clear()
    nn.Linear(2, 2)(torch.ones(2, requires_grad=True)).sum().backward()
    assert log == [] and not file._has_any_global_hook()


def test_results_and_flags():
    with (
        file.register_module_forward_pre_hook(lambda module, args: (args[0] + 1,)),
        file.register_module_forward_hook(
            lambda module, args, kwargs, result: result * 10, with_kwargs=True
        ),
    ):
        assert nn.Identity()(torch.ones(1)).item() == 20
    called = []
    with file.register_module_forward_hook(lambda *args: called.append(1), always_call=True):
        with pytest.raises(NotImplementedError):
            nn.Module()(1)
    assert called == [1]
    assert nn.Identity()(torch.ones(1)).item() == 1


@pytest.mark.parametrize("table", ["_global_forward_pre_hooks", "_global_forward_hooks"])
def test_a_table_can_be_rebound_and_changed(table):
    log = []
    hooks = collections.OrderedDict({-1: lambda *args: log.append("rebound")})
    with patch.object(file, table, hooks):
        nn.Identity()(1)
        assert getattr(file, table) is hooks and file._has_any_global_hook()
        register = getattr(file, table.replace("_global", "register_module")[:-1])
        with register(lambda *args: log.append("registered")):
            nn.Identity()(1)
        nn.Identity()(1)
    assert log == ["rebound", "rebound", "registered", "rebound"]
    with patch.dict(getattr(file, table), {-1: lambda *args: log.append("added")}):
        nn.Identity()(1)
    nn.Identity()(1)
    assert log[4:] == ["added"] and not file._has_any_global_hook()


def test_registration_tables_can_be_rebound():
    names = []
    for kind, make in (
        ("parameter", lambda m: setattr(m, "own", nn.Parameter(torch.ones(1)))),
        ("buffer", lambda m: m.register_buffer("own", torch.ones(1))),
        ("module", lambda m: setattr(m, "own", nn.ReLU())),
    ):
        hook = {-1: lambda module, name, value, kind=kind: names.append((kind, name))}
        with patch.object(file, f"_global_{kind}_registration_hooks", hook):
            make(nn.Identity())
        make(nn.Identity())
    assert names == [("parameter", "own"), ("buffer", "own"), ("module", "own")]


def test_full_and_other_backward_hooks_do_not_mix():
    with file.register_module_full_backward_hook(ignore):
        assert file._global_is_full_backward_hook is True
        with pytest.raises(RuntimeError, match="Cannot use both"):
            file.register_module_backward_hook(ignore)


# -- hooks of one module -------------------------------------------------------------------------


def test_hooks_of_state_dicts():
    module = nn.Linear(2, 2)
    with module.register_state_dict_post_hook(lambda module, destination, *rest: destination):
        with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
            module.state_dict()
    with module._register_state_dict_hook(lambda module, destination, *rest: {"only": 1}):
        assert module.state_dict() == {"only": 1}
    public = lambda module, destination, *rest: None  # noqa: E731
    module.register_state_dict_post_hook(public).remove()
    assert public._from_public_api is True
    with pytest.raises(RuntimeError, match="previously registered via register_state_dict_post"):
        module._register_state_dict_hook(public)


def test_hooks_of_loads():
    module, log = nn.Linear(2, 2), []
    module.register_load_state_dict_pre_hook(lambda module, state, *rest: log.append(list(state)))
    module.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
    keys = module.load_state_dict({"weight": torch.ones(2, 2)})
    assert type(keys).__module__ == "torch.nn.modules.module" and log == [["weight"]]
    assert keys == ([], []) and repr(keys) == "<All keys matched successfully>"
    assert keys._fields == ("missing_keys", "unexpected_keys")


def test_tables_of_a_module_can_be_reordered_and_replaced():
    module, log = nn.Identity(), []
    first = module.register_forward_hook(lambda *args: log.append("first"))
    module.register_forward_hook(lambda *args: log.append("second"))
    module._forward_hooks.move_to_end(first.id)
    module(1)
    assert log == ["second", "first"]
    module._forward_hooks[first.id] = lambda *args: log.append("other")
    module(1)
    module._forward_hooks = collections.OrderedDict()
    module(1)
    assert log == ["second", "first", "second", "other"]


@pytest.mark.filterwarnings("error")
def test_backward_hooks():
    module, log = nn.Linear(2, 2), []
    module.register_full_backward_pre_hook(lambda module, grad: (grad[0] * 0,))
    module.register_full_backward_hook(lambda module, grad, out: log.append(out[0].sum().item()))
    x = torch.ones(2, requires_grad=True)
    module(x).sum().backward()
    assert log == [0.0] and x.grad.tolist() == [0.0, 0.0] and module._is_full_backward_hook is True
    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full"):
        module.register_backward_hook(ignore)
    assert module._get_backward_hooks()[0] == list(module._backward_hooks.values())


# -- switches ------------------------------------------------------------------------------------


@pytest.fixture(params=["overwrite", "swap"])
def switch(request):
    turn = getattr(torch.__future__, f"set_{request.param}_module_params_on_conversion")
    turn(True)
    yield request.param
    turn(False)


def test_switches_of_conversion(switch):
    module = nn.Linear(2, 2)
    parameter, old = module.weight, module.weight.data
    module.double()
    assert (module.weight is parameter) == (switch == "swap")
    assert module.weight.dtype is torch.float64 and old.dtype is torch.float32
    module.load_state_dict({name: value + 1 for name, value in module.state_dict().items()})
    parameter = module.weight
    module.load_state_dict(module.state_dict(), assign=True)
    assert (module.weight is parameter) == (switch == "swap")
    module.weight.grad = torch.ones_like(module.weight)
    module.float()
    assert module.weight.grad.dtype is torch.float32


def test_without_switches():
    module = nn.Linear(2, 2)
    parameter, pointer = module.weight, module.weight.data_ptr()
    module.load_state_dict({name: value + 1 for name, value in module.state_dict().items()})
    assert module.weight is parameter and parameter.data_ptr() == pointer
    module.double()
    assert module.weight is parameter and parameter.dtype is torch.float64
    module.load_state_dict({k: v + 1 for k, v in module.state_dict().items()}, assign=True)
    assert module.weight is not parameter and type(module.weight) is nn.Parameter


def test_swap_refuses_what_has_weak_references():
    import weakref

    module = nn.Linear(2, 2)
    reference = weakref.ref(module.weight)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with pytest.raises(RuntimeError, match="_apply\\(\\): Couldn't swap Linear.weight"):
            module.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert reference() is module.weight
