# SPDX-License-Identifier: BSD-3-Clause
"""What all optimizers share: groups, errors, hooks, closures, state dicts. The same tests on
modtree and torch.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import warnings
import weakref

import pytest
from helpers.implementations import needs_torch

import modtree as mt


@pytest.fixture(params=["modtree", pytest.param("torch", marks=needs_torch)])
def lib(request):
    return importlib.import_module(request.param)


def param(lib, *values, grad=None):
    p = lib.nn.Parameter(lib.tensor(list(values or (1.0, 2.0))))
    if grad is not None:
        p.grad = lib.tensor(grad)
    return p


def listed(t):
    return t.detach().tolist()


# -- construction and groups -----------------------------------------------------------------------


def test_one_group_from_an_iterable(lib):
    ps = [param(lib), param(lib)]
    optimizer = lib.optim.SGD(iter(ps), lr=0.5)
    (group,) = optimizer.param_groups
    assert all(a is b for a, b in zip(group["params"], ps, strict=True))
    assert group["lr"] == 0.5 and group["momentum"] == 0


def test_groups_take_missing_options_from_the_defaults(lib):
    a, b = param(lib), param(lib)
    optimizer = lib.optim.SGD([{"params": a, "lr": 1.0}, {"params": [b]}], lr=0.1, momentum=0.3)
    assert [g["lr"] for g in optimizer.param_groups] == [1.0, 0.1]
    assert [g["momentum"] for g in optimizer.param_groups] == [0.3, 0.3]
    assert optimizer.defaults["lr"] == 0.1


def test_add_param_group(lib):
    a, b = param(lib, 1.0, grad=[1.0]), param(lib, 1.0, grad=[1.0])
    optimizer = lib.optim.SGD([a], lr=0.5)
    optimizer.add_param_group({"params": b, "lr": 0.25})
    optimizer.step()
    assert listed(a) == [0.5] and listed(b) == [0.75]


def test_named_parameters(lib):
    layer = lib.nn.Linear(2, 1)
    optimizer = lib.optim.Adam(layer.named_parameters())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.param_groups[0]["params"][1] is layer.bias
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    other = lib.optim.Adam(layer.parameters())
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["param_names"] == ["weight", "bias"]
    optimizer.load_state_dict(lib.optim.Adam(layer.parameters()).state_dict())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]


def test_named_and_unnamed_do_not_mix(lib):
    a, b = param(lib), param(lib)
    with pytest.raises(ValueError, match="Some param names are missing"):
        lib.optim.SGD([("a", a), b])
    optimizer = lib.optim.SGD([("a", a)])
    with pytest.raises(ValueError, match="cannot add param group without names"):
        optimizer.add_param_group({"params": [b]})
    optimizer = lib.optim.SGD([a])
    with pytest.raises(ValueError, match="cannot add param group with names"):
        optimizer.add_param_group({"params": [("b", b)]})


def test_no_parameters(lib):
    with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
        lib.optim.SGD([])


def test_one_tensor_is_no_list(lib):
    with pytest.raises(TypeError, match="should be an iterable of Tensors or dicts"):
        lib.optim.SGD(param(lib))


def test_what_is_no_tensor(lib):
    with pytest.raises(TypeError, match="can only optimize Tensors, but one of the params is int"):
        lib.optim.SGD([3])


@needs_torch
def test_tensors_of_torch_are_for_torch():
    import torch

    with pytest.raises(TypeError, match="use torch.optim"):
        mt.optim.SGD([torch.nn.Parameter(torch.ones(1))])


def test_sets_have_no_order(lib):
    with pytest.raises(TypeError, match="ordered collections"):
        lib.optim.SGD([{"params": {param(lib)}}])


def test_group_that_is_no_dict(lib):
    optimizer = lib.optim.SGD([param(lib)])
    with pytest.raises(TypeError, match="param_group must be a dict"):
        optimizer.add_param_group([param(lib)])


def test_parameter_in_two_groups(lib):
    p = param(lib)
    with pytest.raises(ValueError, match="more than one parameter group"):
        lib.optim.SGD([{"params": [p]}, {"params": [p]}])


def test_duplicates_in_a_group_are_stepped_twice(lib):
    p = param(lib, 1.0, grad=[1.0])
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optimizer = lib.optim.SGD([p, p], lr=0.25)
    optimizer.add_param_group({"params": [param(lib)]})
    optimizer.step()
    assert listed(p) == [0.5]
    assert [g["params"] for g in optimizer.state_dict()["param_groups"]] == [[1, 1], [2]]


def test_tensors_that_need_no_gradient_are_taken(lib):
    t = lib.ones(2)
    t.grad = lib.ones(2)
    optimizer = lib.optim.SGD([t], lr=0.5)
    optimizer.step()
    assert listed(t) == [0.5, 0.5]


def test_required_option(lib):
    base = importlib.import_module(f"{lib.__name__}.optim.optimizer")

    class Sub(base.Optimizer):
        pass

    with pytest.raises(ValueError, match="required optimization parameter lr"):
        Sub([param(lib)], {"lr": base.required})
    sub = Sub([{"params": [param(lib)], "lr": 3}], {"lr": base.required})
    assert sub.param_groups[0]["lr"] == 3
    with pytest.raises(NotImplementedError):
        sub.step()


BAD = [
    ("SGD", {"lr": -1}, "Invalid learning rate: -1"),
    ("Adam", {"lr": float("nan")}, "Invalid learning rate: nan"),
    ("SGD", {"momentum": -0.5}, "Invalid momentum value: -0.5"),
    ("SGD", {"weight_decay": -0.5}, "Invalid weight_decay value: -0.5"),
    ("SGD", {"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
    ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "Nesterov momentum requires"),
    ("Adam", {"lr": -1}, "Invalid learning rate: -1"),
    ("Adam", {"eps": -1}, "Invalid epsilon value: -1"),
    ("Adam", {"betas": (1.0, 0.5)}, "Invalid beta parameter at index 0: 1.0"),
    ("Adam", {"betas": (0.5, -0.1)}, "Invalid beta parameter at index 1: -0.1"),
    ("Adam", {"betas": (0, 0)}, "betas must be either both floats or both Tensors"),
    ("AdamW", {"weight_decay": -1}, "Invalid weight_decay value: -1"),
    ("RMSprop", {"alpha": -1}, "Invalid alpha value: -1"),
    ("RMSprop", {"momentum": -1}, "Invalid momentum value: -1"),
    ("Adagrad", {"lr_decay": -1}, "Invalid lr_decay value: -1"),
    ("Adagrad", {"initial_accumulator_value": -1}, "Invalid initial_accumulator_value value: -1"),
    ("Adadelta", {"rho": 1.5}, "Invalid rho value: 1.5"),
    ("NAdam", {"momentum_decay": -1}, "Invalid momentum_decay value: -1"),
    ("RAdam", {"betas": (2.0, 0.5)}, "Invalid beta parameter at index 0: 2.0"),
    ("Adamax", {"eps": -1.0}, "Invalid epsilon value: -1.0"),
    ("Rprop", {"lr": -1}, "Invalid learning rate: -1"),
    ("Rprop", {"etas": (1.0, 0.5)}, "Invalid eta values: 1.0, 0.5"),
    ("ASGD", {"weight_decay": -0.5}, "Invalid weight_decay value: -0.5"),
    ("Adafactor", {"lr": -1}, "Learning rate should be >= 0 but is: -1"),
    ("Adafactor", {"beta2_decay": 0.8}, "beta2_decay should be <= 0 but is: 0.8"),
    ("Adafactor", {"eps": (-1e-30, 1e-3)}, "epsilon1 should be >= 0 but is: -1e-30"),
    ("Adafactor", {"eps": (None, -1e-3)}, "epsilon2 should be >= 0 but is: -0.001"),
    ("Adafactor", {"d": 0.0}, "Clipping threshold d should be >= 1 but is: 0.0"),
    ("Adafactor", {"weight_decay": -0.5}, "weight_decay should be >= 0 but is: -0.5"),
    ("SparseAdam", {"lr": 0.0}, "Invalid learning rate: 0.0"),
    ("SparseAdam", {"eps": 0.0}, "Invalid epsilon value: 0.0"),
    ("SparseAdam", {"betas": (1.0, 0.5)}, "Invalid beta parameter at index 0: 1.0"),
]


@pytest.mark.parametrize(("name", "options", "message"), BAD)
def test_options_out_of_range(lib, name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(lib.optim, name)([param(lib)], **options)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_options_that_exclude_each_other(lib, name):
    make = getattr(lib.optim, name)
    with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be `True` together"):
        make([param(lib)], fused=True, foreach=True)
    with pytest.raises(RuntimeError, match="`fused` does not support `differentiable`"):
        make([param(lib)], fused=True, differentiable=True)


def test_lr_tensor_of_two(lib):
    with pytest.raises(ValueError, match="Tensor lr must be 1-element"):
        lib.optim.SGD([param(lib)], lr=lib.ones(2))


@pytest.mark.parametrize("option", ["fused", "foreach"])
def test_other_implementations_give_the_same(lib, option):
    results = []
    for options in ({}, {option: True}):
        p = param(lib, 1.0, 2.0, grad=[0.5, -0.5])
        optimizer = lib.optim.Adam([p], lr=0.1, **options)
        optimizer.step()
        results.append(listed(p))
        assert optimizer.state_dict()["param_groups"][0][option] == options.get(option)
    assert results[0] == pytest.approx(results[1], rel=1e-6)


def test_capturable_changes_nothing():
    results = []
    for capturable in (False, True):
        p = param(mt, 1.0, 2.0, grad=[0.5, -0.5])
        mt.optim.Adam([p], capturable=capturable).step()
        results.append(listed(p))
    assert results[0] == results[1] != [1.0, 2.0]


def test_sgd_refuses_nan():
    with pytest.raises(ValueError, match="Invalid learning rate: nan"):
        mt.optim.SGD([param(mt)], lr=float("nan"))


def test_differentiable_steps_are_refused():
    with pytest.raises(RuntimeError, match="autograd.grad"):
        mt.optim.SGD([param(mt)], differentiable=True)


@pytest.mark.parametrize(
    "name",
    "SGD Adam AdamW RMSprop Adagrad Adadelta NAdam RAdam Adamax Rprop ASGD Adafactor".split(),
)
@needs_torch
def test_defaults_and_signature_are_those_of_torch(name):
    import inspect

    import torch

    ours, theirs = getattr(mt.optim, name), getattr(torch.optim, name)
    assert ours([param(mt)]).defaults == theirs([param(torch)]).defaults
    signatures = [
        [(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]
        for f in (ours, theirs)
    ]
    assert signatures[0] == signatures[1]


def test_repr(lib):
    optimizer = lib.optim.SGD([param(lib)], lr=0.5)
    lines = repr(optimizer).splitlines()
    assert lines[0] == "SGD (" and lines[1] == "Parameter Group 0" and lines[-1] == ")"
    assert "    lr: 0.5" in lines and "    momentum: 0" in lines


# -- gradients -------------------------------------------------------------------------------------


def test_zero_grad(lib):
    p, q = param(lib, 1.0, grad=[3.0]), param(lib, 1.0)
    grad = p.grad
    optimizer = lib.optim.SGD([p, q])
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is grad and listed(grad) == [0.0]
    assert q.grad is None
    optimizer.zero_grad()
    assert p.grad is None


def test_parameters_without_gradient_get_no_state(lib):
    p, q = param(lib, 1.0, grad=[1.0]), param(lib)
    optimizer = lib.optim.Adam([q, p])
    optimizer.step()
    assert listed(q) == [1.0, 2.0]
    assert list(optimizer.state_dict()["state"]) == [1]


def test_plain_sgd_has_no_state(lib):
    optimizer = lib.optim.SGD([param(lib, 1.0, grad=[1.0])])
    optimizer.step()
    assert optimizer.state_dict()["state"] == {}


def test_closure(lib):
    p = param(lib, 4.0)
    optimizer = lib.optim.SGD([p], lr=0.5)
    seen = []

    def closure():
        seen.append(lib.is_grad_enabled())
        p.grad = lib.tensor([2.0])
        return 17.0

    with lib.no_grad():
        assert optimizer.step(closure) == 17.0
        assert not lib.is_grad_enabled()
    assert seen == [True] and listed(p) == [3.0]
    assert optimizer.step() is None


def test_own_optimizer(lib):
    """A subclass with a step of its own, as users write them."""

    class Down(lib.optim.Optimizer):
        def __init__(self, params, lr=0.5):
            super().__init__(params, {"lr": lr})

        def step(self, closure=None):
            with lib.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        self.state[p]["n"] = self.state[p].get("n", 0) + 1
                        p.add_(p.grad, alpha=-group["lr"])

    p = param(lib, 1.0, grad=[1.0])
    optimizer = Down([p])
    called = []
    optimizer.register_step_post_hook(lambda *args: called.append(args))
    optimizer.step()
    assert listed(p) == [0.5] and len(called) == 1
    assert optimizer.state_dict()["state"] == {0: {"n": 1}}


def test_closure_with_a_backward_pass(lib):
    p = param(lib, 3.0)
    optimizer = lib.optim.SGD([p], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    with lib.no_grad():
        assert optimizer.step(closure).item() == 9.0
    assert listed(p) == [1.5]


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad", "NAdam"])
def test_a_step_between_two_backward_passes_is_noticed(lib, name):
    """The graph holds the weights from before the step."""
    p = param(lib, 3.0)
    loss = (p**2).sum()
    loss.backward(retain_graph=True)
    getattr(lib.optim, name)([p]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_step_is_not_recorded(lib):
    p = param(lib, 3.0)
    (p**2).sum().backward()
    lib.optim.Adam([p]).step()
    assert p.is_leaf and p.grad_fn is None and p.requires_grad


# -- hooks -----------------------------------------------------------------------------------------


def test_step_hooks(lib):
    p = param(lib, 1.0, grad=[1.0])
    optimizer = lib.optim.SGD([p], lr=0.5)
    seen = []
    before = optimizer.register_step_pre_hook(lambda o, a, k: seen.append(("pre", o, a, k)))
    after = optimizer.register_step_post_hook(
        lambda o, a, k: seen.append(("post", listed(p), a, k))
    )
    optimizer.step(None)
    args = (optimizer, None)
    assert seen == [("pre", optimizer, args, {}), ("post", [0.5], args, {})]
    before.remove()
    after.remove()
    optimizer.step()
    assert len(seen) == 2


def test_pre_hook_changes_the_arguments(lib):
    optimizer = lib.optim.SGD([param(lib, 1.0, grad=[1.0])])
    optimizer.register_step_pre_hook(lambda o, a, k: (a, {"closure": lambda: 5}))
    assert optimizer.step() == 5
    optimizer.register_step_pre_hook(lambda o, a, k: 3)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        optimizer.step()


def test_global_step_hooks(lib):
    base = importlib.import_module(f"{lib.__name__}.optim.optimizer")
    optimizer = lib.optim.SGD([param(lib, 1.0, grad=[1.0])])
    seen = []
    optimizer.register_step_pre_hook(lambda *a: seen.append("own pre"))
    optimizer.register_step_post_hook(lambda *a: seen.append("own post"))
    with (
        base.register_optimizer_step_pre_hook(lambda *a: seen.append("pre")),
        base.register_optimizer_step_post_hook(lambda *a: seen.append("post")),
    ):
        optimizer.step()
    assert seen == ["pre", "own pre", "own post", "post"]
    optimizer.step()
    assert seen[4:] == ["own pre", "own post"]


def test_state_dict_hooks(lib):
    optimizer = lib.optim.SGD([param(lib)])
    seen = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("second"))
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("first"), prepend=True)
    optimizer.register_state_dict_post_hook(lambda o, s: seen.append(sorted(s)))
    optimizer.register_state_dict_post_hook(lambda o, s: {**s, "more": 1})
    assert optimizer.state_dict()["more"] == 1
    assert seen == ["first", "second", ["param_groups", "state"]]


def test_load_state_dict_hooks(lib):
    optimizer = lib.optim.SGD([param(lib)], lr=0.5)
    state = optimizer.state_dict()
    seen = []

    def change(o, s):
        assert s is not state
        groups = [{**s["param_groups"][0], "lr": 0.125}]
        return {**s, "param_groups": groups}

    optimizer.register_load_state_dict_pre_hook(lambda o, s: seen.append("pre"))
    optimizer.register_load_state_dict_pre_hook(change)
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append(o.param_groups[0]["lr"]))
    optimizer.load_state_dict(state)
    assert seen == ["pre", 0.125]
    assert state["param_groups"][0]["lr"] == 0.5


# -- state dicts -----------------------------------------------------------------------------------


def test_state_dict_numbers_parameters_across_groups(lib):
    ps = [param(lib) for _ in range(3)]
    optimizer = lib.optim.SGD([{"params": ps[:2]}, {"params": ps[2:]}])
    assert [g["params"] for g in optimizer.state_dict()["param_groups"]] == [[0, 1], [2]]


def test_load_state_dict_casts_to_the_parameter(lib):
    p = param(lib, 1.0, grad=[1.0])
    optimizer = lib.optim.Adam([p])
    optimizer.step()
    state = optimizer.state_dict()
    q = lib.nn.Parameter(lib.ones(1, dtype=lib.float64))
    other = lib.optim.Adam([q])
    other.load_state_dict(state)
    assert other.state[q]["exp_avg"].dtype == lib.float64
    assert other.state[q]["step"].dtype == lib.float32
    assert other.param_groups[0]["params"][0] is q
    assert state["param_groups"][0]["params"] == [0]


def test_load_state_dict_keeps_what_is_no_tensor(lib):
    p = param(lib)
    optimizer = lib.optim.SGD([p])
    state = optimizer.state_dict()
    state["state"] = {
        0: {"list": [1, lib.ones(1, dtype=lib.float64)], "text": None, "inner": {"a": (2,)}},
        "other": {"x": 1},
    }
    optimizer.load_state_dict(state)
    own = optimizer.state[p]
    assert own["list"][0] == 1 and own["list"][1].dtype == lib.float32
    assert own["text"] is None and own["inner"] == {"a": (2,)}
    assert optimizer.state["other"] == {"x": 1}
    assert optimizer.state_dict()["state"]["other"] == {"x": 1}


def test_load_state_dict_of_other_groups(lib):
    a, b = param(lib), param(lib)
    one = lib.optim.SGD([a, b])
    two = lib.optim.SGD([{"params": [a]}, {"params": [b]}])
    with pytest.raises(ValueError, match="different number of parameter groups"):
        one.load_state_dict(two.state_dict())
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        one.load_state_dict(lib.optim.SGD([a]).state_dict())


def test_loaded_groups_are_copies(lib):
    optimizer = lib.optim.SGD([param(lib)], lr=0.5)
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    optimizer.param_groups[0]["lr"] = 3.0
    assert state["param_groups"][0]["lr"] == 0.5


def test_an_optimizer_dies(lib):
    """No cycle through hooks or schedulers keeps it."""
    optimizer = lib.optim.SGD([param(lib, 1.0, grad=[1.0])], lr=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    scheduler.step()
    ref = weakref.ref(optimizer)
    gc.disable()
    try:
        del scheduler, optimizer
        assert ref() is None
    finally:
        gc.enable()


@needs_torch
@pytest.mark.parametrize(
    "name",
    "SGD Adam AdamW NAdam RAdam Adamax RMSprop Adagrad Adadelta LBFGS Rprop ASGD Adafactor "
    "SparseAdam".split(),
)
def test_options_are_those_of_torch_in_the_same_order(name):
    import torch

    mine = getattr(mt.optim, name)([param(mt)], lr=0.5)
    theirs = getattr(torch.optim, name)([param(torch)], lr=0.5)
    assert list(mine.defaults.items()) == list(theirs.defaults.items())
    assert list(mine.param_groups[0]) == list(theirs.param_groups[0])
    signatures = (
        [
            (p.name, p.kind, p.default)
            for p in inspect.signature(getattr(lib.optim, name)).parameters.values()
        ]
        for lib in (mt, torch)
    )
    assert len(set(map(str, signatures))) == 1


def test_a_model_has_parameters_to_give():
    with pytest.raises(TypeError, match=r"but got modtree\.\S+Linear; give its parameters\(\)$"):
        mt.optim.Adam(mt.nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"is modtree\.\S+Linear; give its parameters\(\)$"):
        mt.optim.Adam(mt.nn.Sequential(mt.nn.Linear(2, 2)))
    assert mt.optim.Adam(mt.nn.ParameterList([mt.nn.Parameter(mt.ones(2))])).param_groups
