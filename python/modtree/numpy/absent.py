# SPDX-License-Identifier: BSD-3-Clause
"""What programs use of the parts of torch that modtree does not have: contexts that change nothing,
marks that leave functions alone, classes for ``except`` and ``isinstance``.

``modtree._paths`` says under which paths these are.
"""

from __future__ import annotations

import contextlib
import enum
import warnings
from typing import Any, TypeVar

from modtree.core.module import Module

_F = TypeVar("_F")

# -- devices ---------------------------------------------------------------------------------------


class OutOfMemoryError(RuntimeError):
    """The memory of a device is full, for ``except``: nothing raises it."""


class Stream:
    """A queue of a device, for annotations and ``isinstance``. RuntimeError when it is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("NumPy tensors live in main memory only: there is no cuda device")


class Event(Stream):
    """A mark in a queue of a device. RuntimeError when it is made."""


class device(contextlib.nullcontext[None]):  # noqa: N801
    """A context that changes nothing: there is no device to choose."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.idx = device


def stream(stream: Any) -> contextlib.AbstractContextManager[None]:
    """A context that changes nothing."""
    return contextlib.nullcontext()


def get_rng_state_all() -> list[Any]:
    """Empty: one state for each device."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Nothing for no states. RuntimeError for others: they are those of devices."""
    if len(new_states):
        raise RuntimeError("NumPy tensors live in main memory only: there is no cuda device")


class _Matmul:
    """Keeps what it is told, and does nothing."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True


matmul = _Matmul()

# -- mixed precision -------------------------------------------------------------------------------


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
            text = f"autocast for '{device_type}' is not available here and is disabled"
            warnings.warn(text, stacklevel=self._stacklevel)

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


class CudaAutocast(autocast):
    """:class:`autocast` for "cuda", with the arguments of ``torch.cuda.amp``.

    Args:
        enabled: False keeps it silent.
        dtype: The dtype that was wished for.
        cache_enabled: Accepted.
    """

    _stacklevel = 3

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


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
            text = f"GradScaler for '{device}' is not available here and is disabled"
            warnings.warn(text, stacklevel=self._stacklevel)

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


class CudaGradScaler(GradScaler):
    """:class:`GradScaler` for "cuda", with the arguments of ``torch.cuda.amp``.

    Args:
        args: As those of :class:`GradScaler` from ``init_scale`` on.
        kwargs: The same by name.
    """

    _stacklevel = 3

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("cuda", *args, **kwargs)


def custom_fwd(fwd: Any = None, *, device_type: str | None = None, cast_inputs: Any = None) -> Any:
    """The ``forward`` of a Function itself: nothing is cast; without one, a decorator.

    Args:
        fwd: The function.
        device_type: Accepted.
        cast_inputs: Accepted.
    """
    return itself if fwd is None else fwd


def custom_bwd(bwd: Any = None, *, device_type: str | None = None) -> Any:
    """The ``backward`` of a Function itself; without one, a decorator."""
    return itself if bwd is None else bwd


# -- compilers and profilers -----------------------------------------------------------------------


class ScriptModule(Module):
    """A scripted module, for ``isinstance``: no module is one."""


def itself(fn: _F) -> _F:
    """The function itself: nothing is compiled."""
    return fn


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself; without one, a decorator that gives it.

    Args:
        fn: The function or module.
        recursive: Accepted.
        reason: Accepted.
    """
    return itself if fn is None else fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function itself; with an argument a decorator that gives it."""
    return drop if callable(drop) else itself


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


_warned = False


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """The function, class or module itself, with a warning the first time: nothing is compiled.

    Args:
        obj: The function, class or module.
        args: Accepted.
        kwargs: Accepted.
    """
    global _warned
    if not _warned:
        _warned = True
        text = "modtree.jit.script gives the function or module itself: there is no compiler"
        warnings.warn(text, stacklevel=2)
    return obj


class record_function(contextlib.ContextDecorator):  # noqa: N801
    """A context, or decorator, that names a part of the program and records nothing.

    Args:
        name: The name.
        args: Text beside it.
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


# -- several processes -----------------------------------------------------------------------------


class ReduceOp(enum.Enum):
    """What a reduction over processes would do."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4


class ProcessGroup:
    """A group of processes, for annotations and ``isinstance``: there is none."""
