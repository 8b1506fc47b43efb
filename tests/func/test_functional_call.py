# SPDX-License-Identifier: BSD-3-Clause
"""functional_call and stack_module_state on modules with either kind of leaves, as in torch."""

from __future__ import annotations

import importlib

import numpy as np
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


def test_stacked_states_run_as_an_ensemble(impl, fn, transform, net):
    models = [net(float(i)) for i in range(3)]
    x = impl.lib.tensor([1.0, 2.0])
    expected = [m(x).tolist() for m in models]
    parameters, buffers = fn.stack_module_state(models)
    assert set(parameters) == {"a.weight", "b.weight"}
    assert set(buffers) == {"a.count", "b.count"}
    assert all(p.requires_grad and p.is_leaf for p in parameters.values())
    base = net()
    found = transform.vmap(lambda p, b: fn.functional_call(base, (p, b), (x,)), in_dims=(0, 0))(
        parameters, buffers
    )
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


LAYERS = {
    "linear": (lambda nn: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (5, 4)),
    "conv": (
        lambda nn: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.MaxPool2d(2)
        ),
        (3, 2, 4, 4),
    ),
    "depthwise": (lambda nn: nn.Conv2d(4, 4, 3, groups=4), (2, 4, 5, 5)),
    "transposed": (lambda nn: nn.ConvTranspose2d(2, 3, 2, stride=2), (2, 2, 3, 3)),
    "norms": (
        lambda nn: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6), nn.RMSNorm(6), nn.Softmax(-1)),
        (4, 6),
    ),
    "batch_norm": (lambda nn: nn.BatchNorm1d(3).eval(), (4, 3)),
    "attention": (
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        (2, 5, 8),
    ),
    "bilinear": (lambda nn: nn.Sequential(nn.Linear(3, 4, bias=False), nn.PReLU(4)), (2, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_as_ensembles(name):
    """Outputs, and gradients by state and input, are those of a loop over the models."""
    modtree = importlib.import_module("modtree")
    func = importlib.import_module("modtree.func")
    make, shape = LAYERS[name]
    modtree.manual_seed(1)
    models = [make(modtree.nn).double() for _ in range(3)]
    x = modtree.randn(*shape, dtype=modtree.float64).requires_grad_()
    parameters, buffers = func.stack_module_state(models)
    weight = modtree.randn(*models[0](x).shape, dtype=modtree.float64)
    expected = modtree.stack([m(x) for m in models])
    found = func.vmap(
        lambda p, b, x: func.functional_call(models[0], (p, b), (x,)), in_dims=(0, 0, None)
    )(parameters, buffers, x)
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-9, atol=1e-12)
    wanted = [p for m in models for p in m.parameters()]
    by_model = modtree.autograd.grad((expected * weight).sum(), [x, *wanted])
    stacked = modtree.autograd.grad((found * weight).sum(), [x, *parameters.values()])
    np.testing.assert_allclose(stacked[0], by_model[0], rtol=1e-8, atol=1e-10)
    count = len(parameters)
    for k in range(count):
        for i in range(3):
            np.testing.assert_allclose(
                stacked[1 + k][i], by_model[1 + i * count + k], rtol=1e-8, atol=1e-10
            )


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_each_sample_of_layers(name):
    modtree = importlib.import_module("modtree")
    func = importlib.import_module("modtree.func")
    make, shape = LAYERS[name]
    modtree.manual_seed(2)
    model = make(modtree.nn).double()
    state = {k: v.detach() for k, v in model.named_parameters()}
    x = modtree.randn(*shape, dtype=modtree.float64)

    def loss(p, sample):
        return func.functional_call(model, p, (sample.unsqueeze(0),)).sin().sum()

    found = func.vmap(func.grad(loss), in_dims=(None, 0))(state, x)
    for i in range(shape[0]):
        one = func.grad(loss)(state, x[i])
        for key, value in one.items():
            np.testing.assert_allclose(found[key][i], value, rtol=1e-8, atol=1e-10)


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
