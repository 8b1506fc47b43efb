# SPDX-License-Identifier: BSD-3-Clause
"""A list of the caller that user code changes while a tuple is made of it.

Before CPython 3.12 tuple(items) and its like in C count a list, then allocate, which may run the
collector, and then read where the items were before.
"""

from __future__ import annotations

import sys

import pytest
from helpers.collections_at import at_every_collection

import modtree as mt
from modtree._C import as_tuple, empty_meta

SIZES = 30  # CPython keeps tuples of up to 20: making one of these always allocates


CHANGES = {
    "clear": lambda items: items.clear(),
    "shrink": lambda items: items.__delitem__(slice(1, None)),
    "extend": lambda items: items.extend(list(items) * 2),
    "numbers": lambda items: items.__setitem__(slice(None), [1.0] * 60),
}


def leaf(*shape):
    return mt.ones(*shape, requires_grad=True)


def call_with_list(args):
    """``forward`` called with the list that a pre-hook returns in place of the arguments."""
    module = mt.nn.Identity()
    module.forward = lambda *given: given
    module.register_forward_pre_hook(lambda m, a, k: (args, k), with_kwargs=True)
    return module(1)


class OfLists(mt.autograd.Function):
    """Its backward returns a list that stands elsewhere too."""

    given: list[mt.Tensor] = []

    @staticmethod
    def forward(ctx, *args):
        return args[0].clone()

    @staticmethod
    def backward(ctx, grad):
        return OfLists.given


def backward_with_list(given):
    OfLists.given = given
    OfLists.apply(*(leaf(2) for _ in range(SIZES))).sum().backward()


def numbers():
    return [1] * SIZES


TUPLES = {
    "as_tuple": (as_tuple, numbers),
    "reshape": (leaf(1).reshape, numbers),
    "ones": (mt.ones, numbers),
    "broadcast_shapes": (mt.broadcast_shapes, numbers),
    "empty_meta": (lambda sizes: empty_meta(sizes, mt.float32), numbers),
    "layer_norm": (lambda sizes: mt.nn.LayerNorm(sizes), numbers),
    "arguments of forward": (call_with_list, numbers),
    "has_torch_function": (mt.overrides.has_torch_function, numbers),
    "members of a list": (
        lambda parts: mt.stack(parts),
        lambda: [mt.nn.Parameter(mt.ones(2)) for _ in range(SIZES)],
    ),
    "modules": (mt.nn.ModuleList, lambda: [mt.nn.ReLU() for _ in range(SIZES)]),
    "gradients of a function": (
        backward_with_list,
        lambda: [mt.ones(2) for _ in range(SIZES)],
    ),
}


@pytest.mark.parametrize("change", ["clear", "shrink", "extend"])
@pytest.mark.parametrize(("use", "items"), TUPLES.values(), ids=TUPLES)
def test_a_list_that_the_collector_changes_while_it_becomes_a_tuple(use, items, change):
    def prepare():
        given = items()
        return lambda: use(given), lambda: CHANGES[change](given), None

    at_every_collection(prepare)


def test_as_tuple_has_the_items_of_one_moment():
    def prepare():
        given, others, results = [object() for _ in range(SIZES)], [], []
        whole = tuple(given)

        def action():
            given.clear()
            others.append([None] * SIZES)  # in the memory where the items were

        def check():
            assert results in ([whole], [()])

        return lambda: results.append(as_tuple(given)), action, check

    ran = at_every_collection(prepare)
    assert ran or sys.version_info >= (3, 12)


@pytest.mark.parametrize("items", [(1, 2), [1, 2], {1: 0, 2: 0}, range(1, 3), iter([1, 2])])
def test_as_tuple_is_tuple(items):
    same = items if isinstance(items, tuple) else None
    found = as_tuple(items)
    assert found == (1, 2) and (same is None or found is same)


def test_as_tuple_of_what_is_no_iterable():
    with pytest.raises(TypeError, match="'int' object is not iterable"):
        as_tuple(3)


# Which of the three is a list, and the pass.
PASSES = {
    "grad of": (0, mt.autograd.grad),
    "grad by": (1, mt.autograd.grad),
    "grad with": (2, mt.autograd.grad),
    "backward of": (0, lambda outs, leaves, weights: mt.autograd.backward(outs, weights)),
    "backward with": (2, lambda outs, leaves, weights: mt.autograd.backward(outs, weights)),
    "backward into": (
        1,
        lambda outs, leaves, weights: mt.autograd.backward(outs, weights, inputs=leaves),
    ),
    "method": (1, lambda outs, leaves, weights: outs[0].backward(weights[0], inputs=leaves)),
}


def ready_for_a_pass(place):
    """Outputs, leaves and weights, as tuples but for the one at ``place``."""
    leaves = tuple(leaf(2) for _ in range(SIZES))
    given = [tuple(t * 2 for t in leaves), leaves, tuple(mt.ones(2) for _ in range(SIZES))]
    given[place] = list(given[place])
    return given


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("place", "use"), PASSES.values(), ids=PASSES)
def test_a_list_that_the_collector_changes_while_a_pass_begins(place, use, change):
    def prepare():
        given = ready_for_a_pass(place)
        items = given[place]
        return lambda: use(*given), lambda: CHANGES[change](items), None

    at_every_collection(prepare)


@pytest.mark.parametrize(("place", "use"), PASSES.values(), ids=PASSES)
def test_a_pass_takes_nothing_from_where_a_list_had_its_items(place, use):
    def prepare():
        given = ready_for_a_pass(place)
        strange = [mt.ones(5) for _ in range(SIZES)]  # whose use is an error of its own
        items, others, errors = given[place], [], []

        def action():
            items.clear()
            others.append(list(strange))  # in the memory where the items were

        def begin():
            try:
                use(*given)
            except RuntimeError as error:
                errors.append(str(error))

        def check():
            wrong = ("does not require grad", "Mismatch in shape")
            assert not any(text in error for error in errors for text in wrong)

        return begin, action, check

    at_every_collection(prepare)
