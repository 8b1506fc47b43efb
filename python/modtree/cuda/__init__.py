# SPDX-License-Identifier: BSD-3-Clause
"""What programs ask and tell CUDA before they use it: there is none, and nothing to do."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NoReturn

from modtree import _imports

if TYPE_CHECKING:
    from modtree.cuda import amp

__all__ = [
    "Event",
    "OutOfMemoryError",
    "Stream",
    "amp",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "stream",
    "synchronize",
]


class OutOfMemoryError(RuntimeError):
    """The memory of a device is full, for ``except``: nothing raises it."""


def _refuse() -> NoReturn:
    raise RuntimeError("NumPy tensors live in main memory only: there is no cuda device")


def is_available() -> bool:
    """False: NumPy's arrays are in main memory."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False."""
    return False


def is_current_stream_capturing() -> bool:
    """False."""
    return False


def init() -> None:
    """Raises RuntimeError: there is no device."""
    _refuse()


def device_count() -> int:
    """0."""
    return 0


def get_arch_list() -> list[str]:
    """Empty."""
    return []


def current_device() -> int:
    """Raises RuntimeError: there is no device."""
    _refuse()


def set_device(device: Any) -> None:
    """Raises RuntimeError: there is no device."""
    _refuse()


def get_device_name(device: Any = None) -> str:
    """Raises RuntimeError: there is no device."""
    _refuse()


def get_device_properties(device: Any = None) -> Any:
    """Raises RuntimeError: there is no device."""
    _refuse()


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Raises RuntimeError: there is no device."""
    _refuse()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Raises RuntimeError: there is no device."""
    _refuse()


# -- random numbers --------------------------------------------------------------------------------


def manual_seed(seed: int) -> None:
    """Nothing: no device has a generator."""


def manual_seed_all(seed: int) -> None:
    """Nothing: no device has a generator."""


def seed() -> None:
    """Nothing: no device has a generator."""


def seed_all() -> None:
    """Nothing: no device has a generator."""


def initial_seed() -> int:
    """Raises RuntimeError: there is no device."""
    _refuse()


def get_rng_state(device: Any = "cuda") -> Any:
    """Raises RuntimeError: there is no device."""
    _refuse()


def get_rng_state_all() -> list[Any]:
    """Empty: one for each device."""
    return []


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Raises RuntimeError: there is no device."""
    _refuse()


def set_rng_state_all(new_states: Any) -> None:
    """Nothing for none; RuntimeError for states, which would be of devices."""
    if len(new_states):
        _refuse()


# -- memory ----------------------------------------------------------------------------------------


def empty_cache() -> None:
    """Nothing: no device has a cache."""


def ipc_collect() -> None:
    """Nothing: no device has memory."""


def memory_allocated(device: Any = None) -> int:
    """0."""
    return 0


def max_memory_allocated(device: Any = None) -> int:
    """0."""
    return 0


def memory_reserved(device: Any = None) -> int:
    """0."""
    return 0


def max_memory_reserved(device: Any = None) -> int:
    """0."""
    return 0


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Empty."""
    return {}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Says that there is no device."""
    return "no cuda device"


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing."""


def reset_max_memory_allocated(device: Any = None) -> None:
    """Nothing."""


# -- streams ---------------------------------------------------------------------------------------


def synchronize(device: Any = None) -> None:
    """Nothing: operations have ended when they return."""


class device(contextlib.nullcontext[None]):  # noqa: N801
    """A context that changes nothing: there is no device to choose."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.idx = device


def stream(stream: Any) -> contextlib.AbstractContextManager[None]:
    """A context that changes nothing."""
    return contextlib.nullcontext()


def current_stream(device: Any = None) -> Any:
    """Raises RuntimeError: there is no device."""
    _refuse()


def default_stream(device: Any = None) -> Any:
    """Raises RuntimeError: there is no device."""
    _refuse()


class Stream:
    """Raises RuntimeError: there is no device."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse()


class Event:
    """Raises RuntimeError: there is no device."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse()


_imports.answer_for_missing(__name__, ("amp",))
