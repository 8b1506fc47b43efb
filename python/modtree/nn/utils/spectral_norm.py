# SPDX-License-Identifier: BSD-3-Clause
"""Weights divided by their largest singular value."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from modtree.core.undo import undone_on_error
from modtree.nn.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from modtree.nn.utils._library import (
    hooks_named,
    is_hook_of,
    library_of,
    no_grad,
    unit_vector,
)
from modtree.nn.utils.weight_norm import _removed, refuse_lazy

__all__ = ["remove_spectral_norm", "spectral_norm"]


class SpectralNorm:
    """The hook that computes the weight before each call; the singular vectors are buffers,
    improved by each call while training.
    """

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.name, self.n_power_iterations = name, n_power_iterations
        self.dim, self.eps = dim, eps

    def as_matrix(self, weight: Any) -> Any:
        """The weight with ``dim`` as rows."""
        return weight.movedim(self.dim, 0).flatten(1) if weight.ndim > 1 else weight[:, None]

    def compute_weight(self, module: Any, improve: bool) -> Any:
        """The weight over its largest singular value, as far as the vectors know it."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.as_matrix(weight)
        if improve:
            with no_grad(matrix):
                for _ in range(self.n_power_iterations):
                    v.copy_(unit_vector(matrix.mT.mv(u), self.eps))
                    u.copy_(unit_vector(matrix.mv(v), self.eps))
                # A later call changes the buffers, while a graph may still need these values.
                u, v = u.clone(), v.clone()
        return weight / u.dot(matrix.mv(v))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


class _SaysVersion:
    """A state dict hook: the metadata say in which form the vectors are kept."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, _module: Any, _state_dict: Any, _prefix: str, metadata: Any) -> None:
        metadata.setdefault("spectral_norm", {})[f"{self.name}.version"] = 1


class _LoadsEarlierVersion:
    """A load pre-hook: state dicts of the earliest form have the divided weight, but no ``v``."""

    def __init__(self, norm: SpectralNorm) -> None:
        self.norm, self.name = norm, norm.name

    def __call__(
        self,
        state_dict: Any,
        prefix: str,
        metadata: Any,
        strict: bool,
        missing: list[str],
        *_rest: Any,
    ) -> None:
        version = metadata.get("spectral_norm", {}).get(f"{self.name}.version")
        divided, original, u, v = (prefix + self.name + end for end in ("", "_orig", "_u", "_v"))
        has_vectors = all(key in state_dict for key in (original, u, v))
        if version is None and has_vectors and divided not in state_dict:
            return  # the metadata were lost
        if version is not None and version >= 1:
            return
        absent = [key for key in (original, divided, u) if key not in state_dict]
        if absent:
            missing.extend(absent if strict else [])
            return
        weight = state_dict[original]
        with no_grad(weight):
            value = (weight / state_dict.pop(divided)).mean()
            matrix = self.norm.as_matrix(weight)
            # The shortest v that the matrix turns into u; its length is of no importance.
            found = library_of(weight).linalg.pinv(matrix).mv(state_dict[u])
            state_dict[v] = found * (value / state_dict[u].dot(matrix.mv(found)))


def _undone_on_error(module: Any, name: str) -> AbstractContextManager[None]:
    kinds = (SpectralNorm, _SaysVersion, _LoadsEarlierVersion)
    names = (name, name + "_orig", name + "_u", name + "_v")
    return undone_on_error(module, *names, is_hook=lambda hook: is_hook_of(hook, kinds, name))


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Divides a parameter by its largest singular value, which is followed by power iterations.

    The parameter becomes name_orig; the vectors are the buffers name_u and name_v.

    Args:
        module: Changed in place and returned.
        name: The parameter's name.
        n_power_iterations: Iterations in each call while training.
        eps: Keeps norms of vectors from 0.
        dim: The dimension of the outputs; 1 for transposed convolutions and 0 for others when left
            out.

    Raises:
        RuntimeError: The parameter is normalized already.
        ValueError: ``n_power_iterations`` is not positive, or the parameter has no shape yet.
    """
    if hooks_named(module._forward_pre_hooks, SpectralNorm, name):
        raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    if dim is None:
        transposed = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
        dim = 1 if isinstance(module, transposed) else 0
    hook = SpectralNorm(name, n_power_iterations, dim, eps)
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    refuse_lazy(weight, "SpectralNorm")
    with no_grad(weight):
        rows, columns = hook.as_matrix(weight.detach()).shape
        u, v = (unit_vector(weight.new_empty(n).normal_(), eps) for n in (rows, columns))
    with _undone_on_error(module, name):
        del module._parameters[name]
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.detach())  # until the first call
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(hook)
        module._register_state_dict_hook(_SaysVersion(name))
        module._register_load_state_dict_pre_hook(_LoadsEarlierVersion(hook))
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Makes the divided weight a parameter again.

    Raises:
        ValueError: It is not normalized.
    """
    suffixes = ("_u", "_v", "_orig")
    with _undone_on_error(module, name):
        _removed(module, name, SpectralNorm, "spectral_norm", suffixes, improve=False)
        for hooks, kind in (
            (module._state_dict_hooks, _SaysVersion),
            (module._load_state_dict_pre_hooks, _LoadsEarlierVersion),
        ):
            for key in hooks_named(hooks, kind, name):
                del hooks[key]
    return module
