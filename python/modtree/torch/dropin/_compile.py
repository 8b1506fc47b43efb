# SPDX-License-Identifier: BSD-3-Clause
"""What torch.compile is to trace where Python code calls native methods: torch's own functions."""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import warnings
from types import FunctionType, ModuleType
from typing import Any

from modtree import _C
from modtree.torch.dropin import _faces
from modtree.torch.dropin._adopt import original_functions


def teach_dynamo(dynamo: ModuleType) -> None:
    """Tells ``torch._dynamo``, once it was imported, which function replaces which native one."""
    importlib.import_module("modtree.torch.family")  # not in the middle of a compiled function
    unknown = []
    for step in _STEPS:
        try:
            step(dynamo)
        except (AttributeError, ImportError, KeyError, TypeError) as error:
            unknown.append(f"{step.__name__.strip('_').replace('_', ' ')} ({error})")
    if unknown:
        warnings.warn(
            f"modtree.dropin does not know the torch._dynamo of this torch: {'; '.join(unknown)}. "
            "Compiled programs run, but may be cut into more graphs than without the drop-in; look "
            "for a newer version of modtree",
            stacklevel=2,
        )


def _trace_torchs_own_functions(dynamo: ModuleType) -> None:
    originals = original_functions()
    substitute = getattr(dynamo.decorators, "substitute_in_graph", None)
    if substitute is None:  # before torch 2.5
        _trace_originals_for_faces(dynamo, originals)
        return
    for name, native in _faces.NATIVE.items():
        substitute(native, skip_signature_check=True)(originals[name])


def _trace_originals_for_faces(dynamo: ModuleType, originals: dict[str, Any]) -> None:
    """Where dynamo cannot be told what replaces a native function, for the faces that call it."""
    functions = importlib.import_module(f"{dynamo.__name__}.variables.functions")
    variable = functions.UserFunctionVariable
    init = variable.__init__
    by_face = {face: originals[name] for name, face in _faces.FACES.items()}

    @functools.wraps(init)
    def init_with_original(self: Any, fn: Any, *args: Any, **kwargs: Any) -> None:
        init(self, by_face.get(fn, fn), *args, **kwargs)

    variable.__init__ = init_with_original


def _let_modules_change(dynamo: ModuleType) -> None:
    """Lets a traced program assign to modules: their native ``__getattribute__`` has no more
    effects than that of ``object``, which is among those that dynamo knows.
    """
    effects = importlib.import_module(f"{dynamo.__name__}.side_effects").SideEffects
    ask_dynamo = effects.cls_supports_mutation_side_effects
    native = _C.ModuleBase.__getattribute__

    def cls_supports_mutation_side_effects(cls: type) -> bool:
        # Not by getattr_static(): a class behind Module may take part.
        return type.__getattribute__(cls, "__getattribute__") is native or ask_dynamo(cls)

    effects.cls_supports_mutation_side_effects = staticmethod(cls_supports_mutation_side_effects)


def _see_classes_behind_module(dynamo: ModuleType) -> None:
    """Shows it a ``__getattribute__`` of a class behind Module. It looks through the dicts of
    classes, where that of the native class comes first.
    """
    utils: Any = importlib.import_module(f"{dynamo.__name__}.utils")
    ask_dynamo = utils.class_has_getattribute

    def class_has_getattribute(cls: Any) -> bool:  # of a value, too
        if not isinstance(cls, type) or not issubclass(cls, _C.ModuleBase):
            return ask_dynamo(cls)
        return isinstance(type.__getattribute__(cls, "__getattribute__"), FunctionType)

    utils.class_has_getattribute = class_has_getattribute


def _expose_modules_that_guards_read(dynamo: ModuleType) -> None:
    """dynamo's guards read the dicts of modules in C, without asking for ``__dict__``: modules of
    the classes that guards look at keep their attributes there, those that live when the guards are
    made and those made later. Without it, each instance of a class would be compiled anew.
    """
    guards = importlib.import_module(f"{dynamo.__name__}.guards")
    get, make = guards.GuardBuilder.get, guards.CheckFunctionManager.__init__
    new: list[type] = []

    @functools.wraps(get)
    def get_exposed(self: Any, *args: Any, **kwargs: Any) -> Any:
        value = get(self, *args, **kwargs)
        if issubclass(type(value), _C.ModuleBase):
            _dict_of(value)
            if _C._start_exposed(type(value)):
                new.append(type(value))
        return value

    @functools.wraps(make)
    def make_and_expose(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            make(self, *args, **kwargs)
        finally:
            if new:
                _expose_modules_of(new)
                new.clear()

    guards.GuardBuilder.get = get_exposed
    guards.CheckFunctionManager.__init__ = make_and_expose


_dict_of = vars(_C.ModuleBase)["__dict__"].__get__


def _expose_modules_of(classes: list[type]) -> None:
    wanted = {id(cls) for cls in classes}
    collects = gc.isenabled()
    gc.disable()  # a dozen containers are made for each module
    try:
        for value in gc.get_objects():
            if id(type(value)) in wanted:
                _dict_of(value)
    finally:
        if collects:
            gc.enable()


def _make_modules_without_tags(dynamo: ModuleType) -> None:
    """When a compiled function is first called, dynamo puts Python functions in the place of
    ``Module.__init__`` and ``__setstate__``, which tag each module that is made from then on. Only
    a dynamo that does not trace all modules as objects asks for tags, and keeps these functions.
    """
    guard: Any = importlib.import_module(f"{dynamo.__name__}.mutation_guard")
    frame: Any = importlib.import_module(f"{dynamo.__name__}.eval_frame")
    install = guard.install_generation_tagging_init
    module = _C.ModuleBase()
    guard.is_dynamic_nn_module(module, False)  # takes two arguments

    @functools.wraps(install)
    def install_generation_tagging_init() -> None:
        if guard.is_dynamic_nn_module(module, False):
            guard.GenerationTracker.generation += 1
        else:
            install()

    for file in (guard, frame):
        vars(file)["install_generation_tagging_init"] = install_generation_tagging_init


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

    variable = variables.UserMethodVariable
    takes = inspect.signature(variable.__init__).parameters
    by_parts = "im_func" in takes  # since torch 2.15
    if not by_parts and "source_fn" not in takes:  # before torch 2.9
        _name_functions_of_methods(variable, source)

    def wrap_bound_method(self: Any, value: Any) -> Any:
        self.install_guards(guards.TYPE_MATCH)
        function, module = (source(self.source, name) for name in ("__func__", "__self__"))
        traced = builder.VariableBuilder(self.tx, function)(value.__func__)
        owner = builder.VariableBuilder(self.tx, module)(value.__self__)
        if by_parts:
            return variable(traced, owner, source=self.source)
        sources = {"source_fn": function} if "source_fn" in takes else {}
        return variable(value.__func__, owner, source=self.source, **sources)

    tables = getattr(builder.VariableBuilder, "_type_dispatch_impl", None)
    for by_type in (
        [tables(numpy_too) for numpy_too in (False, True)]
        if tables  # there is one for each value of a setting since torch 2.6
        else [builder.VariableBuilder._type_dispatch()]
    ):
        by_type[_C.BoundMethod] = wrap_bound_method


def _name_functions_of_methods(variable: Any, source: Any) -> None:
    """Guards on the defaults of a method go by its source, and take a function or one of Python's
    methods: for a native method they are to ask its function.
    """
    bind = variable.bind_args
    ours = {value for value in vars(_C.ModuleBase).values() if inspect.isfunction(value)}

    @functools.wraps(bind)
    def bind_args(self: Any, *args: Any, **kwargs: Any) -> Any:
        method = self.source
        owner = getattr(self.obj, "source", None)
        if self.fn in ours and isinstance(method, source) and method.base == owner:
            self.source = source(method, "__func__")
        try:
            return bind(self, *args, **kwargs)
        finally:
            self.source = method

    variable.bind_args = bind_args


_STEPS = (
    _trace_torchs_own_functions,
    _let_modules_change,
    _see_classes_behind_module,
    _leave_out_our_files,
    _expose_modules_that_guards_read,
    _make_modules_without_tags,
    _let_bound_methods_be_traced,
)
