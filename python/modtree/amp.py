# SPDX-License-Identifier: BSD-3-Clause
"""Mixed precision, which is always off: operations compute in the dtypes of their tensors."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

from modtree import _imports

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


def is_autocast_available(device_type: str) -> bool:
    """False."""
    return False


def custom_fwd(fwd: Any = None, *, device_type: str | None = None, cast_inputs: Any = None) -> Any:
    """The ``forward`` of a Function itself: nothing is cast; without one, a decorator.

    Args:
        fwd: The function.
        device_type: Accepted.
        cast_inputs: Accepted.
    """
    return (lambda function: function) if fwd is None else fwd


def custom_bwd(bwd: Any = None, *, device_type: str | None = None) -> Any:
    """The ``backward`` of a Function itself; without one, a decorator."""
    return (lambda function: function) if bwd is None else bwd


class autocast(contextlib.ContextDecorator):  # noqa: N801
    """A context, or decorator, that changes nothing; it warns when it is asked to.

    Args:
        device_type: "cuda" or "cpu".
        dtype: The dtype that was wished for.
        enabled: False keeps it silent.
        cache_enabled: Accepted.
    """

    _stacklevel = 2

    def __init__(
        self,
        device_type: str = "cuda",
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if enabled:
            warnings.warn(
                f"autocast for '{device_type}' is not available here and is disabled",
                stacklevel=self._stacklevel,
            )

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


class GradScaler:
    """Steps optimizers without scaling the loss, as torch's does where there is no accelerator;
    warns when it is asked to scale.

    Args:
        device: A name, for the warning.
        init_scale: Accepted, like the following three.
        growth_factor: Accepted.
        backoff_factor: Accepted.
        growth_interval: Accepted.
        enabled: Warn that nothing is scaled.
    """

    _stacklevel = 2

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled:
            warnings.warn(
                f"GradScaler for '{device}' is not available here and is disabled",
                stacklevel=self._stacklevel,
            )

    def scale(self, outputs: Any) -> Any:
        """The outputs themselves."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Nothing: gradients are not scaled."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step()``.

        Args:
            optimizer: The optimizer.
            args: For its ``step``.
            kwargs: For its ``step``.
        """
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Nothing."""

    def get_scale(self) -> float:
        """1.0"""
        return 1.0

    def is_enabled(self) -> bool:
        """False."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing."""


_imports.answer_for_missing(__name__)
