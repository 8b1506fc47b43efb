# SPDX-License-Identifier: BSD-3-Clause
"""What torch.compile is to trace where Python code calls native methods: torch's own functions."""

from __future__ import annotations

import gc
import importlib
import inspect
from types import ModuleType
from typing import Any

from modtree import _C
from modtree.dropin import _faces
from modtree.dropin._adopt import original_functions

__all__ = ["teach_dynamo"]


def teach_dynamo(dynamo: ModuleType) -> None:
    """Tells ``torch._dynamo``, once it was imported, which function stands for which native one."""
    importlib.import_module("modtree.families.torch")  # not in the middle of a compiled function
    originals = original_functions()
    for name, native in _faces.NATIVE.items():
        dynamo.decorators.substitute_in_graph(native, skip_signature_check=True)(originals[name])
    _let_modules_change(dynamo)
    _leave_out_our_files(dynamo)
    _expose_modules_before_compiling(dynamo)
    _let_bound_methods_be_traced(dynamo)


def _let_modules_change(dynamo: ModuleType) -> None:
    """Lets a traced program assign to modules: their native ``__getattribute__`` has no more
    effects than that of ``object``, which is among those that dynamo knows.
    """
    effects = importlib.import_module(f"{dynamo.__name__}.side_effects").SideEffects
    ask_dynamo = effects.cls_supports_mutation_side_effects
    native = vars(_C.ModuleBase)["__getattribute__"]

    def cls_supports_mutation_side_effects(cls: type) -> bool:
        return inspect.getattr_static(cls, "__getattribute__", None) is native or ask_dynamo(cls)

    effects.cls_supports_mutation_side_effects = staticmethod(cls_supports_mutation_side_effects)


def _expose_modules_before_compiling(dynamo: ModuleType) -> None:
    """dynamo's guards read the dicts of modules in C, without asking for ``__dict__``: from the
    first compilation on all modules keep their attributes there. Without it, each instance of a
    class would be compiled anew.
    """
    handler = importlib.import_module(f"{dynamo.__name__}.callback").CompilationCallbackHandler
    run_callbacks = handler.run_start_callbacks
    dict_of = vars(_C.ModuleBase)["__dict__"].__get__

    def run_start_callbacks(self: Any, *args: Any) -> None:
        handler.run_start_callbacks = run_callbacks
        _C._start_modules_exposed()
        for value in gc.get_objects():
            if issubclass(type(value), _C.ModuleBase):
                dict_of(value)
        run_callbacks(self, *args)

    handler.run_start_callbacks = run_start_callbacks


def _leave_out_our_files(dynamo: ModuleType) -> None:
    """What our Python functions do for native code is no part of a program, as torch's own files
    are not; the faces are traced where a traced function calls them.
    """
    rules = importlib.import_module(f"{dynamo.__name__}.trace_rules")
    rules.add("modtree")
    rules.get_mod_inlinelist().add(_faces.__file__)


def _let_bound_methods_be_traced(dynamo: ModuleType) -> None:
    """A method taken from a module before (``walk = module.parameters``) is traced as one of
    Python's is.
    """
    variables = importlib.import_module(f"{dynamo.__name__}.variables")
    builder = importlib.import_module(f"{dynamo.__name__}.variables.builder")
    guards = importlib.import_module(f"{dynamo.__name__}.guards").GuardBuilder
    source = importlib.import_module(f"{dynamo.__name__}.source").AttrSource

    def wrap_bound_method(self: Any, value: Any) -> Any:
        self.install_guards(guards.TYPE_MATCH)
        function, module = (source(self.source, name) for name in ("__func__", "__self__"))
        builder.VariableBuilder(self.tx, function)(value.__func__)
        owner = builder.VariableBuilder(self.tx, module)(value.__self__)
        return variables.UserMethodVariable(
            value.__func__, owner, source_fn=function, source=self.source
        )

    for numpy_too in (False, True):
        by_type = builder.VariableBuilder._type_dispatch_impl(numpy_too)
        by_type[_C.BoundMethod] = wrap_bound_method
