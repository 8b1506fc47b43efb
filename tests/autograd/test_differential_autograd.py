# SPDX-License-Identifier: BSD-3-Clause
"""Random programs over a pool of tensors, run in step on torch and on modtree.

Operations, views, in-place changes, detaching, ``no_grad``, hooks, backward passes, second
derivatives and functions of one's own. After every step both pools must agree in values,
``requires_grad``, ``is_leaf`` and gradients, or both must have raised the same type of error.
``MODTREE_FUZZ=5000`` runs more programs, ``MODTREE_FUZZ_SEED=17`` one of them.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import modtree

torch = pytest.importorskip("torch")

LIBRARIES = (torch, modtree)
PROGRAMS = int(os.environ.get("MODTREE_FUZZ", "100"))
ONE_SEED = os.environ.get("MODTREE_FUZZ_SEED")
SEEDS = [int(ONE_SEED)] if ONE_SEED else range(PROGRAMS)
STEPS = 30
POOL = 12
SHAPES = [(), (1,), (3,), (2, 3), (3, 2), (2, 1), (0, 3), (2, 3, 2)]

# Where torch stops for reasons of its own: it refuses to write a tensor that overlaps with an
# operand, has other strides after an operation, looks at no index of an empty tensor, writes a part
# before it finds an index out of range, gives None where it promises zeros, fails an assertion of
# its own where the second result of a Function retains its gradient and is changed.
NOT_COMPARED = (
    "some elements of the input",
    "view size is not compatible",
    "index is out of bounds",
    "is out of bounds for",
    "'NoneType' and 'float'",
    "'NoneType' and 'int'",
    "INTERNAL ASSERT FAILED",
)

# A step is (what, function); function(lib, pool) works on one library and returns tensors for the
# pool. Everything random is drawn before.
Step = tuple[str, Callable[[Any, "Pool"], Any]]


class Pool:
    """The tensors of one library, and what its hooks saw."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib
        self.tensors: list[Any] = []
        self.log: list[Any] = []

    def __getitem__(self, i: int) -> Any:
        return self.tensors[i]


def array(tensor: Any) -> np.ndarray:
    return np.array(tensor.detach().numpy())


UNARY: dict[str, Callable[[Any, Any], Any]] = {
    "sin": lambda lib, x: lib.sin(x),
    "tanh": lambda lib, x: x.tanh(),
    "sigmoid": lambda lib, x: lib.sigmoid(x),
    "exp of tanh": lambda lib, x: x.tanh().exp(),
    "neg": lambda lib, x: -x,
    "abs": lambda lib, x: abs(x),
    "relu": lambda lib, x: lib.relu(x),
    "square": lambda lib, x: x**2,
    "1 - x": lambda lib, x: 1 - x,
    "x * 2": lambda lib, x: x * 2,
    "x / 3": lambda lib, x: x / 3,
    "clone": lambda lib, x: x.clone(),
    "detach": lambda lib, x: x.detach(),
    "contiguous": lambda lib, x: x.contiguous(),
    "sum": lambda lib, x: x.sum(),
    "mean 0": lambda lib, x: x.mean(0),
    "sum -1": lambda lib, x: x.sum(-1, keepdim=True),
    "amax": lambda lib, x: x.amax(0),
    "cumsum": lambda lib, x: x.cumsum(0),
    "prod": lambda lib, x: x.prod(0),
    "logsumexp": lambda lib, x: lib.logsumexp(x, -1),
    "clamp": lambda lib, x: x.clamp(-0.5, 0.5),
    "index": lambda lib, x: x[[0, 1, 0]],
    "mask": lambda lib, x: x[x > 0],
    "float32 and back": lambda lib, x: x.to(lib.float32).to(lib.float64),
    "matmul with its transpose": lambda lib, x: x @ x.transpose(-1, -2),
    "softmax": lambda lib, x: x.softmax(-1),
    "flip": lambda lib, x: x.flip(0),
    "roll": lambda lib, x: x.roll(1, 0),
}
VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "x[0]": lambda lib, x: x[0],
    "x[-1]": lambda lib, x: x[-1],
    "x[1:]": lambda lib, x: x[1:],
    "x[:2]": lambda lib, x: x[:2],
    "x[::2]": lambda lib, x: x[::2],
    "x[..., 0]": lambda lib, x: x[..., 0],
    "x[:, 1]": lambda lib, x: x[:, 1],
    "x[None]": lambda lib, x: x[None],
    "x[...]": lambda lib, x: x[...],
    "transpose": lambda lib, x: x.transpose(0, -1),
    "permute": lambda lib, x: x.permute(1, 0),
    "reshape": lambda lib, x: x.reshape(-1),
    "view": lambda lib, x: x.view(-1),
    "flatten": lambda lib, x: x.flatten(),
    "unsqueeze": lambda lib, x: x.unsqueeze(0),
    "squeeze": lambda lib, x: x.squeeze(),
    "expand": lambda lib, x: x.expand(2, *x.shape),
    "select": lambda lib, x: x.select(0, 0),
    "narrow": lambda lib, x: x.narrow(0, 0, 1),
    "diagonal": lambda lib, x: x.diagonal(),
    "view_as": lambda lib, x: x.view_as(x),
    "unbind": lambda lib, x: x.unbind(0),
    "split": lambda lib, x: x.split(1),
    "chunk": lambda lib, x: x.chunk(2, -1),
    "T": lambda lib, x: x.movedim(0, -1),
}
BINARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "+": lambda lib, x, y: x + y,
    "-": lambda lib, x, y: x - y,
    "*": lambda lib, x, y: x * y,
    "/": lambda lib, x, y: x / (y * y + 1),
    "maximum": lambda lib, x, y: lib.maximum(x, y),
    "where": lambda lib, x, y: lib.where(x > 0, x, y),
    "cat": lambda lib, x, y: lib.cat([x, y, x]),
    "stack": lambda lib, x, y: lib.stack([x, y]),
    "@": lambda lib, x, y: x @ y,
    "addcmul": lambda lib, x, y: lib.addcmul(x, x, y, value=0.5),
    "lerp": lambda lib, x, y: lib.lerp(x, y, 0.3),
}


def _iadd(x: Any, y: Any) -> None:
    x += y


def _imul_part(x: Any, y: Any) -> None:
    x[0] *= 2


def _iadd_part(x: Any, y: Any) -> None:
    x[1:] += y


def _set(index: Any) -> Callable[[Any, Any, Any], None]:
    def assign(lib: Any, x: Any, y: Any) -> None:
        x[index] = y

    return assign


def _set_mask(lib: Any, x: Any, y: Any) -> None:
    x[x > 0] = 0.25


INPLACE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add_": lambda lib, x, y: x.add_(y),
    "sub_": lambda lib, x, y: x.sub_(y, alpha=0.5),
    "mul_": lambda lib, x, y: x.mul_(y),
    "div_": lambda lib, x, y: x.div_(2),
    "add_ 1": lambda lib, x, y: x.add_(1),
    "mul_ 2": lambda lib, x, y: x.mul_(2),
    "copy_": lambda lib, x, y: x.copy_(y),
    "zero_": lambda lib, x, y: x.zero_(),
    "fill_": lambda lib, x, y: x.fill_(0.5),
    "tanh_": lambda lib, x, y: x.tanh_(),
    "sigmoid_": lambda lib, x, y: x.sigmoid_(),
    "sin_": lambda lib, x, y: x.sin_(),
    "neg_": lambda lib, x, y: x.neg_(),
    "clamp_": lambda lib, x, y: x.clamp_(-1, 1),
    "relu_": lambda lib, x, y: x.relu_(),
    "masked_fill_": lambda lib, x, y: x.masked_fill_(x > 0, 0.1),
    "lerp_": lambda lib, x, y: x.lerp_(y, 0.3),
    "x += y": lambda lib, x, y: _iadd(x, y),
    "x[0] *= 2": lambda lib, x, y: _imul_part(x, y),
    "x[1:] += y": lambda lib, x, y: _iadd_part(x, y),
    "x[0] = y": _set(0),
    "x[...] = y": _set(...),
    "x[:, 0] = y": _set((slice(None), 0)),
    "x[[0, 1]] = y": _set([0, 1]),
    "x[1:] = y": _set(slice(1, None)),
    "x[x > 0] = 0.25": _set_mask,
    "detach_": lambda lib, x, y: x.detach_(),
    "requires_grad_": lambda lib, x, y: x.requires_grad_(),
    "requires_grad_(False)": lambda lib, x, y: x.requires_grad_(False),
    "retain_grad": lambda lib, x, y: x.retain_grad(),
    "data.mul_": lambda lib, x, y: x.data.mul_(0.5),
    "grad = None": lambda lib, x, y: setattr(x, "grad", None),
}


def functions(lib: Any) -> dict[str, Any]:
    """Functions with a derivative of their own."""

    class Cube(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

    class Doubled(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            x.mul_(2)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    class Pair(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            out = x.tanh()
            ctx.save_for_backward(out, y)
            return out, y * 2, x

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, c: Any) -> Any:
            out, y = ctx.saved_tensors
            return a * (1 - out * out) + c, b * 2

    return {"Cube": Cube, "Doubled": Doubled, "Pair": Pair}


FUNCTIONS = {lib: functions(lib) for lib in LIBRARIES}


def _hook(pool: Pool, kind: str) -> Callable[[Any], Any]:
    def seen(grad: Any) -> None:
        pool.log.append(array(grad))

    def halve(grad: Any) -> Any:
        return grad * 0.5

    return {"seen": seen, "halve": halve}[kind]


def _backward_step(rng: random.Random, size: int) -> Step:
    i, j, k = (rng.randrange(size) for _ in range(3))
    retain, graph = rng.random() < 0.6, rng.random() < 0.25
    kind = rng.choice(["sum", "sum", "gradient", "inputs", "grad", "grad", "two roots"])
    name = f"{kind}: backward of {i} ({j}, {k}), retain={retain}, create={graph}"

    def run(lib: Any, pool: Pool) -> Any:
        x = pool[i]
        options = {"retain_graph": retain, "create_graph": graph}
        if kind == "sum":
            return x.sum().backward(**options)
        if kind == "gradient":
            return x.backward(lib.ones_like(x) * 0.5, **options)
        if kind == "inputs":
            return x.sum().backward(inputs=[pool[j], pool[k]], **options)
        if kind == "two roots":
            return lib.autograd.backward([x.sum(), (pool[j] * 2).sum()], **options)
        got = lib.autograd.grad(x.sum(), [pool[j], pool[k]], allow_unused=True, **options)
        return [g.clone() for g in got if g is not None]

    return name, run


def draw(rng: random.Random, size: int) -> Step:
    """One step on a pool of that size."""
    i, j = rng.randrange(size), rng.randrange(size)
    kind = rng.choices(
        ["leaf", "unary", "binary", "view", "inplace", "hook", "backward", "function"],
        [1, 5, 5, 6, 7, 1, 3, 1],
    )[0]
    if kind == "leaf":
        return leaf(rng)
    if kind == "unary":
        op = rng.choice(sorted(UNARY))
        return f"{op} of {i}", lambda lib, pool: UNARY[op](lib, pool[i])
    if kind == "view":
        op = rng.choice(sorted(VIEWS))
        return f"view {op} of {i}", lambda lib, pool: VIEWS[op](lib, pool[i])
    if kind == "binary":
        op = rng.choice(sorted(BINARY))
        return f"{i} {op} {j}", lambda lib, pool: BINARY[op](lib, pool[i], pool[j])
    if kind == "inplace":
        op = rng.choice(sorted(INPLACE))

        def change(lib: Any, pool: Pool) -> None:
            INPLACE[op](lib, pool[i], pool[j])

        return f"in place: {op} of {i} with {j}", change
    if kind == "hook":
        which = rng.choice(["seen", "halve"])

        def register(lib: Any, pool: Pool) -> None:
            pool[i].register_hook(_hook(pool, which))

        return f"hook {which} on {i}", register
    if kind == "function":
        name = rng.choice(["Cube", "Doubled", "Pair"])
        count = 2 if name == "Pair" else 1
        return (
            f"Function {name} of {i}, {j}",
            lambda lib, pool: FUNCTIONS[lib][name].apply(*[pool[i], pool[j]][:count]),
        )
    return _backward_step(rng, size)


def leaf(rng: random.Random) -> Step:
    shape = rng.choice(SHAPES)
    size = int(np.prod(shape))
    values = np.array([rng.uniform(-1, 1) for _ in range(size)]).reshape(shape)
    needs = rng.random() < 0.6
    return (
        f"leaf {shape} {needs}",
        lambda lib, pool: lib.tensor(values).requires_grad_(needs),
    )


def attempt(lib: Any, pool: Pool, step: Step, quiet: bool) -> tuple[list[Any], Exception | None]:
    """The tensors that a step gives, and its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if quiet:
                with lib.no_grad():
                    got = step[1](lib, pool)
            else:
                got = step[1](lib, pool)
        except Exception as error:
            return [], error
    return [] if got is None else list(got) if isinstance(got, (list, tuple)) else [got], None


def state(tensor: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grad = tensor.grad
    try:
        tensor.grad_fn  # noqa: B018  # of a view whose base changed it may be lost
    except RuntimeError as error:
        return {"shape": tuple(tensor.shape), "grad_fn": type(error)}
    return {
        "shape": tuple(tensor.shape),
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        "has grad_fn": tensor.grad_fn is not None,
        "retains_grad": tensor.retains_grad,
        "has grad": grad is not None,
        "grad's requires_grad": grad is not None and grad.requires_grad,
    }


def compare(pools: list[Pool], where: str) -> None:
    theirs, ours = pools
    for i, (t, m) in enumerate(zip(theirs.tensors, ours.tensors, strict=True)):
        assert state(m) == state(t), f"tensor {i}, {where}"
        np.testing.assert_allclose(
            array(m), array(t), rtol=1e-9, atol=1e-9, err_msg=f"tensor {i}, {where}"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a, b = t.grad, m.grad
        if a is not None:
            np.testing.assert_allclose(
                array(b), array(a), rtol=1e-7, atol=1e-7, err_msg=f"grad of tensor {i}, {where}"
            )
    assert len(ours.log) == len(theirs.log), f"calls of hooks, {where}"
    for a, b in zip(theirs.log, ours.log, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-7, atol=1e-7, err_msg=f"hook, {where}")


def kind_of(error: Exception | None) -> type[Exception] | None:
    """NotImplementedError and RecursionError are kinds of RuntimeError."""
    return RuntimeError if isinstance(error, RuntimeError) else error and type(error)


def too_large(pool: Pool) -> bool:
    """Values from here on would be compared in their last digits."""
    for t in pool.tensors:
        values = array(t)
        if values.size > 500 or not np.isfinite(values).all() or (abs(values) > 1e3).any():
            return True
    return False


@pytest.mark.parametrize("seed", SEEDS)
def test_program(seed: int) -> None:
    rng = random.Random(seed)
    pools = [Pool(lib) for lib in LIBRARIES]
    history = [f"seed {seed}"]
    steps = [leaf(rng) for _ in range(4)]
    for count in range(STEPS):
        step = steps.pop() if steps else draw(rng, len(pools[0].tensors))
        quiet = count >= 4 and rng.random() < 0.08
        history.append(f"{count}: {step[0]}{' under no_grad' if quiet else ''}")
        where = "\n  ".join(history)
        outcomes = [attempt(pool.lib, pool, step, quiet) for pool in pools]
        (theirs, error), (ours, our_error) = outcomes
        if any(text in str(e) for text in NOT_COMPARED for e in (error, our_error)):
            return
        problem = f"{where}\n  torch: {error!r}\n  modtree: {our_error!r}"
        assert kind_of(our_error) is kind_of(error), problem
        if error is not None and "backward of" in step[0]:
            return  # which gradients were complete before the error is nobody's promise
        assert len(ours) == len(theirs), problem
        for pool, (tensors, _) in zip(pools, outcomes, strict=True):
            pool.tensors += tensors
        compare(pools, where)
        excess = len(pools[0].tensors) - POOL
        for _ in range(excess):
            dropped = rng.randrange(len(pools[0].tensors))
            history.append(f"     drop {dropped}")
            for pool in pools:
                del pool.tensors[dropped]
        if too_large(pools[0]):
            return
