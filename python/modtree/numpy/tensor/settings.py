# SPDX-License-Identifier: BSD-3-Clause
"""Settings of the whole process that programs make at their start."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from modtree import _C
from modtree._C import dtype
from modtree.numpy.tensor import printing as _format
from modtree.numpy.tensor.blas_threads import set_blas_threads
from modtree.numpy.tensor.dtypes import bfloat16, float16

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_autocast_dtype",
    "get_autocast_gpu_dtype",
    "get_deterministic_debug_mode",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "get_num_threads",
    "is_autocast_cache_enabled",
    "is_autocast_enabled",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_num_threads",
    "set_printoptions",
    "set_warn_always",
    "typename",
    "use_deterministic_algorithms",
]

_precision = "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Permits matrix products of lower precision: "highest", "high" or "medium". Products of
    float32 are always computed in float32.
    """
    global _precision
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"expected 'highest', 'high' or 'medium', got {precision!r}")
    _precision = precision


def get_float32_matmul_precision() -> str:
    """What was set with :func:`set_float32_matmul_precision`."""
    return _precision


_MODES = ("default", "warn", "error")
_deterministic = 0


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Asks for algorithms that give the same results each time, as all here do."""
    global _deterministic
    _deterministic = (1 if warn_only else 2) if mode else 0


def are_deterministic_algorithms_enabled() -> bool:
    """What was asked for; there are no others in any case."""
    return _deterministic > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """True if it was asked for with ``warn_only``."""
    return _deterministic == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """What :func:`use_deterministic_algorithms` does, by a number or a word: 0 or "default", 1 or
    "warn", 2 or "error".
    """
    global _deterministic
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got "
                f"{debug_mode}"
            )
        debug_mode = _MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(
            f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}"
        )
    _deterministic = int(debug_mode)


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: see :func:`set_deterministic_debug_mode`."""
    return _deterministic


# -- threads ---------------------------------------------------------------------------------------

_MOST = 2**31 - 1


def _checked_threads(name: str, count: Any) -> int:
    if not isinstance(count, (int, np.integer)) or isinstance(count, bool):
        raise RuntimeError(f"{name} expects an int, but got {type(count).__name__}")
    if count <= 0:
        raise RuntimeError(f"{name} expects a positive integer, got {count}")
    if count > _MOST:
        raise ValueError(f"{name}: {count} does not fit in 32 bits")
    return int(count)


def set_num_threads(num: int, /) -> None:
    """How many threads an operation uses, where its arrays are large: the native kernels, and the
    library behind NumPy's products of matrices. The kernels' results are the same with any number.

    Args:
        num: 1 or more.
    """
    num = _checked_threads("set_num_threads", num)
    _C._set_thread_count(num)
    set_blas_threads(num)


def get_num_threads() -> int:
    """What was set, else the environment's ``MKL_NUM_THREADS`` or ``OMP_NUM_THREADS`` up to the
    number of cores, else that number.
    """
    return _C._thread_count()


_interop_threads = 1


def set_num_interop_threads(num: int, /) -> None:
    """Kept: operations run one after the other."""
    global _interop_threads
    _interop_threads = _checked_threads("set_num_interop_threads", num)


def get_num_interop_threads() -> int:
    """What was set, or 1."""
    return _interop_threads


def set_flush_denormal(mode: bool) -> bool:
    """False: NumPy computes with denormal numbers, and that was not changed."""
    return False


# -- mixed precision and warnings ------------------------------------------------------------------


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """False."""
    return False


def is_autocast_cache_enabled() -> bool:
    """False."""
    return False


def get_autocast_dtype(device_type: str) -> dtype:
    """What mixed precision would use: float16 on CUDA, bfloat16 elsewhere."""
    return float16 if device_type == "cuda" else bfloat16


def get_autocast_gpu_dtype() -> dtype:
    """float16."""
    return float16


_warn_always = False


def set_warn_always(b: bool) -> None:
    """Kept: Python's filters decide how often a warning is shown."""
    global _warn_always
    _warn_always = bool(b)


def is_warn_always_enabled() -> bool:
    """What was set with :func:`set_warn_always`."""
    return _warn_always


def typename(obj: Any, /) -> str:
    """The name of a type, or of the type of an object, with its module; a tensor's is that of the
    class for its dtype: ``modtree.FloatTensor``.
    """
    if isinstance(obj, _C.TensorBase):
        return obj.type()  # type: ignore[attr-defined]  # Tensor's
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    if isinstance(obj, ModuleType):
        return obj.__name__
    module = named.__module__ or ""
    return named.__qualname__ if module in ("", "builtins") else f"{module}.{named.__qualname__}"


_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": float("inf"), "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """How tensors are printed; what is None stays as it is.

    Args:
        precision: Digits after the point.
        threshold: With more elements, only the first and last ones are printed.
        edgeitems: How many of them at each end of each dimension.
        linewidth: Characters in a line.
        profile: "default", "short" or "full": a value for each of the above.
        sci_mode: True for numbers such as 1.5000e+03, False for none such; None goes back to
            choosing by the values.
    """
    values = dict(_PROFILES[profile]) if profile is not None else {}
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    values.update({k: v for k, v in given.items() if v is not None})
    names = {
        "precision": "PRECISION",
        "threshold": "THRESHOLD",
        "edgeitems": "EDGE",
        "linewidth": "WIDTH",
    }
    for key, value in values.items():
        setattr(_format, names[key], value)
    _format.SCIENTIFIC = sci_mode
