# SPDX-License-Identifier: BSD-3-Clause
"""Compares a layer with torch's of the same name: arguments, names, text, values, gradients."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import modtree as mt
from modtree import nn

torch = pytest.importorskip("torch")


def arguments(cls: type) -> list[tuple[str, Any]]:
    """Names and defaults of a constructor's arguments; functions by their name."""

    def plain(default: Any) -> Any:
        return default.__name__ if inspect.isroutine(default) else default

    found = list(inspect.signature(cls.__init__).parameters.values())
    return [(p.name, plain(p.default)) for p in found if p.name != "self"]


def check_arguments(name: str) -> None:
    """The constructor's arguments and those of forward() are torch's."""
    ours, theirs = getattr(nn, name), getattr(torch.nn, name)
    if not any(n == "args" for n, _ in arguments(theirs)) or "args" in dict(arguments(ours)):
        assert arguments(ours) == arguments(theirs)
    ours_forward = list(inspect.signature(ours.forward).parameters)
    assert ours_forward == list(inspect.signature(theirs.forward).parameters)


def make(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """A layer of modtree and the same of torch; arrays among the arguments become tensors of
    either.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = getattr(nn, name)(*(convert(mt, a) for a in args), **convert(mt, kwargs))
        theirs = getattr(torch.nn, name)(
            *(convert(torch, a) for a in args), **convert(torch, kwargs)
        )
    return ours, theirs


def convert(lib: Any, value: Any, grad: bool = False) -> Any:
    """Arrays as tensors of a library, also inside tuples, lists and dicts."""
    if isinstance(value, np.ndarray):
        tensor = lib.from_numpy(value.copy())
        return tensor.requires_grad_() if grad and value.dtype.kind == "f" else tensor
    if isinstance(value, (tuple, list)):
        return type(value)(convert(lib, v, grad) for v in value)
    if isinstance(value, dict):
        return {k: convert(lib, v, grad) for k, v in value.items()}
    return value


def check_description(ours: Any, theirs: Any) -> None:
    """Text, names of everything, and the plain attributes."""
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert list(ours._parameters) == list(theirs._parameters)
    assert list(ours._buffers) == list(theirs._buffers)
    assert [v is None for v in ours._parameters.values()] == [
        v is None for v in theirs._parameters.values()
    ]
    for mine, other in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert tuple(mine.shape) == tuple(other.shape)
        assert mine.numpy().dtype == other.numpy().dtype
    plain = sorted(k for k in theirs.__dict__ if not k.startswith("_"))
    assert sorted(k for k in ours.__dict__ if not k.startswith("_")) == plain
    for name in plain:
        if not callable(getattr(theirs, name)):
            assert getattr(ours, name) == getattr(theirs, name), name


def check_copies(ours: Any) -> None:
    """Pickling and copying keep text and values."""
    for again in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert repr(again) == repr(ours)
        assert list(again.state_dict()) == list(ours.state_dict())
        for a, b in zip(ours.state_dict().values(), again.state_dict().values(), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def load(ours: Any, theirs: Any) -> Any:
    """torch's values in our layer, by a strict load."""
    values = {k: mt.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()}
    result = ours.load_state_dict(values, strict=True)
    assert not result.missing_keys
    assert not result.unexpected_keys
    return ours


def tensors(value: Any) -> list[Any]:
    """The tensors of a result, in order."""
    if value is None:
        return []
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in tensors(v)]
    return [value]


def same(mine: Any, other: Any, tolerance: float, what: str = "") -> None:
    if other is None or mine is None:
        assert mine is None and other is None, f"{what}: {mine} instead of {other}"
        return
    mine, other = mine.detach().numpy(), other.detach().numpy()
    assert mine.shape == other.shape, what
    assert mine.dtype == other.dtype, what
    np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance, err_msg=what)


def check_run(
    ours: Any,
    theirs: Any,
    inputs: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    dtype: str = "float64",
    tolerance: float | None = None,
    grad: bool = True,
) -> None:
    """Outputs, gradients of floating inputs and of parameters, with torch's values loaded."""
    kwargs = kwargs or {}
    tolerance = tolerance or (1e-9 if dtype == "float64" else 2e-4)
    theirs = theirs.to(getattr(torch, dtype))
    ours = load(ours.to(getattr(mt, dtype)), theirs)

    def cast(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.astype(dtype) if value.dtype.kind == "f" else value
        if isinstance(value, (tuple, list)):
            return type(value)(cast(v) for v in value)
        if isinstance(value, dict):
            return {k: cast(v) for k, v in value.items()}
        return value

    def run(lib: Any, module: Any) -> tuple[list[Any], list[Any], list[Any]]:
        given = convert(lib, cast(list(inputs)), grad)
        named = convert(lib, cast(kwargs))
        results = tensors(module(*given, **named))
        leaves = [t for t in tensors(given) if hasattr(t, "requires_grad") and t.requires_grad]
        leaves += [p for p in module.parameters() if p.requires_grad]
        followed = [t for t in results if t.requires_grad] if grad else []
        if not followed:
            return results, [], []
        rng = np.random.default_rng(5)
        weights = [
            lib.from_numpy(np.asarray(rng.standard_normal(tuple(t.shape)), dtype)) for t in followed
        ]
        grads = lib.autograd.grad(followed, leaves, weights, allow_unused=True)
        return results, followed, list(grads)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got, got_followed, got_grads = run(mt, ours)
        expected, followed, grads = run(torch, theirs)
    assert len(got) == len(expected)
    assert len(got_followed) == len(followed)
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        same(a, b, tolerance, f"output {i}")
    for i, (a, b) in enumerate(zip(got_grads, grads, strict=True)):
        same(a, b, tolerance, f"gradient {i}")


def check_where(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``device=`` and ``dtype=``; a layer on meta draws nothing."""
    cls = getattr(nn, name)
    double = cls(*args, **kwargs, dtype=mt.float64)
    assert all(p.dtype is mt.float64 for p in double.parameters())
    before = mt.get_rng_state()
    meta = cls(*args, **kwargs, device="meta")
    assert mt.get_rng_state() == before
    assert all(p.is_meta for p in meta.parameters())
    assert list(meta.state_dict()) == list(double.state_dict())
