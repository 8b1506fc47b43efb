# SPDX-License-Identifier: BSD-3-Clause
"""Operations on state dicts: making, damaging and loading them, and the hooks of both."""

from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType
from typing import Any

from .kinds import (
    HANDLE_SLOT,
    MODULE,
    NAME,
    PREFIX,
    SAVED,
    SAVED_SLOT,
    Behaviour,
    Choice,
    Number,
    Options,
)
from .mending import nothing_written, unmarked
from .program import operation
from .world import Stop

FLAGS = (True, False)


@operation("state", 5)
def save(w, m=MODULE, slot=SAVED_SLOT, options=Options(prefix=PREFIX, keep_vars=FLAGS)):
    w.saved[slot] = m.state_dict(**options)
    return w.saved[slot]


@operation("state", 1)
def save_by_position(w, m=MODULE, args=Choice((None,), (None, "p."), (None, "p.", True), (3,))):
    destination = OrderedDict() if args[0] is None else args[0]
    return m.state_dict(destination, *args[1:])


@operation("state", 2)
def save_into(
    w,
    m=MODULE,
    sd=SAVED,
    kind=Choice("dict", "ordered", "saved"),
    options=Options(prefix=PREFIX, keep_vars=FLAGS),
):
    destination = {"dict": {}, "ordered": OrderedDict(first=1), "saved": sd}[kind]
    if destination is None:
        return None
    out = m.state_dict(destination=destination, **options)
    return [out, out is destination]


@operation("state", 3)
def edit_saved(
    w,
    sd=SAVED,
    what=Number(0, 13),
    which=Number(0, 9),
    name=NAME,
    shape=Choice((), (1,), (2,), (1, 2), (0,), (3,)),
):
    """Damage of the kinds that checkpoints have."""
    if sd is None:
        return None
    lib, keys = w.impl.lib, list(sd)
    key = keys[which % len(keys)] if keys else name
    prefix = key.rpartition(".")[0]
    value = sd.get(key)
    metadata = getattr(sd, "_metadata", None)
    if what == 0:
        sd.pop(key, None)
    elif what == 1:
        sd[f"{prefix}.{name}" if prefix else name] = lib.zeros(shape)
    elif what == 2:
        sd[key + ".deeper"] = lib.zeros(1)
    elif what == 3:
        sd[key] = lib.full(shape, 5.0)
    elif what == 4:
        sd[key] = (3, None, "text", [1.0])[which % 4]
    elif what == 5:
        odd = (".", "", "..", "a.", ".a", "a.b.c", "_extra_state", "a._extra_state")
        sd[odd[which % len(odd)]] = 5
    elif what == 6 and keys and isinstance(sd, OrderedDict):
        sd.move_to_end(key, last=which % 2 == 0)
    elif what == 7 and isinstance(value, lib.Tensor):
        sd[key] = value.to((lib.float64, lib.int32, lib.float16)[which % 3])
    elif what == 8 and keys:
        sd["old" + key] = sd.pop(key)
    elif what == 9 and metadata:
        metadata.pop(list(metadata)[which % len(metadata)])
    elif what == 10 and metadata:
        metadata[list(metadata)[which % len(metadata)]]["version"] = (None, 0, 7)[which % 3]
    elif what == 11 and isinstance(value, lib.Tensor):
        sd[key] = w.impl.nn.Parameter(value.detach(), requires_grad=False)
    elif what == 12 and isinstance(value, lib.Tensor) and not value.shape:
        sd[key] = value.reshape(1)
    elif what == 13:
        sd[name] = w.tensors[which % len(w.tensors)]
    return sd


@operation("state", 9)
def load(
    w,
    m=MODULE,
    sd=SAVED,
    form=Choice("same", "same", "same", "dict", "proxy", "other"),
    options=Options(strict=FLAGS, assign=FLAGS),
):
    if sd is None and form != "other":
        return None
    given: Any = {"dict": dict, "proxy": MappingProxyType, "other": lambda _: [3]}.get(
        form, lambda s: s
    )(sd)
    with nothing_written(w, m):
        result = m.load_state_dict(unmarked(w, given, options), **options)
    return [result, repr(result)]


@operation("state", 4)
def save_and_load(w, m=MODULE, other=MODULE, options=Options(strict=FLAGS, assign=FLAGS)):
    sd = unmarked(w, other.state_dict(), options)
    with nothing_written(w, m):
        return m.load_state_dict(sd, **options)


# -- hooks ---------------------------------------------------------------------------------------


def behave(w, label, behaviour, result=None):
    """The part of a hook that all kinds share: gives what it returns."""
    action, what = behaviour
    if action == "fail":
        raise Stop(label)
    if action == "step":
        what()
    elif action == "remove" and w.handles[what] is not None:
        w.handles[what].remove()
    elif action == "odd":
        return what
    elif action == "replace":
        return result
    return None


@operation("state", 3)
def hook_saving(
    w,
    m=MODULE,
    slot=HANDLE_SLOT,
    method=Choice(
        "register_state_dict_pre_hook", "register_state_dict_post_hook", "_register_state_dict_hook"
    ),
    behaviour=Behaviour("step", "fail", "odd", "remove", "replace", "note"),
):
    label = w.label("save")

    def hook(module, *rest):
        w.event(label, module, rest)
        if behaviour[0] == "note" and len(rest) == 3:
            rest[2]["noted"] = label
        changed = {"changed": rest[0]} if len(rest) == 3 else None
        return behave(w, label, behaviour, changed)

    hook.__name__ = label
    w.handles[slot] = getattr(m, method)(hook)


@operation("state", 3)
def hook_loading(
    w,
    m=MODULE,
    slot=HANDLE_SLOT,
    method=Choice(
        "register_load_state_dict_pre_hook",
        "_register_load_state_dict_pre_hook",
        "register_load_state_dict_post_hook",
    ),
    behaviour=Behaviour("step", "fail", "odd", "remove", "rename", "clear", "error"),
    options=Options(with_module=FLAGS),
):
    label = w.label("load")

    def hook(*args):
        w.event(label, args)
        action, what = behaviour
        if len(args) == 2:
            if action == "clear":
                args[1].missing_keys.clear()
                args[1].unexpected_keys.clear()
            elif action == "error":
                args[1].missing_keys.append(label)
        else:
            sd, prefix, errors = args[-7], args[-6], args[-1]
            if action == "rename":
                for key in [k for k in sd if k.startswith(prefix + "old")]:
                    sd[prefix + key[len(prefix) + 3 :]] = sd.pop(key)
            elif action == "clear":
                sd.clear()
            elif action == "error":
                errors.append(label)
        return behave(w, label, behaviour)

    hook.__name__ = label
    options = options if method.startswith("_") else {}
    w.handles[slot] = getattr(m, method)(hook, **options)
