# SPDX-License-Identifier: BSD-3-Clause
"""Settings of the whole process that programs make at their start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modtree._tensor import printing as _format

__all__ = [
    "are_deterministic_algorithms_enabled",
    "compile",
    "get_float32_matmul_precision",
    "set_float32_matmul_precision",
    "set_printoptions",
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


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Asks for algorithms that give the same results each time, as all here do."""


def are_deterministic_algorithms_enabled() -> bool:
    """True: there are no others."""
    return True


def compile(  # noqa: A001
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """The function or module itself: there is no compiler. Usable as a decorator; options are those
    of torch's and change nothing.

    Args:
        model: The function or module; None when used as a decorator with arguments.
        fullgraph: Accepted, like all that follow.
        dynamic: Accepted.
        backend: Accepted.
        mode: Accepted; not together with ``options``.
        options: Accepted; not together with ``mode``.
        name: Accepted.
        disable: Accepted.
        recompile_limit: Accepted.
        isolate_recompiles: Accepted.
        shapes_spec: Accepted.
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    return (lambda function: function) if model is None else model


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
