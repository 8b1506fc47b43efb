# SPDX-License-Identifier: BSD-3-Clause
"""The eight walks and ``_named_members``: order, names, de-duplication, laziness, mutation,
cycles.
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections import OrderedDict

import pytest
from helpers.support import raises
from helpers.util import chain, names, param, small_tree, tensor

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


# -- mutation while walking ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, add",
    [
        ("named_parameters", lambda m, i: m.register_parameter("new", param(i))),
        ("named_buffers", lambda m, i: m.register_buffer("new", tensor(i))),
        ("named_children", lambda m, i: m.add_module("new", i.nn.Module())),
    ],
)
def test_adding_to_the_registry_being_walked(impl, method, add):
    m = impl.nn.Module()
    for name in "abc":
        m.register_parameter(f"p{name}", param(impl))
        m.register_buffer(f"b{name}", tensor(impl))
        m.add_module(f"c{name}", impl.nn.Module())
    walk = getattr(m, method)()
    next(walk)
    add(m, impl)
    with raises(RuntimeError, "changed size during iteration"):
        next(walk)
    assert list(walk) == []


@pytest.mark.parametrize("method", ["named_parameters", "named_buffers", "named_children"])
def test_removing_from_the_registry_being_walked(impl, method):
    m = impl.nn.Module()
    for name in "abc":
        m.register_parameter(f"p{name}", param(impl))
        m.register_buffer(f"b{name}", tensor(impl))
        m.add_module(f"c{name}", impl.nn.Module())
    walk = getattr(m, method)()
    name, _ = next(walk)
    delattr(m, name)
    with raises(RuntimeError, "changed size during iteration"):
        next(walk)


def test_adding_below_a_module_that_is_being_walked(impl):
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    with raises(RuntimeError, "changed size during iteration"):
        for name, _ in m.named_modules():
            if name == "a":
                m.late = impl.nn.Module()


def test_an_ordered_dict_says_mutated(impl):
    m = impl.nn.Module()
    m._modules = OrderedDict((n, impl.nn.Module()) for n in "abc")
    walk = m.named_children()
    next(walk)
    m.d = impl.nn.Module()
    with raises(RuntimeError, "mutated during iteration"):
        next(walk)


def test_an_ordered_dict_changed_at_its_last_entry_just_ends(impl):
    m = impl.nn.Module()
    m._modules = OrderedDict((n, impl.nn.Module()) for n in "ab")
    seen = []
    for name, _ in m.named_children():
        seen.append(name)
        if name == "b":
            del m._modules["a"]
    assert seen == ["a", "b"]


def test_a_container_changed_by_deletion_while_walked(impl):
    items = impl.nn.ModuleList(impl.nn.Identity() for _ in range(4))
    del items[0]
    walk = items.named_children()
    next(walk)
    items.append(impl.nn.Identity())
    with raises(RuntimeError, "during iteration"):
        list(walk)


def test_replacing_a_value_of_the_registry_being_walked(impl):
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    m.p, m.q = param(impl), param(impl)
    new, q = impl.nn.Module(), param(impl)
    seen = []
    for name, module in m.named_modules():
        seen.append(module)
        if name == "a":
            m.b = new
    assert seen == [m, m.a, new]
    found = []
    for _, p in m.named_parameters():
        found.append(p)
        m.q = q
    assert [id(p) for p in found] == [id(m.p), id(q)]


def test_a_child_added_to_the_module_just_yielded_is_visited(impl):
    m = impl.nn.Module()
    seen = []
    for name, module in m.named_modules():
        seen.append(name)
        if len(seen) < 5:
            module.grown = impl.nn.Module()
    assert seen == ["", "grown", "grown.grown", "grown.grown.grown", "grown.grown.grown.grown"]


def test_children_of_the_module_just_yielded_may_be_removed(impl):
    m = small_tree(impl)
    m.left.deep = impl.nn.Module()
    seen = []
    for name, module in m.named_modules():
        seen.append(name)
        if name == "left":
            del module.deep
    assert seen == ["", "left", "right"]


def test_rebinding_the_registry_being_walked_keeps_the_old_walk(impl):
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    seen = []
    for name, _ in m.named_children():
        seen.append(name)
        m._modules = {"other": impl.nn.Module()}
    assert seen == ["a", "b"] and names(m.named_children()) == ["other"]


def test_parameters_added_while_walking_other_modules(impl):
    m = impl.nn.Module()
    m.p = param(impl)
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    m.a.w = param(impl)
    seen = []
    for name, _ in m.named_parameters():
        seen.append(name)
        if name == "a.w":
            m.b.late = param(impl)
            m.behind = param(impl)
    assert seen == ["p", "a.w", "b.late"]


def test_assigning_a_plain_attribute_while_walking(impl):
    m = small_tree(impl)
    for module in m.modules():
        module.visited = True
        module.training = False
        module.__dict__["also"] = 1
    assert all(x.visited and x.also == 1 for x in m.modules())


def test_the_walked_module_may_lose_its_last_name(impl):
    """The walk keeps what it needs alive."""
    m = impl.nn.Module()
    m.a = impl.nn.Module()
    m.a.w = param(impl)
    m.a.v = param(impl)
    walk = m.named_parameters()
    del m
    assert names(walk) == ["a.w", "a.v"]
    walk = chain(impl, 5).named_modules(prefix="root")
    assert names(walk)[-1] == "root.c.c.c.c"


def test_two_changes_that_cancel_out(impl):
    """One removed, one added: the size is the same again, and the walk meets one entry more than
    there were.
    """
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    seen = []
    with raises(RuntimeError, "changed during iteration"):
        for name, _ in m.named_children():
            seen.append(name)
            if name == "a":
                del m.a
                m.c = impl.nn.Module()
    assert seen == ["a", "b"]


# -- repeated walks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [
        lambda m, i: m.left.register_parameter("new", param(i)),
        lambda m, i: delattr(m.left, "weight"),
        lambda m, i: m.left.__dict__["_parameters"].clear(),
        lambda m, i: m.left._parameters.__setitem__("direct", param(i)),
        lambda m, i: m.left._parameters.update(bias=None),
        lambda m, i: setattr(m.left, "bias", None),
        lambda m, i: setattr(m.left, "bias", m.scale),
        lambda m, i: setattr(m, "left", i.nn.Module()),
        lambda m, i: setattr(m, "right", m.left),
        lambda m, i: m._modules.__setitem__("z", m._modules.pop("left")),
        lambda m, i: setattr(m, "_modules", {"left": m.left}),
        lambda m, i: setattr(m.left, "_parameters", {}),
        lambda m, i: m.__dict__.update(_modules={"right": m.right}),
        lambda m, i: m._modules.__setitem__("left", None),
        lambda m, i: setattr(m.left, "w2", m.left.weight),
        lambda m, i: m.left._parameters.__setitem__("bias", m.left._parameters.pop("bias")),
    ],
)
def test_a_second_walk_sees_every_change(impl, edit):
    """Whatever is remembered of the first walk must not show."""
    m, fresh = small_tree(impl), small_tree(impl)
    for _ in range(3):
        list(m.named_parameters()), list(m.named_modules()), list(m.named_buffers())
        list(m.named_parameters("p", remove_duplicate=False))
    edit(m, impl)
    edit(fresh, impl)
    for walk in ("named_parameters", "named_modules", "named_buffers"):
        for flags in ({}, {"remove_duplicate": False}, {"prefix": "p"}):
            assert names(getattr(m, walk)(**flags)) == names(getattr(fresh, walk)(**flags))
    expected = [m.get_parameter(name) for name in names(m.named_parameters())]
    assert [id(p) for p in m.parameters()] == [id(p) for p in expected]


def test_a_replaced_parameter_is_yielded_by_a_repeated_walk(impl):
    m = small_tree(impl)
    list(m.named_parameters())
    list(m.named_parameters())
    new = param(impl)
    m.left.weight = new
    assert dict(m.named_parameters())["left.weight"] is new
    m.left._parameters["weight"] = newer = param(impl)
    assert dict(m.named_parameters())["left.weight"] is newer


# -- cycles ----------------------------------------------------------------------------------------


def test_cycles_are_walked(impl):
    m = small_tree(impl)
    m.left.parent = m
    m.me = m
    assert names(m.named_modules()) == ["", "left", "right"]
    assert names(m.left.named_modules()) == ["", "parent", "parent.right"]
    assert names(m.named_parameters()) == ["scale", "left.bias", "left.weight", "right.own"]
    assert names(m.named_children()) == ["left", "right", "me"]
    m.zero_grad()
    m.requires_grad_(False)
    assert not any(p.requires_grad for p in m.parameters())


@pytest.mark.parametrize(
    "walk",
    [
        lambda m: list(m.named_modules(remove_duplicate=False)),
        lambda m: list(m.named_parameters(remove_duplicate=False)),
        lambda m: list(m.named_buffers(remove_duplicate=False)),
        lambda m: list(m.modules(remove_duplicate=False)),
        lambda m: m.train(),
        lambda m: m.eval(),
        lambda m: m.apply(lambda x: None),
        lambda m: m._apply(lambda t: t),
        lambda m: m.double(),
        lambda m: m.state_dict(),
        lambda m: m.load_state_dict({}, strict=False),
        repr,
    ],
)
@pytest.mark.parametrize("shape", ["self", "parent", "third"])
def test_cycles_that_cannot_be_walked(impl, walk, shape):
    m = impl.nn.Module()
    m.a = impl.nn.Module()
    m.a.b = impl.nn.Module()
    if shape == "self":
        m.a.b.me = m.a.b
    elif shape == "parent":
        m.a.b.up = m.a
    else:
        m.a.b.root = m
    with pytest.raises(RecursionError) as info:
        walk(m)
    if not impl.is_torch:
        last = {"self": "me", "parent": "up", "third": "root"}[shape]
        text = str(info.value)
        assert f"a.b.{last}" in text or (f"'{last}'" in text and "'a.b'" in text)


def test_cycles_are_found_where_the_walk_starts_inside(ours):
    m = ours.nn.Module()
    m.a = ours.nn.Module()
    m.a.up = m
    with pytest.raises(RecursionError, match="up.a"):
        m.a.train()
    assert m.training  # nothing was done half


def test_a_shared_module_is_no_cycle(impl):
    m = small_tree(impl)
    m.right.shared = m.left
    assert m.train() is m
    assert len(list(m.named_modules(remove_duplicate=False))) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m.state_dict()
