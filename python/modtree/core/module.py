# SPDX-License-Identifier: BSD-3-Clause
"""The module class: the native base plus what is called a few times per program, and the
process-wide hooks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import MethodDescriptorType
from typing import Any, TypeVar

from modtree import _C, _imports
from modtree._C import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_buffer_registration_hooks,
    _global_forward_hooks,
    _global_forward_hooks_always_called,
    _global_forward_hooks_with_kwargs,
    _global_forward_pre_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
)
from modtree.core import compiling as _compiling
from modtree.core import conversions as _conversions
from modtree.core import error_note as _error_note  # noqa: F401
from modtree.core import foreign as _foreign  # noqa: F401
from modtree.core import repr as _repr
from modtree.core import state_dict as state

# Imported for what they hand over to native code: the switches, warnings, twins of walks, and what
# surrounds a load.
from modtree.core import switches as _switches  # noqa: F401
from modtree.core import walks as _walks  # noqa: F401
from modtree.core.families import is_parameter
from modtree.core.hooks import RemovableHandle, warn_non_full_backward_hook
from modtree.core.loading import failures as _failures  # noqa: F401
from modtree.core.loading import report as _report  # noqa: F401

__all__ = [
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

_imports.refuse_second(__name__)

T = TypeVar("T", bound="Module")

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"
_global_is_full_backward_hook: bool | None = None

_MIXED_HOOKS = (
    "Cannot use both regular backward hooks and full backward hooks {where}. "
    "Please use only one of them."
)


def _forward_unimplemented(self: Any, *input: Any) -> None:
    """Computes the output of the module; every subclass defines its own."""
    raise NotImplementedError(
        f'Module [{type(self).__name__}] is missing the required "forward" function'
    )


class _CallSignature:
    """What ``inspect.signature(m)`` says of a module: of native calls it knows nothing itself."""

    def __get__(self, module: Any, owner: Any) -> Any:
        if module is None:
            return None  # that of the class is the constructor's
        import inspect  # rarely needed, and slow to import

        signature = inspect.signature(type(module).__call__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class Module(_C.ModuleBase):
    """Base class of all modules: a tree of named parameters, buffers and child modules.

    Assigning a :class:`~modtree.nn.Parameter`, a buffer or another module to an attribute registers
    it::

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(64, 10)
                self.scale = nn.Parameter(mt.ones(10))
                self.register_buffer("mean", mt.zeros(64))

            def forward(self, x):
                return self.fc(x - self.mean) * self.scale

    Attributes, walks, ``state_dict`` and the call are native; this class adds the rest.
    """

    training: bool
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _backward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _backward_hooks: OrderedDict[int, Callable[..., Any]]
    _is_full_backward_hook: bool | None
    _forward_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_hooks_with_kwargs: dict[int, bool]
    _forward_hooks_always_called: dict[int, bool]
    _forward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_pre_hooks_with_kwargs: dict[int, bool]
    _state_dict_hooks: OrderedDict[int, Callable[..., Any]]
    _state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]
    _modules: dict[str, Module | None]

    dump_patches: bool = False
    _version: int = 1
    call_super_init: bool = False
    _compiled_call_impl: Callable[..., Any] | None = None
    T_destination = TypeVar("T_destination", bound=dict[str, Any])

    forward: Callable[..., Any] = _forward_unimplemented

    # Where tools that make classes with slots look for them.
    __dict__ = _C.ModuleBase.__dict__["__dict__"]
    __weakref__ = _C.ModuleBase.__dict__["__weakref__"]

    # CPython keeps the C slots when the class holds the very wrappers of the base.
    __init__ = _C.ModuleBase.__init__
    __setattr__ = _C.ModuleBase.__setattr__
    __delattr__ = _C.ModuleBase.__delattr__
    __getattribute__: Any = _C._module_getattribute
    __reduce_ex__ = _C._module_reduce_ex
    __call__: Callable[..., Any] = _C.ModuleBase.__call__
    _wrapped_call_impl = __call__
    __signature__ = _CallSignature()

    # -- registration and paths --------------------------------------------------------------------

    def register_module(self, name: str, module: Module | None) -> None:
        """Same as :meth:`add_module`."""
        self.add_module(name, module)

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path; ``""`` is the module itself.

        Raises:
            AttributeError: a part of the path does not exist or is not a module.
        """
        if target == "":
            return self
        module: Any = self
        for atom in target.split("."):
            if not hasattr(module, atom):
                raise AttributeError(
                    f"{module._get_name()} has no attribute `{atom}` (looking for {target!r})"
                )
            module = getattr(module, atom)
            if not isinstance(module, _C.ModuleBase):
                raise AttributeError(f"`{atom}` is not an nn.Module (looking for {target!r})")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts ``module`` at a dotted path.

        Args:
            strict: refuse a path without a module.

        Raises:
            ValueError: the path is empty or ``module`` is not a module.
            AttributeError: a part of the path is missing, or is not that of a module.
        """
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        *path, name = target.split(".")
        if not isinstance(module, _C.ModuleBase):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        parent = self.get_submodule(".".join(path)) if path else self
        if hasattr(parent, name):
            if not isinstance(getattr(parent, name), _C.ModuleBase):
                raise AttributeError(f"`{name}` is not an nn.Module")
        elif strict:
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Any:
        """The parameter at a dotted path.

        Raises:
            AttributeError: the path does not exist or does not lead to a parameter.
        """
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        parameter = getattr(module, name)
        if not is_parameter(parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return parameter

    def get_buffer(self, target: str) -> Any:
        """The buffer at a dotted path.

        Raises:
            AttributeError: the path does not exist or does not lead to a buffer.
        """
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        buffer = getattr(module, name)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return buffer

    def get_extra_state(self) -> Any:
        """What a subclass wants to have in ``state_dict`` besides tensors; override with
        :meth:`set_extra_state`.
        """
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called."
        )

    def set_extra_state(self, state: Any) -> None:
        """Restores what :meth:`get_extra_state` returned."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called."
        )

    # -- call hooks --------------------------------------------------------------------------------

    def _slow_forward(self, *input: Any, **kwargs: Any) -> Any:
        """What a tracing compiler calls in place of ``forward``."""
        return self.forward(*input, **kwargs)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls ``hook(module, args)`` before ``forward``; a result replaces the arguments.

        Args:
            prepend: put the hook in front of this module's other pre-hooks.
            with_kwargs: call ``hook(module, args, kwargs)``, which may return ``(args, kwargs)``.
        """
        handle = RemovableHandle(
            self._forward_pre_hooks, extra_dict=self._forward_pre_hooks_with_kwargs
        )
        self._forward_pre_hooks[handle.id] = hook
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        if prepend:
            self._forward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Calls ``hook(module, args, output)`` after ``forward``; a result that is not None
        replaces the output.

        Args:
            prepend: put the hook in front of this module's other forward hooks.
            with_kwargs: call ``hook(module, args, kwargs, output)``.
            always_call: call the hook also when something raised before its turn.
        """
        handle = RemovableHandle(
            self._forward_hooks,
            extra_dict=[self._forward_hooks_with_kwargs, self._forward_hooks_always_called],
        )
        self._forward_hooks[handle.id] = hook
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        if prepend:
            self._forward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls ``hook(module, grad_output)`` before gradients of the module are computed."""
        handle = RemovableHandle(self._backward_pre_hooks)
        self._backward_pre_hooks[handle.id] = hook
        if prepend:
            self._backward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls ``hook(module, grad_input, grad_output)`` when the gradients of the inputs are
        known.
        """
        if self._backward_hooks and self._is_full_backward_hook is False:
            raise RuntimeError(_MIXED_HOOKS.format(where="on a single Module"))
        self._is_full_backward_hook = True
        handle = RemovableHandle(self._backward_hooks)
        self._backward_hooks[handle.id] = hook
        if prepend:
            self._backward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The older form of :meth:`register_full_backward_hook`: it sees the gradients of the last
        operation only.
        """
        if self._backward_hooks and self._is_full_backward_hook is True:
            raise RuntimeError(_MIXED_HOOKS.format(where="on a single Module"))
        self._is_full_backward_hook = False
        handle = RemovableHandle(self._backward_hooks)
        self._backward_hooks[handle.id] = hook
        return handle

    def _get_backward_hooks(self) -> tuple[list[Any], list[Any]]:
        """The full and the legacy backward hooks, global ones first."""
        full: list[Any] = []
        legacy: list[Any] = []
        if _global_is_full_backward_hook is True:
            full += _global_backward_hooks.values()
        elif _global_is_full_backward_hook is False:
            legacy += _global_backward_hooks.values()
        # Only then: a module may lack the table.
        if self._is_full_backward_hook is True:
            full += self._backward_hooks.values()
        elif self._is_full_backward_hook is False:
            legacy += self._backward_hooks.values()
        return full, legacy

    _maybe_warn_non_full_backward_hook = warn_non_full_backward_hook

    def _get_backward_pre_hooks(self) -> list[Any]:
        """The backward-pre hooks, global ones first."""
        return [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]

    # -- state -------------------------------------------------------------------------------------

    register_state_dict_pre_hook = state.register_state_dict_pre_hook
    register_state_dict_post_hook = state.register_state_dict_post_hook
    _register_state_dict_hook = state._register_state_dict_hook
    register_load_state_dict_pre_hook = state.register_load_state_dict_pre_hook
    _register_load_state_dict_pre_hook = state._register_load_state_dict_pre_hook
    register_load_state_dict_post_hook = state.register_load_state_dict_post_hook

    # -- conversions -------------------------------------------------------------------------------

    to = _conversions.to
    to_empty = _conversions.to_empty
    cpu = _conversions.cpu
    cuda = _conversions.cuda
    xpu = _conversions.xpu
    ipu = _conversions.ipu
    mtia = _conversions.mtia
    type = _conversions.type
    float = _conversions.float
    double = _conversions.double
    half = _conversions.half
    bfloat16 = _conversions.bfloat16
    share_memory = _conversions.share_memory
    compile = _compiling.compile_module
    _replicate_for_data_parallel = _conversions._replicate_for_data_parallel

    # -- representation ----------------------------------------------------------------------------

    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """What a subclass adds between the parentheses of its ``repr``; several lines are
        allowed.
        """
        return ""

    __repr__ = _repr.module_repr
    _repr_html_ = _repr.module_html

    def __dir__(self) -> list[str]:
        names = [
            *dir(self.__class__),
            *self.__dict__,
            *self._parameters.keys(),
            *self._modules.keys(),
            *self._buffers.keys(),
        ]
        return sorted(name for name in names if not name[0].isdigit())


# Another class may come between Module and its base in an MRO. It is behind all of this one.
for _name, _method in vars(_C.ModuleBase).items():
    if isinstance(_method, MethodDescriptorType) and _name not in vars(Module):
        setattr(Module, _name, _method)
_C._seal_module_class(Module)


# -- process-wide hooks ----------------------------------------------------------------------------


def _register(table: Any, hook: Callable[..., Any], *extra: Any) -> RemovableHandle:
    handle = RemovableHandle(table, extra_dict=list(extra))
    table[handle.id] = hook
    return handle


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls ``hook(module, name, buffer)`` whenever a buffer is registered; a result replaces the
    buffer.
    """
    return _register(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls ``hook(module, name, child)`` whenever a child is registered; a result replaces the
    child.
    """
    return _register(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls ``hook(module, name, parameter)`` whenever a parameter is registered; a result replaces
    it.
    """
    return _register(_global_parameter_registration_hooks, hook)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls ``hook(module, args)`` before the ``forward`` of every module."""
    return _register(_global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Calls ``hook(module, args, output)`` after the ``forward`` of every module."""
    handle = _register(
        _global_forward_hooks,
        hook,
        _global_forward_hooks_with_kwargs,
        _global_forward_hooks_always_called,
    )
    if with_kwargs:
        _global_forward_hooks_with_kwargs[handle.id] = True
    if always_call:
        _global_forward_hooks_always_called[handle.id] = True
    return handle


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """The older form of :func:`register_module_full_backward_hook`."""
    global _global_is_full_backward_hook
    if _global_backward_hooks and _global_is_full_backward_hook is True:
        raise RuntimeError(_MIXED_HOOKS.format(where="as a global Module hook"))
    _global_is_full_backward_hook = False
    return _register(_global_backward_hooks, hook)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls ``hook(module, grad_output)`` before the gradients of any module are computed."""
    return _register(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls ``hook(module, grad_input, grad_output)`` when the gradients of any module's inputs are
    known.
    """
    global _global_is_full_backward_hook
    if _global_backward_hooks and _global_is_full_backward_hook is False:
        raise RuntimeError(_MIXED_HOOKS.format(where="as a global Module hook"))
    _global_is_full_backward_hook = True
    return _register(_global_backward_hooks, hook)


def _has_any_global_hook() -> Any:
    """Truthy when a hook is registered that every call has to look at."""
    return (
        _global_backward_pre_hooks
        or _global_backward_hooks
        or _global_forward_pre_hooks
        or _global_forward_hooks
        or _global_forward_hooks_always_called
        or _global_forward_hooks_with_kwargs
    )
