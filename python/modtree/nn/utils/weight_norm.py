# SPDX-License-Identifier: BSD-3-Clause
"""Weights kept as lengths and directions."""

from __future__ import annotations

import warnings
from typing import Any

from modtree.core.families import is_lazy
from modtree.core.undo import undone_on_error
from modtree.nn.utils._library import hooks_named, is_hook_of, no_grad
from modtree.numpy.tensor.parameter import Parameter

__all__ = ["norm_except_dim", "remove_weight_norm", "weight_norm"]


def refuse_lazy(weight: Any, what: str) -> None:
    if is_lazy(weight):
        raise ValueError(
            f"The module passed to `{what}` can't have uninitialized parameters. Call the module "
            f"once before"
        )


def norm_except_dim(v: Any, pow: int = 2, dim: int = 0) -> Any:  # noqa: A002
    """The norms of the parts of v along ``dim``, all other dimensions 1; one norm for all of v with
    ``dim=-1``.
    """
    if dim == -1:
        return v.norm(pow)
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    return v.norm(pow, dim=others, keepdim=True) if others else v.abs()


class WeightNorm:
    """The hook that computes a weight from its parameters before each call."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Any:
        """direction * length."""
        length, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (length / norm_except_dim(v, 2, self.dim))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def _removed(
    module: Any, name: str, kind: type, words: str, suffixes: tuple[str, ...], **options: Any
) -> Any:
    """The module with the computed weight as a parameter, without the hook and what it needed."""
    keys = hooks_named(module._forward_pre_hooks, kind, name)
    if not keys:
        raise ValueError(f"{words} of '{name}' not found in {module}")
    with no_grad(getattr(module, name)):
        weight = module._forward_pre_hooks[keys[0]].compute_weight(module, **options)
    names = (name, *(name + suffix for suffix in suffixes))
    with undone_on_error(module, *names, is_hook=lambda hook: is_hook_of(hook, kind, name)):
        delattr(module, name)
        for suffix in suffixes:
            delattr(module, name + suffix)
        setattr(module, name, Parameter(weight.detach()))
        del module._forward_pre_hooks[keys[0]]
    return module


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Replaces a parameter of a module by its lengths along ``dim`` (name_g) and its directions
    (name_v).

    Args:
        module: Changed in place and returned.
        name: The parameter's name.
        dim: Each part along it has a length of its own; None: one length for all.

    Raises:
        RuntimeError: The parameter is normalized already.
        ValueError: The parameter has no shape yet.
    """
    warnings.warn(
        "`nn.utils.weight_norm` is deprecated in favor of `nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    if hooks_named(module._forward_pre_hooks, WeightNorm, name):
        raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    hook = WeightNorm(name, dim)
    weight = getattr(module, name)
    refuse_lazy(weight, "WeightNorm")
    lengths = Parameter(norm_except_dim(weight.detach(), 2, hook.dim))
    names = (name, name + "_g", name + "_v")
    with undone_on_error(module, *names, is_hook=lambda each: each is hook):
        del module._parameters[name]
        module.register_parameter(name + "_g", lengths)
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Makes the normalized weight a parameter again.

    Raises:
        ValueError: It is not normalized.
    """
    return _removed(module, name, WeightNorm, "weight_norm", ("_g", "_v"))
