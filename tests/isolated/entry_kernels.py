# SPDX-License-Identifier: BSD-3-Clause
"""Calls every kernel with arrays that do not fit: each argument of a good call in turn is replaced
by each of many bad ones.

Each kernel has a process of its own (a fork), so that a crash names it. What a kernel may write
lies between guards that are compared after each call; under AddressSanitizer, which sees more,
arrays have exactly their own memory. Prints one line for each finding.
"""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from entry_points import FINE, HUGE, Odd, in_a_process_of_its_own  # noqa: E402

from modtree._C import kernels  # noqa: E402

GUARD = 64
EXACT = "libasan" in os.environ.get("LD_PRELOAD", "")
guards: list[np.ndarray] = []


def array(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """An array of small numbers between two guards."""
    size = int(np.prod(shape))
    values = (np.arange(size) % 7).astype(dtype) + 1
    if EXACT:
        return values.reshape(shape)
    memory = np.full(size + 2 * GUARD, 99, dtype)
    memory[GUARD : GUARD + size] = values
    guards.append(memory)
    return memory[GUARD : GUARD + size].reshape(shape)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def good_calls() -> dict[str, dict[str, Any]]:
    """Arguments by name, for each kernel; words behind its name tell its calls apart."""
    return {**good_calls_of_layers(), **good_calls_by_element(), **good_calls_at_places()}


def good_calls_of_layers() -> dict[str, dict[str, Any]]:
    x, row, pair = array(4, 6), array(6), (2, 2)
    image, channels = array(2, 3, 5, 6), array(3)
    norm = {"weight": row, "bias": array(6), "eps": 1e-5}
    step = {"lr": 0.1, "weight_decay": 0.1, "maximize": False}
    backward = {"g": array(4, 6), "out": array(4, 6)}
    windows = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    channel_norm = {"weight": channels, "bias": array(3), "eps": 1e-5}
    statistics = {"mean": array(3), "rstd": array(3), "weight": channels, "wanted": (True,) * 3}
    classes = {"targets": integers(0, 5, 2, -100), "weight": row, "label_smoothing": 0.1}
    return {
        "gelu": {"x": x, "tanh": True, "out": array(4, 6)},
        "sigmoid": {"x": x, "out": array(4, 6)},
        "silu": {"x": x, "out": array(4, 6)},
        "softmax": {"x": x, "out": array(4, 6)},
        "log_softmax": {"x": x, "out": array(4, 6)},
        "matmul": {"a": x, "b": array(6, 5), "bias": array(5), "out": array(4, 5)},
        "transpose_add": {"x": x, "bias": array(4)},
        "gelu_backward": {"x": x, "tanh": False, **backward},
        "sigmoid_backward": {"y": x, **backward},
        "tanh_backward": {"y": x, **backward},
        "silu_backward": {"x": x, **backward},
        "relu_backward": {"x": x, **backward},
        "softmax_backward": {"y": x, **backward},
        "log_softmax_backward": {"y": x, **backward},
        "layer_norm": {"x": x, "axes": 1, **norm, "out": array(4, 6)},
        "layer_norm_stats": {"x": x, "axes": 1, **norm},
        "layer_norm_backward": {
            "g": array(4, 6),
            "x": x,
            "mean": array(4),
            "rstd": array(4),
            "axes": 1,
            "weight": row,
            "wanted": (True, False, True),
        },
        "group_norm": {"x": array(2, 6, 3), "groups": 3, **norm},
        "group_norm_backward": {
            "g": array(2, 6, 3),
            "x": array(2, 6, 3),
            "mean": array(2, 3),
            "rstd": array(2, 3),
            "weight": row,
            "wanted": (True, True, True),
        },
        "batch_norm": {"x": image, **channel_norm},
        "batch_norm_inference": {"x": image, "mean": array(3), "var": array(3), **channel_norm},
        "batch_norm_backward": {
            "g": array(2, 3, 5, 6),
            "x": image,
            "training": True,
            **statistics,
        },
        "cross_entropy": {"logits": x, "ignore_index": -100, **classes},
        "cross_entropy_backward": {
            "g": array(4),
            "logits": x,
            "logsumexp": array(4),
            "ignore_index": -100,
            **classes,
        },
        "scatter_add_rows": {
            "indices": integers(0, 2, 2, 1),
            "g": array(4, 6),
            "rows": 3,
            "skip": 1,
        },
        "max_pool": {"x": image, "kernel": pair, **windows, "output": None},
        "max_pool_backward": {
            "g": array(1, 2, 2),
            "indices": integers(0, 5, 29, 7).reshape(1, 2, 2),
            "size": (5, 6),
        },
        "im2col": {
            "x": image,
            "kernel": pair,
            **windows,
            "output": None,
            "batch_last": False,
            "out": array(2, 12, 20),
        },
        "col2im": {
            "columns": array(2, 12, 20),
            "shape": (2, 3, 5, 6),
            "kernel": pair,
            **windows,
            "output": None,
            "batch_last": False,
            "out": array(2, 3, 5, 6),
        },
        "convolution": {
            "x": image,
            "weight": array(4, 3, 2, 2),
            "bias": array(4),
            **windows,
            "groups": 1,
            "output": None,
        },
        "has_wide_products": {},
        "depthwise": {"x": image, "weight": array(6, 1, 2, 2), **windows, "output": None},
        "depthwise_transposed": {
            "y": array(2, 6, 4, 5),
            "weight": array(6, 1, 2, 2),
            "shape": (2, 3, 5, 6),
            **windows,
        },
        "depthwise_weight": {"x": image, "y": array(2, 6, 4, 5), "kernel": pair, **windows},
        "sgd_step": {
            "param": x,
            "grad": array(4, 6),
            "momentum_buffer": array(4, 6),
            "momentum": 0.9,
            "dampening": 0.0,
            "nesterov": True,
            "first": False,
            **step,
        },
        "adam_step": {
            "param": x,
            "grad": array(4, 6),
            "exp_avg": array(4, 6),
            "exp_avg_sq": array(4, 6),
            "max_exp_avg_sq": array(4, 6),
            "step": 1.0,
            "beta1": 0.9,
            "beta2": 0.99,
            "eps": 1e-8,
            "decoupled": False,
            **step,
        },
        "rmsprop_step": {
            "param": x,
            "grad": array(4, 6),
            "square_avg": array(4, 6),
            "grad_avg": array(4, 6),
            "momentum_buffer": array(4, 6),
            "alpha": 0.9,
            "eps": 1e-8,
            "momentum": 0.9,
            **step,
        },
        "lstm_cell": {
            "from_input": array(4, 24),
            "from_hidden": array(4, 24),
            "c_before": x,
            "out": (array(4, 6), array(4, 6), array(4, 24)),
        },
        "lstm_cell_backward": {
            "dh": array(4, 6),
            "dc": array(4, 6),
            "gates": array(4, 24),
            "c_before": x,
            "c": array(4, 6),
        },
        "gru_cell": {
            "from_input": array(4, 18),
            "from_hidden": array(4, 18),
            "h_before": x,
            "out": (array(4, 6), array(4, 18)),
        },
        "gru_cell_backward": {
            "dh": array(4, 6),
            "gates": array(4, 18),
            "from_hidden": array(4, 18),
            "h_before": x,
        },
    }


def good_calls_by_element() -> dict[str, dict[str, Any]]:
    """The same for kernels that go element by element; all are called alike."""
    one = ("digamma", "erf", "erfinv", "lgamma")
    two = ("fmod", "logaddexp", "remainder")
    one_with = ("clamp", "hardshrink", "hardsigmoid", "hardswish", "leaky_relu", "sign")
    one_with += ("softplus", "softshrink", "threshold")
    two_with = ("between", "hardsigmoid_backward", "hardswish_backward", "huber")
    two_with += ("leaky_relu_backward", "shrink_backward", "softplus_backward")
    two_with += ("threshold_backward",)
    limits = {"a": 0.5, "b": 2.0}
    calls: dict[str, dict[str, Any]] = {}
    calls.update((name, {"x": array(4, 6), "out": array(4, 6)}) for name in one)
    calls.update((name, {"x": array(4, 6), "y": array(4, 6)}) for name in two)
    calls.update((name, {"x": array(4, 6), **limits, "out": array(4, 6)}) for name in one_with)
    calls.update((name, {"x": array(4, 6), "y": array(4, 6), **limits}) for name in two_with)
    return calls


def good_calls_at_places() -> dict[str, dict[str, Any]]:
    """The same for kernels that go along an axis or read at computed places."""
    x, line = array(4, 6), {"axis": 1}
    picked = {**line, "index": integers(0, 5, 2, 3, 1, 0).reshape(2, 3)}
    scatter = {"x": x, **picked, "source": array(3, 4)}
    grid = {"x": array(2, 3, 5, 6), "grid": array(2, 4, 3, 2) / 4 - 1}
    how = {"mode": "bilinear", "padding": "reflection", "align": False}
    points = {"x": array(2, 5, 3), "yt": array(2, 3, 4), "p": 3.0}
    ctc = {
        "log_probs": -array(7, 2, 5),
        "labels": integers(1, 2, 2, 4, 3),
        "starts": integers(0, 2),
        "lengths": integers(2, 3),
        "used": integers(7, 6),
        "blank": 0,
    }
    return {
        "scan": {"x": x, **line, "product": False, "reverse": True},
        "top_indices": {"x": x, "k": 2, **line, "largest": True},
        "gather": {"x": x, **picked},
        "scatter": {**scatter, "mode": "assign", "own": False},
        "scatter into x": {**scatter, "mode": "assign", "own": True},
        "scatter added into x": {**scatter, "mode": "add", "own": True},
        "grid_sample": {**grid, **how},
        "grid_sample bicubic": {**grid, **how, "mode": "bicubic"},
        "grid_sample_backward": {
            "g": array(2, 3, 4, 3),
            **grid,
            **how,
            "for_input": True,
            "for_grid": True,
        },
        "distance": points,
        "distance_backward": {"g": array(2, 5, 4), "distances": array(2, 5, 4), **points},
        "ctc": {**ctc, "g": None},
        "ctc with gradients": {**ctc, "g": array(2)},
    }


def read_only(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.flags.writeable = False
    return a


def misaligned(a: np.ndarray) -> np.ndarray:
    memory = np.zeros(a.nbytes + 1, np.uint8)
    return memory[1:].view(a.dtype).reshape(a.shape)


def half_aligned(a: np.ndarray) -> np.ndarray:
    """Complex numbers where a float may be, but no other number of 8 bytes."""
    memory = np.ones(2 * a.size + 2, np.float32)
    start = 1 if memory.ctypes.data % 8 == 0 else 0
    return memory[start : start + 2 * a.size].view(np.complex64).reshape(a.shape)


def spread(a: np.ndarray) -> np.ndarray:
    """The same shape over memory with gaps."""
    return np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a


def replacements(value: Any, good: dict[str, Any]) -> Iterator[Any]:
    yield from (None, Odd(), object(), "x", b"", [], {}, (1, 2, 3), lambda: None, slice(0))
    yield from (0, -1, 1, 2, 3, 7, 1 << 31, 1 << 62, (1 << 63) - 1, HUGE, 1.5, float("nan"), True)
    yield from ((0, 0), (1, 1), (-1, 2), (9, 9), (1 << 30, 1 << 30), (1 << 62, 2), (0, 1 << 62))
    yield from ((1 << 30, 16), (16, 1 << 30), (1 << 29, 1 << 2))
    yield from (
        (0, 0, 0, 0),
        (2, 3, 5, -6),
        (0, 1 << 30, 1 << 30, 1),
        (1 << 30,) * 4,
        (2, 16, 5, 6),
    )
    yield from (np.ones(()), np.ones(0, np.float32), np.ones((0, 6), np.float32))
    yield from (np.ones((2, 3, 0, 6), np.float32), np.empty((0, 1 << 40, 3, 3), np.float32))
    # The second is a very long sequence, too.
    yield from (np.empty((0, 1 << 58), np.float32), np.empty((1 << 58, 0), np.float32))
    if isinstance(value, tuple):
        for i in range(len(value)):
            for other in (None, -1, HUGE, "x", np.ones(3), 1 << 30):
                yield (*value[:i], other, *value[i + 1 :])
        yield from (value[:-1], (*value, *value), list(value))
    if not isinstance(value, np.ndarray):
        return
    for dtype in ("f2", "f8", ">f4", "i4", "i8", "u1", "?", "c8", "O", "S4", "M8[s]", "f4,f4"):
        try:
            yield value.astype(dtype)
        except (TypeError, ValueError):
            yield np.zeros(value.shape, dtype)
    yield from (value[..., :-1], value[:-1], value[None], value[..., None], value.ravel(), value.T)
    yield from (np.concatenate([value, value]), np.concatenate([value, value], axis=-1))
    yield from (value[::-1], spread(value), value.T.copy().T, read_only(value), misaligned(value))
    yield from (
        np.broadcast_to(value[:1], value.shape),
        np.lib.stride_tricks.as_strided(value, value.shape, (0,) * value.ndim),
    )
    for kind in (Subclass, OtherCopy, Retyped, Resized):
        yield value.view(kind)
        yield spread(value).view(kind)
    yield half_aligned(value)
    # More rows than a loop gets through, none of which has values.
    yield from (np.empty((1 << 58, 1, 0), np.float32), np.empty((1 << 57, 0, 0), np.float32))
    yield value + (np.nan if value.dtype.kind == "f" else 1 << 40)
    yield from (-value, value * 0, value.tolist())
    for other in good.values():
        if isinstance(other, np.ndarray):
            yield other
            yield from overlapping(other)


def overlapping(a: np.ndarray) -> Iterator[np.ndarray]:
    """Memory of another argument, from one of its values on."""
    flat = a.reshape(-1)
    if a.ndim == 2 and a.shape[0] > 1 and not EXACT:
        memory = a.base if a.base is not None else a
        start = GUARD + 1
        if memory.size >= start + a.size:
            yield memory[start : start + a.size].reshape(a.shape)
    yield flat[: flat.size // 2]


class Subclass(np.ndarray):
    def __array_finalize__(self, other: Any) -> None:
        pass


class OtherCopy(np.ndarray):
    """What it says is a copy of it has larger values."""

    def copy(self, order: Any = "C") -> Any:
        return np.zeros(self.shape, np.complex128)


class Retyped(np.ndarray):
    """A new array of this class has more values than its shape tells the one who made it."""

    def __array_finalize__(self, other: Any) -> None:
        if self.base is None and self.flags.c_contiguous and self.ndim:
            self.dtype = np.uint8


class Resized(np.ndarray):
    """A new array of this class gives its memory back."""

    def __array_finalize__(self, other: Any) -> None:
        if self.base is None and self.flags.owndata:
            self.resize((0,) * self.ndim, refcheck=False)


def check_guards() -> str | None:
    for memory in guards:
        ends = (
            memory[:GUARD],
            memory[1 - GUARD :],
        )  # an overlapping array may have the one in between
        if any((end != 99).any() for end in ends):
            for end in ends:
                end[:] = 99
            return "wrote beyond an array"
    return None


def kernel_of(call: str) -> str:
    return call.split()[0]


def calls_of(name: str) -> Iterator[tuple[Callable[..., Any], str, dict[str, Any]]]:
    function = getattr(kernels, kernel_of(name))
    good = good_calls()[name]
    function(**good)
    for argument in good:
        count = sum(1 for _ in replacements(good[argument], good))
        for i in range(count):
            guards.clear()
            fresh = good_calls()[name]
            for k, value in enumerate(replacements(fresh[argument], fresh)):
                if k == i:
                    yield (
                        function,
                        f"{argument} replaced by {describe(value)}",
                        {**fresh, argument: value},
                    )
        yield function, f"without {argument}", {k: v for k, v in good.items() if k != argument}
    yield function, "an unknown keyword", {**good, "nope": 1}


def describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{value.shape} strides {value.strides}"
    return f"{type(value).__name__} {value!r:.60}"


def try_kernel(name: str, progress: int) -> list[str]:
    findings = []
    for function, what, arguments in calls_of(name):
        os.ftruncate(progress, 0)
        os.pwrite(progress, what.encode(errors="replace"), 0)
        signal.alarm(60)  # a kernel that does not end in that time is a finding
        try:
            function(**arguments)
        except FINE:
            pass
        except Exception as error:
            findings.append(f"{what}: {error!r:.200}")
        broken = check_guards()
        if broken:
            findings.append(f"{what}: {broken}")
    return findings


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    if not EXACT:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    names = [n for n in vars(kernels) if not n.startswith("_")]
    missing = sorted(set(names) ^ set(map(kernel_of, good_calls())))
    if missing:
        print(f"good_calls() and the kernels differ by {missing}")
        return 1
    progress = os.memfd_create("progress")
    found = 0
    for name in good_calls():
        if wanted not in name:
            continue
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        ended = in_a_process_of_its_own(lambda n=name: n, progress, writer, try_kernel)
        os.close(writer)
        with os.fdopen(reader, errors="replace") as lines:
            for finding in [*lines.read().splitlines()[:5], *([ended] if ended else [])]:
                found += 1
                print(f"{name}: {finding}", flush=True)
    print(f"{len(names)} kernels, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
