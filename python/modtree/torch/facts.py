# SPDX-License-Identifier: BSD-3-Clause
"""What differs between the versions of torch that modtree knows, as a table.

Each fact is found by a look at torch's file of Module, not by the version's number: builds from
source and patched files are what they are. Where a look finds nothing that it understands, the
answer is that of the newest torch. The file imports nothing of torch.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple


class Fact(NamedTuple):
    """One difference."""

    name: str
    since: str  # the first torch of which it is true; for the reader
    newest: bool
    look: Callable[[ModuleType], bool | None]  # None: not to be seen
    native: bool  # TorchFacts (csrc/core/module/torch_facts.h) has it


# -- looking at functions --------------------------------------------------------------------------


def _code(file: ModuleType, name: str) -> CodeType | None:
    """The code of a method of Module, if it is torch's own function."""
    function = vars(file.Module).get(name)
    own = isinstance(function, FunctionType) and function.__globals__ is vars(file)
    return function.__code__ if own else None


def _mentions(code: CodeType, word: str) -> bool:
    """True if the word is a name or a text in the code, or in a function inside of it."""
    names = (*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars)
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return word in names or word in code.co_consts or any(_mentions(c, word) for c in inner)


def _in(method: str, word: str) -> Callable[[ModuleType], bool | None]:
    def look(file: ModuleType) -> bool | None:
        code = _code(file, method)
        return None if code is None else _mentions(code, word)

    return look


def _takes(method: str, parameter: str) -> Callable[[ModuleType], bool | None]:
    def look(file: ModuleType) -> bool | None:
        code = _code(file, method)
        return None if code is None else parameter in parameters_of(code).split()

    return look


def _has_ordered_registries(file: ModuleType) -> bool | None:
    return type(vars(file.Module()).get("_modules")) is OrderedDict


def _asks_for_one_element(file: ModuleType) -> bool | None:
    """``input_param.shape[0] == 1``, beside ``len(input_param.shape) == 1``."""
    code = _code(file, "_load_from_state_dict")
    if code is None:
        return None
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    return any(
        a.opname == "LOAD_ATTR" and a.argval == "shape" and b.argval == 0
        for a, b in zip(steps, steps[1:], strict=False)
    )


def _warns_at_caller(file: ModuleType) -> bool | None:
    code = _code(file, "zero_grad")
    if code is None:
        return None
    # The names of a call's keywords are a tuple.
    return any(isinstance(c, tuple) and "stacklevel" in c for c in code.co_consts)


def _inside(method: str, word: str) -> Callable[[ModuleType], bool | None]:
    """As a variable that functions inside of the method use."""

    def look(file: ModuleType) -> bool | None:
        code = _code(file, method)
        return None if code is None else word in code.co_cellvars

    return look


def _finds_nodes_without_grad(file: ModuleType) -> bool | None:
    """In ``torch.autograd.graph``, which ``torch.utils.swap_tensors`` asks for nodes."""
    graph = sys.modules.get("torch.autograd.graph")
    function = getattr(graph, "_get_grad_fn_or_grad_acc", None)
    code = getattr(function, "__code__", None)
    return None if code is None else _mentions(code, "enable_grad")


# -- the table -------------------------------------------------------------------------------------

FACTS = (
    # `_parameters`, `_buffers` and `_modules` of a new module are OrderedDicts, up to 2.4.
    Fact("ordered_registries", "", False, _has_ordered_registries, True),
    # torch.nn.Buffer, and that an assignment to a buffer calls `register_buffer`.
    Fact("buffer_class", "2.5", True, _in("__setattr__", "register_buffer"), True),
    # Hooks of `register_state_dict_post_hook`, which must return None.
    Fact("state_dict_post_hooks", "2.5", True, _in("state_dict", "_from_public_api"), True),
    # `torch.utils.swap_tensors` works under no_grad() for what has a node on the graph.
    Fact("swaps_without_grad", "2.5", True, _finds_nodes_without_grad, False),
    # An assignment gives `persistent` to a patch of Module's `register_buffer` whatever parameters
    # that has: the bound method's `__func__` is Module's function, the method itself never.
    Fact("patches_take_persistent", "2.8", True, _in("__setattr__", "__func__"), True),
    # `Module._apply` exchanges the contents of FakeTensors, ...
    Fact("swaps_fake", "2.8", True, _in("_apply", "FakeTensor"), False),
    # ... and gives no tensor the data of one.
    Fact("keeps_data_of_fake", "2.10", True, _inside("_apply", "FakeTensor"), False),
    # A buffer may be anything with `__torch_function__`.
    Fact("tensor_like_buffers", "2.9", True, _in("register_buffer", "__torch_function__"), True),
    # A tensor without dimensions is loaded from one of one dimension only if that has one element.
    Fact("scalars_from_one", "2.10", True, _asks_for_one_element, True),
    # Warnings name the line that called a method, not one of torch's file.
    Fact("warns_at_caller", "2.10", True, _warns_at_caller, False),
    # `modules(remove_duplicate=)`
    Fact("modules_may_repeat", "2.11", True, _takes("modules", "remove_duplicate"), True),
)

#: Names in torch's file that the drop-in needs, ...
NAMES = (
    "RemovableHandle",
    "_IncompatibleKeys",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_buffer_registration_hooks",
    "_global_forward_hooks",
    "_global_forward_hooks_always_called",
    "_global_forward_pre_hooks",
    "_global_is_full_backward_hook",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
)

#: ... and those that came later: since which torch.
NAMES_OF_SOME = {
    "_global_forward_hooks_with_kwargs": "2.6",
    "_has_any_global_hook": "2.8",
}

#: Methods that native code does in the place of torch's, with the parameters that they may have.
METHODS: dict[str, tuple[str, ...]] = {
    "__init__": ("self *args **kwargs",),
    "__getattr__": ("self name",),
    "__setattr__": ("self name value",),
    "__delattr__": ("self name",),
    "__getstate__": ("self",),
    "__setstate__": ("self state",),
    "_call_impl": ("self *args **kwargs",),
    "_wrapped_call_impl": ("self *args **kwargs",),
    "_slow_forward": ("self *input **kwargs",),
    "_apply": ("self fn recurse",),
    "_load_from_state_dict": (
        "self state_dict prefix local_metadata strict missing_keys unexpected_keys error_msgs",
    ),
    "_named_members": ("self get_members_fn prefix recurse remove_duplicate",),
    "_save_to_state_dict": ("self destination prefix keep_vars",),
    "add_module": ("self name module",),
    "apply": ("self fn",),
    "buffers": ("self recurse",),
    "children": ("self",),
    "eval": ("self",),
    "load_state_dict": ("self state_dict strict assign",),
    "modules": ("self remove_duplicate", "self"),
    "named_buffers": ("self prefix recurse remove_duplicate",),
    "named_children": ("self",),
    "named_modules": ("self memo prefix remove_duplicate",),
    "named_parameters": ("self prefix recurse remove_duplicate",),
    "parameters": ("self recurse",),
    "register_buffer": ("self name tensor persistent",),
    "register_parameter": ("self name param",),
    "requires_grad_": ("self requires_grad",),
    "state_dict": ("self *args destination prefix keep_vars",),
    "train": ("self mode",),
    "zero_grad": ("self set_to_none",),
}

_DTYPES = ("is_floating_point", "is_complex", "NotImplementedError", "str")

#: Closure variables and names of the function inside of ``Module.to``.
CONVERSIONS = (
    (("convert_to_format", "device", "dtype", "non_blocking"), ("dim", "to", *_DTYPES)),
    (
        ("convert_to_format", "device", "dtype", "non_blocking"),
        ("dim", "to", *_DTYPES, "startswith", "len"),
    ),
)


@functools.cache
def facts_of(file: ModuleType) -> dict[str, bool]:
    """Every fact of a torch whose file of Module this is. The drop-in asks before it changes the
    file, and the answers stay.
    """
    found = {}
    for fact in FACTS:
        saw = fact.look(file)
        found[fact.name] = fact.newest if saw is None else saw
    return found


def warning_lines(file: ModuleType) -> dict[str, int]:
    """Where the file warns: the lines of ``warnings.warn``, by the text that follows."""
    lines: dict[str, int] = {}
    for name in ("zero_grad", "_load_from_state_dict", "_call_impl"):
        code = _code(file, name)
        if code is not None:
            _find_warnings(code, lines)
    return lines


def _find_warnings(code: CodeType, lines: dict[str, int]) -> None:
    line_of = {at: line for start, end, line in code.co_lines() for at in range(start, end, 2)}
    warn = None
    for step in dis.get_instructions(code):
        if step.argval == "warn":
            warn = line_of.get(step.offset)
        elif isinstance(step.argval, str) and warn and " " in step.argval:
            lines.setdefault(step.argval, warn)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            _find_warnings(const, lines)


def parameters_of(code: CodeType) -> str:
    """The names of a function's parameters, as METHODS has them."""
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


def native_facts(facts: dict[str, bool]) -> dict[str, bool]:
    """Those that native code wants to know."""
    return {fact.name: facts[fact.name] for fact in FACTS if fact.native}
