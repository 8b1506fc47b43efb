# SPDX-License-Identifier: BSD-3-Clause
"""Operations on what libraries do to modules behind their backs: patches of the class Module while
other code runs, registries of classes of their own, and parameters without a shape.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict, UserDict, defaultdict

from .kinds import MODULE, MODULE_SLOT, REGISTRY, Choice, Inner, Name
from .program import operation

# What torch calls through the class, and modtree natively as long as nobody has a say. How often
# attributes are read and names asked for is nobody's business.
PATCHED = (
    *("__init__", "__call__", "__setattr__", "__delattr__", "__dir__", "__getstate__"),
    *("__setstate__", "_apply", "_call_impl", "_load_from_state_dict", "_named_members"),
    *("_save_to_state_dict", "add_module", "apply", "buffers", "children", "eval", "extra_repr"),
    *("get_extra_state", "get_submodule", "load_state_dict", "modules", "named_buffers"),
    *("named_children", "named_modules", "named_parameters", "parameters", "register_buffer"),
    *("register_module", "register_parameter", "requires_grad_", "set_extra_state"),
    *("state_dict", "train", "to", "zero_grad", "share_memory"),
)


@operation("patches", 4)
def patch_module(w, method=Choice(*PATCHED), inner=Inner()):
    """A step while a method of Module itself notes its calls."""
    module_class = w.impl.nn.Module
    own = method in vars(module_class)
    original = getattr(module_class, method)

    def patched(self, *args, **kwargs):
        if method not in ("__setattr__", "__delattr__", "extra_repr"):
            w.event("patched", method, len(args), sorted(kwargs))
        elif method != "extra_repr" and not args[0].startswith("_"):
            w.event("patched", method, args[0])
        return original(self, *args, **kwargs)

    patched.__name__ = method
    setattr(module_class, method, patched)
    try:
        inner()
    finally:
        if own:
            setattr(module_class, method, original)
        else:
            delattr(module_class, method)


class Fetching(OrderedDict):
    """Has a ``__getitem__`` of its own, as registries have that fetch a parameter when it is asked
    for.
    """

    def __getitem__(self, name):
        return super().__getitem__(name)


class Doubling(dict):
    """Gives a number with everything that is asked for by its name."""

    def __getitem__(self, name):
        return (2, super().__getitem__(name))


KINDS = {
    "fetching": Fetching,
    "doubling": Doubling,
    "default": lambda old: defaultdict(lambda: None, old),
    "user": UserDict,
}


@operation("rare registries", 3)
def use_registry_of_a_class(w, m=MODULE, registry=REGISTRY, kind=Choice(*KINDS)):
    if registry == "_modules" and kind in ("doubling", "user"):
        kind = "default"  # what looks at the tree reads dicts of modules
    old = getattr(m, registry)
    if isinstance(old, dict):
        setattr(m, registry, KINDS[kind](dict.items(old)))


@operation("lazy", 3)
def new_lazy_module(w, slot=MODULE_SLOT, fails=Choice(False, False, True), name=Name(0, 0)):
    """With a parameter that gets its shape at the first call."""
    nn, lib = w.impl.nn, w.impl.lib
    lazy = importlib.import_module(f"{nn.__name__}.modules.lazy")
    shapeless = importlib.import_module(f"{lib.__name__}.nn.parameter").UninitializedParameter

    class Became(nn.Module):
        def forward(self, *args):
            return [len(args)]

    class Lazy(lazy.LazyModuleMixin, nn.Module):
        cls_to_become = Became

        def __init__(self):
            super().__init__()
            self.register_parameter(name, shapeless())

        def initialize_parameters(self, *args, **kwargs):
            w.event("initialize", args, kwargs)
            if fails:
                return
            for tensor in self._parameters.values():
                if type(tensor).__name__.startswith("Uninitialized"):
                    tensor.materialize((2,))
                    with lib.no_grad():
                        tensor.fill_(5.0)

        forward = Became.forward

    return w.keep(Lazy(), slot)
