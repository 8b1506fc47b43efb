# SPDX-License-Identifier: BSD-3-Clause
"""``backward``, ``grad``, modes and what ends in ``.grad``, on modtree and on torch."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from helpers.support import quiet, raises, values


def leaf(lib: Any, *numbers: float, **options: Any) -> Any:
    return lib.tensor(list(numbers), requires_grad=True, **options)


# -- arguments of backward -------------------------------------------------------------------------


def test_gradient_is_the_weight(lib):
    x = leaf(lib, 1.0, 2.0)
    (x * 3).backward(lib.tensor([1.0, 10.0]))
    assert values(x.grad) == [3.0, 30.0]


@pytest.mark.parametrize("shape", [(3,), (1,), (2, 1), ()])
def test_gradient_of_another_shape_is_refused(lib, shape):
    x = leaf(lib, 1.0, 2.0)
    with raises(RuntimeError, "Mismatch in shape: grad_output[0] has a shape of", "output[0]"):
        (x * 3).backward(lib.ones(shape))
    assert x.grad is None


def test_implicit_gradient_needs_one_element(lib):
    x = leaf(lib, 1.0, 2.0)
    with raises(RuntimeError, "grad can be implicitly created only for scalar outputs"):
        (x * 3).backward()
    (x * 3).sum().reshape(1, 1).backward()
    assert values(x.grad) == [3.0, 3.0]


def test_root_without_history(lib):
    with raises(RuntimeError, "element 0 of tensors does not require grad and does not have a"):
        lib.ones(()).backward()
    x = leaf(lib, 1.0)
    with raises(RuntimeError, "element 1 of tensors does not require grad and does not have a"):
        lib.autograd.backward([x.sum(), lib.ones(())])


def test_leaf_is_its_own_root(lib):
    x = leaf(lib, 1.0)
    x.backward()
    x.backward(lib.tensor([5.0]))
    assert values(x.grad) == [6.0]


def test_second_backward_is_refused_unless_kept(lib):
    x = leaf(lib, 1.0, 2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert values(x.grad) == [4.0, 8.0]
    with raises(RuntimeError, "Trying to backward through the graph a second time"):
        y.backward()
    assert values(x.grad) == [4.0, 8.0]


def test_nodes_that_kept_nothing_can_be_gone_through_again(lib):
    x = leaf(lib, 1.0, 2.0, 3.0)
    y = lib.lerp((lib.stack([x[::2], x[1:]]) + 1).reshape(-1)[1:], x, 0.5).sum()
    for _ in range(3):
        y.backward()
    assert values(x.grad) == [1.5, 3.0, 4.5]


def test_shared_part_of_two_graphs(lib):
    x = leaf(lib, 2.0)
    shared = x.exp()
    (shared * 2).sum().backward(retain_graph=True)
    (shared * 3).sum().backward()
    with raises(RuntimeError, "second time"):
        (shared * 4).sum().backward()


def test_create_graph(lib):
    x = leaf(lib, 2.0)
    with quiet():
        (x**3).sum().backward(create_graph=True)
    assert x.grad.requires_grad and not x.grad.is_leaf
    (second,) = lib.autograd.grad(x.grad.sum(), x)
    assert values(second) == [12.0]


def test_create_graph_keeps_the_graph(lib):
    x = leaf(lib, 2.0)
    y = (x * x).sum()
    with quiet():
        y.backward(create_graph=True)
    y.backward()
    assert values(x.grad) == [8.0]


def test_inputs_limits_what_is_accumulated(lib):
    x, w = leaf(lib, 2.0), leaf(lib, 3.0)
    y = x * w
    y.sum().backward(inputs=[x], retain_graph=True)
    assert values(x.grad) == [3.0] and w.grad is None
    y.sum().backward(inputs=w)
    assert values(x.grad) == [3.0] and values(w.grad) == [2.0]


def test_inputs_makes_others_retain_theirs(lib):
    x = leaf(lib, 2.0)
    y = x * 3
    (y * y).sum().backward(inputs=[y, y], retain_graph=True)
    assert y.retains_grad and values(y.grad) == [12.0] and x.grad is None
    (y * y).sum().backward()
    assert values(y.grad) == [24.0] and values(x.grad) == [36.0]


def test_inputs_must_not_be_empty_or_without_grad(lib):
    y = leaf(lib, 2.0).sum()
    with raises(RuntimeError, "cannot be empty"):
        y.backward(inputs=[])
    with raises(RuntimeError, "require"):
        y.backward(inputs=[lib.ones(1)])


def test_several_roots(lib):
    x = leaf(lib, 1.0, 2.0)
    lib.autograd.backward([x.sum(), x * 2], [None, lib.tensor([1.0, 10.0])])
    assert values(x.grad) == [3.0, 21.0]
    lib.autograd.backward([x.sum(), x.sum()])
    assert values(x.grad) == [5.0, 23.0]
    y = x.sum()
    lib.autograd.backward([y, y, y])
    assert values(x.grad) == [8.0, 26.0]


def test_root_inside_the_graph_of_another_root(lib):
    x = leaf(lib, 2.0)
    y = x * x
    z = y * 3
    lib.autograd.backward([y, z])
    assert values(x.grad) == [16.0]


# -- grad ------------------------------------------------------------------------------------------


def test_grad_returns_and_changes_nothing(lib):
    x, w = leaf(lib, 2.0), leaf(lib, 3.0)
    got = lib.autograd.grad((x * w).sum(), [x, w])
    assert isinstance(got, tuple) and [values(g) for g in got] == [[3.0], [2.0]]
    assert x.grad is None and w.grad is None
    assert not got[0].requires_grad


def test_grad_of_the_same_input_twice(lib):
    x = leaf(lib, 2.0)
    a, b = lib.autograd.grad((x * x).sum(), [x, x])
    assert values(a) == values(b) == [4.0]


def test_grad_by_a_tensor_inside(lib):
    x = leaf(lib, 2.0)
    y = x * 3
    z = y * y
    dy, dx, dz = lib.autograd.grad(z.sum(), [y, x, z])
    assert [values(dy), values(dx), values(dz)] == [[12.0], [36.0], [1.0]]


def test_grad_by_the_root(lib):
    y = (leaf(lib, 2.0) * 3).sum()
    assert values(lib.autograd.grad(y, y)[0]) == 1.0


def test_unused_input(lib):
    x, w = leaf(lib, 2.0), leaf(lib, 3.0, 4.0)
    with raises(RuntimeError, "appears to not have been used in the graph. Set allow_unused=True"):
        lib.autograd.grad(x.sum(), [x, w])
    assert lib.autograd.grad(x.sum(), [x, w], allow_unused=True)[1] is None
    zeros = lib.autograd.grad(x.sum(), [x, w], materialize_grads=True)[1]
    assert values(zeros) == [0.0, 0.0]
    with raises(ValueError, "Expected allow_unused to be True or not passed"):
        lib.autograd.grad(x.sum(), w, allow_unused=False, materialize_grads=True)


def test_grad_by_what_needs_none(lib):
    with raises(RuntimeError, "One of the differentiated Tensors does not require grad"):
        lib.autograd.grad(leaf(lib, 2.0).sum(), lib.ones(1))


def test_batched_weights(lib):
    x = leaf(lib, 1.0, 2.0)
    (jacobian,) = lib.autograd.grad(x * x, x, lib.eye(2), is_grads_batched=True)
    assert values(jacobian) == [[2.0, 0.0], [0.0, 4.0]]


def test_grad_ends_at_its_inputs(lib):
    """The part of the graph behind the inputs is not run, and stays."""
    seen = []
    x = leaf(lib, 2.0)
    y = x.exp()
    x.register_hook(lambda g: seen.append("x"))
    z = y * y
    lib.autograd.grad(z.sum(), y)
    assert seen == []
    y.sum().backward()
    assert seen == ["x"]


def test_grad_through_a_view_whose_base_changed(lib):
    x = leaf(lib, 1.0, 2.0, 3.0)
    base = x * 1
    part = base[1:]
    base.mul_(2)
    out = (part * 5).sum()
    assert values(lib.autograd.grad(out, x)[0]) == [0.0, 10.0, 10.0]


# -- what ends in .grad ----------------------------------------------------------------------------


def test_grad_is_added_to_in_place(lib):
    x = leaf(lib, 1.0, 2.0)
    (x * 2).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    assert x.grad is first and values(first) == [5.0, 5.0]


def test_create_graph_replaces_grad(lib):
    x = leaf(lib, 1.0)
    (x * 2).sum().backward()
    first = x.grad
    with quiet():
        (x**3).sum().backward(create_graph=True)
    assert values(first) == [2.0] and values(x.grad) == [5.0]


def test_a_given_grad_is_added_to(lib):
    x = leaf(lib, 1.0)
    x.grad = given = lib.tensor([100.0])
    (x * 2).sum().backward()
    assert x.grad is given and values(given) == [102.0]


def _same_memory(a: Any, b: Any) -> bool:
    return np.shares_memory(a.detach().numpy(), b.detach().numpy())


def test_grads_share_no_memory(lib):
    x, w = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)
    weight = lib.tensor([1.0, 1.0])
    (x + w).backward(weight)
    assert not _same_memory(x.grad, w.grad)
    assert not _same_memory(x.grad, weight) and not _same_memory(w.grad, weight)
    x.grad.mul_(5)
    assert values(w.grad) == [1.0, 1.0] and values(weight) == [1.0, 1.0]


@pytest.mark.parametrize("how", ["reshape", "transpose", "slice", "expand", "hook"])
def test_grad_is_nobody_elses(lib, how):
    x = lib.ones(2, 2, requires_grad=True)
    weight = lib.ones(2, 2)
    seen = []
    if how == "reshape":
        x.reshape(4).backward(weight.reshape(4))
    elif how == "transpose":
        x.t().backward(weight)
    elif how == "slice":
        x[:, :].backward(weight)
    elif how == "expand":
        x.sum().backward(weight[0, 0])
    else:
        x.register_hook(seen.append)
        (x * 1).backward(weight)
        weight = seen[0]
    if lib.__name__ != "torch":  # which keeps a weight that nobody else seems to hold
        assert not _same_memory(x.grad, weight)
    x.grad.add_(1)
    assert values(x.grad) == [[2.0, 2.0], [2.0, 2.0]]


def test_read_only_gradient(lib):
    """A weight that was expanded, which NumPy may hold as read-only memory."""
    x, w = lib.ones(2, 2, requires_grad=True), lib.ones(2, 2, requires_grad=True)
    for _ in range(2):
        (x + w).backward(lib.ones(1, 1).expand(2, 2))
    assert values(x.grad) == values(w.grad) == [[2.0, 2.0], [2.0, 2.0]]


def test_dtypes_meet(lib):
    x = leaf(lib, 1.0, 2.0, dtype=lib.float32)
    w = leaf(lib, 3.0, 4.0, dtype=lib.float64)
    h = leaf(lib, 3.0, 4.0, dtype=lib.float16)
    y = x * w + h
    assert y.dtype == lib.float64
    y.sum().backward()
    assert (x.grad.dtype, w.grad.dtype, h.grad.dtype) == (lib.float32, lib.float64, lib.float16)
    assert values(x.grad) == [3.0, 4.0] and values(h.grad) == [1.0, 1.0]


def test_weight_of_another_dtype(lib):
    x = leaf(lib, 1.0)
    (x * 2).backward(lib.tensor([3.0], dtype=lib.float64))
    assert x.grad.dtype == lib.float32 and values(x.grad) == [6.0]


def test_complex(lib):
    z = lib.tensor([1 + 2j], requires_grad=True)
    (z * z.conj()).real.sum().backward()
    assert values(z.grad) == [2 + 4j]
    with raises(RuntimeError, "grad can be implicitly created only for real scalar outputs"):
        (z * z).sum().backward()
    x = leaf(lib, 3.0)
    (x * (1 + 1j)).backward(lib.tensor([1 + 1j]))
    assert x.grad.dtype == lib.float32 and values(x.grad) == [2.0]


def test_meta(lib):
    x = lib.ones(2, 3, device="meta", requires_grad=True)
    w = lib.ones(3, device="meta", requires_grad=True)
    (x * w).sum().backward()
    assert x.grad.device.type == w.grad.device.type == "meta"
    assert tuple(x.grad.shape) == (2, 3) and tuple(w.grad.shape) == (3,)
    (x * w).sum().backward()


def test_empty(lib):
    x = lib.zeros(0, 3, requires_grad=True)
    (x * 2).sum().backward()
    assert tuple(x.grad.shape) == (0, 3)


def test_unused_results(lib):
    x = lib.ones(4, requires_grad=True)
    first, *_ = x.split(2)
    first.sum().backward()
    assert values(x.grad) == [1.0, 1.0, 0.0, 0.0]
    x.unbind(0)[3].backward()
    assert values(x.grad) == [1.0, 1.0, 0.0, 1.0]


def test_same_tensor_twice(lib):
    x = leaf(lib, 3.0)
    (x * x + lib.cat([x, x]).sum()).sum().backward()
    assert values(x.grad) == [8.0]


def test_warning_for_the_grad_of_others(lib):
    y = leaf(lib, 1.0) * 2
    with pytest.warns(UserWarning, match="not a leaf"):
        assert y.grad is None


# -- flags -----------------------------------------------------------------------------------------


def test_requires_grad_spreads(lib):
    x, c = leaf(lib, 1.0), lib.ones(1)
    assert (x * c).requires_grad and not (c * c).requires_grad
    assert x.is_leaf and c.is_leaf and not (x * c).is_leaf
    assert x.grad_fn is None and (c * c).grad_fn is None
    assert not (x > 0).requires_grad


def test_requires_grad_of_a_result_cannot_be_taken_away(lib):
    y = leaf(lib, 1.0) * 2
    with raises(RuntimeError, "you can only change requires_grad flags of leaf variables"):
        y.requires_grad = False
    with raises(RuntimeError, "you can only change requires_grad flags of leaf variables"):
        y.requires_grad = True
    assert y.requires_grad_() is y
    x = leaf(lib, 1.0)
    z = x * 2
    x.requires_grad_(False)
    z.sum().backward()
    assert not (x * 2).requires_grad and x.grad is None


def test_integers_need_no_gradient(lib):
    with raises(RuntimeError, "nly Tensors of floating point"):
        lib.ones(2, dtype=lib.int64).requires_grad_()
    with raises(RuntimeError, "nly Tensors of floating point"):
        lib.tensor([1, 2], requires_grad=True)


def test_detach(lib):
    x = leaf(lib, 1.0)
    y = x * 2
    d = y.detach()
    assert not d.requires_grad and d.is_leaf and _same_memory(d, y)
    y.detach_()
    assert not y.requires_grad and y.is_leaf
    with raises(RuntimeError, "Can't detach views in-place"):
        (x * 2)[0:].detach_()


def test_retain_grad(lib):
    x = leaf(lib, 1.0)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    x.retain_grad()
    assert y.retains_grad and not x.retains_grad
    (y * 3).sum().backward()
    assert values(y.grad) == [3.0]
    with raises(RuntimeError, "can't retain_grad on Tensor that has requires_grad=False"):
        lib.ones(1).retain_grad()


def test_array_of_a_tensor_on_the_graph(lib):
    with raises(
        RuntimeError,
        "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead",
    ):
        leaf(lib, 1.0).numpy()


def test_wrong_grads(lib):
    x = leaf(lib, 1.0)
    with raises(RuntimeError, "size"):
        x.grad = lib.ones(2)
    with raises(TypeError, "assigned grad expected to be a Tensor or None"):
        x.grad = 3
    with pytest.raises(RuntimeError):
        x.grad = lib.ones(1, dtype=lib.float64)
    with raises(RuntimeError, "can't assign Variable as its own grad"):
        x.grad = x
    x.grad = lib.ones(1)
    del x.grad
    assert x.grad is None


# -- modes -----------------------------------------------------------------------------------------


def test_modes(lib):
    x = leaf(lib, 1.0)
    with lib.no_grad():
        assert not lib.is_grad_enabled() and not (x * 2).requires_grad
        with lib.enable_grad():
            assert (x * 2).requires_grad
        with lib.set_grad_enabled(True):
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
        assert lib.ones(1, requires_grad=True).requires_grad
    lib.set_grad_enabled(False)
    try:
        assert not (x * 2).requires_grad
    finally:
        lib.set_grad_enabled(True)
    with lib.inference_mode():
        assert lib.is_inference_mode_enabled() and not (x * 2).requires_grad
    assert lib.is_grad_enabled() and not lib.is_inference_mode_enabled()


def test_modes_end_with_an_error(lib):
    for mode in (lib.no_grad, lib.inference_mode, lambda: lib.set_grad_enabled(False)):
        with pytest.raises(KeyError), mode():
            raise KeyError
        assert lib.is_grad_enabled()


def test_modes_as_decorators(lib):
    x = leaf(lib, 1.0)

    @lib.no_grad()
    def quiet_function(n):
        return (x * 2).requires_grad if n == 0 else quiet_function(n - 1)

    @lib.enable_grad()
    def loud():
        return (x * 2).requires_grad

    @lib.set_grad_enabled(False)
    def switched():
        return (x * 2).requires_grad

    @lib.inference_mode()
    def inference():
        return (x * 2).requires_grad

    @lib.no_grad
    def bare():
        return (x * 2).requires_grad

    assert [quiet_function(3), switched(), inference(), bare()] == [False] * 4
    with lib.no_grad():
        assert loud()
    assert lib.is_grad_enabled() and quiet_function.__name__ == "quiet_function"


def test_generator_under_a_mode(lib):
    @lib.no_grad()
    def numbers():
        yield lib.is_grad_enabled()
        yield lib.is_grad_enabled()

    seen = []
    for inside in numbers():
        seen += [inside, lib.is_grad_enabled()]
    assert seen == [False, True, False, True]


def test_mode_belongs_to_the_thread(lib):
    seen = []
    with lib.no_grad():
        thread = threading.Thread(target=lambda: seen.append(lib.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_no_grad_view(lib):
    """A view made under no_grad: no history, and no way to one."""
    x = lib.ones(3, requires_grad=True)
    y = x * 2
    with lib.no_grad():
        part = y[:2]
    assert part.is_leaf and part.grad_fn is None
    with pytest.raises(RuntimeError):
        part.add_(1)
    with lib.no_grad():
        part.add_(1)
    with raises(RuntimeError, "A view was created in no_grad mode"):
        part.grad_fn  # noqa: B018


# -- junk ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("junk", [3, "x", [1], object()])
def test_junk_is_refused(lib, junk):
    x = leaf(lib, 1.0)
    with pytest.raises((TypeError, RuntimeError, AttributeError)):
        (x * 2).backward(junk)
    with pytest.raises((TypeError, RuntimeError, AttributeError)):
        lib.autograd.grad((x * 2).sum(), junk)
    with pytest.raises((TypeError, RuntimeError, AttributeError)):
        (x * 2).sum().backward(inputs=junk)
    assert x.grad is None


def test_junk_for_the_native_pass():
    import modtree
    from modtree import _C

    x = modtree.ones(1, requires_grad=True)
    options = {"keep_graph": False, "create_graph": False, "accumulate": True, "allow_unused": True}
    for roots, gradients, inputs in [
        ((1,), (None,), None),
        ((x,), (), None),
        ((x,), (None, None), None),
        ((x,), (3,), None),
        ((x,), (None,), (3,)),
        ((x,), (None,), 3),
        ((x,), (modtree.ones(2),), None),
        (3, (None,), None),
    ]:
        with pytest.raises((TypeError, RuntimeError)):
            _C.run_backward(roots, gradients, inputs, **options)
    _C.run_backward((), (), None, **options)
    for call in (_C.gradient_edge, _C.check_inplace, _C.bump_version):
        with pytest.raises(TypeError):
            call(3)
    with pytest.raises(TypeError):
        _C.with_history(x, (x * 2).grad_fn, 1)
    with pytest.raises(TypeError):
        _C.with_history(x, 3, 0)
    assert x.grad is None
