# SPDX-License-Identifier: BSD-3-Clause
"""Compares gradients with torch's: one function on both libraries, with the same inputs.

A file of tests makes a list of :class:`Case` and gives it to :func:`suite`, which returns its test
function::

    CASES = [Case("exp", lambda lib, x: lib.exp(x), UNARY)]
    test_gradients = suite(CASES)

Everything random comes from a seed made of the case's name. Values are compared in float64; float32
runs check dtypes.
"""

from __future__ import annotations

import dataclasses
import warnings
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import modtree

torch = pytest.importorskip("torch")

#: Shapes of one input, of two, of three: 0-d, empty, broadcast.
UNARY = [((),), ((0,),), ((5,),), ((2, 3),), ((2, 0, 3),), ((2, 3, 4),)]
BINARY = [
    ((), ()),
    ((3,), ()),
    ((), (2, 3)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((0, 3), (3,)),
    ((2, 3), (2, 3)),
]
TERNARY = [
    ((), (), ()),
    ((3,), (), (3,)),
    ((2, 1), (1, 3), (3,)),
    ((0, 3), (3,), ()),
    ((2, 3),) * 3,
]

Sampler = Callable[[np.random.Generator, tuple[int, ...]], Any]


def between(low: float, high: float) -> Sampler:
    """Samples inputs evenly from an interval."""
    return lambda rng, shape: rng.uniform(low, high, shape)


def away_from(low: float, high: float) -> Sampler:
    """Samples numbers of either sign whose size lies in the interval."""
    return lambda rng, shape: rng.uniform(low, high, shape) * rng.choice([-1.0, 1.0], shape)


def whole(low: int, high: int) -> Sampler:
    """Samples whole numbers from low to high - 1 (as floats): ties."""
    return lambda rng, shape: rng.integers(low, high, shape).astype(np.float64)


def distinct(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Samples numbers without ties and not closer than about 0.1."""
    size = int(np.prod(shape))
    return (rng.permutation(size) - size / 2 + rng.uniform(0.3, 0.6, size)).reshape(shape) / 2


def imaginary(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Samples complex numbers."""
    return rng.uniform(-2, 2, shape) + 1j * rng.uniform(0.2, 2, shape)


def of(*values: Any) -> Sampler:
    """Takes the values in turn: for the points where a derivative is a convention."""
    return lambda rng, shape: np.resize(np.asarray(values, np.float64), shape)


@dataclasses.dataclass(frozen=True)
class Case:
    """One function whose gradients are compared.

    Attributes:
        name: Shown in the test's id; unique in its file.
        function: ``function(lib, *tensors)`` gives a tensor or a tuple of tensors; lib is modtree
            or torch.
        shapes: Tuples of the inputs' shapes, one tuple for each run.
        sample: How inputs are drawn: one sampler for all or one for each.
        twice: Compare second derivatives too.
        mixed: With several inputs, also run with one of them float32, and with one an integer
            tensor.
        layouts: Also run on transposed and strided inputs.
        single: Also run in float32.
        tolerance: Relative (and absolute) bound on the difference in float64.
    """

    name: str
    function: Callable[..., Any]
    shapes: Sequence[tuple[tuple[int, ...], ...]] = dataclasses.field(default_factory=lambda: UNARY)
    sample: Sampler | Sequence[Sampler] = between(-2, 2)
    twice: bool = True
    mixed: bool = True
    layouts: bool = True
    single: bool = True
    tolerance: float = 1e-9


def suite(cases: Sequence[Case]) -> Callable[..., None]:
    """The test function of a list of cases; each runs in every variation it allows."""
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), {n for n in names if names.count(n) > 1}
    params = [
        pytest.param(case, run, id=f"{case.name}-{label}")
        for case in cases
        for label, run in _variations(case)
    ]

    @pytest.mark.parametrize("case,run", params)
    def test_gradients(case: Case, run: Callable[[Case, Any], None]) -> None:
        for shapes in case.shapes:
            run(case, shapes)

    return test_gradients


def _variations(case: Case) -> list[tuple[str, Callable[[Case, Any], None]]]:
    several = max(len(shapes) for shapes in case.shapes) > 1
    runs = [("float64", _plain)]
    if case.layouts:
        runs += [("transposed", _transposed), ("strided", _strided)]
    if case.single:
        runs.append(("float32", _float32))
    if case.mixed and several:
        runs += [("mixed", _mixed), ("integer", _integer)]
    if case.twice:
        runs.append(("twice", _twice))
    return runs


def _inputs(case: Case, shapes: Any) -> list[Any]:
    rng = np.random.default_rng(zlib.crc32(f"{case.name}{shapes}".encode()))
    samplers = (
        case.sample if isinstance(case.sample, (list, tuple)) else [case.sample] * len(shapes)
    )
    return [np.asarray(s(rng, shape)) for s, shape in zip(samplers, shapes, strict=True)]


def _plain(case: Case, shapes: Any) -> None:
    _compare(case, _inputs(case, shapes))


def _transposed(case: Case, shapes: Any) -> None:
    _compare(case, [np.array(a.T, order="C").T for a in _inputs(case, shapes)])


def _strided(case: Case, shapes: Any) -> None:
    def spread(a: Any) -> Any:
        wide = np.empty((*a.shape[:-1], 2 * a.shape[-1]), a.dtype) if a.ndim else np.empty(())
        if a.ndim == 0:
            return a
        wide[..., ::2] = a
        return wide[..., ::2]

    _compare(case, [spread(a) for a in _inputs(case, shapes)])


def _float32(case: Case, shapes: Any) -> None:
    kinds = {"f": np.float32, "c": np.complex64}
    inputs = [a.astype(kinds.get(a.dtype.kind, a.dtype)) for a in _inputs(case, shapes)]
    _compare(case, inputs, tolerance=max(2e-4, case.tolerance))


def _mixed(case: Case, shapes: Any) -> None:
    for i in range(len(shapes)):
        inputs = _inputs(case, shapes)
        if inputs[i].dtype == np.float64:
            inputs[i] = inputs[i].astype(np.float32)
            _compare(case, inputs, tolerance=max(2e-4, case.tolerance))


def _integer(case: Case, shapes: Any) -> None:
    for i in range(len(shapes)):
        inputs = _inputs(case, shapes)
        if inputs[i].dtype == np.float64:
            rounded = np.round(inputs[i])
            inputs[i] = np.where(rounded == 0, 1, rounded).astype(np.int64)
            _compare(case, inputs)


def _twice(case: Case, shapes: Any) -> None:
    _compare(case, _inputs(case, shapes), twice=True)


def check(function: Callable[..., Any], *arrays: Any, twice: bool = False, **options: Any) -> None:
    """Compares one function on given arrays, outside any table."""
    case = Case("check", function, [tuple(np.shape(a) for a in arrays)], **options)
    _compare(case, [np.asarray(a) for a in arrays], twice=twice)


def _compare(
    case: Case, inputs: list[Any], tolerance: float | None = None, twice: bool = False
) -> None:
    tolerance = case.tolerance if tolerance is None else tolerance
    described = ", ".join(f"{a.dtype}{list(a.shape)}" for a in inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = _evaluate(torch, case, inputs, twice)
        ours = _evaluate(modtree, case, inputs, twice)
    assert len(ours) == len(theirs)
    for (label, mine), (_, other) in zip(ours, theirs, strict=True):
        what = f"{case.name}: {label} for inputs {described}"
        if label.startswith("second"):  # None and zeros mean the same, and torch makes either
            mine, other = _filled(mine, other), _filled(other, mine)
        if other is None or mine is None:
            assert mine is None and other is None, f"{what}: {mine} instead of {other}"
            continue
        assert mine.shape == other.shape, f"{what}: shape {mine.shape} instead of {other.shape}"
        assert mine.dtype == other.dtype, f"{what}: dtype {mine.dtype} instead of {other.dtype}"
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance, err_msg=what)


def _filled(value: Any, model: Any) -> Any:
    return np.zeros_like(model) if value is None and model is not None else value


def _evaluate(lib: Any, case: Case, arrays: list[Any], twice: bool) -> list[tuple[str, Any]]:
    """Names and values of the outputs, the gradients with a random cotangent, and the gradients of
    those.
    """
    leaves = [lib.from_numpy(a.copy(order="K") if a.flags.c_contiguous else a) for a in arrays]
    wanted = [t.requires_grad_() for t in leaves if t.is_floating_point() or t.is_complex()]
    result = case.function(lib, *leaves)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    found = [(f"output {i}", _values(t)) for i, t in enumerate(outputs)]
    followed = [t for t in outputs if t.requires_grad]
    found.append(("how many outputs require grad", np.asarray(len(followed))))
    if not followed:
        return found
    rng = np.random.default_rng(7)
    cotangents = [_random_like(lib, rng, t) for t in followed]
    for cotangent in cotangents if twice else ():
        cotangent.requires_grad_()
    first = lib.autograd.grad(
        followed, wanted, grad_outputs=cotangents, allow_unused=True, create_graph=twice
    )
    found += [(f"gradient {i}", None if g is None else _values(g)) for i, g in enumerate(first)]
    if not twice:
        return found
    # A gradient that does not depend on anything has no graph in one library and may have one in
    # the other.
    weights = [None if g is None else _random_like(lib, rng, g) for g in first]
    again = [
        (g, w) for g, w in zip(first, weights, strict=True) if g is not None and g.requires_grad
    ]
    sources = [*wanted, *cotangents]
    second: Any = [None] * len(sources)
    if again:
        roots, weighted = zip(*again, strict=True)
        second = lib.autograd.grad(roots, sources, grad_outputs=weighted, allow_unused=True)
    return found + [
        (f"second gradient {i}", None if g is None else _values(g)) for i, g in enumerate(second)
    ]


def _random_like(lib: Any, rng: np.random.Generator, tensor: Any) -> Any:
    values = rng.uniform(0.5, 1.5, tuple(tensor.shape))
    if tensor.is_complex():
        values = values + 1j * rng.uniform(-1, 1, tuple(tensor.shape))
    return lib.from_numpy(np.asarray(values)).to(tensor.dtype)


def _values(tensor: Any) -> Any:
    # torch keeps some zeros and conjugates without writing them out.
    return tensor.numpy(force=True)
