# SPDX-License-Identifier: BSD-3-Clause
"""What backward hooks return, and the gradients they get in place of missing ones."""

from __future__ import annotations

import pytest
from helpers.backward_common import doubles, leaf_input, lists, module_of, tensor, two_outputs
from helpers.support import quiet, raises, warns

# -- what full hooks return ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (lambda lib, gi: (None, None), None),
        (lambda lib, gi: [gi[0] * 2, None], [4.0, 4.0]),
        (lambda lib, gi: (gi[0], lib.ones(2)), [2.0, 2.0]),
        (lambda lib, gi: (lib.ones(2), 3), [1.0, 1.0]),
        (lambda lib, gi: gi, [2.0, 2.0]),
        (lambda lib, gi: None, [2.0, 2.0]),
    ],
    ids=["nones", "list", "for no tensor", "number for no tensor", "same", "none"],
)
def test_full_hook_returns(impl, returned, expected):
    m = doubles(impl)
    m.register_full_backward_hook(lambda m, gi, go: returned(impl.lib, gi))
    x = leaf_input(impl, 1.0, 1.0)
    m(x, "text").sum().backward()
    assert (None if x.grad is None else x.grad.tolist()) == expected


WRONG = [
    (lambda lib, g: (lib.ones(3),), RuntimeError, "has changed the size of value"),
    (lambda lib, g: (g[0][0],), RuntimeError, "has changed the size of value"),
    (lambda lib, g: (g[0].to(lib.float64),), RuntimeError, "has changed the type of value"),
    (lambda lib, g: (3,), TypeError, "expected Variable, but hook returned 'int'"),
    (lambda lib, g: "a", TypeError, "expected Variable, but hook returned 'str'"),
    (lambda lib, g: 3, TypeError, "'int' has no len()"),
    (lambda lib, g: False, TypeError, "'bool' has no len()"),
]
WRONG_IDS = ["long", "scalar", "dtype", "number", "str", "int", "false"]


@pytest.mark.parametrize(("returned", "kind", "text"), WRONG, ids=WRONG_IDS)
@pytest.mark.parametrize("which", ["full", "pre"])
def test_wrong_returns(impl, returned, kind, text, which):
    m = doubles(impl)
    if which == "full":
        m.register_full_backward_hook(lambda m, gi, go: returned(impl.lib, gi))
    else:
        m.register_full_backward_pre_hook(lambda m, go: returned(impl.lib, go))
    x = leaf_input(impl, 1.0, 1.0)
    out = m(x).sum()
    with raises(kind, text):
        out.backward()
    assert x.grad is None


@pytest.mark.parametrize("count", [0, 2, 3])
def test_wrong_counts(impl, count):
    m = doubles(impl)
    m.register_full_backward_hook(lambda m, gi, go: gi * count)
    m.register_full_backward_hook(lambda m, gi, go: pytest.fail("comes after an error"))
    with raises(RuntimeError, f"invalid number of grad_input, got {count}, but expected 1"):
        m(leaf_input(impl, 1.0)).sum().backward()
    m = two_outputs(impl)
    m.register_full_backward_pre_hook(lambda m, go: go[:1] * count)
    with (
        raises(RuntimeError, f"invalid number of grad_output, got {count}, but expected 2")
        if (count != 2)
        else quiet()
    ):
        m(leaf_input(impl, 1.0))[0].sum().backward()


def test_a_later_hook_may_put_right_what_an_earlier_one_returned(impl):
    m = doubles(impl)
    m.register_full_backward_hook(lambda m, gi, go: (impl.lib.ones(5),))
    m.register_full_backward_hook(lambda m, gi, go: (gi[0][:2],))
    x = leaf_input(impl, 3.0, 3.0)
    m(x).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


# -- gradients that are missing --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "seen", "expected"),
    [
        (lambda lib, go: (go[0], lib.ones(2)), ([1.0, 1.0], [1.0, 1.0]), [5.0, 5.0]),
        (lambda lib, go: (None, None), (None, None), [0.0, 0.0]),
        (lambda lib, go: (None, lib.ones(2)), (None, [1.0, 1.0]), [3.0, 3.0]),
        (lambda lib, go: None, ([1.0, 1.0], None), [2.0, 2.0]),
    ],
    ids=["added", "dropped", "exchanged", "kept"],
)
def test_pre_hook_and_missing_gradients(impl, returned, seen, expected):
    m = two_outputs(impl)
    before, after = [], []

    def pre(m, go):
        before.append(lists(go))
        return returned(impl.lib, go)

    m.register_full_backward_pre_hook(pre)
    m.register_full_backward_hook(lambda m, gi, go: after.append((lists(gi), lists(go))))
    x = leaf_input(impl, 1.0, 1.0)
    m(x)[0].sum().backward()
    assert before == [([1.0, 1.0], None)]
    assert after == [((expected,), seen)]
    assert x.grad.tolist() == expected


@pytest.mark.parametrize("which", ["full", "pre"])
def test_what_is_missing_outside_is_missing_inside(impl, which):
    inner = two_outputs(impl)
    outer = module_of(impl, lambda self, x: inner(x))
    seen = []
    inner.register_full_backward_hook(lambda m, gi, go: seen.append(lists(go)))
    if which == "pre":
        outer.register_full_backward_pre_hook(lambda m, go: None)
    else:
        outer.register_full_backward_hook(lambda m, gi, go: None)
    outer(leaf_input(impl, 1.0))[0].sum().backward()
    assert seen == [([1.0], None)]


def test_a_tensor_counts_as_its_rows(impl):
    m = module_of(impl, lambda self, x, y: x * 2 + y * 3)
    m.register_full_backward_hook(lambda m, gi, go: impl.lib.tensor([[5.0, 6.0], [7.0, 8.0]]))
    x, y = leaf_input(impl, 1.0, 1.0), leaf_input(impl, 1.0, 1.0)
    m(x, y).sum().backward()
    assert lists((x.grad, y.grad)) == ([5.0, 6.0], [7.0, 8.0])


def test_inputs_that_need_no_gradient_have_zeros(impl):
    m = module_of(impl, lambda self, x, n, c, *rest: (x * 2 * c, n, c))
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    args = (leaf_input(impl, 1.0), impl.lib.arange(3), tensor(impl, 1.0), None)
    out = m(*args)
    assert [o.requires_grad for o in out] == [True, False, False]
    assert out[1].tolist() == [0, 1, 2]
    out[0].sum().backward()
    ((gi, go),) = seen
    assert lists(gi) == ([2.0], [0, 0, 0], [0.0], None)
    assert gi[1].dtype == impl.lib.int64
    assert lists(go) == ([1.0], None, None)


@pytest.mark.parametrize(
    "options",
    [("device", "meta"), ("dtype", "complex64"), ("dtype", "float16"), ("dtype", "float64")],
    ids="-".join,
)
def test_gradients_are_of_the_kind_of_their_tensors(impl, options):
    lib, (option, value) = impl.lib, options
    options = {option: value if option == "device" else getattr(lib, value)}
    m = module_of(impl, lambda self, x, c: (x * 2, c))
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.extend([*gi, *go]))
    x, c = lib.ones(2, 3, requires_grad=True, **options), lib.ones(3, **options)
    m(x, c)[0].backward(lib.ones(2, 3, **options))
    assert [None if g is None else tuple(g.shape) for g in seen] == [(2, 3), (3,), (2, 3), None]
    assert {(g.dtype, str(g.device)) for g in [*seen[:3], x.grad]} == {(x.dtype, str(x.device))}


def test_one_tensor_given_twice(impl):
    m = module_of(impl, lambda self, x, y: x * 2 + y * 3)
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append(lists(gi)))
    x = leaf_input(impl, 1.0)
    m(x, x).sum().backward()
    assert seen == [([2.0], [3.0])]
    assert x.grad.tolist() == [5.0]


def test_an_unused_input_and_an_unused_output(impl):
    m = module_of(impl, lambda self, x, y: (x * 2, y * 3))
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append((lists(gi), lists(go))))
    x, y = leaf_input(impl, 1.0), leaf_input(impl, 1.0)
    m(x, y)[1].sum().backward()
    assert seen == [(([0.0], [3.0]), (None, [1.0]))]
    assert lists((x.grad, y.grad)) == ([0.0], [3.0])


# -- no input needs gradients ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "fails"),
    [((None, None), False), (None, False), ([None, None], True), ((None, 1), True), (False, True)],
    ids=repr,
)
def test_returns_without_inputs(impl, returned, fails):
    m = module_of(impl, lambda self, x, y: x * self.w + y, w=2.0)
    order = []
    m.register_full_backward_pre_hook(lambda m, go: order.append(("pre", lists(go))))

    def full(m, gi, go):
        order.append(("full", gi, lists(go)))
        return returned

    m.register_full_backward_hook(full)
    out = m(tensor(impl, 3.0), tensor(impl, 1.0)).sum()
    with quiet():
        if fails:
            with raises(RuntimeError, "should always return None or None for all gradients"):
                out.backward()
        else:
            out.backward()
    assert order == [("pre", ([1.0],)), ("full", (None, None), ([1.0],))]
    assert (m.w.grad is None) == fails


def test_a_pre_hook_alone_warns_too(impl):
    m = module_of(impl, lambda self, x: x * self.w, w=2.0)
    m.register_full_backward_pre_hook(lambda m, go: (go[0] * 5,))
    out = m(tensor(impl, 3.0)).sum()
    with warns(UserWarning, "no inputs require gradients") as record:
        out.backward()
    assert [w.filename for w in record] == [__file__]
    assert m.w.grad.item() == 15.0


def test_nothing_needs_gradients(impl):
    m = doubles(impl)
    m.register_full_backward_hook(lambda *a: pytest.fail("no pass goes through here"))
    x = tensor(impl, 1.0)
    assert not m(x).requires_grad
    with impl.lib.no_grad():
        assert not m(leaf_input(impl, 1.0)).requires_grad
