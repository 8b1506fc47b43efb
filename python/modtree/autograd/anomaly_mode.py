# SPDX-License-Identifier: BSD-3-Clause
"""Looking for the operation whose backward fails or gives NaN."""

from __future__ import annotations

import traceback
import warnings
from typing import Any

import numpy as np

from modtree import _C

__all__ = [
    "detect_anomaly",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "set_anomaly_enabled",
    "set_detect_anomaly",
]


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Switches the search on or off.

    Args:
        mode: On, or off.
        check_nan: Let a NaN among the gradients be an error.
    """
    _C.set_anomaly_mode(bool(mode), bool(check_nan))


def is_anomaly_enabled() -> bool:
    """Whether operations remember where they were called."""
    return bool(_C.anomaly_mode()[0])


def is_anomaly_check_nan_enabled() -> bool:
    """Whether a NaN in backward is an error while operations remember where they were called."""
    return bool(_C.anomaly_mode()[1])


class set_detect_anomaly:  # noqa: N801
    """Switches the search on or off; as a context manager until it is left.

    Args:
        mode: On, or off.
        check_nan: Let a NaN among the gradients be an error.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = _C.anomaly_mode()
        _C.set_anomaly_mode(bool(mode), bool(check_nan))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: Any) -> None:
        _C.set_anomaly_mode(*self._before)


class detect_anomaly:  # noqa: N801
    """Context in which every operation remembers where it was called: when backward fails in it, or
    gives NaN, a warning says so. Slow; for the search for mistakes.

    Args:
        check_nan: Let a NaN among the gradients be an error.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._before = _C.anomaly_mode()
        self._check_nan = bool(check_nan)
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self._before = _C.anomaly_mode()
        _C.set_anomaly_mode(True, self._check_nan)

    def __exit__(self, *exception: Any) -> None:
        _C.set_anomaly_mode(*self._before)


def _forward_traceback() -> list[str]:
    """Where the program is, as text."""
    return traceback.format_stack()[:-1]


def _refuse_nan(name: str, gradients: tuple[Any, ...]) -> None:
    for i, gradient in enumerate(gradients):
        array = gradient.detach()._array if isinstance(gradient, _C.TensorBase) else gradient
        if array is None or getattr(gradient, "is_meta", False) or array.dtype.kind not in "fc":
            continue
        if np.isnan(array).any():
            raise RuntimeError(f"Function '{name}' returned nan values in its {i}th output.")


def _explain(node: Any) -> None:
    """Warns with the traceback of the call that made the node, and of those behind it."""
    text = f"Error detected in {node.name()}."
    what = "caused the error"
    while node is not None:
        stack = node.metadata.get("traceback_")
        if stack is None:
            text += (
                " No forward pass information available. Enable detect anomaly during forward "
                "pass for more information."
            )
        else:
            text += f" Traceback of forward call that {what}:\n" + "".join(stack)
        warnings.warn(text, stacklevel=2)
        node = node.metadata.get("parent_")
        if node is not None:
            text = f"\n\nPrevious calculation was induced by {node.name()}."
            what = "induced the previous calculation"


_C._install(forward_traceback=_forward_traceback, refuse_nan=_refuse_nan, explain_anomaly=_explain)
