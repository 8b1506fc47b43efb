# SPDX-License-Identifier: BSD-3-Clause
"""functional_call and stack_module_state on modules with either kind of leaves, as in torch."""

from __future__ import annotations

import importlib

import pytest
from helpers.needs import needs


@pytest.fixture
def fn(impl):
    """The functions for this class of modules, and those that derive its tensors."""
    return importlib.import_module("torch.func" if impl.is_torch else "modtree.func")


@pytest.fixture
def transform(impl):
    name = "modtree" if impl.leaves == "numpy" else "torch"
    return importlib.import_module(f"{name}.func")


@pytest.fixture
def net(impl):
    class Scale(impl.nn.Module):
        def __init__(self, start):
            super().__init__()
            self.weight = impl.nn.Parameter(impl.lib.tensor([start, start + 1.0]))
            self.register_buffer("count", impl.lib.tensor([0.0]))
            self.counting = True

        def forward(self, x, *, bias=0):
            if self.counting:
                self.count += 1
            return x * self.weight + bias

    class Net(impl.nn.Module):
        def __init__(self, start=1.0):
            super().__init__()
            self.a = Scale(start)
            self.b = Scale(start + 5)

        def forward(self, x, *, bias=0):
            return self.b(self.a(x), bias=bias)

    return Net


def test_values_are_replaced_for_one_call(impl, fn, net):
    m = net()
    before = m.a.weight
    out = fn.functional_call(
        m,
        {"a.weight": impl.lib.tensor([10.0, 10.0])},
        (impl.lib.tensor([1.0, 1.0]),),
        {"bias": 0.5},
    )
    assert out.tolist() == [60.5, 70.5]
    assert m.a.weight is before


def test_an_argument_that_is_no_tuple(impl, fn, net):
    assert fn.functional_call(net(), {}, impl.lib.tensor([1.0, 1.0])).tolist() == [6.0, 14.0]


def test_buffers_that_the_call_changes_are_those_given(impl, fn, net):
    m = net()
    state = {"a.count": impl.lib.tensor([5.0])}
    fn.functional_call(m, state, (impl.lib.tensor([1.0, 1.0]),))
    assert m.a.count.tolist() == [0.0]
    assert state["a.count"].tolist() == [6.0]


def test_several_dicts(impl, fn, net):
    state = ({"a.weight": impl.lib.tensor([2.0, 2.0])}, {"b.weight": impl.lib.tensor([3.0, 3.0])})
    assert fn.functional_call(net(), state, (impl.lib.tensor([1.0, 1.0]),)).tolist() == [6.0, 6.0]
    with pytest.raises(ValueError, match="appeared in multiple dictionaries"):
        fn.functional_call(net(), (state[0], state[0]), (impl.lib.tensor([1.0, 1.0]),))


def test_ties(impl, fn, net):
    m = net()
    m.b.weight = m.a.weight
    x = impl.lib.tensor([1.0, 1.0])
    new = impl.lib.tensor([3.0, 4.0])
    assert fn.functional_call(m, {"a.weight": new}, (x,)).tolist() == [9.0, 16.0]
    apart = fn.functional_call(m, {"a.weight": new}, (x,), tie_weights=False)
    assert apart.tolist() == [3.0, 8.0]
    with pytest.raises(ValueError, match="different values|conflict|tied"):
        fn.functional_call(m, {"a.weight": new, "b.weight": new * 2}, (x,))


def test_strict(impl, fn, net):
    m = net()
    x = impl.lib.tensor([1.0, 1.0])
    with pytest.raises(RuntimeError, match=r"(?s)issing.*b\.weight"):
        fn.functional_call(m, {"a.weight": impl.lib.tensor([1.0, 1.0])}, (x,), strict=True)
    full = {**dict(m.named_parameters()), **dict(m.named_buffers())}
    assert fn.functional_call(m, full, (x,), strict=True).tolist() == [6.0, 14.0]
    with pytest.raises(RuntimeError, match=r"(?s)nexpected.*c\.weight"):
        fn.functional_call(m, {**full, "c.weight": x}, (x,), strict=True)


def test_the_module_is_whole_after_an_error(impl, fn, net):
    m = net()
    before = m.a.weight
    with pytest.raises((TypeError, RuntimeError)):
        fn.functional_call(m, {"a.weight": impl.lib.tensor([1.0, 2.0, 3.0])}, (None,))
    assert m.a.weight is before


def test_gradients_of_a_dict(impl, fn, transform, net):
    m = net()
    m.a.counting = m.b.counting = False  # torch refuses writes into what the function captures
    x = impl.lib.tensor([1.0, 2.0])
    found = transform.grad(lambda p: fn.functional_call(m, p, (x,)).sum())(
        dict(m.named_parameters())
    )
    assert {k: v.tolist() for k, v in found.items()} == {
        "a.weight": [6.0, 14.0],
        "b.weight": [1.0, 4.0],
    }


def test_stacked_states_run_as_an_ensemble(impl, fn, net):
    models = [net(float(i)) for i in range(3)]
    x = impl.lib.tensor([1.0, 2.0])
    expected = [m(x).tolist() for m in models]
    parameters, buffers = fn.stack_module_state(models)
    assert set(parameters) == {"a.weight", "b.weight"}
    assert set(buffers) == {"a.count", "b.count"}
    assert all(p.requires_grad and p.is_leaf for p in parameters.values())
    base = net()

    def run(p, b):
        return fn.functional_call(base, (p, b), (x,))

    if impl.leaves == "numpy":
        states = [
            [{key: value[i] for key, value in part.items()} for part in (parameters, buffers)]
            for i in range(3)
        ]
        found = impl.lib.stack([run(*state) for state in states])
    else:
        found = importlib.import_module("torch.func").vmap(run)(parameters, buffers)
    assert found.tolist() == expected
    found.sum().backward()
    for i, model in enumerate(models):
        model(x).sum().backward()
        assert parameters["a.weight"].grad[i].tolist() == model.a.weight.grad.tolist()


def test_what_cannot_be_stacked(impl, fn, net):
    with pytest.raises(RuntimeError, match="at least one model"):
        fn.stack_module_state([])
    other = net().eval()
    with pytest.raises(RuntimeError, match="same training/eval mode"):
        fn.stack_module_state([net(), other])
    with pytest.raises(RuntimeError, match="same class"):
        fn.stack_module_state([net(), impl.nn.Sequential()])


@needs("torch")
def test_a_module_with_torch_leaves_under_the_functions_of_torch(impl, fn, transform):
    if transform.__name__ != "torch.func":
        pytest.skip("NumPy leaves")
    torch = importlib.import_module("torch")

    class Net(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = impl.nn.Parameter(torch.ones(3))

        def forward(self, x):
            return (self.weight * x).sum() ** 2

    m = Net()
    x = torch.arange(6.0).reshape(2, 3)
    found = torch.func.vmap(
        torch.func.grad(lambda p, s: fn.functional_call(m, p, (s,))), in_dims=(None, 0)
    )(dict(m.named_parameters()), x)
    assert found["weight"].tolist() == [[0.0, 6.0, 12.0], [72.0, 96.0, 120.0]]
