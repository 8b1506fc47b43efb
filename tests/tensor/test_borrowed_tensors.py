# SPDX-License-Identifier: BSD-3-Clause
"""What tensor operations and backward passes have read stays alive while user code runs: lists of
the caller, storage, what nodes saved.
"""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
from helpers.collections_at import at_every_collection
from helpers.hostile_keys import Key

import modtree as mt
from modtree._C import Op, swap_contents


def leaf(*shape):
    return mt.ones(*shape, requires_grad=True)


# -- lists of the caller ---------------------------------------------------------------------------

LIST_CHANGES = {
    "extend": lambda parts: parts.extend(leaf(2) for _ in range(60)),
    "clear": lambda parts: parts.clear(),
    "shrink": lambda parts: parts.__delitem__(slice(1, None)),
    "numbers": lambda parts: parts.__setitem__(slice(None), [1.0] * 60),
    "reverse": lambda parts: parts.reverse(),
}
LIST_USES = {
    "cat": lambda parts: mt.cat(parts),
    "stack": lambda parts: mt.stack(parts),
    "concatenate": lambda parts: np.concatenate(parts),
    "einsum": lambda parts: mt.einsum("i,i,i->", *parts) if len(parts) == 3 else None,
}


@pytest.mark.parametrize("change", LIST_CHANGES.values(), ids=LIST_CHANGES)
@pytest.mark.parametrize("use", LIST_USES.values(), ids=LIST_USES)
def test_a_list_that_the_collector_changes_while_it_is_joined(use, change):
    def prepare():
        leaves = [leaf(2) for _ in range(3)]
        parts, results = list(leaves), []

        def check():
            for result in results:
                if isinstance(result, mt.Tensor) and result.requires_grad:
                    result.sum().backward()
            # Each was taken with a place in the result, or not at all.
            assert all(t.grad is None or t.grad.tolist() == [1.0, 1.0] for t in leaves)

        return lambda: results.append(use(parts)), lambda: change(parts), check

    at_every_collection(prepare)


@pytest.fixture(scope="module")
def add_all():
    """add_all(x, parts, sizes): a row that takes a list of tensors beside a tensor, saves it, and
    has a derivative for both.
    """
    row = Op("add_all", lambda x, parts, sizes=None: x + sum(parts))
    gradients = (
        lambda g, out, x, parts, *rest: g,
        lambda g, out, x, parts, *rest: [g] * len(parts),
    )
    row._set_derivative(
        "AddAllBackward0", gradients, ((2, 0, False), (2, 0, False)), None, None, False
    )
    return row


def test_members_of_a_list_that_begin_to_require_grad_while_it_is_recorded(add_all):
    def prepare():
        x, parts, results = leaf(2), [mt.ones(2) for _ in range(50)], []

        def action():
            for part in parts:
                part.requires_grad_()

        def check():
            for result in results:
                result.sum().backward()
                assert x.grad.tolist() == [1.0, 1.0]

        return lambda: results.append(add_all(x, parts)), action, check

    at_every_collection(prepare)


@pytest.mark.parametrize("change", LIST_CHANGES.values(), ids=LIST_CHANGES)
def test_a_list_beside_a_tensor(add_all, change):
    def prepare():
        x, parts, sizes, results = leaf(2), [leaf(2), mt.ones(2), leaf(2)], [2, 3], []

        def action():
            change(parts)
            sizes[:] = [leaf(2)] * 50

        def check():
            for result in results:
                result.sum().backward()
                assert x.grad.tolist() == [1.0, 1.0]

        return lambda: results.append(add_all(x, parts, sizes)), action, check

    at_every_collection(prepare)


def test_a_list_given_to_an_operation_may_change_afterwards(add_all):
    x, first, second = leaf(2), leaf(2), leaf(2)
    parts = [first, second]
    result = add_all(x, parts)
    parts[:] = [leaf(2)]
    result.sum().backward()
    assert first.grad.tolist() == second.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("change", ["clear", "extend", "numbers"])
def test_a_list_of_sizes_that_the_collector_changes(change):
    def prepare():
        x, sizes, results = leaf(2, 3), [3, 2], []
        return (
            lambda: results.append(x.reshape(sizes)),
            lambda: LIST_CHANGES[change](sizes),
            lambda: [result.sum().backward() for result in results if result.size() == (3, 2)],
        )

    at_every_collection(prepare)


# -- storage that are exchanged -------------------------------------------------------------------


class Swaps:
    """An index that gives a tensor another array when it is asked for its value."""

    def __init__(self, t, other):
        self.t, self.other = t, other

    def __index__(self):
        self.t.data = self.other
        return 0


def test_an_index_that_exchanges_the_storage():
    t = mt.ones(2, 3)
    assert t.size(Swaps(t, mt.zeros(5))) == 5
    t = mt.ones(2, 3)
    assert t.sum(Swaps(t, mt.zeros(5))).tolist() in ([2.0] * 3, 0.0)


def test_a_warning_that_exchanges_the_storage():
    t = mt.ones(200_000, dtype=mt.complex64)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *args: setattr(t, "data", mt.zeros(2, dtype=mt.complex64))
        assert t.float().sum().item() in (0.0, 200_000.0)
    assert t.shape == (2,)


SWAPS = {
    "shape": lambda x, y: x.shape,
    "size": lambda x, y: x.size(),
    "double": lambda x, y: x.double(),
    "clone": lambda x, y: x.clone(),
    "copy_": lambda x, y: y.clone().copy_(x),
    "copy into": lambda x, y: x.clone().copy_(y),
    "zero_": lambda x, y: x.clone().zero_(),
    "add": lambda x, y: x + y,
    "scalar": lambda x, y: x * 2.5,
    "add_": lambda x, y: x.clone().add_(y),
    "pow": lambda x, y: x**2 + x.exp(),
    "getitem": lambda x, y: x[1:] + x[0],
    "setitem": lambda x, y: x.clone().__setitem__(0, y[0]),
    "sum": lambda x, y: x.sum(0),
    "cat": lambda x, y: mt.cat([x, y]),
    "view": lambda x, y: x.reshape(-1).add(1),
    "detach": lambda x, y: x.detach(),
    "repr": lambda x, y: repr(x),
    "backward": lambda x, y: (x * y).sum().backward(),
    "backward twice": lambda x, y: [(x * y).sum().backward() for _ in range(2)],
    "of gradients": lambda x, y: mt.autograd.grad((x * y * y).sum(), [x, y], create_graph=True),
}


@pytest.mark.parametrize("use", SWAPS.values(), ids=SWAPS)
@pytest.mark.parametrize("shape", [(3, 4), (1, 2, 1, 2, 3, 2)], ids=["2-d", "6-d"])
def test_the_collector_exchanges_storage(use, shape):
    def prepare():
        x, y = leaf(*shape), leaf(*shape)

        def action():
            x.data, y.data = mt.zeros(7), mt.zeros(7)

        def check():
            assert x.shape in (shape, (7,)) and (x + 1).numel() in (12, 24, 7)

        return lambda: use(x, y), action, check

    at_every_collection(prepare)


def test_a_stand_in_of_another_class_that_gives_a_new_array_each_time():
    class DummyArray:  # the name of NumPy's own
        def __init__(self, array):
            self.__array_interface__ = array.__array_interface__
            self.array = array

        @property
        def base(self):
            return np.zeros(3)

    array = np.asarray(DummyArray(np.ones(6, dtype=np.float32)))
    assert type(array.base).__name__ == "DummyArray"
    t = mt.from_numpy(array)
    for view in (t[1:], t.reshape(2, 3), t.reshape(2, 3).t()):
        assert view.sum().item() in (5.0, 6.0)
    t.requires_grad_()
    t[2:].sum().backward()
    assert t.grad.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]


def test_a_key_that_replaces_the_dict_in_which_a_mark_is_looked_up():
    t = mt.ones(2)
    t.extra = 1
    t.__dict__[Key("_is_param", lambda: setattr(t, "__dict__", {}))] = None
    t.__dict__[Key("_is_buffer", lambda: setattr(t, "__dict__", {}))] = None
    m = mt.nn.Module()
    m.t = t
    assert m.t is t and t.__dict__ == {}


# -- backward passes -------------------------------------------------------------------------------


def graph():
    x, y = leaf(3), leaf(3)
    out = (mt.cat([x * y, y.exp()]) * 2).sum()
    return x, y, out


@pytest.mark.parametrize("create_graph", [False, True])
def test_the_collector_runs_a_pass_through_the_same_graph(create_graph):
    def prepare():
        x, y, out = graph()

        def action():
            try:
                mt.autograd.grad(out, [x, y], create_graph=create_graph)
            except RuntimeError as error:
                assert "second time" in str(error)

        return lambda: out.backward(create_graph=create_graph, retain_graph=False), action, None

    at_every_collection(prepare)


def test_the_collector_drops_a_gradient_that_is_added_to():
    def prepare():
        x, y, out = graph()
        out.backward(retain_graph=True, create_graph=True)

        def action():
            x.grad = y.grad = None

        return lambda: out.backward(create_graph=True), action, None

    at_every_collection(prepare)


def test_the_collector_sets_a_gradient_that_is_being_made():
    def prepare():
        x, y, out = graph()
        own = mt.zeros(3)

        def action():
            x.grad = own

        def check():
            assert x.grad is own or x.grad.tolist() == [2.0, 2.0, 2.0]

        return lambda: out.backward(), action, check

    at_every_collection(prepare)


def test_the_collector_registers_hooks_where_tables_are_made():
    def prepare():
        x, calls = leaf(2), []

        def action():
            x.register_hook(lambda grad: calls.append("early"))
            x.register_post_accumulate_grad_hook(lambda t: calls.append("early post"))

        def use():
            x.register_hook(lambda grad: calls.append("own"))
            x.register_post_accumulate_grad_hook(lambda t: calls.append("own post"))

        def check():
            x.sum().backward()
            assert calls.count("own") == calls.count("own post") == 1
            assert calls.count("early") == calls.count("early post") == len(calls) // 2 - 1

        return use, action, check

    at_every_collection(prepare)


def test_the_collector_uses_the_leaf_that_a_graph_is_made_of():
    def prepare():
        x, graphs = leaf(2), []

        def check():
            x.grad = None
            for out in graphs:
                out.sum().backward()
            assert x.grad.tolist() == [2.0 * len(graphs)] * 2

        return lambda: graphs.append(x * 2), lambda: graphs.append(x + x), check

    at_every_collection(prepare)


@pytest.mark.parametrize("shape", [(2,), (1, 2, 1, 2, 1, 2)], ids=["1-d", "6-d"])
def test_a_hook_whose_name_exchanges_the_storage_of_its_leaf(shape):
    class Hook:
        def __call__(self, grad):
            return grad * 2

        @property
        def __name__(self):
            x.data = mt.zeros(5)
            return "hook"

    x = leaf(*shape)
    x.register_hook(Hook())
    (x * 3).sum().backward()
    assert x.grad.shape == shape and set(x.grad.flatten().tolist()) == {6.0}


def test_the_collector_runs_a_pass_while_an_error_is_made():
    def prepare():
        x = leaf(3)
        y = x * 2
        out = (y * y).sum()
        with mt.no_grad():
            y.add_(1)

        def action():
            with pytest.raises(RuntimeError, match="modified by an inplace operation|second time"):
                out.backward()

        return out.backward, action, None

    at_every_collection(prepare)


def test_a_joint_derivative_whose_list_gets_shorter():
    given = []

    class Gradient:
        """Converted to an array, it takes what stands behind it out of the list."""

        def __array__(self, dtype=None, copy=None):
            del given[1:]
            return np.ones(2, dtype=np.float32)

    def joint(needs, g, out, x, y):
        given[:] = [Gradient(), g]
        return given

    row = Op("shortens", lambda x, y: x + y)
    row._set_derivative("ShortensBackward0", (), ((0, 0, False),), joint, None, False)
    x, y = leaf(2), leaf(2)
    row(x, y).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0] and y.grad is None


# -- tensors that are exchanged --------------------------------------------------------------------


def changed_base():
    base = leaf(4) * 2
    view = base[1:]
    base.mul_(3)
    return view


VIEWS = {
    "history": (changed_base, lambda view: view.grad_fn),
    "operation": (changed_base, lambda view: (view * 2).sum().backward()),
    "edge": (changed_base, lambda view: mt.autograd.graph.get_gradient_edge(view)),
    "hook": (changed_base, lambda view: view.register_hook(lambda grad: None)),
    "retained": (changed_base, lambda view: view.retain_grad()),
    "in place": (lambda: (leaf(4) * 2)[1:], lambda view: view.mul_(2)),
    "copy": (lambda: (leaf(4) * 2)[1:], lambda view: view.copy_(leaf(3))),
    "item": (lambda: (leaf(4) * 2)[1:], lambda view: view.__setitem__(0, leaf(1)[0])),
}
EXCHANGES = {
    "leaf": lambda: leaf(3),
    "plain": lambda: mt.zeros(7),
    "view": changed_base,
    "view of another size": lambda: (leaf(9) * 2)[2:],
    "fourth output": lambda: (leaf(4, 3) * 2).unbind(0)[3],
}


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
@pytest.mark.parametrize(("make", "use"), VIEWS.values(), ids=VIEWS)
def test_the_collector_exchanges_a_view(make, use, exchange):
    def prepare():
        view = make()  # which alone holds its base

        def action():
            try:
                swap_contents(view, exchange())
            except RuntimeError as error:
                assert "weakref" in str(error)

        def check():
            with contextlib.suppress(RuntimeError):  # some of these refuse
                (view * 1).sum().backward()

        return lambda: use(view), action, check

    at_every_collection(prepare)


def test_hooks_that_the_collector_registers_on_a_node_where_their_table_is_made():
    def prepare():
        x, calls = leaf(2), []
        y = x * 2

        def check():
            y.sum().backward()
            assert calls.count("own") == 1 and len(calls) <= 2

        return (
            lambda: y.register_hook(lambda grad: calls.append("own")),
            lambda: y.register_hook(lambda grad: calls.append("early")),
            check,
        )

    at_every_collection(prepare)
