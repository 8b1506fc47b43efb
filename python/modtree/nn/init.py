# SPDX-License-Identifier: BSD-3-Clause
"""Filling tensors with starting values, in place.

Every function takes a tensor of any library whose tensors have torch's in-place methods, records no
gradients, and returns its argument. Random values come from the library's own generator, or from
``generator=``. A tensor without values (device ``meta``) is left alone and no random number is
drawn.
"""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from modtree import _imports
from modtree.core.families import family_of
from modtree.core.type_names import no_tensor
from modtree.numpy.ops.overridable import overridable_all

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]

T = TypeVar("T")

_GAIN_ONE = frozenset(
    ["linear", "sigmoid", *(f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3))]
)
_FIXED_GAINS = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a layer's weights should grow to make up for the nonlinearity after it.

    Args:
        nonlinearity: ``"linear"``, ``"conv1d"`` ... ``"conv_transpose3d"``, ``"sigmoid"``,
            ``"tanh"``, ``"relu"``, ``"leaky_relu"`` or ``"selu"``.
        param: The negative slope of ``leaky_relu`` (default 0.01); ignored for the others.
    """
    if nonlinearity in _GAIN_ONE:
        return 1
    if nonlinearity in _FIXED_GAINS:
        return _FIXED_GAINS[nonlinearity]
    if nonlinearity != "leaky_relu":
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    slope = 0.01 if param is None else param
    if isinstance(slope, bool) or not isinstance(slope, (int, float)):
        raise ValueError(f"negative_slope {slope} not a valid number")
    return math.sqrt(2.0 / (1 + slope**2))


def _calculate_fan_in_and_fan_out(tensor: Any) -> tuple[int, int]:
    if not hasattr(tensor, "dim"):
        _refuse(tensor)
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, "
            f"got shape {tuple(tensor.shape)}"
        )
    receptive = math.prod(tensor.shape[2:])
    return tensor.shape[1] * receptive, tensor.shape[0] * receptive


def _calculate_correct_fan(tensor: Any, mode: str) -> int:
    fans = ("fan_in", "fan_out")
    mode = mode.lower()
    if mode not in fans:
        raise ValueError(f"Mode {mode} not supported, please use one of {list(fans)}")
    return _calculate_fan_in_and_fan_out(tensor)[fans.index(mode)]


def _values(tensor: Any) -> Any:
    """A handle on the same memory whose changes are not recorded."""
    if not hasattr(tensor, "detach"):
        _refuse(tensor)
    return tensor.detach()


def _is_passed_over(values: Any, generator: Any, is_valid: bool) -> bool:
    """True of a tensor on meta, which has no values: only its version was advanced. torch's own
    random functions would make other tensors on meta first.
    """
    if not values.is_meta or generator is not None or not is_valid:
        return False
    if not values.is_floating_point():
        return False
    values.zero_()
    return True


def _refuse(tensor: Any) -> None:
    family = family_of(tensor)
    if family is not None and family.immutable:
        raise TypeError(
            f"nn.init: {family.name}'s tensors cannot change in place: make the model within "
            f"`with modtree.default_family({family.name!r})`, where parameters are initialized "
            f"before they are converted; or convert it to 'numpy' by modtree.to_family, initialize "
            f"it, and convert it back"
        )


def _write(tensor: Any, array: np.ndarray) -> None:
    """Copies an ndarray into a tensor of whatever library."""
    _values(tensor).copy_(_library(tensor).from_numpy(np.ascontiguousarray(array)))


def _library(tensor: Any) -> Any:
    """The top-level package that the tensor's class comes from (it is imported: the tensor
    exists).
    """
    for cls in type(tensor).__mro__:
        package = sys.modules.get(cls.__module__.partition(".")[0])
        if hasattr(package, "from_numpy"):
            return package
    raise TypeError(f"expected a tensor, got {no_tensor(tensor)}")


# -- plain fills -----------------------------------------------------------------------------------


def uniform_(tensor: T, a: float = 0.0, b: float = 1.0, generator: Any = None) -> T:
    """Values from the uniform distribution on [a, b).

    Args:
        tensor: Any shape; changed in place.
        a: The lower bound.
        b: The upper bound.
        generator: Where random numbers come from; the library's own by default.
    """
    values = _values(tensor)
    if not _is_passed_over(values, generator, a <= b):
        values.uniform_(a, b, generator=generator)
    return tensor


def normal_(tensor: T, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> T:
    """Values from the normal distribution.

    Args:
        tensor: Any shape; changed in place.
        mean: The mean.
        std: The standard deviation.
        generator: Where random numbers come from; the library's own by default.
    """
    values = _values(tensor)
    if not _is_passed_over(values, generator, std >= 0):
        values.normal_(mean, std, generator=generator)
    return tensor


def constant_(tensor: T, val: float) -> T:
    """One value everywhere."""
    _values(tensor).fill_(val)
    return tensor


def ones_(tensor: T) -> T:
    """1 everywhere."""
    return constant_(tensor, 1.0)


def zeros_(tensor: T) -> T:
    """0 everywhere."""
    _values(tensor).zero_()
    return tensor


def trunc_normal_(
    tensor: Any,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Any:
    """Values from the normal distribution restricted to [a, b]; ``a`` and ``b`` are absolute, not
    multiples of std.

    Args:
        tensor: Any shape; changed in place.
        mean: Of the distribution before it is cut off.
        std: Likewise.
        a: The lower bound.
        b: The upper bound.
        generator: Where random numbers come from; the library's own by default.
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_: nearly all values lie "
            "at one end of the interval",
            stacklevel=2,
        )
    if a > b:
        raise RuntimeError(f"trunc_normal_ expects a <= b, but found a={a} > b={b}")
    if std == 0:
        raise ZeroDivisionError("trunc_normal_: std must not be 0")
    if tensor.is_meta:
        return tensor
    # The inverse of the distribution function, tabulated; float64 draws, rounded once at the end.
    draws = _values(tensor).uniform_(0.0, 1.0, generator=generator)
    z, cdf = _truncated_cdf((a - mean) / abs(std), (b - mean) / abs(std))
    values = mean + abs(std) * np.interp(_to_numpy(draws), cdf, z)
    _write(tensor, np.clip(values, a, b))
    return tensor


def _to_numpy(tensor: Any) -> np.ndarray:
    return tensor.cpu().double().numpy()


def _truncated_cdf(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Points z in [low, high] and the share of a standard normal variable's mass, of that in [low,
    high], below them.
    """
    nearest = min(max(0.0, low), high)
    # Mass further than this from its densest point is below 1e-16 of the whole.
    reach = 8.5 if nearest == 0 else min(8.5, 37.0 / abs(nearest))
    low, high = max(low, nearest - reach), min(high, nearest + reach)
    z = np.linspace(low, high, 1 << 14)
    density = np.exp((nearest**2 - z**2) / 2)
    steps = (density[1:] + density[:-1]) / 2
    cdf = np.concatenate([[0.0], np.cumsum(steps)])
    return (z, cdf / cdf[-1]) if cdf[-1] > 0 else (z, np.linspace(0, 1, z.size))


# -- patterns --------------------------------------------------------------------------------------


def eye_(tensor: Any) -> Any:
    """The identity matrix, cut off where the tensor is not square."""
    if len(tensor.shape) != 2:
        raise ValueError(
            f"Only tensors with 2 dimensions are supported, got shape {tuple(tensor.shape)}"
        )
    if not tensor.is_meta:
        _write(tensor, np.eye(*tensor.shape))
    return tensor


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """A convolution's weight that passes channels through: per group, channel d to channel d as far
    as both exist.
    """
    shape = tuple(tensor.shape)
    if len(shape) not in (3, 4, 5):
        raise ValueError(
            f"Only tensors with 3, 4, or 5 dimensions are supported, got shape {shape}"
        )
    if shape[0] % groups:
        raise ValueError(f"dim 0 must be divisible by groups, got {shape[0]} and groups={groups}")
    if tensor.is_meta:
        return tensor
    weight = np.zeros(shape)
    per_group = shape[0] // groups
    channels = np.arange(min(per_group, shape[1]))
    centre = tuple(size // 2 for size in shape[2:])
    for group in range(groups):
        ones = (group * per_group + channels, channels, *centre)
        weight[ones] = 1
    _write(tensor, weight)
    return tensor


# -- scaled by the number of connections -----------------------------------------------------------


def _xavier_std(tensor: Any, gain: float) -> float:
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return gain * math.sqrt(2.0 / float(fan_in + fan_out))


def xavier_uniform_(tensor: T, gain: float = 1.0, generator: Any = None) -> T:
    """Uniform in plus or minus ``gain * sqrt(6 / (fan_in + fan_out))`` (Glorot and Bengio,
    2010).

    Args:
        tensor: At least 2-D; changed in place.
        gain: A factor, see :func:`calculate_gain`.
        generator: Where random numbers come from; the library's own by default.
    """
    bound = math.sqrt(3.0) * _xavier_std(tensor, gain)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: T, gain: float = 1.0, generator: Any = None) -> T:
    """Normal with standard deviation ``gain * sqrt(2 / (fan_in + fan_out))`` (Glorot and Bengio,
    2010).

    Args:
        tensor: At least 2-D; changed in place.
        gain: A factor, see :func:`calculate_gain`.
        generator: Where random numbers come from; the library's own by default.
    """
    return normal_(tensor, 0.0, _xavier_std(tensor, gain), generator)


def _kaiming_std(tensor: Any, a: float, mode: str, nonlinearity: str) -> float | None:
    """None for a tensor without elements: there is nothing to do."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: T,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> T:
    """Uniform in plus or minus ``gain * sqrt(3 / fan)`` (He et al., 2015).

    Args:
        tensor: At least 2-D.
        a: The negative slope after this layer, for ``"leaky_relu"``.
        mode: ``"fan_in"`` keeps the size of activations, ``"fan_out"`` that of gradients.
        nonlinearity: What follows, see :func:`calculate_gain`.
        generator: Where random numbers come from.
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: T,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> T:
    """Normal with standard deviation ``gain / sqrt(fan)`` (He et al., 2015).

    Args:
        tensor: At least 2-D; changed in place.
        a: The negative slope after this layer, for ``"leaky_relu"``.
        mode: ``"fan_in"`` keeps the size of activations, ``"fan_out"`` that of gradients.
        nonlinearity: What follows, see :func:`calculate_gain`.
        generator: Where random numbers come from; the library's own by default.
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0.0, std, generator)


# -- matrices --------------------------------------------------------------------------------------


def orthogonal_(tensor: Any, gain: float = 1, generator: Any = None) -> Any:
    """A random matrix with orthonormal rows or columns, whichever are fewer, times ``gain`` (Saxe
    et al., 2013).

    More than two axes count as a matrix of the first against all others.

    Args:
        tensor: At least 2-D; changed in place.
        gain: A factor.
        generator: Where random numbers come from; the library's own by default.
    """
    shape = tuple(tensor.shape)
    if len(shape) < 2:
        raise ValueError(f"Only tensors with 2 or more dimensions are supported, got shape {shape}")
    if 0 in shape or tensor.is_meta:
        return tensor
    normal_(tensor, 0.0, 1.0, generator)
    matrix = _to_numpy(_values(tensor)).reshape(shape[0], -1)
    wide = matrix.shape[0] < matrix.shape[1]
    q, r = np.linalg.qr(matrix.T if wide else matrix)
    # A unique decomposition (positive diagonal of r) makes q uniformly distributed.
    q = q * np.sign(np.diag(r))
    _write(tensor, gain * (q.T if wide else q).reshape(shape))
    return tensor


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Any:
    """Normal values, of which the share ``sparsity`` of every column is set to 0 (Martens, 2010).

    Which ones is drawn from the library's global generator.

    Args:
        tensor: 2-D; changed in place.
        sparsity: The share of zeros in a column.
        std: Standard deviation of the others.
        generator: Where the values come from; not the choice of zeros.
    """
    if len(tensor.shape) != 2:
        raise ValueError(
            f"Only tensors with 2 dimensions are supported, got shape {tuple(tensor.shape)}"
        )
    if tensor.is_meta:
        return tensor
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    values = _values(tensor)
    values.normal_(0, std, generator=generator)
    randperm = _library(tensor).randperm
    for column in range(columns):
        order = randperm(rows)
        values[order[:zeros], column] = 0
    return tensor


overridable_all(globals(), ("uniform_", "normal_", "constant_", "kaiming_uniform_"))

# -- names from before the underscore --------------------------------------------------------------


def _deprecated(function: Callable[..., T]) -> Callable[..., T]:
    new = function.__name__
    old = new[:-1]

    @functools.wraps(function)
    def forward(*args: Any, **kwargs: Any) -> T:
        warnings.warn(
            f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    forward.__name__ = forward.__qualname__ = old
    forward.__doc__ = f"Deprecated: use :func:`{new}`.\n\n    {function.__doc__ or ''}"
    return forward


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)

_imports.answer_for_missing(__name__)
