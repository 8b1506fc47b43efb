# SPDX-License-Identifier: BSD-3-Clause
"""The eight walks and ``_named_members``: order, names, de-duplication, laziness."""

from __future__ import annotations

import inspect
import itertools

import pytest
from helpers.support import raises
from helpers.util import names, param, small_tree, tensor

METHODS = (
    "parameters",
    "named_parameters",
    "buffers",
    "named_buffers",
    "children",
    "named_children",
    "modules",
    "named_modules",
)

# -- order, names, duplicates ----------------------------------------------------------------------


def test_the_whole_small_tree(impl):
    m = small_tree(impl)
    assert list(m.named_modules()) == [("", m), ("left", m.left), ("right", m.right)]
    assert list(m.modules()) == [m, m.left, m.right]
    assert list(m.named_children()) == [("left", m.left), ("right", m.right)]
    assert list(m.children()) == [m.left, m.right]
    found = list(m.named_parameters())
    assert names(found) == ["scale", "left.bias", "left.weight", "right.own"]
    assert [id(p) for _, p in found] == [id(p) for p in m.parameters()]
    assert found[2][1] is m.left.weight
    assert names(m.named_buffers()) == ["left.mean", "left.scratch"]
    assert [id(b) for b in m.buffers()] == [id(m.left.mean), id(m.left.scratch)]


def test_all_paths_without_de_duplication(impl):
    m = small_tree(impl)
    assert names(m.named_modules(remove_duplicate=False)) == ["", "left", "right", "again"]
    assert len(list(m.modules(remove_duplicate=False))) == 4
    assert names(m.named_parameters(remove_duplicate=False)) == [
        "scale",
        "left.bias",
        "left.weight",
        "right.weight",
        "right.own",
        "again.bias",
        "again.weight",
    ]
    assert names(m.named_buffers(remove_duplicate=False)) == [
        "left.mean",
        "left.scratch",
        "again.mean",
        "again.scratch",
    ]


def test_without_recursion(impl):
    m = small_tree(impl)
    m.register_buffer("own", tensor(impl))
    assert names(m.named_parameters(recurse=False)) == ["scale"]
    assert names(m.named_buffers(recurse=False)) == ["own"]
    assert list(m.parameters(recurse=False)) == [m.scale]
    assert list(m.buffers(False)) == [m.own]


@pytest.mark.parametrize(
    "prefix, expected",
    [
        ("", ["", "left", "right"]),
        ("pre", ["pre", "pre.left", "pre.right"]),
        ("a.", ["a.", "a..left", "a..right"]),
        ("ünï\udcff", ["ünï\udcff", "ünï\udcff.left", "ünï\udcff.right"]),
    ],
)
def test_prefixes(impl, prefix, expected):
    m = small_tree(impl)
    assert names(m.named_modules(prefix=prefix)) == expected
    dot = prefix + "." if prefix else ""
    assert names(m.named_parameters(prefix)) == [
        dot + n for n in ("scale", "left.bias", "left.weight", "right.own")
    ]
    assert names(m.named_parameters(prefix=prefix, recurse=False)) == [dot + "scale"]
    assert names(m.named_buffers(prefix)) == [dot + "left.mean", dot + "left.scratch"]


def test_an_empty_child_name(impl):
    m = impl.nn.Module()
    m._modules[""] = inner = impl.nn.Module()
    inner.w = param(impl)
    inner.c = impl.nn.Module()
    inner.c.w = param(impl)
    assert names(m.named_modules()) == ["", "", "c"]
    assert names(m.named_parameters()) == ["w", "c.w"]
    assert names(m.named_modules(prefix="p")) == ["p", "p.", "p..c"]


def test_parameters_come_before_those_of_children_whatever_the_order_of_definition(impl):
    m = impl.nn.Module()
    m.child = impl.nn.Module()
    m.child.w = param(impl)
    m.b = param(impl)
    m.a = param(impl)
    assert names(m.named_parameters()) == ["b", "a", "child.w"]


def test_ties_appear_once_under_their_first_name(impl):
    m = impl.nn.Module()
    p, t = param(impl), tensor(impl)
    m.first, m.second = p, p
    m.register_buffer("b1", t)
    m.register_buffer("b2", t)
    m.c1 = m.c2 = impl.nn.Module()
    m.c1.p = p
    assert names(m.named_parameters()) == ["first"]
    assert names(m.named_buffers()) == ["b1"]
    assert names(m.named_children()) == ["c1"] and names(m.named_modules()) == ["", "c1"]
    assert names(m.named_parameters(remove_duplicate=False)) == ["first", "second", "c1.p", "c2.p"]
    assert names(m.named_buffers(remove_duplicate=False)) == ["b1", "b2"]
    assert len(list(m.parameters())) == 1


def test_a_buffer_and_a_parameter_may_be_the_same_tensor(impl):
    m = impl.nn.Module()
    p = param(impl)
    m.p = p
    m.register_buffer("b", p)
    assert names(m.named_parameters()) == ["p"] and names(m.named_buffers()) == ["b"]


def test_shared_storage_is_no_tie(impl):
    m = impl.nn.Module()
    t = tensor(impl)
    m.a, m.b = impl.nn.Parameter(t), impl.nn.Parameter(t)
    assert names(m.named_parameters()) == ["a", "b"]


def test_a_shared_module_is_listed_where_it_is_first_met(impl):
    m, shared = impl.nn.Module(), impl.nn.Module()
    shared.w = param(impl)
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    m.a.deep = shared
    m.direct = shared
    assert names(m.named_modules()) == ["", "a", "a.deep", "b", "direct"][:4]
    assert names(m.named_parameters()) == ["a.deep.w"]
    assert names(m.named_children()) == ["a", "b", "direct"]


def test_results_compare_tensors_by_identity_only(impl):
    """Element-wise ``==`` of tensors must never be asked: equal values, different shapes."""
    m = impl.nn.Module()
    m.a, m.b = param(impl), param(impl)
    m.c = impl.nn.Parameter(impl.lib.zeros(2, 3))
    m.register_buffer("x", impl.lib.zeros(2))
    m.register_buffer("y", impl.lib.zeros(2))
    assert len(list(m.parameters())) == 3 and len(list(m.buffers())) == 2


# -- signatures and laziness -----------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_walks_are_lazy_iterators_with_close(impl, method):
    m = small_tree(impl)
    walk = getattr(m, method)()
    assert iter(walk) is walk and not isinstance(walk, (list, tuple))
    m.added, m.child = param(impl), impl.nn.Module()
    m.register_buffer("late", tensor(impl))
    assert len(list(walk)) == len(
        list(getattr(m, method)())
    )  # changes before the first next are seen
    walk = getattr(m, method)()
    next(walk)
    walk.close()
    assert list(walk) == []
    walk.close()
    with pytest.raises(StopIteration):
        next(walk)


@pytest.mark.parametrize("method", METHODS)
def test_errors_come_at_the_first_next(impl, method):
    class Bare(impl.nn.Module):
        def __init__(self):
            pass

    walk = getattr(Bare(), method)()
    if method.endswith("modules"):
        next(walk)  # the module itself needs no registry
    with pytest.raises(AttributeError):
        next(walk)
    assert list(walk) == []


@pytest.mark.parametrize("method", METHODS)
def test_exhausted_walks_stay_exhausted(impl, method):
    m = small_tree(impl)
    walk = getattr(m, method)()
    list(walk)
    m.more, m.child = param(impl), impl.nn.Module()
    assert list(walk) == []


@pytest.mark.parametrize("method", METHODS)
def test_two_walks_do_not_disturb_each_other(impl, method):
    m = small_tree(impl)
    whole = list(getattr(m, method)())
    a, b = getattr(m, method)(), getattr(m, method)()
    mixed = [next(a), *itertools.islice(b, 1), *a]
    assert [repr(x) for x in mixed[1:]] == [repr(x) for x in whole]
    assert [repr(x) for x in b] == [repr(x) for x in whole[1:]]


@pytest.mark.parametrize(
    "method, parameters",
    [
        ("parameters", "(recurse=True)"),
        ("named_parameters", "(prefix='', recurse=True, remove_duplicate=True)"),
        ("buffers", "(recurse=True)"),
        ("named_buffers", "(prefix='', recurse=True, remove_duplicate=True)"),
        ("children", "()"),
        ("named_children", "()"),
        ("modules", "(remove_duplicate=True)"),
        ("named_modules", "(memo=None, prefix='', remove_duplicate=True)"),
        ("_named_members", "(get_members_fn, prefix='', recurse=True, remove_duplicate=True)"),
    ],
)
def test_signatures(impl, method, parameters):
    signature = inspect.signature(getattr(impl.nn.Module(), method))
    plain = signature.replace(
        parameters=[p.replace(annotation=p.empty) for p in signature.parameters.values()],
        return_annotation=inspect.Signature.empty,
    )
    assert str(plain) == parameters


def test_arguments_by_position_and_keyword(impl):
    m = small_tree(impl)
    assert names(m.named_parameters("p", False, False)) == ["p.scale"]
    assert names(m.named_buffers(recurse=False, prefix="p")) == []
    assert names(m.named_modules(set(), "p", False)) == ["p", "p.left", "p.right", "p.again"]
    assert len(list(m.modules(False))) == 4
    for call in (
        lambda: m.parameters(True, 1),
        lambda: m.named_parameters(wrong=1),
        lambda: m.children(1),
        lambda: m.named_children(prefix=""),
        lambda: m.modules(recurse=True),
        lambda: m.named_modules(None, "", True, 1),
        lambda: m._named_members(),
        lambda: m.named_parameters("", prefix=""),
    ):
        with pytest.raises(TypeError):
            call()


def test_flags_are_truth_values(impl):
    m = small_tree(impl)
    assert names(m.named_parameters(recurse=0)) == ["scale"]
    assert names(m.named_parameters(recurse=[1], remove_duplicate=1)) == names(m.named_parameters())
    assert names(m.named_modules(remove_duplicate="")) == ["", "left", "right", "again"]


# -- memo ------------------------------------------------------------------------------------------


def test_a_given_memo_is_extended(impl):
    m = small_tree(impl)
    memo = set()
    assert len(list(m.named_modules(memo))) == 3
    assert memo == {m, m.left, m.right}
    assert list(m.named_modules(memo)) == []


def test_a_given_memo_excludes_whole_subtrees(impl):
    m = small_tree(impl)
    m.left.deep = impl.nn.Module()
    assert names(m.named_modules(memo={m.left})) == ["", "right"]
    assert names(m.named_modules(memo={m.left.deep})) == ["", "left", "right"]
    assert names(m.named_modules(memo={m})) == []


def test_a_memo_without_de_duplication_is_read_but_not_extended(impl):
    m = small_tree(impl)
    memo = {m.right}
    assert names(m.named_modules(memo, remove_duplicate=False)) == ["", "left", "again"]
    assert memo == {m.right}


def test_an_empty_memo_is_the_callers_own(impl):
    m = small_tree(impl)
    memo = set()
    walk = m.named_modules(memo)
    assert not memo
    next(walk)
    assert memo == {m}
    memo.add(m.left)
    assert names(walk) == ["right"]


# -- _named_members --------------------------------------------------------------------------------


def test_named_members_with_a_function(impl):
    m = small_tree(impl)
    seen = []

    def members(module):
        seen.append(module)
        return [("kind", type(module).__name__), ("none", None), ("id", id(module))]

    found = list(m._named_members(members))
    assert found == [
        ("kind", "Module"),
        ("id", id(m)),
        ("left.id", id(m.left)),
        ("right.id", id(m.right)),
    ]
    assert seen == [m, m.left, m.right]
    found = names(m._named_members(members, prefix="p", recurse=False, remove_duplicate=False))
    assert found == ["p.kind", "p.id"]


def test_named_members_accepts_any_iterable(impl):
    m = small_tree(impl)
    found = list(m._named_members(lambda module: iter(module.__dict__["_parameters"].items())))
    assert names(found) == names(m.named_parameters())
    assert list(m._named_members(lambda module: ())) == []


def test_named_members_passes_errors_on(impl):
    m = small_tree(impl)
    with raises(ZeroDivisionError):
        list(m._named_members(lambda module: 1 / 0))
    with pytest.raises(TypeError):
        list(m._named_members(lambda module: 3))
    with pytest.raises(TypeError):
        list(m._named_members(3))
    with pytest.raises((TypeError, ValueError)):
        list(m._named_members(lambda module: [1]))
    with pytest.raises(ValueError):
        list(m._named_members(lambda module: [(1, 2, 3)]))
    with raises(TypeError, "unhashable"):
        list(m._named_members(lambda module: [("x", [])]))


def test_named_members_with_names_that_are_no_strings(impl):
    m = small_tree(impl)
    for recurse in (True, False):
        for prefix in ("", "p"):
            with pytest.raises(TypeError):
                list(m._named_members(lambda module: [(3, "value")], prefix, recurse))
    m._parameters[3] = param(impl)
    with pytest.raises(TypeError):
        list(m.named_parameters())
    m._parameters.clear()
    m._modules[3] = impl.nn.Module()
    with pytest.raises(TypeError):
        list(m.named_modules(prefix="p"))


@pytest.mark.parametrize("walk", ["modules", "named_modules", "parameters", "named_buffers"])
@pytest.mark.parametrize("seen_before", [False, True])
def test_keys_of_children_that_are_no_strings(impl, walk, seen_before):
    m, child = impl.nn.Module(), impl.nn.Module()
    if seen_before:
        m.child = child
    m._modules[1] = child
    with raises(TypeError, "str", "int"):
        list(getattr(m, walk)())
    with raises(TypeError, "str", "int"):
        m.state_dict()


def test_a_prefix_that_is_no_string_fails_at_a_child_seen_before(impl):
    m = impl.nn.Module()
    m.itself = m
    assert list(impl.nn.Module().named_buffers(False)) == []
    with raises(TypeError, "str", "bool"):
        list(m.named_buffers(False))


# -- equality of modules ---------------------------------------------------------------------------


def test_equal_modules_are_one(impl):
    class ByKey(impl.nn.Module):
        def __init__(self, key):
            super().__init__()
            self.key = key
            self.w = param(impl)

        def __eq__(self, other):
            return isinstance(other, ByKey) and self.key == other.key

        def __hash__(self):
            return hash(self.key)

    m = impl.nn.Module()
    m.a, m.b, m.c = ByKey(1), ByKey(1), ByKey(2)
    assert names(m.named_modules()) == ["", "a", "c"]
    assert names(m.named_children()) == ["a", "c"]
    assert names(m.named_parameters()) == ["a.w", "c.w"]
    assert names(m.named_parameters(remove_duplicate=False)) == ["a.w", "b.w", "c.w"]
    assert names(m.named_modules(memo={ByKey(2)})) == ["", "a"]
    trained = []
    m.apply(trained.append)
    assert [id(x) for x in trained] == [id(m.a), id(m.c), id(m)]


def test_unhashable_modules(impl):
    class Unhashable(impl.nn.Module):
        def __eq__(self, other):
            return self is other

    m = impl.nn.Module()
    m.c = Unhashable()
    m.c.w = param(impl)
    for walk in (
        lambda: list(m.named_modules()),
        lambda: list(m.parameters()),
        lambda: list(m.named_modules(remove_duplicate=False)),
        lambda: m.train(),
        lambda: m.apply(lambda x: None),
        lambda: list(m.children()),
    ):
        with raises(TypeError, "unhashable type"):
            walk()
    assert list(m.state_dict()) == ["c.w"]
    assert list(m.c.parameters(recurse=False)) == [m.c.w]


def test_a_hash_that_raises(impl):
    class Bad(impl.nn.Module):
        def __hash__(self):
            raise OverflowError("hash")

    m = impl.nn.Module()
    m.c = Bad()
    with raises(OverflowError, "hash"):
        list(m.modules())
    with raises(OverflowError, "hash"):
        list(m.children())
