# SPDX-License-Identifier: BSD-3-Clause
"""Compares a layer with torch's: arguments, text, names, starting values, checkpoints, outputs,
gradients, meta.

A file of tests makes a list of :class:`Layer` and gives it to :func:`suite`::

    test_arguments, test_text, test_checkpoint, test_outputs, test_gradients, test_meta =
    suite(LAYERS)
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from helpers.support import quiet

import modtree

torch = pytest.importorskip("torch")


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer as it is made and called.

    Attributes:
        name: Its class in ``nn``.
        shape: Shape of the input.
        args: Positional arguments of the constructor.
        kwargs: Keyword arguments of the constructor.
        sample: ``sample(rng, shape)`` draws the input; by default from the normal distribution.
        call: Keyword arguments of the call.
        on_meta: Also call it with tensors without values.
        tolerance: Bound on differences in float32; float64 is compared to 1e-9.
    """

    name: str
    shape: tuple[int, ...]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    sample: Callable[..., Any] = lambda rng, shape: rng.standard_normal(shape)
    call: dict[str, Any] = dataclasses.field(default_factory=dict)
    on_meta: bool = True
    tolerance: float = 1e-5

    @property
    def id(self) -> str:
        options = [*map(str, self.args), *(f"{k}={v}" for k, v in self.kwargs.items())]
        shape = "x".join(map(str, self.shape))
        return f"{self.name}({', '.join(options)})-{shape}".replace("torch.", "")

    def make(self, lib: Any, **kwargs: Any) -> Any:
        """The layer of modtree or torch, its parameters and buffers filled with the same
        numbers.
        """
        layer = getattr(lib.nn, self.name)(*self.args, **self.kwargs, **kwargs)
        rng = np.random.default_rng(3)
        for name, value in layer.state_dict().items():
            if value.is_floating_point() and not value.is_meta:
                numbers = rng.uniform(0.5, 1.5, tuple(value.shape)) * rng.choice(
                    [-1.0, 1.0] if "var" not in name else [1.0], tuple(value.shape)
                )
                value.copy_(lib.from_numpy(np.asarray(numbers)))
        return layer

    def input(self) -> Any:
        return self.sample(np.random.default_rng(zlib.crc32(self.id.encode())), self.shape)


def outputs(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def same(mine: Any, theirs: Any, tolerance: float, what: str = "") -> None:
    """Shape, dtype and values."""
    assert tuple(mine.shape) == tuple(theirs.shape), what
    mine, theirs = mine.detach().numpy(), theirs.detach().numpy()
    assert mine.dtype == theirs.dtype, what
    np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance, err_msg=what)


def check_arguments(case: Layer) -> None:
    def arguments(lib: Any) -> list[Any]:
        found = list(inspect.signature(getattr(lib.nn, case.name)).parameters.values())
        return [(p.name, p.kind, p.default) for p in found]

    assert arguments(modtree) == arguments(torch)


def check_text(case: Layer) -> None:
    ours, theirs = case.make(modtree), case.make(torch)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for kind in ("_parameters", "_buffers", "_modules"):
        mine, other = getattr(ours, kind), getattr(theirs, kind)
        assert list(mine) == list(other)
        assert [v is None for v in mine.values()] == [v is None for v in other.values()]
    known = vars(torch.nn.Module())
    plain = [k for k in vars(theirs) if k not in known]
    assert [k for k in vars(ours) if k not in known] == plain
    for name in plain:
        assert getattr(ours, name) == getattr(theirs, name), name
    assert type(ours)._version == type(theirs)._version
    assert repr(pickle.loads(pickle.dumps(ours))) == repr(copy.deepcopy(ours)) == repr(theirs)


def check_checkpoint(case: Layer) -> None:
    """torch's own starting checkpoint loads with strict=True, with its versions."""
    theirs = getattr(torch.nn, case.name)(*case.args, **case.kwargs)
    ours = getattr(modtree.nn, case.name)(*case.args, **case.kwargs)
    state = theirs.state_dict()
    converted = copy.copy(state)  # keeps _metadata
    for name, value in state.items():
        converted[name] = modtree.from_numpy(value.numpy().copy())
    assert dict(ours.state_dict()._metadata) == dict(state._metadata)
    result = ours.load_state_dict(converted, strict=True)
    assert not result.missing_keys and not result.unexpected_keys
    for name, value in state.items():
        same(ours.state_dict()[name], value, 0, name)


def _run(case: Layer, lib: Any, dtype: str, training: bool) -> tuple[list[Any], Any]:
    layer = case.make(lib).to(getattr(lib, dtype))
    layer.train(training)
    x = lib.from_numpy(np.array(case.input(), dtype))
    with lib.no_grad(), quiet():
        return outputs(layer(x, **case.call)), layer


def check_outputs(case: Layer) -> None:
    """Also what training does to the buffers, also in eval mode."""
    for dtype, tolerance in (("float32", case.tolerance), ("float64", 1e-9)):
        for training in (True, False):
            mine, ours = _run(case, modtree, dtype, training)
            other, theirs = _run(case, torch, dtype, training)
            assert len(mine) == len(other)
            for a, b in zip(mine, other, strict=True):
                same(a, b, tolerance, f"{dtype}, training={training}")
            for name, value in theirs.state_dict().items():
                same(ours.state_dict()[name], value, tolerance, name)


def _gradients(case: Layer, lib: Any, training: bool) -> list[tuple[str, Any]]:
    layer = case.make(lib).to(lib.float64).train(training)
    x = lib.from_numpy(np.array(case.input(), "float64")).requires_grad_()
    with quiet():
        result = outputs(layer(x, **case.call))[0]
    weights = np.random.default_rng(9).uniform(0.5, 1.5, tuple(result.shape))
    (result * lib.from_numpy(weights)).sum().backward()
    return [("input", x.grad), *((n, p.grad) for n, p in layer.named_parameters())]


def check_gradients(case: Layer) -> None:
    """Of the input and of each parameter, in float64."""
    for training in (True, False):
        ours, theirs = (_gradients(case, lib, training) for lib in (modtree, torch))
        assert [name for name, _ in ours] == [name for name, _ in theirs]
        for (name, mine), (_, other) in zip(ours, theirs, strict=True):
            same(mine, other, 1e-9, f"gradient of {name}, training={training}")


def check_meta(case: Layer) -> None:
    """Without values: parameters made on meta, shapes and dtypes of the outputs."""
    takes_device = "device" in inspect.signature(getattr(torch.nn, case.name)).parameters
    results = []
    for lib in (modtree, torch):
        options = {"device": "meta", "dtype": lib.float64} if takes_device else {}
        layer = case.make(lib, **options)
        for value in layer.state_dict().values():
            assert value.is_meta
        kind = {name: str(v.dtype).split(".")[1] for name, v in layer.state_dict().items()}
        x = lib.empty(case.shape, device="meta", dtype=lib.float64)
        with quiet():
            found = outputs(layer(x, **case.call))
        assert all(t.is_meta for t in found)
        shapes = [(tuple(t.shape), str(t.dtype).split(".")[1]) for t in found]
        results.append((list(layer.state_dict()), kind, shapes))
    assert results[0] == results[1]


def suite(cases: Sequence[Layer]) -> tuple[Callable[..., None], ...]:
    """Six test functions over all cases: arguments, text, checkpoint, outputs, gradients, meta."""
    assert len({case.id for case in cases}) == len(cases), "two cases have the same id"
    names = sorted({case.name for case in cases})

    @pytest.mark.parametrize("name", names)
    def test_arguments(name: str) -> None:
        check_arguments(Layer(name, ()))

    def on_each(
        check: Callable[[Layer], None], cases: Sequence[Layer] = cases
    ) -> Callable[..., None]:
        @pytest.mark.parametrize("case", cases, ids=lambda case: case.id)
        def test(case: Layer) -> None:
            check(case)

        return test

    checks = (check_text, check_checkpoint, check_outputs, check_gradients)
    on_meta = on_each(check_meta, [case for case in cases if case.on_meta])
    return (test_arguments, *map(on_each, checks), on_meta)
