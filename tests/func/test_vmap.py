# SPDX-License-Identifier: BSD-3-Clause
"""vmap as a function of functions: dimensions, structures, nesting, randomness, writes, errors."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from helpers.needs import needs

import modtree
from modtree import func


@pytest.fixture
def vmap(lib):
    return importlib.import_module(f"{lib.__name__}.func").vmap


def numbers(lib, *shape):
    return lib.arange(float(np.prod(shape))).reshape(*shape)


def test_dimensions_of_inputs_and_results(lib, vmap):
    x, y = numbers(lib, 2, 3, 4), numbers(lib, 3)
    found = vmap(lambda a, b: a * b, in_dims=(1, 0), out_dims=2)(x, y)
    np.testing.assert_array_equal(found, (x * y[:, None]).permute(0, 2, 1))
    found = vmap(lambda a, b: a + b, in_dims=(-2, None), out_dims=-1)(x, lib.tensor(1.0))
    assert tuple(found.shape) == (2, 4, 3)


def test_nested_structures(lib, vmap):
    x, y = numbers(lib, 3, 2), numbers(lib, 2, 3)

    def function(tree, pair):
        return {"s": tree["x"].sum() + pair[1], "p": (tree["x"], tree["y"] * pair[0])}

    found = vmap(function, in_dims=({"x": 0, "y": 1}, (None, 0)), out_dims={"s": 0, "p": (1, 0)})(
        {"x": x, "y": y}, (lib.tensor(2.0), numbers(lib, 3))
    )
    np.testing.assert_array_equal(found["s"], x.sum(1) + numbers(lib, 3))
    np.testing.assert_array_equal(found["p"][0], x.T)
    np.testing.assert_array_equal(found["p"][1], y.T * 2)


def test_keywords_are_the_same_for_all(lib, vmap):
    x = numbers(lib, 3, 2)
    found = vmap(lambda a, *, k: (a + k).sum(0))(x, k=x)
    np.testing.assert_array_equal(found, x * 3 + x.sum(0))


def test_a_result_that_is_the_same_for_all(lib, vmap):
    x = numbers(lib, 3, 2)
    found = vmap(lambda a: (a, lib.ones(2)))(x)
    np.testing.assert_array_equal(found[1], np.ones((3, 2)))
    same = vmap(lambda a: lib.ones(2), out_dims=None)(x)
    assert tuple(same.shape) == (2,)


def test_nested_levels(lib, vmap):
    x, y = numbers(lib, 2, 3), numbers(lib, 4, 3)
    found = vmap(vmap(lambda a, b: a @ b, in_dims=(None, 0)), in_dims=(0, None))(x, y)
    np.testing.assert_array_equal(found, x @ y.T)
    found = vmap(lambda a: vmap(lambda b: (a * b).sum() + a[0])(y))(x)
    np.testing.assert_array_equal(found, x @ y.T + x[:, :1])


def test_a_sample_looks_like_one(lib, vmap):
    seen = []

    def function(a):
        seen.append((tuple(a.shape), a.ndim, a.dim(), a.size(0), len(a), a.numel(), a.dtype))
        seen.append((a.device.type, a.is_floating_point(), isinstance(a, lib.Tensor)))
        return a

    vmap(function)(numbers(lib, 5, 2, 3))
    assert seen[0][:6] == ((2, 3), 2, 2, 2, 2, 6)
    assert seen[1] == ("cpu", True, True)


def test_writes_go_to_the_sample(lib, vmap):
    x = numbers(lib, 3, 4)

    def function(a):
        b = a.clone()
        b[0] = 7
        b[1:3] = a[:2]
        b += 1
        b[3].mul_(2)
        c = lib.zeros_like(a)
        c[1] = a[2]
        return b, c

    b, c = vmap(function)(x)
    for i in range(3):
        row = x[i]
        expected = [8, row[0] + 1, row[1] + 1, (row[3] + 1) * 2]
        np.testing.assert_array_equal(b[i], np.array([float(v) for v in expected]))
        assert c[i].tolist() == [0, float(row[2]), 0, 0]


def test_writes_reach_the_input(lib, vmap):
    x = numbers(lib, 3, 2)
    vmap(lambda a: a.mul_(2))(x)
    np.testing.assert_array_equal(x, numbers(lib, 3, 2) * 2)


def test_writes_of_samples_into_what_all_share_are_refused(lib, vmap):
    shared = lib.zeros(2)
    with pytest.raises(RuntimeError, match="vmap: .*is not possible because|broadcast shape"):
        vmap(lambda a: shared.add_(a))(numbers(lib, 3, 2))
    assert shared.tolist() == [0, 0]


def test_an_index_of_samples_into_what_all_share(lib, vmap):
    table, index = numbers(lib, 4, 2), lib.tensor([3, 0, 3])
    np.testing.assert_array_equal(vmap(lambda i: table[i])(index), table[index])


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_chunks(lib, vmap, chunk):
    x = numbers(lib, 5, 2)
    found = vmap(lambda a: (a.sum(), a * 2), out_dims=(0, 1), chunk_size=chunk)(x)
    np.testing.assert_array_equal(found[0], x.sum(1))
    np.testing.assert_array_equal(found[1], x.T * 2)


@pytest.mark.parametrize(
    "draw",
    [
        lambda m, a: m.rand(4) + 0 * a.sum(),
        lambda m, a: m.rand_like(a),
        lambda m, a: m.nn.functional.dropout(m.ones_like(a), 0.5),
        lambda m, a: m.empty_like(a).normal_(),
        lambda m, a: m.bernoulli(m.full_like(a, 0.5)),
        lambda m, a: m.randint(0, 1000, (4,)).to(a.dtype) + 0 * a.sum(),
    ],
)
def test_randomness(lib, vmap, draw):
    x = lib.zeros(8, 4)
    with pytest.raises(RuntimeError, match="called random operation while in randomness error"):
        vmap(lambda a: draw(lib, a))(x)
    different = vmap(lambda a: draw(lib, a), randomness="different")(x)
    assert tuple(different.shape) == (8, 4)
    assert len({tuple(row.tolist()) for row in different}) > 1
    if lib is modtree:  # torch refuses some of these with a batch
        same = vmap(lambda a: draw(lib, a), randomness="same")(x)
        assert len({tuple(row.tolist()) for row in same}) == 1


def test_randomness_of_an_operation_that_draws_itself():
    q = modtree.randn(4, 3, 5, 8)
    attend = modtree.nn.functional.scaled_dot_product_attention
    with pytest.raises(RuntimeError, match="called random operation"):
        func.vmap(lambda a: attend(a, a, a, dropout_p=0.5))(q)
    alike = modtree.ones(4, 3, 5, 8)
    same = func.vmap(lambda a: attend(a, a, a, dropout_p=0.5), randomness="same")(alike)
    assert (same == same[0]).all()
    other = func.vmap(lambda a: attend(a, a, a, dropout_p=0.5), randomness="different")(alike)
    assert not (other == other[0]).all()


def test_gradients_with_a_batch_of_weights(lib, vmap):
    """The idiom for Jacobians: one graph, all rows of an identity matrix."""
    x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x**2
    rows = vmap(lambda v: lib.autograd.grad(y, x, v, retain_graph=True)[0])(lib.eye(3))
    np.testing.assert_array_equal(rows, np.diag([2.0, 4.0, 6.0]))


def test_gradients_flow_out(lib, vmap):
    w = lib.tensor([1.0, 2.0], requires_grad=True)
    x = numbers(lib, 3, 2)
    vmap(lambda a: (a * w).sum())(x).sum().backward()
    np.testing.assert_array_equal(w.grad, x.sum(0))


def test_no_grad_inside(lib, vmap):
    x = numbers(lib, 3, 2).requires_grad_()

    def function(a):
        with lib.no_grad():
            return a * 2

    assert not vmap(function)(x).requires_grad


@pytest.mark.parametrize(
    "look",
    [
        lambda a: a.item(),
        lambda a: a.tolist(),
        lambda a: a.numpy(),
        lambda a: a if a > 0 else -a,
        lambda a: float(a),
    ],
)
def test_values_cannot_be_looked_at(lib, vmap, look):
    with pytest.raises(RuntimeError, match=r"vmap|Cannot access data pointer"):
        vmap(look)(lib.ones(3))


def test_backward_inside_is_refused(lib, vmap):
    x = lib.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="backward"):
        vmap(lambda a: (a * 2).backward())(x)


def test_results_that_differ_in_shape_name_the_operation(lib, vmap):
    name = "nonzero" if lib is modtree else "nonzero|data-dependent|dynamic"
    with pytest.raises(RuntimeError, match=name):
        vmap(lambda a: a.nonzero())(lib.tensor([[0.0, 1.0], [1.0, 1.0]]))


def test_a_tensor_that_escapes():
    kept = []
    func.vmap(lambda a: kept.append(a * 2) or a)(modtree.ones(3))
    with pytest.raises((RuntimeError, NotImplementedError)):
        modtree.tensor(1.0) + kept[0].item()
    with pytest.raises(RuntimeError, match="has ended"):
        func.vmap(lambda a: a + kept[0])(modtree.ones(3))


def test_an_error_inside_leaves_the_level(lib, vmap):
    def fails(a):
        raise KeyError("x")

    with pytest.raises(KeyError):
        vmap(fails)(lib.ones(3))
    assert (lib.ones(2) + 1).tolist() == [2, 2]
    assert vmap(lambda a: a * 2)(lib.ones(3)).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, v: v(lambda: 1)(), "got no inputs"),
        (lambda m, v: v(lambda a: a, in_dims="0")(m.ones(2)), "expected `in_dims` to be int"),
        (lambda m, v: v(lambda a, b: a, in_dims=(0, 0, 0))(m.ones(2), m.ones(2)), "not compatible"),
        (lambda m, v: v(lambda a: a)(3), "We cannot vmap over non-Tensor arguments"),
        (lambda m, v: v(lambda a: a, in_dims=1)(m.ones(2)), "in_dim=1 for some input, but that"),
        (lambda m, v: v(lambda a, b: a)(m.ones(2), m.ones(3)), "same size in the mapped dimension"),
        (lambda m, v: v(lambda a: 3)(m.ones(2)), "must only return Tensors, got type"),
        (lambda m, v: v(lambda a: a, out_dims=(0, 0))(m.ones(2)), "out_dims"),
        (lambda m, v: v(lambda a: a, out_dims=None)(m.ones(2)), "can not return a BatchedTensor"),
        (lambda m, v: v(lambda a: a, out_dims=3)(m.ones(2)), "out of range"),
        (lambda m, v: v(lambda a: a, randomness="some")(m.ones(2)), "allowed values for random"),
        (lambda m, v: v(lambda a: a, chunk_size=0)(m.ones(2)), "chunk_size should be"),
        (lambda m, v: v(lambda a: a, in_dims=None)(m.ones(2)), "in_dim"),
    ],
)
def test_errors(lib, vmap, call, message):
    with pytest.raises((ValueError, RuntimeError, IndexError), match=message):
        call(lib, vmap)


class TestCustomFunctions:
    def make(self, lib, generate):
        class Square(lib.autograd.Function):
            generate_vmap_rule = generate

            @staticmethod
            def forward(x, y):
                return x * x * y

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs)

            @staticmethod
            def backward(ctx, g):
                x, y = ctx.saved_tensors
                return 2 * x * y * g, x * x * g

        return Square

    def test_for_each_sample(self, lib, vmap):
        function = self.make(lib, True)
        x, y = numbers(lib, 3, 2).requires_grad_(), lib.tensor([2.0, 3.0])
        found = vmap(function.apply, in_dims=(0, None))(x, y)
        np.testing.assert_array_equal(found.detach(), (x * x * y).detach())
        found.sum().backward()
        np.testing.assert_array_equal(x.grad, (2 * x * y).detach())

    def test_with_a_rule_of_its_own(self, lib, vmap):
        seen = []

        class Ruled(self.make(lib, False)):
            @staticmethod
            def vmap(info, in_dims, x, y):
                seen.append((info.batch_size, info.randomness, in_dims))
                return (x * x * y).T, 1

        x, y = numbers(lib, 3, 2), lib.tensor([2.0, 3.0])
        found = vmap(Ruled.apply, in_dims=(0, None))(x, y)
        np.testing.assert_array_equal(found, x * x * y)
        assert seen == [(3, "error", (0, None))]


def test_running_values_that_all_share_are_refused(lib, vmap):
    layer = lib.nn.BatchNorm1d(2)
    with pytest.raises((RuntimeError, ValueError), match="Batch norm got a batched tensor"):
        vmap(layer)(lib.rand(3, 4, 2))
    assert layer.running_mean.tolist() == [0, 0]
    plain = lib.nn.BatchNorm1d(2, track_running_stats=False)
    x = lib.rand(3, 4, 2)
    expected = lib.stack([plain(one) for one in x])
    np.testing.assert_allclose(vmap(plain)(x).detach(), expected.detach(), atol=1e-5)


def test_hooks_on_gradients_of_modules_are_refused():
    layer = modtree.nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda m, gi, go: None)
    with pytest.raises(RuntimeError, match="not available inside of vmap"):
        func.vmap(layer)(modtree.rand(3, 2).requires_grad_())


@pytest.mark.parametrize("name", ["detach_", "retain_grad"])
def test_methods_that_are_refused(name):
    with pytest.raises(RuntimeError, match="vmap"):
        func.vmap(lambda a: getattr(a, name)())(modtree.rand(3, 2))


def test_other_threads_are_not_in_it():
    threading = importlib.import_module("threading")
    seen = []

    def function(a):
        thread = threading.Thread(target=lambda: seen.append((modtree.rand(2) + 1).shape))
        thread.start()
        thread.join()
        return a * 2

    assert func.vmap(function)(modtree.ones(3)).tolist() == [2, 2, 2]
    assert [tuple(s) for s in seen] == [(2,)]


@needs("torch")
@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    """Chains of operations on samples, nested in vmap and grad at random, as in torch."""
    torch = importlib.import_module("torch")
    rng = np.random.default_rng(seed)
    steps = [
        lambda m, a, b: a * b,
        lambda m, a, b: a @ b.T,
        lambda m, a, b: m.tanh(a) + b.sum(0),
        lambda m, a, b: a.softmax(1),
        lambda m, a, b: m.cat([a, b], 0)[1:4],
        lambda m, a, b: a.T.reshape(3, 3) - b.mean(1, keepdim=True),
        lambda m, a, b: m.where(a > b, a, b * 2),
        lambda m, a, b: m.stack([a, b]).amax(0),
        lambda m, a, b: a[:, [2, 0, 1]] * b[0],
        lambda m, a, b: a.cumsum(0) / (1 + b.abs()),
        lambda m, a, b: m.einsum("ij,kj->ik", a, b) / 3,
    ]
    chain = [steps[i] for i in rng.integers(0, len(steps), 5)]
    derive = bool(rng.integers(2))
    dims = [(0, 0), (0, None), (None, 0), (1, 0)][rng.integers(4)]
    outer = [(0, 0), (0, None), (None, 0)][rng.integers(3)]
    shape = [(2, 4, 3, 3), (2, 4, 3, 3)]
    arrays = [rng.standard_normal(s) for s in shape]

    def run(m):
        t = importlib.import_module(f"{m.__name__}.func")

        def function(a, b):
            x = a
            for step in chain:
                x = step(m, x, b)
            return x.sin().sum() if derive else x

        inner = t.grad(function) if derive else function
        return t.vmap(t.vmap(inner, in_dims=dims), in_dims=outer)(*tensors(m))

    def tensors(m):
        made = [m.tensor(a) for a in arrays]
        for i in range(2):
            if outer[i] is None:
                made[i] = made[i][0]
            if dims[i] is None:
                made[i] = made[i][0] if outer[i] is None else made[i][:, 0]
            if dims[i] == 1:
                made[i] = made[i].transpose(-3, -2)
        return made

    np.testing.assert_allclose(run(modtree), run(torch), rtol=1e-7, atol=1e-10)


def test_a_list_that_holds_itself_is_refused():
    endless = [modtree.ones(2)]
    endless.append(endless)
    with pytest.raises(TypeError, match="list"):
        func.vmap(lambda x: modtree.cat(endless) + x)(modtree.ones(3, 2))
