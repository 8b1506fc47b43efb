# SPDX-License-Identifier: BSD-3-Clause
"""Operations on whole trees: walks, conversions, modes, repr."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import re

from helpers.support import future

from .kinds import (
    BOOL,
    MODULE,
    NAME,
    PREFIX,
    WALK,
    WALK_SLOT,
    Choice,
    Inner,
    Number,
    Options,
    Slot,
    Value,
)
from .observe import REGISTRIES, first
from .program import operation

FLAGS = (True, False)
WALKS = {
    "parameters": {"recurse": FLAGS},
    "buffers": {"recurse": FLAGS},
    "named_parameters": {"prefix": PREFIX, "recurse": FLAGS, "remove_duplicate": FLAGS},
    "named_buffers": {"prefix": PREFIX, "recurse": FLAGS, "remove_duplicate": FLAGS},
    "children": {},
    "named_children": {},
    "modules": {"remove_duplicate": FLAGS},
    "named_modules": {"prefix": PREFIX, "remove_duplicate": FLAGS},
}
METHOD = Choice(*WALKS)
CONVERSIONS = ("float", "double", "half", "bfloat16", "cpu", "share_memory")
DTYPES = ("float32", "float64", "float16", "int64", "complex64", "bool")


class WalkOptions(Options):
    """Arguments of the walk that ``method`` names."""

    def draw(self, rng, world, so_far):
        values = WALKS[so_far["method"]]
        return {k: rng.choice(v) for k, v in values.items() if rng.random() < 0.5}


# -- walks ---------------------------------------------------------------------------------------


@operation("walks", 6)
def walk(w, m=MODULE, method=METHOD, options=WalkOptions()):
    return first(getattr(m, method)(**options))


@operation("walks", 2)
def walk_by_position(
    w,
    m=MODULE,
    method=METHOD,
    args=Choice(("p",), ("p", False), ("p", True, False), (False,), (None, "p")),
):
    return first(getattr(m, method)(*args))


@operation("walks", 1)
def walk_with_memo(
    w, m=MODULE, other=MODULE, options=Options(prefix=PREFIX, remove_duplicate=FLAGS)
):
    memo = {other}
    found = first(m.named_modules(memo, **options))
    return [found, len(memo)]


@operation("walks", 1)
def walk_members(
    w,
    m=MODULE,
    options=Options(prefix=PREFIX, recurse=FLAGS, remove_duplicate=FLAGS),
    what=Number(0, 2),
):
    members = (
        lambda module: module._parameters.items(),
        lambda module: [("x", w.params[0]), ("y", w.params[0]), ("z", None), ("m", module)],
        lambda module: {"only": w.tensors[0]}.items(),
    )
    return first(m._named_members(members[what], **options))


@operation("walks", 3)
def begin_walk(w, slot=WALK_SLOT, m=MODULE, method=METHOD, options=WalkOptions()):
    w.walks[slot] = getattr(m, method)(**options)
    return inspect.isgenerator(w.walks[slot])


@operation("walks", 6)
def go_on_walking(w, it=WALK, count=Number(1, 4)):
    return None if it is None else first(it, count)


@operation("walks", 1)
def close_walk(w, it=WALK, slot=Slot("walks")):
    return None if it is None else [it.close(), first(it, 2)]


@operation("walks", 3)
def walk_while_it_changes(
    w, m=MODULE, method=METHOD, options=WalkOptions(), inner=Inner(), at=Number(0, 4)
):
    seen = []
    for i, item in enumerate(getattr(m, method)(**options)):
        seen.append(item)
        if i == at:
            inner()
        if i > 60:
            break
    return seen


@operation("walks", 2)
def show_repr(w, m=MODULE):
    return show_repr_of(m)


def show_repr_of(m):
    """The text without the names of libraries."""
    return re.sub(r"\b(?:torch|modtree)\.", "", repr(m))


# -- modes and gradients -------------------------------------------------------------------------


@operation("whole", 3)
def train(w, m=MODULE, mode=Choice(True, False, None, 1, "eval"), give=BOOL):
    if mode == "eval":
        return m.eval()
    return m.train(mode) if give else m.train()


@operation("whole", 2)
def requires_grad(w, m=MODULE, options=Options(requires_grad=(True, False, False, None, "text"))):
    return m.requires_grad_(**options)


@operation("whole", 2)
def zero_grad(w, m=MODULE, options=Options(set_to_none=FLAGS)):
    return m.zero_grad(**options)


# -- apply and conversions -----------------------------------------------------------------------


@operation("whole", 3)
def apply(w, m=MODULE, inner=Inner(), at=Number(0, 6), fails=Number(-6, 5)):
    seen = []

    def visit(module):
        seen.append(module)
        w.event("visit", module)
        if len(seen) == at:
            inner()
        if len(seen) == fails:
            raise ValueError("visit")

    return [m.apply(visit), len(seen)]


@operation("whole", 3)
def apply_to_tensors(
    w,
    m=MODULE,
    what=Choice("same", "double", "clone", "add", "raise", "grow", "int"),
    at=Number(0, 5),
    options=Options(recurse=FLAGS),
):
    calls = []

    def fn(t):
        calls.append(tuple(t.shape))
        if what == "raise" and len(calls) == at:
            raise ValueError("fn")
        if what == "int" and len(calls) == at:
            return t.to(w.impl.lib.int64)
        if what == "grow" and len(calls) == at:
            return w.impl.lib.cat([t.reshape(-1), t.reshape(-1)])
        made = {"double": lambda: t.to(w.impl.lib.float64), "clone": t.clone, "add": lambda: t + t}
        return made.get(what, lambda: t)()

    out = m._apply(fn, **options)
    return [out, calls]


@operation("whole", 4)
def convert(w, m=MODULE, method=Choice(*CONVERSIONS)):
    return getattr(m, method)()


@operation("whole", 2)
def convert_type(w, m=MODULE, dtype=Choice(*DTYPES)):
    return m.type(getattr(w.impl.lib, dtype))


@operation("whole", 5)
def convert_to(
    w,
    m=MODULE,
    what=Choice(*DTYPES, "cpu", "meta", "tensor", "nothing", "keyword", "bad", "copy", "both"),
    which=Number(0, 5),
):
    lib = w.impl.lib
    if what in DTYPES:
        return m.to(getattr(lib, what))
    calls = {
        "cpu": lambda: m.to("cpu"),
        "meta": lambda: m.to("meta"),
        "tensor": lambda: m.to(w.tensors[which]),
        "nothing": lambda: m.to(),
        "keyword": lambda: m.to(dtype=lib.float64, non_blocking=True),
        "bad": lambda: m.to([1]),
        "copy": lambda: m.to(lib.float32, copy=True),
        "both": lambda: m.to("cpu", lib.float32),
    }
    return calls[what]()


@operation("whole", 1)
def to_meta_and_back(w, m=MODULE, options=Options(recurse=FLAGS)):
    m.to(device="meta")
    try:
        m.to_empty(device="cpu", **options)
    finally:
        fill_with_zeros(w, m)
    return m


def fill_with_zeros(w, m):
    """The tensors of the registries, whatever walks the class has: what they hold is random."""
    tables = (getattr(module, name, {}) for module in w.below(m) for name in REGISTRIES[:2])
    tensors = [t for table in tables for t in table.values() if isinstance(t, w.impl.lib.Tensor)]
    with w.impl.lib.no_grad():
        for t in tensors:
            for values in (t, t.grad) if t.is_leaf else (t,):
                if values is not None and values.device.type == "cpu":
                    values.zero_()


@contextlib.contextmanager
def mode(w, name):
    """One of the process-wide modes of conversion."""
    setter = getattr(future(w.impl), f"set_{name}_module_params_on_conversion")
    setter(True)
    try:
        yield
    finally:
        setter(False)


@operation("whole", 2)
def convert_in_mode(
    w, m=MODULE, name=Choice("overwrite", "swap"), method=Choice("float", "double", "cpu", "half")
):
    with mode(w, name):
        return getattr(m, method)()


@operation("whole", 1)
def functional_call(
    w,
    m=MODULE,
    name=NAME,
    value=Value(params=5, tensors=5, none=1, odd=1),
    options=Options(strict=FLAGS, tie_weights=FLAGS),
):
    func = importlib.import_module("torch.func" if w.impl.is_torch else "modtree.func")
    before = first(m.named_parameters())
    args = (w.impl.lib.ones(2),)
    if name in m._modules:  # "assigning a Parameter that is refused", in the place of a None
        return None
    out = func.functional_call(m, {name: value}, args, **options)
    return [out, before]


# -- a look from all sides -----------------------------------------------------------------------


@operation("whole", 1)
def look_closely(w, m=MODULE):
    """Every walk, path and name of a module; what programs end with."""

    def attempt(fn):
        try:
            return fn()
        except Exception as error:
            kind = AttributeError if isinstance(error, AttributeError) else type(error)
            return "raised", kind.__name__

    seen = {name: attempt(lambda n=name: first(getattr(m, n)())) for name in WALKS}
    for name in ("named_parameters", "named_buffers", "named_modules"):
        seen[f"{name} again"] = attempt(
            lambda n=name: first(getattr(m, n)(prefix="p", remove_duplicate=False))
        )
    for path, _ in (
        pair for pair in seen["named_modules"] if isinstance(pair, tuple) and len(pair) == 2
    ):
        seen[f"path {path}"] = attempt(lambda p=path: m.get_submodule(p))
    seen["repr"] = attempt(lambda: show_repr_of(m))
    seen["state_dict"] = attempt(m.state_dict)
    seen["copy"] = attempt(lambda: copy.deepcopy(m))
    return seen
