# SPDX-License-Identifier: BSD-3-Clause
"""Parametrizations: orthogonal matrices, and weights divided by a norm."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from modtree.core.module import Module
from modtree.nn.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from modtree.nn.utils import parametrize
from modtree.nn.utils._library import hooks_named, is_tensor, library_of, no_grad, unit_vector
from modtree.nn.utils.weight_norm import norm_except_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def _tensor_of(module: Any, name: str) -> Any:
    tensor = getattr(module, name, None)
    if not is_tensor(tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return tensor


# -- orthogonal ------------------------------------------------------------------------------------


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


def _unit_matrix(n: int, like: Any) -> Any:
    return library_of(like).eye(n, dtype=like.dtype, device=like.device)


def _is_orthogonal(q: Any) -> bool:
    library = library_of(q)
    tolerance = 10.0 * q.shape[-2] * library.finfo(q.dtype).eps
    return library.allclose(q.mH @ q, _unit_matrix(q.shape[-1], q), atol=tolerance)


def _make_orthogonal(a: Any) -> Any:
    """Q of the QR decomposition whose R has a positive diagonal: uniform for normal values."""
    library = library_of(a)
    x, tau = library.geqrf(a)
    q = library.linalg.householder_product(x, tau)
    return q * x.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """A matrix with orthonormal columns, or rows if it is wide, from an unrestricted one.

    With trivialization the buffer ``base`` is what was assigned last, and the unrestricted matrix
    describes the way from there.
    """

    base: Any
    _set_by_right_inverse = ("base",)

    def __init__(
        self, weight: Any, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True
    ) -> None:
        super().__init__()
        # The reflections of a unitary matrix are not enough: it has phases too.
        if weight.is_complex() and orthogonal_map is _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Any) -> Any:
        """The orthogonal matrix."""
        wide = x.shape[-2] < x.shape[-1]
        if wide:
            x = x.mT
        reflects = self.orthogonal_map is _OrthMaps.householder
        q = self._from_reflections(x) if reflects else self._from_skew(x)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    def _from_skew(self, x: Any) -> Any:
        """A function of the skew-symmetric matrix whose lower triangle is that of ``x``."""
        n, k = x.shape[-2:]
        library = library_of(x)
        lower = x.tril()
        if n != k:
            lower = library.cat([lower, x.new_zeros((*x.shape[:-2], n, n - k))], dim=-1)
        skew = lower - lower.mH
        if self.orthogonal_map is _OrthMaps.matrix_exp:
            q = library.linalg.matrix_exp(skew)
        else:
            unit, half = _unit_matrix(n, skew), skew * 0.5
            q = library.linalg.solve(unit - half, unit + half)
        return q if n == k else q[..., :k]

    def _from_reflections(self, x: Any) -> Any:
        """The product of the reflections at the columns below the diagonal, on which the signs of
        the columns are.
        """
        vectors = x.tril(diagonal=-1)
        tau = 2.0 / (1.0 + (vectors * vectors).sum(dim=-2))
        q = library_of(x).linalg.householder_product(vectors, tau)
        return q * x.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)

    def right_inverse(self, value: Any) -> Any:
        """The unrestricted matrix of an orthogonal one. Others are made orthogonal, if there is a
        base.
        """
        with no_grad(value):
            if value.shape != self.shape:
                raise ValueError(
                    f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor "
                    f"of shape {value.shape}."
                )
            wide = value.shape[-2] < value.shape[-1]
            q = value.mT if wide else value
            if not hasattr(self, "base"):
                found = self._reflections_of(q)
                return found.mT if wide else found
            self.base = self._completed(q)
            library = library_of(value)
            return library.zeros_like(value) - library.eye(
                *value.shape[-2:], dtype=value.dtype, device=value.device
            )

    def _reflections_of(self, q: Any) -> Any:
        if self.orthogonal_map is not _OrthMaps.householder:
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        library = library_of(q)
        a, tau = library.geqrf(q)
        # R is diagonal with entries of 1 and -1. Where a vector is 0, LAPACK's reflection is the
        # identity and ours is not.
        diagonal = a.diagonal(dim1=-2, dim2=-1)
        diagonal.copy_(library.where(tau == 0.0, -diagonal.sign(), diagonal.sign()))
        return a

    @staticmethod
    def _completed(q: Any) -> Any:
        """A square orthogonal matrix with the columns of ``q`` in front."""
        n, k = q.shape[-2:]
        if n == k:
            return q.clone() if _is_orthogonal(q) else _make_orthogonal(q)
        library = library_of(q)
        others = library.randn((*q.shape[:-2], n, n - k), dtype=q.dtype, device=q.device)
        return _make_orthogonal(library.cat([q, others], dim=-1))


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Makes a matrix, or each of a batch, orthogonal: its columns are orthonormal, or its rows if
    it is wide.

    Args:
        module: Changed in place and returned.
        name: The tensor's name.
        orthogonal_map: How it is computed from an unrestricted matrix: ``"matrix_exp"`` (when left
            out, for square and complex matrices), ``"cayley"`` or ``"householder"`` (when left out,
            for others).
        use_trivialization: Start from the last value that was assigned, in the buffer ``base``.

    Raises:
        ValueError: There is no such tensor, it has less than two dimensions, or the map is unknown
            or not for complex matrices.

    Example:
        >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(20, 40))
        >>> product = layer.weight.T @ layer.weight
        >>> bool((product - mt.eye(20)).abs().max() < 1e-5)
        True
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _OrthMaps.__members__:
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: '
            f"{orthogonal_map}"
        )
    parametrization = _Orthogonal(
        weight, _OrthMaps[orthogonal_map], use_trivialization=use_trivialization
    )
    return parametrize.register_parametrization(module, name, parametrization, unsafe=True)


# -- weight_norm -----------------------------------------------------------------------------------


class _LoadsOldNames:
    """A load pre-hook: state dicts of the older ``weight_norm`` have name_g and name_v."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, state_dict: Any, prefix: str, *_rest: Any) -> None:
        old = [f"{prefix}{self.name}_{letter}" for letter in "gv"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                new = f"{prefix}parametrizations.{self.name}.original{i}"
                state_dict[new] = state_dict.pop(key)


class _WeightNorm(Module):
    """A tensor from its lengths along a dimension and its directions."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        """direction * length."""
        return weight_v * (weight_g / norm_except_dim(weight_v, 2, self.dim))

    def right_inverse(self, weight: Any) -> Any:
        """Lengths and directions."""
        return norm_except_dim(weight, 2, self.dim), weight

    _hook_kind = _LoadsOldNames

    def _removed_from(self, module: Any, name: str) -> None:
        hooks = module._load_state_dict_pre_hooks
        for key in hooks_named(hooks, _LoadsOldNames, name):
            del hooks[key]


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Keeps a tensor as its lengths along ``dim`` (original0) and its directions (original1).

    State dicts of :func:`modtree.nn.utils.weight_norm` can be loaded.

    Args:
        module: Changed in place and returned.
        name: The tensor's name.
        dim: Each part along it has a length of its own; None, or -1: one length for all.

    Example:
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(20, 40))
        >>> layer.parametrizations.weight.original0.shape
        modtree.Size([40, 1])
    """

    def is_hook(hook: Any) -> bool:
        return isinstance(hook, _LoadsOldNames) and hook.name == name

    with parametrize.all_undone_on_error(module, [name], is_hook):
        parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
        module._register_load_state_dict_pre_hook(_LoadsOldNames(name))
    return module


# -- spectral_norm ---------------------------------------------------------------------------------


class _SpectralNorm(Module):
    """A tensor divided by its largest singular value as a matrix; the singular vectors are buffers,
    improved at each read while training.
    """

    _u: Any
    _v: Any

    def __init__(
        self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but "
                f"got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            with no_grad(weight):
                matrix = self._as_matrix(weight)
                for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                    start = matrix.new_empty(size).normal_(0, 1)
                    self.register_buffer(name, unit_vector(start, eps))
            # Close to the singular vectors from the start.
            self._improve(matrix, 15)

    def _as_matrix(self, weight: Any) -> Any:
        """The weight with ``dim`` as rows."""
        return weight.movedim(self.dim, 0).flatten(1)

    def _improve(self, matrix: Any, iterations: int) -> None:
        with no_grad(matrix):
            for _ in range(iterations):
                # In place, so that the buffers stay the tensors that others know.
                self._u.copy_(unit_vector(matrix.mv(self._v), self.eps))
                self._v.copy_(unit_vector(matrix.mH.mv(self._u), self.eps))

    def forward(self, weight: Any) -> Any:
        """The divided tensor."""
        if weight.ndim == 1:
            return unit_vector(weight, self.eps)
        matrix = self._as_matrix(weight)
        if self.training:
            self._improve(matrix, self.n_power_iterations)
        # The next read changes the buffers, while a graph may still need these values.
        u, v = self._u.clone(), self._v.clone()
        return weight / u.vdot(matrix.mv(v))

    def right_inverse(self, value: Any) -> Any:
        """The value itself, which need not be its own result."""
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divides a tensor, as a matrix, by its largest singular value; a vector by its length.

    The singular value is followed by power iterations, whose vectors are the buffers ``_u`` and
    ``_v`` of the parametrization.

    Args:
        module: Changed in place and returned.
        name: The tensor's name.
        n_power_iterations: Iterations at each read while training.
        eps: Keeps lengths of vectors from 0.
        dim: The dimension of the outputs; 1 for transposed convolutions and 0 for others when left
            out.

    Raises:
        ValueError: There is no such tensor, or ``n_power_iterations`` is not positive.
        IndexError: The tensor has no such dimension.

    Example:
        >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(20, 40)).eval()
        >>> bool(mt.linalg.matrix_norm(layer.weight, 2) < 1.5)
        True
    """
    weight = _tensor_of(module, name)
    if dim is None:
        transposed = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
        dim = 1 if isinstance(module, transposed) else 0
    parametrization = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return parametrize.register_parametrization(module, name, parametrization)
