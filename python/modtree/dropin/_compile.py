# SPDX-License-Identifier: BSD-3-Clause
"""What torch.compile is to trace where Python code calls native methods: torch's own functions."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

from modtree import _C
from modtree.dropin import _faces

__all__ = ["teach_dynamo"]


def teach_dynamo(dynamo: ModuleType) -> None:
    """Tells ``torch._dynamo``, once it was imported, which function stands for which native one."""
    from modtree.dropin._adopt import original_functions

    originals = original_functions()
    for name, native in _faces.NATIVE.items():
        dynamo.decorators.substitute_in_graph(native, skip_signature_check=True)(originals[name])
    _let_modules_change(dynamo)


def _let_modules_change(dynamo: ModuleType) -> None:
    """Lets a traced program assign to modules: their native ``__getattribute__`` has no more effects
    than that of ``object``, which is among those that dynamo knows.
    """
    effects = importlib.import_module(f"{dynamo.__name__}.side_effects").SideEffects
    ask_dynamo = effects.cls_supports_mutation_side_effects
    native = vars(_C.ModuleBase)["__getattribute__"]

    def cls_supports_mutation_side_effects(cls: type) -> bool:
        return inspect.getattr_static(cls, "__getattribute__", None) is native or ask_dynamo(cls)

    effects.cls_supports_mutation_side_effects = staticmethod(cls_supports_mutation_side_effects)
