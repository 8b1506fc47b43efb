# SPDX-License-Identifier: BSD-3-Clause
"""Random numbers: one default generator, and generators of the user's own."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from modtree.numpy.tensor.devices import as_device

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]


def _entropy() -> int:
    """A seed that nobody chose."""
    return int.from_bytes(os.urandom(8), "little") & 0x7FFFFFFFFFFFFFFF


class Generator:
    """A source of random numbers with a state of its own: ``generator=`` of the random functions.

    The streams are NumPy's, not torch's: the same seed gives the same numbers here on every
    machine, but others than torch's.
    """

    __module__ = "modtree"  # the name in pickles and in repr

    _bits: Any

    def __init__(self, device: Any = "cpu") -> None:
        self.device = as_device(device)
        self._seed = _entropy()

    def __getattr__(self, name: str) -> Any:
        # numpy.random imports modules, as secrets, whose names a program's own files may have: not
        # before the program draws something.
        if name == "_bits" and "_seed" in vars(self):
            return self.manual_seed(self._seed)._bits
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def manual_seed(self, seed: int) -> Generator:
        """Starts the stream of this seed."""
        self._seed = int(seed)
        self._bits = np.random.Generator(np.random.PCG64(self._seed & 0xFFFFFFFFFFFFFFFF))
        return self

    def seed(self) -> int:
        """Starts an arbitrary stream and returns its seed."""
        self.manual_seed(_entropy())
        return self._seed

    def initial_seed(self) -> int:
        """The seed that it was given last."""
        return self._seed

    def get_state(self) -> dict[str, Any]:
        """The state of the stream, for :meth:`set_state`."""
        return copy.deepcopy(self._bits.bit_generator.state)

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues where :meth:`get_state` was called."""
        self._bits.bit_generator.state = copy.deepcopy(state)

    @property
    def numpy(self) -> np.random.Generator:
        """NumPy's generator inside: drawing from it moves this one on."""
        return self._bits


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Starts the default generator's stream of this seed."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Starts an arbitrary stream of the default generator."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the default generator was given last."""
    return default_generator.initial_seed()


def get_rng_state() -> dict[str, Any]:
    """The state of the default generator."""
    return default_generator.get_state()


def set_rng_state(state: dict[str, Any]) -> None:
    """Puts the default generator back into a state."""
    default_generator.set_state(state)


@contextlib.contextmanager
def fork_rng(
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Iterator[None]:
    """A context after which the default generator goes on from where it was before.

    Args:
        devices: Accepted, like the others but ``enabled``.
        enabled: False makes it a context that changes nothing.
        _caller: Accepted.
        _devices_kw: Accepted.
        device_type: Accepted.
    """
    state = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            set_rng_state(state)


def bits_of(generator: Any) -> np.random.Generator:
    """NumPy's generator behind ``generator=``; the default one for None."""
    if generator is None:
        return default_generator._bits
    if isinstance(generator, Generator):
        return generator._bits
    if isinstance(generator, np.random.Generator):
        return generator
    raise TypeError(f"expected a modtree.Generator, got {type(generator).__name__}")


def _drawn(values: Any, dtype: Any) -> Any:
    return np.asarray(values).astype(dtype, copy=False)


def uniform(bits: Any, shape: Any, dtype: Any, low: float = 0.0, high: float = 1.0) -> Any:
    """Uniform in [low, high), real or complex."""
    if dtype.kind == "c":
        real = np.float32 if dtype == np.complex64 else np.float64
        parts = uniform(bits, (*shape, 2), np.dtype(real), low, high)
        return (parts[..., 0] + 1j * parts[..., 1]).astype(dtype)
    kind = np.float64 if dtype == np.float64 else np.float32
    values = bits.random(shape, dtype=kind)
    if (low, high) != (0.0, 1.0):
        values = values * kind(high - low) + kind(low)
        if high > low:  # rounding must not reach the open end
            values = np.minimum(values, np.nextafter(kind(high), kind(low)))
    return _drawn(values, dtype)


def normal(bits: Any, shape: Any, dtype: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Normal, real or complex."""
    if dtype.kind == "c":
        real = np.float32 if dtype == np.complex64 else np.float64
        parts = normal(bits, (*shape, 2), np.dtype(real), 0.0, std * 0.5**0.5)
        return (parts[..., 0] + 1j * parts[..., 1] + mean).astype(dtype)
    kind = np.float64 if dtype == np.float64 else np.float32
    values = bits.standard_normal(shape, dtype=kind)
    if (mean, std) != (0.0, 1.0):
        values = values * kind(std) + kind(mean)
    return _drawn(values, dtype)
