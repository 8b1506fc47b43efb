# SPDX-License-Identifier: BSD-3-Clause
"""Walks meet an object that nobody but its registry holds without asking whether it was met before,
and plain modules without asking what else they could be: what must show none of it.
"""

from __future__ import annotations

import copy
import gc
import random
import sys
import weakref
from collections import OrderedDict

import pytest
from helpers.support import raises
from helpers.util import names, param, tensor

WALKS = ("parameters", "named_parameters", "buffers", "modules", "named_modules")


def two_blocks(impl):
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    m.a.w, m.b.w = param(impl), param(impl)
    m.a.register_buffer("s", tensor(impl))
    m.a.c = impl.nn.Module()
    return m


# -- what a walk has met comes again ---------------------------------------------------------------


def test_a_parameter_that_moves_on_while_walked_comes_once(impl):
    m = two_blocks(impl)
    m.b.v = param(impl)
    seen = []
    for name, p in m.named_parameters():
        seen.append(name)
        if name == "a.w":
            m.b.again = p
            m.a.w = param(impl)
            del p
    assert seen == ["a.w", "b.w", "b.v"]


def test_a_buffer_that_moves_on_while_walked_comes_once(impl):
    m = two_blocks(impl)
    count = 0
    for value in m.buffers():
        count += 1
        m.b.register_buffer(f"s{count}", value)
        del value
    assert count == 1


def test_a_module_that_moves_on_while_walked_comes_once(impl):
    m = two_blocks(impl)
    seen = []
    for name, child in m.named_modules():
        seen.append(name)
        if name == "a.c":
            m.b.again = child
            m.a.c = impl.nn.Module()
            del child
    assert seen == ["", "a", "a.c", "b"]


@pytest.mark.parametrize("walk", ["parameters", "modules"])
def test_what_was_met_keeps_its_address(impl, walk):
    """New objects do not come to lie where one lay that was met, and are not taken for it."""
    m = impl.nn.ModuleList(impl.nn.Module() for _ in range(40))
    for block in m:
        block.w = param(impl)
    total = 0
    for number, value in enumerate(getattr(m, walk)()):
        del value
        total += 1
        place = number if walk == "parameters" else number - 1
        if 0 <= place < 39:
            m[place].w = param(impl)  # the old one would go here
            m[place + 1].w = param(impl)
            m[place] = impl.nn.Module()
            m[place + 1] = impl.nn.Module()
            m[place + 1].w = param(impl)
    assert total == (40 if walk == "parameters" else 41)


def test_two_names_in_one_registry(impl):
    m = impl.nn.Module()
    m.w = param(impl)
    m.register_parameter("v", m.w)
    m.c = impl.nn.Module()
    m.add_module("d", m.c)
    assert names(m.named_parameters()) == ["w"] and names(m.named_modules()) == ["", "c"]
    assert names(m.named_parameters(remove_duplicate=False)) == ["w", "v"]
    assert names(m.named_modules(remove_duplicate=False)) == ["", "c", "d"]


def test_modules_that_share_a_registry(impl):
    """Every object in it has one holder, the registry that two modules have."""
    m = impl.nn.Module()
    m.a = two_blocks(impl)
    m.b = copy.copy(m.a)
    assert names(m.named_parameters()) == ["a.a.w", "a.b.w"]
    assert names(m.named_modules()) == ["", "a", "a.a", "a.a.c", "a.b", "b"]


def test_a_memo_knows_what_was_met(impl):
    m = two_blocks(impl)
    memo = set()
    assert names(m.named_modules(memo)) == ["", "a", "a.c", "b"]
    assert memo == {m, m.a, m.a.c, m.b}
    assert names(m.named_modules(memo)) == []
    assert names(m.named_modules({m.a})) == ["", "b"]


def test_an_override_in_the_middle_gets_everything_that_was_met(impl):
    memos = []

    class Own(impl.nn.Module):
        def named_modules(self, memo=None, prefix="", remove_duplicate=True):
            memos.append((set(memo), prefix))
            return super().named_modules(memo, prefix, remove_duplicate)

    m = two_blocks(impl)
    m.b.own = Own()
    m.b.own.again = m.a.c
    m.c = impl.nn.Module()
    expected = {m, m.a, m.a.c, m.b}
    seen = [child for child in m.modules()]
    assert memos == [(expected, "b.own")]
    assert seen == [m, m.a, m.a.c, m.b, m.b.own, m.c]


def test_compared_by_value_among_plain_modules(impl):
    class Same(impl.nn.Module):
        def __eq__(self, other):
            return isinstance(other, Same)

        def __hash__(self):
            return 7

    m = impl.nn.Module()
    m.a, m.s, m.b, m.t, m.c = (impl.nn.Module(), Same(), impl.nn.Module(), Same(), impl.nn.Module())
    m.c.again = m.a
    assert names(m.named_modules()) == ["", "a", "s", "b", "c"]


# -- changes half way through ----------------------------------------------------------------------


@pytest.mark.parametrize("walk", ["modules", "named_modules", "parameters"])
def test_a_class_patched_half_way_through(impl, walk):
    class Child(impl.nn.Module):
        pass

    m = impl.nn.ModuleList(Child() for _ in range(30))
    for child in m:
        child.w = param(impl)
    called = []

    def own(self, memo=None, prefix="", remove_duplicate=True):
        called.append(prefix)
        return impl.nn.Module.named_modules(self, memo, prefix, remove_duplicate)

    it = getattr(m, walk)()
    for _ in range(11):
        next(it)
    Child.named_modules = own
    rest = len(list(it))
    del Child.named_modules
    done = 11 if walk == "parameters" else 10
    assert called == [str(n) for n in range(done, 30)] and rest == 30 - done


def test_a_child_that_gets_a_method_of_its_own_half_way_through(impl):
    m = impl.nn.ModuleList(impl.nn.Module() for _ in range(5))
    seen = []
    for name, _ in m.named_modules():
        seen.append(name)
        if name == "1":
            m[3].named_modules = lambda memo, prefix, remove: [(prefix + "!", m)]
    assert seen == ["", "0", "1", "2", "3!", "4"]


def test_a_module_exposed_half_way_through(impl):
    m = two_blocks(impl)
    seen = []
    for name, child in m.named_modules():
        seen.append(name)
        child.__dict__["_modules"]["late"] = impl.nn.Identity()
        if len(seen) > 3:
            break
    assert seen == ["", "a", "a.c", "a.c.late"]


def test_children_given_to_the_last_leaf(impl):
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    seen = []
    for name, child in m.named_modules():
        seen.append(name)
        if name == "b":
            child.x, child.y = impl.nn.Module(), impl.nn.Module()
    assert seen == ["", "a", "b", "b.x", "b.y"]


def test_the_last_child_taken_away(impl):
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    it = m.modules()
    next(it), next(it)
    del m.b
    with raises(RuntimeError, "changed size during iteration"):
        next(it)


def test_keys_that_run_code_at_their_end(ours):
    """A name of a str class dies while the walk goes on to the next child."""

    class Name(str):
        __slots__ = ("action",)

        def __hash__(self):
            return str.__hash__(self)

        def __del__(self):
            self.action()

    done = []
    m = ours.nn.Module()
    for text in "abcd":
        name = Name(text)
        name.action = lambda: done.append(len(list(m.modules())))
        m._modules[name] = ours.nn.Module()
        del name
    walk = m.named_modules()
    first = [next(walk)[0] for _ in range(3)]
    assert first == ["", "a", "b"]
    m._modules.clear()
    with pytest.raises(RuntimeError):
        list(walk)
    del walk
    gc.collect()
    assert done and set(done) == {1}


def test_a_walk_in_the_end_of_what_it_held(ours):
    """What a walk alone still holds runs code that walks the tree when the walk lets go."""
    m = two_blocks(ours)
    found = []

    class Loud(ours.nn.Module):
        def __del__(self):
            found.append(names(m.named_modules()))

    m.loud = Loud()
    walk = m.modules()
    for child in walk:
        if isinstance(child, Loud):
            del child
            del m.loud
            break
    assert not found
    del walk
    gc.collect()
    assert found == [["", "a", "a.c", "b"]]


def test_a_walk_keeps_what_it_has_met(impl):
    m = two_blocks(impl)
    walk = m.parameters()
    reference = weakref.ref(next(walk))
    m.a.w = param(impl)
    gc.collect()
    assert reference() is not None
    walk.close()
    gc.collect()
    assert reference() is None


def test_references_are_given_back(ours):
    m = two_blocks(ours)
    values = [*m.modules(), *m.parameters(), *m.buffers()]
    before = [sys.getrefcount(v) for v in values]
    for walk in WALKS:
        list(getattr(m, walk)())
        it = iter(getattr(m, walk)())
        next(it)
        del it
    m.train()
    m.eval()
    assert [sys.getrefcount(v) for v in values] == before


# -- random trees against the definition -----------------------------------------------------------


def walked(root, registry):
    """What torch's Python code gives: names and ids of modules, and of what a registry has."""
    modules, values, met, met_values = [], [], set(), set()

    def visit(module, prefix):
        if id(module) in met:
            return
        met.add(id(module))
        modules.append((prefix, id(module)))
        for name, value in getattr(module, registry).items():
            if value is not None and id(value) not in met_values:
                met_values.add(id(value))
                values.append((prefix + "." * bool(prefix) + name, id(value)))
        for name, child in module._modules.items():
            if child is not None:
                visit(child, prefix + "." * bool(prefix) + name)

    visit(root, "")
    return modules, values


def random_tree(impl, seed, size):
    """A tree with shared modules and tensors, some held elsewhere, None among the entries, removed
    entries, exposed modules and several classes.
    """
    rng = random.Random(seed)
    classes = [impl.nn.Module, impl.nn.Identity, type("Own", (impl.nn.Module,), {})]
    modules = [impl.nn.Module()]
    tensors = [param(impl)]
    held = []
    while len(modules) < size:
        parent = rng.choice(modules[-40:])
        for number in range(rng.randrange(1, 14)):
            child = modules[0] if rng.random() < 0.01 else rng.choice(classes)()
            if rng.random() < 0.05:
                child = rng.choice(modules)
            if rng.random() < 0.05:
                child = None
            parent.add_module(f"c{number}_{len(modules)}", child)
            if child is None or child in modules[:1]:
                continue
            modules.append(child)
            for name in "wvu"[: rng.randrange(4)]:
                p = param(impl) if rng.random() < 0.9 else rng.choice(tensors)
                child.register_parameter(f"{name}{len(tensors)}", p)
                tensors.append(p)
            if rng.random() < 0.3:
                child.register_buffer(f"s{len(tensors)}", rng.choice([tensor(impl), None]))
            if rng.random() < 0.1:
                _ = child.__dict__
            if rng.random() < 0.1:
                child.register_parameter("gone", param(impl))
                del child.gone
            if rng.random() < 0.2:
                held.append(child)
    root = modules[0]
    return root, held, [t for t in tensors if rng.random() < 0.2]


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("seed", range(8))
def test_random_trees(ours, seed):
    root, *held = random_tree(ours, seed, 60 if seed % 2 else 2500)
    gc.collect()
    for registry, walk in (("_parameters", "parameters"), ("_buffers", "buffers")):
        modules, values = walked(root, registry)
        assert [id(m) for m in root.modules()] == [i for _, i in modules]
        assert [(n, id(m)) for n, m in root.named_modules()] == modules
        assert [id(t) for t in getattr(root, walk)()] == [i for _, i in values]
        assert [(n, id(t)) for n, t in getattr(root, "named_" + walk)()] == values
    del held


# -- random changes at every step ------------------------------------------------------------------


def defined_walk(module, memo, prefix=""):
    """named_modules() as nested generators over the registries; what a module has under that name
    gives nothing here.
    """
    if module in memo:
        return
    memo.add(module)
    yield prefix, module
    for name, child in module._modules.items():
        if child is not None and "named_modules" not in vars(child):
            yield from defined_walk(child, memo, prefix + "." * bool(prefix) + name)


def change_somewhere(rng, new, met):
    """One change near what was met last, most of them where the walk is at work."""
    module = met[-1 - rng.randrange(min(len(met), 4))]
    children = module._modules
    some = rng.choice([*children]) if children else None
    kind = rng.randrange(9)
    if kind == 0 or some is None:
        module.add_module(f"new{len(met)}", new())
    elif kind == 1:
        del children[some]
    elif kind == 2:  # the same number of children
        del children[some]
        children[f"other{len(met)}"] = new()
    elif kind == 3:
        children[some] = rng.choice([None, new(), met[0], met[-1]])
    elif kind == 4:
        children[some] = children.pop(some)
    elif kind == 5:
        module._modules = dict(children)
    elif kind == 6:
        module._modules = OrderedDict(reversed(children.items()))
    elif kind == 7:
        children.clear()
    elif kind == 8 and children[some] is not None:
        module.add_module(f"again{len(met)}", children[some])


def steps_of(walk_of, root, seed):
    """Names that the walk gives while the tree is changed under it, and the error that ends it."""
    rng = random.Random(seed)
    met, steps = [], []

    def new():
        leaf = type(root)()
        if rng.random() < 0.4:
            leaf.below = type(root)()
        return leaf

    try:
        for name, module in walk_of(root):
            steps.append(name)
            met.append(module)
            if rng.random() < 0.35:
                change_somewhere(rng, new, met)
            if len(steps) == 400:
                break
    except RuntimeError as error:
        steps.append(str(error))
    return steps


@pytest.mark.parametrize("block", range(10))
def test_random_changes_at_every_step(ours, block):
    def tree(rng, depth):
        module = ours.nn.Module()
        for number in range(rng.randrange(5) if depth < 4 else 0):
            module.add_module(f"c{number}", tree(rng, depth + 1))
        return module

    for seed in range(block * 150, block * 150 + 150):
        found, expected = (
            steps_of(walk_of, tree(random.Random(seed), 0), seed)
            for walk_of in (
                lambda root: root.named_modules(),
                lambda root: defined_walk(root, set()),
            )
        )
        assert found == expected, seed


def nothing(memo, prefix, remove_duplicate):
    return iter(())


def change_siblings(rng, new, parent, last):
    """One change of the dict that is being walked, or of what stands next in it."""
    children = parent._modules
    names_now = list(children)
    if not names_now:
        return
    some = rng.choice(names_now)
    kind = rng.randrange(11)
    if kind == 0:
        children[some] = rng.choice([None, new(), last, parent])
    elif kind == 1:  # a table of another size, with the same entries
        children.update({name: children[name] for name in names_now * 4})
        children.update(dict.fromkeys(names_now, children[some]) | dict(children))
    elif kind == 2:  # a larger table, with as many entries as before
        added = [f"more{n}" for n in range(200)]
        children.update(dict.fromkeys(added, last))
        for name in added:
            del children[name]
    elif kind == 3:
        children[some] = children.pop(some)
    elif kind == 4:
        del children[some]
        children[f"other{rng.random()}"] = new()
    elif kind == 5 and children[some] is not None:
        children[some].below = new()
    elif kind == 6 and children[some] is not None:
        _ = children[some].__dict__
    elif kind == 7 and children[some] is not None:
        children[some].named_modules = nothing
    elif kind == 8:
        last.below = new()
    elif kind == 9:
        del children[some]
    elif kind == 10 and children[some] is not None:
        children[some].__class__ = rng.choice([type(new()), *type(new()).__subclasses__()])


def tags_of(walk_of, impl, seed):
    """Tags of the modules that the walk gives while the siblings are changed under it."""
    rng = random.Random(seed)
    count = 0

    class Tagged(impl.nn.Module):
        def __init__(self):
            nonlocal count
            super().__init__()
            self.tag = count = count + 1

    class Other(Tagged):
        pass

    class ByValue(Tagged):
        def __eq__(self, other):
            return isinstance(other, ByValue) and self.tag % 3 == other.tag % 3

        def __hash__(self):
            return self.tag % 3

    class Overrides(Tagged):
        def named_modules(self, memo=None, prefix="", remove_duplicate=True):
            return defined_walk(self, set() if memo is None else memo, prefix)

    classes = [Tagged] * 12 + [Other] * 4 + ([ByValue, Overrides] if seed % 3 == 0 else [])

    def new():
        return rng.choice(classes)()

    root = new()
    parents = [root]
    for _ in range(rng.randrange(1, 5)):
        parent = rng.choice(parents)
        for number in range(rng.randrange(1, 30)):
            parent.add_module(f"c{number}", new())
        for number in range(0, rng.randrange(8), 2):  # removed entries in front
            parent._modules.pop(f"c{number}", None)
        parents += [c for c in parent._modules.values() if rng.random() < 0.1]
    del parent
    tags = []
    try:
        for module in walk_of(root):
            tags.append(module.tag)
            if rng.random() < 0.1:
                change_siblings(rng, new, rng.choice(parents), module)
            del module
            if len(tags) == 300:
                break
    except RuntimeError as error:
        tags.append(str(error))
    return tags


@pytest.mark.parametrize("block", range(10))
def test_random_changes_of_siblings(ours, block):
    for seed in range(block * 100, block * 100 + 100):
        found = tags_of(lambda root: root.modules(), ours, seed)
        expected = tags_of(lambda root: (m for _, m in defined_walk(root, set())), ours, seed)
        assert found == expected, seed


@pytest.mark.parametrize("name", ["removed", "kept"])
def test_the_name_of_a_sibling_that_got_children_reaches_their_overrides(impl, name):
    """Also where the parent has it under no name any more."""
    prefixes = []

    class Named(impl.nn.Module):
        def named_modules(self, memo=None, prefix="", remove_duplicate=True):
            prefixes.append(prefix)
            return super().named_modules(memo, prefix, remove_duplicate)

    m = impl.nn.ModuleList(impl.nn.Module() for _ in range(5))
    for number, module in enumerate(m.modules()):
        if number == 3:
            module.below = Named()
            if name == "removed":
                m._modules["new"] = m._modules.pop("2")
        if number == 4:
            break
    assert prefixes == ["2.below"]


# -- modules that other lists hold -----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_modules_that_a_list_holds_come_once_and_in_order(impl, seed):
    """Some are held, some are in two places, and some get children while they are walked."""

    def build(source):
        made = [impl.nn.Module() for _ in range(60)]
        for number, module in enumerate(made[1:], 1):
            setattr(made[source.randrange(number)], f"m{number}", module)
            if source.random() < 0.3:
                other = source.randrange(number)
                setattr(made[other], f"again{number}", module)
            if source.random() < 0.5:
                module.w = param(impl)
        return made

    made = build(random.Random(seed))
    root, free = made[0], build(random.Random(seed))[0]
    expected = [n for n, _ in free.named_modules()]
    assert [n for n, _ in root.named_modules()] == expected
    assert len(list(root.modules())) == len(expected) == len(set(map(id, root.modules())))
    assert [n for n, _ in root.named_parameters()] == [n for n, _ in free.named_parameters()]

    source, numbers, grown = random.Random(seed), [], 0
    kept = made[1 :: 1 + seed % 3]
    del made
    for module in root.modules():
        numbers.append(len(list(module.children())))
        if source.random() < 0.1:
            module.late, grown = impl.nn.Module(), grown + 1
            module.late_again = kept[source.randrange(len(kept))]
    assert len(numbers) == len(expected) + grown
    assert len(list(root.modules())) == len(numbers)


def test_a_held_module_in_many_places_of_one_parent_comes_once(impl):
    shared = impl.nn.Module()
    m = impl.nn.ModuleList([shared] * 5000)
    m.append(impl.nn.Module())
    assert [n for n, _ in m.named_modules()] == ["", "0", "5000"]
    assert len(list(m.modules())) == 3
