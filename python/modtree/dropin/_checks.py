# SPDX-License-Identifier: BSD-3-Clause
"""What modtree relies on in torch's file of Module, checked before anything is changed."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

from modtree.core.module import Module

__all__ = ["REFERENCE_VERSION", "check"]

#: The version of torch that the drop-in was built and tested with.
REFERENCE_VERSION = "2.13"

#: Names in the file, beside Module.
_NAMES = (
    "RemovableHandle",
    "_IncompatibleKeys",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_buffer_registration_hooks",
    "_global_forward_hooks",
    "_global_forward_hooks_always_called",
    "_global_forward_hooks_with_kwargs",
    "_global_forward_pre_hooks",
    "_global_is_full_backward_hook",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
    "_has_any_global_hook",
)

#: Methods that native code does in the place of torch's, with their parameters.
_METHODS = {
    "__init__": "self *args **kwargs",
    "__getattr__": "self name",
    "__setattr__": "self name value",
    "__delattr__": "self name",
    "__getstate__": "self",
    "__setstate__": "self state",
    "_call_impl": "self *args **kwargs",
    "_wrapped_call_impl": "self *args **kwargs",
    "_slow_forward": "self *input **kwargs",
    "_apply": "self fn recurse",
    "_load_from_state_dict": "self state_dict prefix local_metadata strict missing_keys "
    "unexpected_keys error_msgs",
    "_named_members": "self get_members_fn prefix recurse remove_duplicate",
    "_save_to_state_dict": "self destination prefix keep_vars",
    "add_module": "self name module",
    "apply": "self fn",
    "buffers": "self recurse",
    "children": "self",
    "eval": "self",
    "load_state_dict": "self state_dict strict assign",
    "modules": "self remove_duplicate",
    "named_buffers": "self prefix recurse remove_duplicate",
    "named_children": "self",
    "named_modules": "self memo prefix remove_duplicate",
    "named_parameters": "self prefix recurse remove_duplicate",
    "parameters": "self recurse",
    "register_buffer": "self name tensor persistent",
    "register_parameter": "self name param",
    "requires_grad_": "self requires_grad",
    "state_dict": "self *args destination prefix keep_vars",
    "train": "self mode",
    "zero_grad": "self set_to_none",
}


def check(file: ModuleType) -> None:
    """Raises ImportError when torch's file is not as modtree knows it, and says where."""
    differences = list(_differences(file))
    if not differences:
        return
    torch = sys.modules.get("torch")
    version = getattr(torch, "__version__", None) or getattr(
        sys.modules.get("torch.version"), "__version__", "unknown"
    )
    raise ImportError(
        f"modtree.dropin does not know this torch ({version}; made for {REFERENCE_VERSION}): "
        f"{'; '.join(differences[:5])}. Nothing was changed: run the program without the drop-in "
        "(`modtree run --off`), or use a version of modtree for this torch"
    )


def _differences(file: ModuleType):
    names = vars(file)
    for name in _NAMES:
        if name not in names:
            yield f"{file.__name__} has no {name}"
    module = names.get("Module")
    if not isinstance(module, type) or module.__mro__ != (module, object):
        yield f"{file.__name__}.Module is no class of its own"
        return
    for name, parameters in _METHODS.items():
        function = vars(module).get(name)
        if not inspect.isfunction(function):
            yield f"Module has no method {name}"
            continue
        found = _parameters(function)
        if found != parameters:
            yield f"Module.{name} takes ({found}), not ({parameters})"
    if vars(module).get("__call__") is not vars(module).get("_wrapped_call_impl"):
        yield "Module.__call__ is not Module._wrapped_call_impl"
    state, native_state = tuple(vars(module())), tuple(vars(Module()))
    if state != native_state:
        extra = sorted(set(state) ^ set(native_state)) or ["in another order"]
        yield f"a new Module has other internal attributes ({', '.join(extra)})"


def _parameters(function) -> str:
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[: code.co_argcount])
    keyword_only = code.co_varnames[code.co_argcount : count]
    rest = list(code.co_varnames[count:])
    if code.co_flags & inspect.CO_VARARGS:
        names.append("*" + rest.pop(0))
    names += keyword_only
    if code.co_flags & inspect.CO_VARKEYWORDS:
        names.append("**" + rest.pop(0))
    return " ".join(names)
