# SPDX-License-Identifier: BSD-3-Clause
"""Random subclasses: overrides that note their call, pass it on, fail, change what comes back, or
run a step on the way.
"""

from __future__ import annotations

import random
from typing import Any

from .kinds import BOOL, CLASS, CLASS_SLOT, MODULE, MODULE_SLOT, Choice, Inner, Number, Options
from .observe import INTERNAL
from .program import Kind, operation
from .world import Stop

# Methods whose overrides the module system has to respect, with what may be done beyond passing on.
METHODS: dict[str, tuple[str, ...]] = {
    "train": ("self",),
    "eval": ("self",),
    "apply": ("self",),
    "_apply": ("self", "self"),
    "requires_grad_": ("self",),
    "zero_grad": (),
    "share_memory": ("self",),
    "to": ("self",),
    "float": ("self",),
    "named_parameters": ("filter", "list", "twice"),
    "named_buffers": ("filter", "list"),
    "named_modules": ("filter", "list"),
    "_named_members": ("filter", "list"),
    "parameters": ("filter", "list"),
    "buffers": ("filter",),
    "modules": ("filter",),
    "children": ("filter",),
    "named_children": ("filter", "list"),
    "state_dict": ("entry",),
    "load_state_dict": (),
    "_save_to_state_dict": ("rename", "entry"),
    "_load_from_state_dict": ("rename", "error", "missing"),
    "get_extra_state": ("state",),
    "set_extra_state": ("state",),
    "extra_repr": ("text", "lines"),
    "_get_name": ("text",),
    "__repr__": ("text",),
    "__dir__": ("list",),
    "__setattr__": (),
    "__delattr__": (),
    "__getattr__": ("fallback", "raise"),
    "__getattribute__": (),
    "register_parameter": (),
    "register_buffer": (),
    "add_module": (),
    "get_submodule": (),
    "__call__": (),
    "_call_impl": (),
    "__getstate__": ("drop",),
    "__setstate__": (),
    "__eq__": ("equal",),
    "__len__": ("zero",),
    "__bool__": ("zero",),
    "forward": ("identity", "scale", "children", "tuple", "nested", "keyword", "fresh"),
}
LIKELY = (
    "forward",
    "train",
    "_apply",
    "_load_from_state_dict",
    "_save_to_state_dict",
    "get_extra_state",
    "set_extra_state",
    "__getattr__",
    "__setattr__",
)
PASSING = ("super", "super", "super", "step", "after", "raise", "none")
# How often these are asked is nobody's business: they leave no trace and change nothing, except by
# what they return.
QUIET = ("_get_name", "__getattr__", "__getattribute__", "__eq__", "__bool__", "__len__")
UNSEEN = (*INTERNAL, "_size", "_keys")  # what the module system writes for itself
ATTRIBUTES = ("klass", "ro", "rw", "bad", "lost", "method", "version", "static", "slots", "a")
BASES = (
    "class",
    "class",
    "mixin before",
    "mixin after",
    "Sequential",
    "ModuleList",
    "ModuleDict",
    "ParameterList",
    "ParameterDict",
)


class Members(Kind):
    """Members of a class: rows of (name, variant, data)."""

    def __init__(self, most: int = 4) -> None:
        self.most = most

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        rows = []
        for _ in range(rng.randint(1, self.most)):
            if rng.random() < 0.2:
                rows.append((rng.choice(ATTRIBUTES), "attribute", None))
                continue
            name = rng.choice(LIKELY) if rng.random() < 0.4 else rng.choice(list(METHODS))
            own, passing = METHODS[name], ("super",) if name in QUIET else PASSING
            variant = rng.choice(own) if own and rng.random() < 0.5 else rng.choice(passing)
            if (
                name == "__getattribute__"
            ):  # of a module that does not even have a __dict__ nothing can be seen
                variant = "super"
            inner = variant in ("step", "after")
            rows.append(
                (name, variant, Inner().draw(rng, world, so_far) if inner else rng.randrange(3))
            )
        return rows

    def find(self, world: Any, data: Any, so_far: dict[str, Any]) -> Any:
        return [
            (n, v, Inner().find(world, d, so_far) if v in ("step", "after") else d)
            for n, v, d in data
        ]


def make_member(w: Any, cls: list[type], name: str, variant: str, data: Any) -> Any:
    """The override ``name``; ``cls`` will hold the class that ``super`` starts at."""
    if variant == "attribute":
        return make_attribute(w, name)
    label = w.label(name)

    def method(self, *args, **kwargs):
        if name not in QUIET and not (name == "__setattr__" and args[0] in UNSEEN):
            w.event(label, None if name in ("__setattr__", "__delattr__") else self, args, kwargs)

        def inherited(*a, **k):
            return getattr(super(cls[0], self), name)(*a, **k)

        return answer(w, label, name, variant, data, self, inherited, args, kwargs)

    method.__name__ = name
    return method


def answer(w, label, name, variant, data, self, inherited, args, kwargs):
    if name == "__getattr__" and args[0][:2] == "__":  # what copy and pickle ask for
        return inherited(*args)
    if variant == "raise":
        raise (AttributeError if name == "__getattr__" else Stop)(label)
    if variant == "none":
        return None
    if variant == "step":
        data()
        return inherited(*args, **kwargs)
    if variant == "after":
        result = inherited(*args, **kwargs)
        data()
        return result
    if variant == "super":
        return inherited(*args, **kwargs)
    if name == "forward":
        return forward(w, variant, self, args, kwargs)
    return SPECIAL[variant](w, label, self, inherited, args, kwargs)


def forward(w, variant, self, args, kwargs):
    x = args[0] if args else None
    if variant == "identity":
        return x
    if variant == "keyword":
        return [x, sorted(kwargs)]
    if variant == "fresh":
        return w.impl.lib.ones(2)
    if variant == "tuple":
        return args
    if variant == "nested":
        return {"out": [x]}
    if variant == "children":
        for child in self.children():
            x = child(x)
        return x
    if not isinstance(x, w.impl.lib.Tensor):
        return x
    for p in self.parameters(recurse=False):
        if tuple(p.shape) in ((), (1,), (2,)):
            x = x * p
    return x


def fallback(w, label, self, inherited, args, kwargs):
    if args[0].startswith("_") or args[0] in ("training", "w", "h"):
        return inherited(*args)
    return label


def rename(w, label, self, inherited, args, kwargs):
    """Saving puts "old" before names; loading takes it away."""
    first, prefix, *rest = args
    if len(args) == 3:
        own: dict[str, Any] = {}
        inherited(own, prefix, *rest)
        for key, value in own.items():
            first[prefix + "old" + key[len(prefix) :]] = value
        return None
    for key in [k for k in first if k.startswith(prefix + "old")]:
        first[prefix + key[len(prefix) + 3 :]] = first.pop(key)
    return inherited(first, prefix, *rest)


def entry(w, label, self, inherited, args, kwargs):
    out = inherited(*args, **kwargs)
    target = args[0] if len(args) == 3 else out
    if target is not None:
        target[(args[1] if len(args) == 3 else kwargs.get("prefix", "")) + "more"] = 1
    return out


def error(w, label, self, inherited, args, kwargs):
    args[-1].append(label)
    return inherited(*args, **kwargs)


def missing(w, label, self, inherited, args, kwargs):
    args[-3].append(args[1] + label)


def state(w, label, self, inherited, args, kwargs):
    """Extra state that is kept in the instance."""
    if args:
        self.state = args[0]
        return None
    return getattr(self, "state", 0)


def without_state(w, label, self, inherited, args, kwargs):
    found = inherited()
    found.pop("plain", None)
    return found


SPECIAL = {
    "self": lambda w, label, self, inherited, args, kwargs: self,
    "filter": lambda w, label, self, inherited, args, kwargs: (
        item for i, item in enumerate(inherited(*args, **kwargs)) if i != 1
    ),
    "list": lambda w, label, self, inherited, args, kwargs: list(inherited(*args, **kwargs)),
    "twice": lambda w, label, self, inherited, args, kwargs: list(inherited(*args, **kwargs)) * 2,
    "entry": entry,
    "rename": rename,
    "error": error,
    "missing": missing,
    "state": state,
    "text": lambda w, label, self, inherited, args, kwargs: label,
    "lines": lambda w, label, self, inherited, args, kwargs: f"{label}\n\nlines",
    "fallback": fallback,
    "drop": without_state,
    "equal": lambda w, label, self, inherited, args, kwargs: type(self) is type(args[0]),
    "zero": lambda w, label, self, inherited, args, kwargs: 0,
}


def make_attribute(w: Any, name: str) -> Any:
    def bad(self):
        raise ValueError("bad getter")

    def lost(self):
        raise AttributeError("lost getter")

    def get(self):
        return getattr(self, "rw_value", "unset")

    def put(self, value):
        object_setattr = w.impl.nn.Module.__setattr__
        object_setattr(self, "rw_value", value)

    made = {
        "ro": lambda: property(lambda self: "read only"),
        "rw": lambda: property(get, put),
        "bad": lambda: property(bad),
        "lost": lambda: property(lost),
        "method": lambda: lambda self: "method",
        "version": lambda: 7,
        "static": lambda: staticmethod(lambda *args, **kwargs: ("static", args)),
        "slots": lambda: ("slot",),
        "a": lambda: property(lambda self: "a of the class"),
    }
    return made.get(name, lambda: "class attribute")()


NAMES_IN_CLASS = {"version": "_version", "static": "forward", "slots": "__slots__"}


class Mixin:
    """A plain class beside Module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mixed = True

    def method(self) -> str:
        return "mixin"


def add_members(w, body, cls, members):
    for name, variant, data in members:
        body[NAMES_IN_CLASS.get(name, name)] = make_member(w, cls, name, variant, data)
    if "__eq__" in body:
        body["__hash__"] = lambda self: 1
    return body


@operation("classes", 6)
def new_class(
    w, slot=CLASS_SLOT, base=CLASS, kind=Choice(*BASES), members=Members(), super_init=Number(0, 8)
):
    nn = w.impl.nn
    base = base or nn.Module
    if kind == "mixin before":
        bases = (Mixin, base)
    elif kind == "mixin after":
        bases = (base, Mixin)
    elif kind == "class":
        bases = (base,)
    else:
        bases = (getattr(nn, kind),)
    cls: list[type] = []
    body = {"__module__": __name__, "__qualname__": f"Class{slot}"}
    if super_init == 0:
        body["call_super_init"] = True
    body = add_members(w, body, cls, members)
    cls.append(type(f"Class{slot}", bases, body))
    w.classes[slot] = cls[0]


@operation("classes", 8)
def instantiate(
    w,
    slot=MODULE_SLOT,
    cls=CLASS,
    args=Choice((), (), (), (), (1,)),
    options=Options(0.05, bogus=(1,)),
):
    return w.keep((cls or w.impl.nn.Module)(*args, **options), slot)


@operation("classes", 2)
def patch_class(w, cls=CLASS, members=Members(1), undo=BOOL):
    """A class that changes while it has instances; the base class stays as it is."""
    if cls is None or cls is w.impl.nn.Module:
        return
    holder = [cls]
    for name, member in add_members(w, {}, holder, members).items():
        if name == "__slots__":
            continue
        if undo and name in vars(cls):
            delattr(cls, name)
        else:
            setattr(cls, name, member)


@operation("classes", 2)
def patch_instance(w, m=MODULE, members=Members(1)):
    """Methods in the instance: honoured where Python or torch look there."""
    for name, variant, _ in members:
        if variant in ("raise", "none", "text", "self", "zero") and name not in (
            "__getattribute__",
            "__setattr__",
        ):
            label = w.label(name)

            def method(*args, name=name, variant=variant, label=label, **kwargs):
                w.event(label, args, kwargs)
                if variant == "raise":
                    raise Stop(label)
                return {"none": None, "text": label, "self": m, "zero": 0}[variant]

            method.__name__ = name
            setattr(m, name, method)


@operation("classes", 1)
def change_class(w, m=MODULE, cls=CLASS):
    m.__class__ = cls or w.impl.nn.Module
