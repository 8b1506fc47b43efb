# SPDX-License-Identifier: BSD-3-Clause
"""Weights divided by their largest singular value."""

from __future__ import annotations

from typing import Any

from modtree._tensor.grad_mode import no_grad
from modtree.nn.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from modtree.nn.functional import normalize
from modtree.nn.utils.weight_norm import _hooks, _removed, refuse_lazy

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
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(normalize(matrix.mT.mv(u), dim=0, eps=self.eps))
                    u.copy_(normalize(matrix.mv(v), dim=0, eps=self.eps))
                # A later call changes the buffers, while a graph may still need these values.
                u, v = u.clone(), v.clone()
        return weight / u.dot(matrix.mv(v))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


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
    if _hooks(module, name, SpectralNorm):
        raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    if dim is None:
        transposed = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
        dim = 1 if isinstance(module, transposed) else 0
    hook = SpectralNorm(name, n_power_iterations, dim, eps)
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    refuse_lazy(weight, "SpectralNorm")
    with no_grad():
        rows, columns = hook.as_matrix(weight.detach()).shape
        u, v = (normalize(weight.new_empty(n).normal_(), dim=0, eps=eps) for n in (rows, columns))
    del module._parameters[name]
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())  # until the first call
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Makes the divided weight a parameter again.

    Raises:
        ValueError: It is not normalized.
    """
    suffixes = ("_u", "_v", "_orig")
    return _removed(module, name, SpectralNorm, "spectral_norm", suffixes, improve=False)
