# SPDX-License-Identifier: BSD-3-Clause
"""What all optimizers share: parameter groups, state, its dict, and hooks."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from modtree import _C
from modtree.core.families import family_of
from modtree.core.hooks import RemovableHandle
from modtree.core.module import Module
from modtree.numpy.tensor.grad_mode import enable_grad
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "Optimizer",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
    "required",
]


class _Required:
    """Marks an option that has no default: every group must give it."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()

_global_pre_hooks: OrderedDict[int, Any] = OrderedDict()
_global_post_hooks: OrderedDict[int, Any] = OrderedDict()

_BY_NAMES = "modtree.load_optimizer_state() goes by the names of parameters"

_HOOK_TABLES = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


def _register(table: Any, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(table)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls ``hook(optimizer, args, kwargs)`` before every step of every optimizer."""
    return _register(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls ``hook(optimizer, args, kwargs)`` after every step of every optimizer."""
    return _register(_global_post_hooks, hook)


def _with_hooks(step: Any) -> Any:
    """``step`` of a class, with the hooks before and after it."""

    @functools.wraps(step)
    def hooked_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Hooks see the arguments with the optimizer in front, as torch hands them over.
        args = (self, *args)
        for hook in (*_global_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()):
            changed = hook(self, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"a step pre-hook must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {changed!r}"
                    )
                args, kwargs = changed
        result = step(*args, **kwargs)
        for hook in (*self._optimizer_step_post_hooks.values(), *_global_post_hooks.values()):
            hook(self, args, kwargs)
        return result

    hooked_step.hooked = True  # type: ignore[attr-defined]
    return hooked_step


class Optimizer:
    """Base of the optimizers; a subclass gives :meth:`step`.

    Args:
        params: tensors, ``(name, tensor)`` pairs, or dicts with ``params`` and options of their own
            (parameter groups).
        defaults: the options of groups that do not give them.

    Raises:
        TypeError: ``params`` is one tensor, or something in it is no tensor of modtree.
        ValueError: there are no parameters, one is in two groups, or one is no leaf of the graph.
    """

    defaults: dict[str, Any]
    state: defaultdict[Any, Any]
    param_groups: list[dict[str, Any]]
    _optimizer_step_pre_hooks: OrderedDict[int, Any]
    _optimizer_step_post_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Any]

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._set_up()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {_type_name(params)}; put it into a list"
            )
        if isinstance(params, Module) and not isinstance(params, Iterable):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {_type_name(params)}; give its parameters()"
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _set_up(self) -> None:
        for name in _HOOK_TABLES:
            self.__dict__.setdefault(name, OrderedDict())
        cls = type(self)
        # Here rather than in __init_subclass__: a step put on the class later is found as well.
        if not getattr(cls.step, "hooked", False):
            cls.step = _with_hooks(cls.step)  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_up()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    # -- hooks -------------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls ``hook(optimizer, args, kwargs)`` before :meth:`step`; it may return ``(new_args,
        new_kwargs)``.
        """
        return _register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls ``hook(optimizer, args, kwargs)`` after :meth:`step`."""
        return _register(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls ``hook(optimizer)`` before :meth:`state_dict`."""
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls ``hook(optimizer, state_dict)`` after :meth:`state_dict`; what it returns, unless
        None, takes its place.
        """
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls ``hook(optimizer, state_dict)`` before loading; what it returns, unless None, is
        loaded instead.
        """
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls ``hook(optimizer)`` after loading."""
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # -- state -------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state with parameters replaced by their numbers: ``{"state": {...}, "param_groups":
        [...]}``.

        The tensors are the optimizer's own: the next step changes them. Copy what has to stay.
        """
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        # A parameter's number is its place in the list of all; its last place, if a group has it
        # twice.
        places = itertools.count()
        numbers = {id(p): next(places) for group in self.param_groups for p in group["params"]}
        groups = []
        for group in self.param_groups:
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {
            numbers[id(key)] if isinstance(key, Tensor) else key: value
            for key, value in self.state.items()
        }
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, result)
            if changed is not None:
                result = changed
        return result

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over what :meth:`state_dict` returned, of modtree or of torch. Parameters are told
        by their places; :func:`modtree.load_optimizer_state` goes by their names.

        Tensors of the state get their parameter's device and, if floating, its dtype; a tensor that
        fits already is used itself. Arrays and tensors of another library are converted.

        Raises:
            ValueError: the groups, or the numbers of parameters in them, differ. Nothing has
                changed.
        """
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        saved = deepcopy(state_dict["param_groups"])
        groups = self.param_groups
        if len(groups) != len(saved):
            raise ValueError(
                f"loaded state dict has a different number of parameter groups ({len(saved)}, "
                f"the optimizer {len(groups)}). {_BY_NAMES}"
            )
        for i, (group, new) in enumerate(zip(groups, saved, strict=True)):
            if len(group["params"]) != len(new["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of "
                    f"optimizer's group (group {i}: {len(new['params'])} parameters, the optimizer "
                    f"{len(group['params'])}). {_BY_NAMES}"
                )
        owners: dict[Any, tuple[Any, Any]] = {}
        for group, new in zip(groups, saved, strict=True):
            owners.update(zip(new["params"], ((p, new) for p in group["params"]), strict=True))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in owners:
                state[owners[key][0]] = _fit(value, *owners[key])
            else:
                state[key] = value
        for group, new in zip(groups, saved, strict=True):
            new["params"] = group["params"]
            if "param_names" in group:
                new.setdefault("param_names", group["param_names"])
        before = dict(self.__dict__)
        try:
            self.__setstate__({"state": state, "param_groups": saved})
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    # -- steps -------------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters, or fills them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                    continue
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters once.

        Args:
            closure: computes the loss anew, with gradients; its value is returned.
        """
        raise NotImplementedError(f"{type(self).__name__} has no step()")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with options of their own, for example layers that are trained from now
        on.

        Args:
            param_group: a dict with ``params``; options it lacks come from ``defaults``. It is
                changed and kept.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        added: dict[str, Any] = {}  # to the group, once it is accepted
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the order "
                "of tensors in sets changes between runs. Please use a list instead."
            )
        params = list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        if names:
            if len(names) != len(params):
                raise ValueError(
                    "all optimizer params should be with/without names. Some param names are "
                    "missing"
                )
            added["param_names"] = names
            params = [p[1] for p in params]
        added["params"] = params
        for p in params:
            _check_param(p, self.defaults)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    f"parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            if name not in param_group:
                added[name] = default
        ids = set(map(id, params))
        if len(ids) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; each of its "
                "places is stepped",
                stacklevel=3,
            )
        for group in self.param_groups:
            if ("param_names" in group) != bool(names):
                kind = "with names" if names else "without names"
                raise ValueError(
                    "all optimizer param groups should be with/without names. "
                    f"cannot add param group {kind} to the optimizer"
                )
            if not ids.isdisjoint(map(id, group["params"])):
                raise ValueError("some parameters appear in more than one parameter group")
        param_group.update(added)
        self.param_groups.append(param_group)


def run_closure(closure: Callable[[], Any] | None) -> Any:
    """The loss of the closure of a step, computed with gradients; None without one."""
    if closure is None:
        return None
    with enable_grad():
        return closure()


def _type_name(value: Any) -> str:
    cls = type(value)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


_INSTEAD = {
    "torch": "; use torch.optim for tensors of torch",
    "jax": "; jax arrays never change: use optax, with the gradients of modtree.jax.grad()",
}


def _check_param(p: Any, defaults: Mapping[str, Any]) -> None:
    if not isinstance(p, Tensor):
        name = _type_name(p)
        family = family_of(p)
        hint = _INSTEAD.get(family.name, "") if family is not None else ""
        if isinstance(p, Module):
            hint = "; give its parameters()"
        raise TypeError(
            f"optimizer can only optimize Tensors, but one of the params is {name}{hint}"
        )
    if not (p.is_leaf or p.retains_grad):
        raise ValueError(
            "can't optimize a non-leaf Tensor: it is the result of an operation; "
            "optimize the tensors that it was computed from, or its detach()"
        )


def as_own_tensor(value: Any) -> Any:
    """A copy of an array or of another library's tensor as a tensor of modtree; other values as
    they are.
    """
    if isinstance(value, np.ndarray):
        return _C.own_array(np.array(value))
    if isinstance(value, Tensor) or not all(
        hasattr(value, name) for name in ("detach", "cpu", "numpy", "dtype")
    ):
        return value
    return _C.own_array(np.array(value.detach().cpu().numpy()))


def _fit(value: Any, p: Any, group: Mapping[str, Any], key: Any = None) -> Any:
    """A value of a loaded state with its tensors on the device and in the dtype of their
    parameter.
    """
    value = as_own_tensor(value)
    if isinstance(value, Tensor):
        if key == "step":
            # A counter: the parameter's dtype could not count far in half precision.
            if group.get("capturable") or group.get("fused"):
                return value.to(dtype=_C.as_dtype("float32"), device=p.device)
            return value
        if p.is_floating_point():
            return value.to(dtype=p.dtype, device=p.device)
        return value.to(device=p.device)
    if isinstance(value, Mapping):
        return {k: _fit(v, p, group, k) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return type(value)(_fit(v, p, group) for v in value)  # type: ignore[call-arg]
    return value
