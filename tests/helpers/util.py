# SPDX-License-Identifier: BSD-3-Clause
"""Model builders and the seeded random tree generator of the differential tests.

A ``World`` is a pool of modules and tensors of one implementation. The same seed gives the same
pool, the same first tree and the same stream of edits in every implementation; values are named by
their index in the pool, so that what two worlds show (``observe``) can be compared with ``==``,
exceptions included (``agree``).
"""

from __future__ import annotations

import copy
import random
import re
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

INTERNAL_KEYS = (
    "training",
    "_parameters",
    "_buffers",
    "_non_persistent_buffers_set",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_is_full_backward_hook",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_modules",
)
HOOK_TABLES = tuple(k for k in INTERNAL_KEYS if k.endswith(("hooks", "kwargs", "called")))
REGISTRIES = ("_parameters", "_buffers", "_modules")


# -- builders --------------------------------------------------------------------------------------


def param(impl: Any, value: float = 1.0) -> Any:
    return impl.nn.Parameter(impl.lib.tensor([float(value)]))


def tensor(impl: Any, value: float = 1.0) -> Any:
    return impl.lib.tensor([float(value)])


def buffer(impl: Any, value: float = 1.0, persistent: bool = True) -> Any:
    return impl.nn.Buffer(impl.lib.tensor([float(value)]), persistent=persistent)


def chain(impl: Any, depth: int, name: str = "c") -> Any:
    """``depth`` plain modules inside each other; built from the innermost outwards."""
    inner = impl.nn.Module()
    for _ in range(depth - 1):
        outer = impl.nn.Module()
        outer.add_module(name, inner)
        inner = outer
    return inner


def small_tree(impl: Any) -> Any:
    """Ties, None entries, both kinds of buffers; the order of registration is not that of the
    kinds.
    """
    nn = impl.nn
    root, left, right = nn.Module(), nn.Module(), nn.Module()
    left.bias = param(impl, 1)
    left.weight = param(impl, 2)
    left.register_buffer("mean", tensor(impl, 3))
    left.register_buffer("scratch", tensor(impl, 4), persistent=False)
    left.register_parameter("gone", None)
    right.weight = left.weight
    right.register_buffer("empty", None)
    right.own = param(impl, 5)
    root.left = left
    root.add_module("none", None)
    root.scale = param(impl, 6)
    root.right = right
    root.again = left
    return root


def names(pairs: Any) -> list[str]:
    return [name for name, _ in pairs]


def one(x: Any) -> float:
    """The only number of a tensor."""
    return float(np.asarray(x.detach() if hasattr(x, "detach") else x).reshape(-1)[0])


# -- random trees ----------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "weight", "bias", "0", "1", "10", "ünï", "\udcff", "a b", "_x")
ODD_NAMES = ("a.b", "", ".", "klass", "method", "ro", "rw", "bad", "training", "forward", "extra")
VALUE_KINDS = ("param", "module", "buffer", "tensor", "none", "int", "list")
VALUE_WEIGHTS = (6, 6, 3, 3, 3, 1, 1)


class Ref(NamedTuple):
    """A value of the pool, or a plain value, without naming an implementation."""

    kind: str
    index: int


class Edit(NamedTuple):
    """One random edit: what to do, on which module of the pool, under which name, with which
    value.
    """

    what: str
    module: int
    name: str
    value: Ref
    extra: int


def _fancy(nn: Any) -> type:
    class Fancy(nn.Module):
        klass = "class attribute"

        def method(self) -> str:
            return "method"

        @property
        def ro(self) -> str:
            return "read only"

        @property
        def rw(self) -> Any:
            return getattr(self, "rw_value", "unset")

        @rw.setter
        def rw(self, value: Any) -> None:
            super().__setattr__("rw_value", value)

        @property
        def bad(self) -> Any:
            raise ValueError("bad getter")

        def extra_repr(self) -> str:
            return "fancy"

    return Fancy


def _plain(nn: Any) -> type:
    class Plain(nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    return Plain


class World:
    """The pool of one implementation and the first random tree in it."""

    def __init__(self, impl: Any, seed: int, modules: int = 7) -> None:
        self.impl, self.seed, self.size = impl, seed, modules
        nn = impl.nn
        classes = (nn.Module, _plain(nn), _fancy(nn))
        rng = random.Random(seed)
        self.modules = [classes[rng.randrange(3)]() for _ in range(modules)]
        self.params = [param(impl, 100 + i) for i in range(2 * modules)]
        self.buffers = [buffer(impl, 200 + i, persistent=i % 2 == 0) for i in range(modules)]
        self.tensors = [tensor(impl, 300 + i) for i in range(modules)]
        self._index: dict[int, tuple[str, int]] = {}
        for kind in ("modules", "params", "buffers", "tensors"):
            for i, value in enumerate(getattr(self, kind)):
                self._index[id(value)] = (kind[:-1], i)
        self._grow(rng)

    def __repr__(self) -> str:
        return f"World({self.impl.name}, seed={self.seed}, modules={self.size})"

    @property
    def root(self) -> Any:
        return self.modules[0]

    def _grow(self, rng: random.Random) -> None:
        """A tree (with ties) over the pool: the parent of a module comes before it, so there is no
        cycle yet.
        """
        for i in range(1, self.size):
            self.modules[rng.randrange(i)].add_module(f"m{i}", self.modules[i])
            if rng.random() < 0.2:  # a tied module
                self.modules[rng.randrange(i)].add_module(f"tie{i}", self.modules[i])
            if rng.random() < 0.2:
                self.modules[i].add_module("nothing", None)
        for i, p in enumerate(self.params):
            for owner in rng.sample(range(self.size), 1 + (rng.random() < 0.2)):
                self.modules[owner].register_parameter(f"p{i}", p)
        for i, t in enumerate(self.tensors):
            self.modules[rng.randrange(self.size)].register_buffer(
                f"b{i}", t if rng.random() < 0.8 else None, persistent=rng.random() < 0.7
            )
        for i, b in enumerate(self.buffers):
            if rng.random() < 0.5:
                setattr(self.modules[rng.randrange(self.size)], f"B{i}", b)
        for module in self.modules:
            if rng.random() < 0.3:
                module.register_parameter("reserved", None)
            if rng.random() < 0.5:
                module.plain = rng.randrange(10)

    def value(self, ref: Ref) -> Any:
        pools = {"param": self.params, "module": self.modules, "buffer": self.buffers}
        pools["tensor"] = self.tensors
        if ref.kind in pools:
            return pools[ref.kind][ref.index % len(pools[ref.kind])]
        return {"none": None, "int": ref.index, "list": [ref.index]}[ref.kind]

    def show(self, value: Any) -> Any:
        """The value without its implementation: pool members by index, other tensors by their
        number.
        """
        if id(value) in self._index:
            return self._index[id(value)]
        if isinstance(value, self.impl.nn.Module):
            return ("new module", type(value).__name__)
        if isinstance(value, self.impl.lib.Tensor):
            return ("new tensor", isinstance(value, self.impl.nn.Parameter), one(value))
        if isinstance(value, dict):
            return [(k, self.show(v)) for k, v in value.items()]
        if isinstance(value, (list, tuple)):
            return [self.show(v) for v in value]
        if callable(value):
            return ("callable", getattr(value, "__name__", "?"))
        return value

    def attempt(self, fn: Callable[[], Any]) -> Any:
        """What ``fn`` returns, shown; or the exception."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self.show(fn())
        except Exception as error:
            return Raised(error)


class Raised:
    """An exception as an observation. Equality is that of ``agree``."""

    def __init__(self, error: BaseException) -> None:
        self.kind = RecursionError if isinstance(error, RecursionError) else type(error)
        self.text = str(error.args[0]) if isinstance(error, KeyError) else str(error)

    def __repr__(self) -> str:
        return f"{self.kind.__name__}({self.text!r})"


# The load-bearing phrases of messages; what lies between the groups (names of types) differs
# between libraries.
PHRASES = tuple(
    re.compile(p, re.DOTALL)
    for p in (
        r"('[^']*' object has no attribute '.*')",
        r"(cannot assign ')[^']*(' as (?:parameter|child module|buffer) '.*' \(torch\.nn\..* "
        r"expected\))",
        r"(cannot assign ')[^']*(' object to (?:parameter|buffer) '.*' \(torch.* required\))",
        r"(cannot assign \w+ before Module\.__init__\(\) call)",
        r"(attribute '.*' already exists)",
        r"((?:parameter|buffer) name can't .*)",
        r"(module name can't contain \"\.\", got: .*)",
        r"(module name can't be empty string \"\")",
        r"(is not a Module subclass)",
        r"(has no attribute `.*`)",
        r"(`.*` is not an nn\.(?:Module|Parameter))",
        r"(`.*` is not a buffer)",
        r"(Cannot assign non-leaf Tensor to parameter '.*')",
        r"(bad getter)",
    )
)


def agree(oracle: Any, got: Any) -> bool:
    """Whether two observations are the same; a message must contain the phrases of the oracle's."""
    if isinstance(oracle, Raised) or isinstance(got, Raised):
        if not (isinstance(oracle, Raised) and isinstance(got, Raised)):
            return False
        if oracle.kind is not got.kind:
            return False
        for phrase in PHRASES:
            if found := phrase.search(oracle.text):
                return all(part in got.text for part in found.groups())
        return True
    if isinstance(oracle, list) and isinstance(got, list):
        return len(oracle) == len(got) and all(map(agree, oracle, got))
    return type(oracle) is type(got) and bool(oracle == got)


# -- edits -----------------------------------------------------------------------------------------


def edits(seed: int, count: int, modules: int = 7, expose: bool | None = None) -> Iterator[Edit]:
    """A stream of random edits. ``expose`` allows edits through ``__dict__`` (by default: odd seeds
    do).
    """
    rng = random.Random(seed * 7919 + 1)
    expose = seed % 2 == 1 if expose is None else expose
    kinds = {"setattr": 14, "delattr": 4, "parameter": 2, "buffer": 3, "module": 2, "move": 3}
    kinds |= {"direct": 3, "direct_del": 2, "rebind": 1, "persist": 1, "clear": 1, "train": 1}
    if expose:
        kinds |= {"dict_set": 2, "dict_del": 2, "dict_rebind": 1}
    seen = ["m1", "p0", "p1", "b0", "plain", "reserved", "nothing"]
    for _ in range(count):
        pool = rng.choices((NAMES, ODD_NAMES, seen), (6, 2, 4))[0]
        kind = rng.choices(VALUE_KINDS, VALUE_WEIGHTS)[0]
        yield Edit(
            rng.choices(list(kinds), list(kinds.values()))[0],
            rng.randrange(modules),
            rng.choice(pool),
            Ref(kind, rng.randrange(1000)),
            rng.randrange(1000),
        )


def reaches(module: Any, target: Any) -> bool:
    """Whether ``target`` is ``module`` or below it; reads the registries only."""
    todo, seen = [module], set()
    while todo:
        m = todo.pop()
        if m is target:
            return True
        if id(m) not in seen:
            seen.add(id(m))
            todo += [c for c in m._modules.values() if hasattr(c, "_modules")]
    return False


def has_cycle(module: Any) -> bool:
    return any(
        reaches(c, m) for m in module.modules() for c in m._modules.values() if c is not None
    )


def aim(world: World, edit: Edit) -> Edit:
    """The edit, two times in three on a name that its module has: random names would mostly
    miss.
    """
    module = world.modules[edit.module]
    held = list(module._parameters) + list(module._buffers) + list(module._modules)
    if edit.what == "direct_del":
        held = list(getattr(module, REGISTRIES[edit.extra % 3]))
    elif edit.what == "dict_del":
        held = [k for k in module.__dict__ if k not in INTERNAL_KEYS]
    elif edit.what not in ("setattr", "delattr", "move", "buffer", "parameter"):
        return edit
    if not held or edit.extra % 7 > 4:
        return edit
    return edit._replace(name=held[edit.extra // 3 % len(held)])


def skipped(world: World, edit: Edit, cycles: bool = False) -> bool:
    """Edits left out: those whose failure torch leaves half done (docs/compat.md), and cycles
    unless wanted.
    """
    module, value, name = world.modules[edit.module], world.value(edit.value), edit.name
    if edit.what in ("setattr", "move") and isinstance(value, world.impl.nn.Parameter):
        held = name in vars(module) or name in module._buffers or name in module._modules
        if held and ("." in name or name == "" or hasattr(type(module), name)):
            return True
    if edit.what in ("direct", "dict_set") and edit.value.kind in ("int", "list"):
        return edit.what == "direct" and edit.extra % 3 == 2  # a child that is no module
    if edit.what == "direct" and edit.extra % 3 == 2 and edit.value.kind not in ("module", "none"):
        return True
    if edit.value.kind == "module" and not cycles:
        return reaches(value, module)
    if edit.what == "train" or edit.what == "dict_set" and name == "training":
        return has_cycle(module)
    return False


def apply_edit(world: World, edit: Edit) -> Any:
    """Does the edit; gives what it returned or raised."""
    module, value, name = world.modules[edit.module], world.value(edit.value), edit.name
    other = world.modules[edit.extra % world.size]
    registry = REGISTRIES[edit.extra % 3]

    def rebind() -> None:
        new = (dict, OrderedDict)[edit.extra // 3 % 2](getattr(module, registry))
        if new and edit.extra % 2:
            first = next(iter(new))
            new[first] = new.pop(first)
        setattr(module, registry, new)

    def move() -> None:
        setattr(other, name, value)
        delattr(module, name)

    def replace_in_dict() -> None:
        module.__dict__[registry] = dict(reversed(list(module.__dict__[registry].items())))

    def persist() -> None:
        flags = module._non_persistent_buffers_set
        (flags.add if edit.extra % 2 else flags.discard)(name)

    actions: dict[str, Callable[[], Any]] = {
        "setattr": lambda: setattr(module, name, value),
        "delattr": lambda: delattr(module, name),
        "parameter": lambda: module.register_parameter(name, value),
        "buffer": lambda: module.register_buffer(name, value, edit.extra % 2 == 0),
        "module": lambda: module.add_module(name, value),
        "move": move,
        "direct": lambda: getattr(module, registry).__setitem__(name, value),
        "direct_del": lambda: getattr(module, registry).__delitem__(name),
        "rebind": rebind,
        "persist": persist,
        "clear": lambda: edit.extra % 17 == 0 and getattr(module, registry).clear(),
        "train": lambda: module.train(edit.extra % 2 == 0),
        "dict_set": lambda: module.__dict__.__setitem__(name, value),
        "dict_del": lambda: module.__dict__.__delitem__(name),
        "dict_rebind": replace_in_dict,
    }
    return world.attempt(actions[edit.what])


# -- observations ----------------------------------------------------------------------------------


def observe(world: World, look_at_dict: bool = False) -> dict[str, Any]:
    """Every public observation of every module in the pool, by a readable label."""
    seen: dict[str, Any] = {}
    for i, module in enumerate(world.modules):
        for label, fn in _observations(module, look_at_dict):
            seen[f"modules[{i}].{label}"] = world.attempt(fn)
    seen["deepcopy"] = world.attempt(lambda: _outline(copy.deepcopy(world.root)))
    return seen


def _outline(module: Any) -> list[Any]:
    return [list(module.named_parameters()), list(module.named_buffers()), repr(module)]


def _names_or_none(method: Callable[[], Any]) -> list[str]:
    try:
        return names(method())
    except Exception:  # an odd value in a registry; the walk itself is observed elsewhere
        return []


def _observations(m: Any, look_at_dict: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    cyclic = has_cycle(m)
    for registry in REGISTRIES:
        yield registry, lambda r=registry: list(getattr(m, r).items())
    yield "_non_persistent_buffers_set", lambda: sorted(m._non_persistent_buffers_set)
    yield "training", lambda: m.training
    for method in ("named_parameters", "named_buffers"):
        f = getattr(m, method)
        yield method, lambda f=f: list(f())
        yield f"{method}(recurse=False)", lambda f=f: list(f(recurse=False))
        yield f"{method}('pre')", lambda f=f: list(f("pre"))
        if not cyclic:
            yield f"{method}(all)", lambda f=f: list(f(remove_duplicate=False))
    for method in ("parameters", "buffers", "children", "named_children", "modules"):
        yield method, lambda method=method: list(getattr(m, method)())
    yield "named_modules", lambda: list(m.named_modules())
    yield "named_modules('pre')", lambda: list(m.named_modules(prefix="pre"))
    if not cyclic:
        yield "named_modules(all)", lambda: list(m.named_modules(remove_duplicate=False))
        yield "repr", lambda: repr(m)
        yield "state_dict", lambda: [list(m.state_dict()), list(m.state_dict()._metadata.items())]
    else:
        yield "repr (cycle)", lambda: repr(m)
    for name in (*NAMES, *ODD_NAMES, "p0", "b0", "m1", "plain"):
        yield f"getattr {name!r}", lambda n=name: getattr(m, n)
    for path in (*_names_or_none(m.named_modules), "a.b", "m1..a", ".", "plain"):
        yield f"get_submodule({path!r})", lambda p=path: m.get_submodule(p)
    for path in (*_names_or_none(m.named_parameters)[:5], "reserved", "b0", "a"):
        yield f"get_parameter({path!r})", lambda p=path: m.get_parameter(p)
    for path in (*_names_or_none(m.named_buffers)[:5], "p0", "a"):
        yield f"get_buffer({path!r})", lambda p=path: m.get_buffer(p)
    yield "dir", lambda: sorted((Counter(dir(m)) - Counter(dir(type(m)))).elements())
    if look_at_dict:
        yield "__dict__", lambda: [k for k in m.__dict__ if k not in INTERNAL_KEYS]
        yield (
            "__dict__ values",
            lambda: [v for k, v in m.__dict__.items() if k not in INTERNAL_KEYS],
        )
        yield "internal keys", lambda: [k for k in m.__dict__ if k in INTERNAL_KEYS]


def compare(oracle: World, got: World, look_at_dict: bool = False) -> None:
    """Asserts that both worlds show the same."""
    expected, seen = observe(oracle, look_at_dict), observe(got, look_at_dict)
    assert list(expected) == list(seen), f"{got!r}: other observations than {oracle!r}"
    for label, value in expected.items():
        assert agree(value, seen[label]), (
            f"{got!r}: {label}\n  expected {value!r}\n  got      {seen[label]!r}"
        )
