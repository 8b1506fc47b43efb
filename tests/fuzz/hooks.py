# SPDX-License-Identifier: BSD-3-Clause
"""Operations that register hooks of calls, gradients and registration, take them away, and call
modules.
"""

from __future__ import annotations

from .kinds import (
    BOOL,
    HANDLE,
    HANDLE_SLOT,
    MODULE,
    Behaviour,
    Choice,
    Options,
)
from .program import operation
from .state import behave

FLAGS = (True, False)
FORWARD = Behaviour("replace", "replace", "odd", "step", "remove", "fail")
BACKWARD = Behaviour("replace", "odd", "step", "remove", "fail")


def call_hook(w, behaviour, with_kwargs=False, pre=False):
    label = w.label("pre" if pre else "post")

    def hook(module, *rest):
        w.event(label, module, rest)
        new = None
        if behaviour[0] == "replace" and pre:
            new = (rest[0], {**rest[1], "k": 1}) if with_kwargs else (*rest[0], None)
            if behaviour[1] == 0 and not with_kwargs:
                new = rest[0][0] if rest[0] else None
        elif behaviour[0] == "replace":
            new = (rest[-1], label) if behaviour[1] == 0 else rest[-1]
        return behave(w, label, behaviour, new)

    hook.__name__ = label
    return hook


@operation("hooks", 5)
def hook_forward(
    w,
    m=MODULE,
    slot=HANDLE_SLOT,
    behaviour=FORWARD,
    options=Options(prepend=FLAGS, with_kwargs=FLAGS, always_call=FLAGS),
):
    hook = call_hook(w, behaviour, options.get("with_kwargs", False))
    w.handles[slot] = m.register_forward_hook(hook, **options)


@operation("hooks", 4)
def hook_forward_pre(
    w,
    m=MODULE,
    slot=HANDLE_SLOT,
    behaviour=FORWARD,
    options=Options(prepend=FLAGS, with_kwargs=FLAGS),
):
    hook = call_hook(w, behaviour, options.get("with_kwargs", False), pre=True)
    w.handles[slot] = m.register_forward_pre_hook(hook, **options)


@operation("hooks", 2)
def hook_globally(
    w,
    slot=HANDLE_SLOT,
    behaviour=FORWARD,
    pre=BOOL,
    options=Options(with_kwargs=FLAGS, always_call=FLAGS),
):
    g = w.impl.module
    if pre:
        w.handles[slot] = g.register_module_forward_pre_hook(call_hook(w, behaviour, pre=True))
    else:
        hook = call_hook(w, behaviour, options.get("with_kwargs", False))
        w.handles[slot] = g.register_module_forward_hook(hook, **options)


@operation("hooks", 2)
def hook_registration(
    w,
    slot=HANDLE_SLOT,
    kind=Choice("buffer", "module", "parameter"),
    behaviour=Behaviour("replace", "step", "remove", "fail"),
):
    label = w.label("register")

    def hook(module, name, value):
        w.event(label, module, name, value)
        pools = {"buffer": w.tensors, "parameter": w.params, "module": w.modules}
        new = pools[kind][behaviour[1]] if behaviour[0] == "replace" else None
        if kind == "module" and not w.cycles and w.reaches(new, module):
            new = None
        return behave(w, label, behaviour, new)

    hook.__name__ = label
    w.handles[slot] = getattr(w.impl.module, f"register_module_{kind}_registration_hook")(hook)


def gradient_hook(w, behaviour):
    label = w.label("backward")

    def hook(module, *rest):
        w.event(label, module, rest)
        grads = rest[0]
        new = None
        if behaviour[0] == "replace":
            new = tuple(None if g is None else g + g for g in grads)
        return behave(w, label, behaviour, new)

    hook.__name__ = label
    return hook


@operation("backward", 4)
def hook_backward(
    w,
    m=MODULE,
    slot=HANDLE_SLOT,
    behaviour=BACKWARD,
    method=Choice(
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
        "register_full_backward_hook",
        "register_backward_hook",
    ),
    options=Options(prepend=FLAGS),
):
    options = {} if method == "register_backward_hook" else options
    w.handles[slot] = getattr(m, method)(gradient_hook(w, behaviour), **options)


@operation("backward", 1)
def hook_backward_globally(
    w,
    slot=HANDLE_SLOT,
    behaviour=BACKWARD,
    kind=Choice("full_backward_hook", "full_backward_pre_hook", "backward_hook"),
):
    register = getattr(w.impl.module, f"register_module_{kind}")
    w.handles[slot] = register(gradient_hook(w, behaviour))


@operation("hooks", 3)
def remove_hook(w, handle=HANDLE, twice=BOOL):
    if handle is None:
        return
    handle.remove()
    if twice:
        handle.remove()


@operation("hooks", 1)
def hook_in_context(w, m=MODULE, behaviour=FORWARD, fails=BOOL):
    with m.register_forward_hook(call_hook(w, behaviour)):
        return m(None) if fails else m(w.impl.lib.ones(2))


@operation("hooks", 1)
def list_backward_hooks(w, m=MODULE):
    return [m._get_backward_hooks(), m._get_backward_pre_hooks()]


@operation("rare", 1)
def register_bad_hooks(
    w,
    m=MODULE,
    method=Choice(
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_state_dict_pre_hook",
    ),
    args=Choice((), (None,), (3, True), (3, True, True)),
    options=Options(0.2, bogus=(1,)),
):
    getattr(m, method)(*args, **options)


# -- calls -----------------------------------------------------------------------------------------


def make_argument(w, kind):
    lib = w.impl.lib
    if kind == "tensor":
        return lib.full((2,), 2.0)
    if kind == "gradient":
        return lib.full((2,), 3.0, requires_grad=True)
    return {"none": None, "int": 3, "list": [1], "dict": {"a": 1}}[kind]


@operation("hooks", 8)
def call(
    w,
    m=MODULE,
    kinds=Choice(
        ("tensor",),
        ("gradient",),
        (),
        ("none", "int"),
        ("gradient", "tensor"),
        ("list",),
        ("dict",),
    ),
    options=Options(0.2, k=(1, None), x=(2,)),
):
    return m(*(make_argument(w, k) for k in kinds), **options)


@operation("backward", 8)
def backward(
    w,
    m=MODULE,
    kinds=Choice(("gradient",), ("tensor",), ("gradient", "gradient"), ("none",)),
    options=Options(0.1, k=(1,)),
    twice=BOOL,
):
    """A call, and the gradients of its result."""
    args = [make_argument(w, k) for k in kinds]
    out = m(*args, **options)
    leaf = out
    while isinstance(leaf, (tuple, list)) and leaf:
        leaf = leaf[0]
    if isinstance(leaf, w.impl.lib.Tensor) and leaf.requires_grad:
        leaf.sum().backward(retain_graph=twice)
        if twice:
            leaf.sum().backward()
    return [out, [a.grad if isinstance(a, w.impl.lib.Tensor) else a for a in args]]
