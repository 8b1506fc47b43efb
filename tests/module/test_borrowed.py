# SPDX-License-Identifier: BSD-3-Clause
"""What native code of modules has read stays alive while user code runs: keys that are compared,
finalizers, mappings, the collector.

Each use ends in a result or in a Python error, and the module works afterwards. Not on torch: these
end in CPython's own code there.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
from collections import OrderedDict

import pytest
from helpers.collections_at import at_every_collection
from helpers.hostile_keys import FAILURES, Key, assert_usable
from helpers.util import param, tensor

pytestmark = [
    # CPython 3.13 warns of a class with a key of ours.
    pytest.mark.filterwarnings("ignore:non-string key in the __dict__:RuntimeWarning"),
]


class Mark:
    """A value that shows when its memory has become that of another one."""

    def __init__(self, text="class"):
        self.text = text


def others():
    """Objects that take the place in memory of a Mark that has died."""
    return [Mark("other") for _ in range(200)]


def put_in_front(m, name, action):
    """Puts a key into the module's ``__dict__`` that is compared before ``name`` is found; it acts
    in the first comparison.
    """
    left = [action]
    entries = dict(m.__dict__)
    value = {name: entries.pop(name)} if name in entries else {}
    m.__dict__ = {**entries, Key(name, lambda: left and left.pop()()): None, **value}


# -- the class attribute that is being read --------------------------------------------------------


@pytest.mark.parametrize("kind", ["value", "descriptor", "function"])
def test_a_key_that_deletes_the_class_attribute_being_read(ours, kind):
    class Getter(Mark):
        def __get__(self, instance, owner):
            return self

    class M(ours.nn.Module):
        x = {"value": Mark, "descriptor": Getter, "function": lambda: lambda self: Mark()}[kind]()

    kept = []

    def delete():
        del M.x
        kept.extend(Getter("other") if kind == "descriptor" else Mark("other") for _ in range(200))

    m = M()
    put_in_front(m, "x", delete)
    value = m.x
    assert (value() if kind == "function" else value).text == "class"
    with pytest.raises(AttributeError):
        _ = m.x


@pytest.mark.parametrize("use", ["read", "write", "delete"])
def test_a_class_key_that_deletes_the_property_behind_it(ours, use):
    left = [1]

    def delete():
        if left:
            left.pop()
            del Base.x
            gc.collect()

    class Base(ours.nn.Module):
        x = property(lambda self: "x", lambda self, value: None, lambda self: None)

    M = type("M", (Base,), {Key("x", delete): None})
    m = M()
    left[:] = [1]
    with contextlib.suppress(AttributeError):
        {
            "read": lambda: m.x,
            "write": lambda: setattr(m, "x", 1),
            "delete": lambda: delattr(m, "x"),
        }[use]()
    assert not left


@pytest.mark.parametrize(
    "use",
    [
        lambda m, i: m.x,
        lambda m, i: hasattr(m, "x"),
        lambda m, i: setattr(m, "x", 1),
        lambda m, i: setattr(m, "x", param(i)),
        lambda m, i: delattr(m, "x"),
        lambda m, i: m.register_buffer("x", tensor(i)),
    ],
    ids=["read", "hasattr", "write", "write parameter", "delete", "register"],
)
@pytest.mark.parametrize("where", ["class", "instance"])
def test_a_key_that_gives_the_module_another_class(ours, use, where):
    class Plain(ours.nn.Module):
        pass

    def leave():
        m.__class__ = Plain
        gc.collect()  # its old class is a cycle

    armed = []

    def once():
        if armed:
            armed.pop()
            leave()

    namespace = {Key("x", once): None} if where == "class" else {}
    m = type("Own", (ours.nn.Module,), namespace)()
    if where == "instance":
        put_in_front(m, "x", once)
    armed.append(1)
    with contextlib.suppress(*FAILURES):
        use(m, ours)
    m.__class__ = Plain
    assert_usable(ours, m)


# -- forward ---------------------------------------------------------------------------------------


def replace_forward(cls):
    def forward(self, x):
        return "new"

    cls.forward = forward


def test_an_instance_key_that_replaces_forward_of_the_class(ours):
    class M(ours.nn.Module):
        pass

    M.forward = lambda self, x: "old"
    m = M()
    put_in_front(m, "forward", lambda: replace_forward(M))
    assert m(1) in ("old", "new")
    assert m(1) == "new"
    handle = m.register_forward_hook(lambda *a: None)
    put_in_front(m, "forward", lambda: setattr(M, "forward", lambda self, x: "newer"))
    assert m(1) in ("new", "newer")
    handle.remove()
    assert m(1) == "newer"


@pytest.mark.parametrize("name", ["train", "children", "__deepcopy__", "_is_replica"])
def test_a_class_key_that_replaces_forward_while_the_class_is_looked_at(ours, name):
    left = []

    def replace():
        if left:
            left.pop()
            replace_forward(M)

    M = type("M", (ours.nn.Module,), {Key(name, replace): None, "forward": lambda self, x: "old"})
    m = M()
    left.append(1)
    M.changed = 1  # what was known of the class no longer holds
    assert m(1) in ("old", "new")
    left.clear()
    replace_forward(M)
    assert m(1) == m(1) == "new"


# -- hook tables and registries --------------------------------------------------------------------


@pytest.mark.parametrize("by", ["_forward_hooks", "_forward_hooks_always_called"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_key_that_replaces_the_table_looked_up_before(ours, by, fails):
    class M(ours.nn.Module):
        def forward(self, x):
            if fails:
                raise ValueError("x")
            return x

    m = M()
    m.register_forward_hook(lambda *a: None, with_kwargs=True, always_call=True)

    def replace():
        for table in ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"):
            if table != by:
                m.__dict__[table] = OrderedDict()

    put_in_front(m, by, replace)
    if fails:
        with pytest.raises(ValueError, match="x"):
            m(3)
    else:
        with contextlib.suppress(TypeError):  # the hook may be called without kwargs
            assert m(3) == 3


class Table:
    """A mapping that takes the place of a table, and leaves it when it is first asked for its size
    or items.
    """

    def __init__(self, m, name, when, entries=()):
        self.m, self.name, self.when, self.entries = m, name, when, dict(entries)
        m.__dict__[name] = self

    def leave(self, what):
        if what == self.when:
            self.m.__dict__[self.name] = {}
        return self.entries

    def __len__(self):
        return len(self.leave("size"))

    def items(self):
        return self.leave("items").items()

    def values(self):
        return self.leave("items").values()

    def keys(self):
        return self.leave("items").keys()

    def __iter__(self):
        return iter(self.leave("items"))

    def __contains__(self, key):
        return key in self.leave("contains")

    def __getitem__(self, key):
        return self.leave("contains")[key]


TABLE_USES = {
    "state_dict": lambda m, i: m.state_dict(),
    "load": lambda m, i: m.load_state_dict({"p": tensor(i), "b": tensor(i)}),
    "call": lambda m, i: m(1),
    "walk": lambda m, i: list(m.named_parameters()) + list(m.named_buffers()),
    "modules": lambda m, i: list(m.named_modules(remove_duplicate=False)),
    "children": lambda m, i: list(m.named_children()),
    "train": lambda m, i: m.train(),
    "apply": lambda m, i: m.apply(lambda x: None),
    "double": lambda m, i: m.double(),
    "zero_grad": lambda m, i: m.zero_grad(),
    "read": lambda m, i: m.p,
    "write": lambda m, i: setattr(m, "p", None),
    "delete": lambda m, i: delattr(m, "p"),
    "copy": lambda m, i: copy.copy(m),
    "deepcopy": lambda m, i: copy.deepcopy(m),
}


@pytest.mark.parametrize("use", TABLE_USES.values(), ids=TABLE_USES)
@pytest.mark.parametrize("when", ["size", "items", "contains"])
def test_a_table_that_leaves_its_place_when_it_is_looked_at(ours, when, use):
    class M(ours.nn.Module):
        def forward(self, x):
            return x

    def hook(*args):
        return None

    for name in (
        "_parameters",
        "_buffers",
        "_modules",
        "_non_persistent_buffers_set",
        "_forward_hooks",
        "_forward_pre_hooks",
        "_forward_hooks_with_kwargs",
        "_backward_hooks",
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
    ):
        root, m = M(), M()
        root.m = m
        for where in (root, m):
            where.p, where.c = param(ours), ours.nn.Module()
            where.register_buffer("b", tensor(ours))
        entries = {"_parameters": m._parameters, "_buffers": m._buffers, "_modules": m._modules}
        Table(m, name, when, entries.get(name, {1: hook}))
        del entries
        for top in (root, m):
            with contextlib.suppress(*FAILURES):
                use(top, ours)
        assert_usable(ours, m)


def test_the_end_of_a_registry_that_replaces_the_next_one(impl):
    root = impl.nn.Module()
    root.a, root.b = impl.nn.Module(), impl.nn.Module()
    root.a.p, root.b.p = param(impl), param(impl)

    class Last:
        def __del__(self):
            root.b._parameters = {"q": new}

    new = param(impl)
    root.a.p.last = Last()
    found = []
    for name, _ in root.named_parameters(remove_duplicate=False):
        found.append(name)
        root.a._parameters = {}  # the walk alone holds the old one
    assert found == ["a.p", "b.p"] and list(root.b._parameters) == ["q"]


def test_a_member_that_drops_the_parameter_it_is_compared_with(ours):
    class Meddler:
        def __init__(self, other):
            self.hash = hash(other)

        def __hash__(self):
            return self.hash

        def __eq__(self, other):
            m._parameters["c"] = None
            return False

    for remove_duplicate in (True, False):
        m = ours.nn.Module()
        m.a, m.c = param(ours), param(ours)
        c = m._parameters.pop("c")
        m._parameters.update(b=Meddler(c), c=c)
        del c
        found = list(m.named_parameters(remove_duplicate=remove_duplicate))
        assert [name for name, _ in found] == ["a", "b", "c"]
        assert found[2][1].shape == (1,)


@pytest.mark.parametrize("method", ["train", "eval"])
def test_a_key_that_looks_at_the_dict_while_training_is_set(ours, method):
    m = ours.nn.Module()
    (m.eval if method == "train" else m.train)()
    seen = []
    m._modules[Key("training", lambda: seen.append(m.__dict__))] = None
    getattr(m, method)()
    assert seen and m.training is (method == "train")


# -- the collector ---------------------------------------------------------------------------------


def module(ours):
    m = ours.nn.Module()
    m.p, m.c = param(ours), ours.nn.Module()
    m.register_buffer("b", tensor(ours), persistent=False)
    m.plain = [1]
    return m


@pytest.mark.parametrize(
    "use",
    [
        lambda m, i: m.__dict__,
        lambda m, i: m._parameters,
        lambda m, i: m._forward_hooks,
        lambda m, i: setattr(m, "x", 1),
        lambda m, i: setattr(m, "q", param(i)),
        lambda m, i: m.register_buffer("n", tensor(i), persistent=False),
        lambda m, i: m.__getstate__(),
        lambda m, i: m.named_parameters(),
    ],
    ids=["dict", "registry", "hooks", "write", "parameter", "buffer", "state", "walk"],
)
def test_what_the_collector_runs_is_not_lost(ours, use):
    def prepare():
        m = ours.nn.Module()
        ran = []

        def action():
            ran.append(1)
            m.late, m.late_plain = late, 3
            m.register_buffer("late_buffer", None, persistent=False)
            m._forward_hooks[1] = print

        def check():
            if ran:
                assert m.late is late and m.late_plain == 3 and "late_buffer" in m._buffers
                assert "late_buffer" in m._non_persistent_buffers_set and m._forward_hooks

        return lambda: use(m, ours), action, check

    late = param(ours)
    at_every_collection(prepare)


COLLECTED = {
    "dict": lambda m, i: m.__dict__,
    "state": lambda m, i: m.__getstate__(),
    "copy": lambda m, i: copy.copy(m),
    "deepcopy": lambda m, i: copy.deepcopy(m),
    "pickle": lambda m, i: pickle.dumps(m),
    "state_dict": lambda m, i: m.state_dict(),
    "clone": lambda m, i: m.state_dict(clone=True),
    "load": lambda m, i: m.load_state_dict({"p": tensor(i)}, assign=True),
    "walk": lambda m, i: [list(m.named_parameters()), list(m.buffers()), list(m.modules())],
    "train": lambda m, i: m.train(),
    "double": lambda m, i: m.double(),
    "ties": lambda m, i: m._apply(lambda t: t.clone(), preserve_ties=True),
    "write": lambda m, i: [setattr(m, "q", param(i)), setattr(m, "d", i.nn.Module())],
    "delete": lambda m, i: [delattr(m, name) for name in ("plain", "b", "p", "c")],
    "repr": lambda m, i: repr(m),
}
CHANGES = {
    "look": lambda m: m.__dict__,
    "clear": lambda m: m.__dict__.clear(),
    "new dict": lambda m: setattr(m, "__dict__", {}),
    "init": lambda m: m.__init__(),
    "drop": lambda m: [m.__dict__.pop(k, None) for k in ("training", "_parameters", "_modules")],
}


@pytest.mark.parametrize("use", COLLECTED.values(), ids=COLLECTED)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_collector_changes_the_module_in_use(ours, use, change):
    def prepare():
        m = module(ours)
        return lambda: use(m, ours), lambda: change(m), lambda: assert_usable(ours, m)

    at_every_collection(prepare)


def test_a_call_of_more_arguments_than_the_stack_has_room_for(impl):
    class M(impl.nn.Module):
        def forward(self, *args, **kwargs):
            return len(args), sorted(kwargs)

    for count in (0, 1, 8, 9, 100, 3000):
        assert M()(*range(count), k=1) == (count, ["k"])
