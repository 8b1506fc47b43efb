# SPDX-License-Identifier: BSD-3-Clause
"""L-BFGS: steps from an approximation of the curvature by the last gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from modtree import _C
from modtree.numpy.tensor.grad_mode import enable_grad, no_grad
from modtree.optim._arrays import CHECKS
from modtree.optim._line_search import Point, strong_wolfe
from modtree.optim.optimizer import Optimizer

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """The limited-memory method of Broyden, Fletcher, Goldfarb and Shanno, for all parameters as
    one vector (Liu and Nocedal, 1989).

    ``step(closure)`` calls the closure several times; it has to clear the gradients, compute the
    loss, go backward and return the loss.

    Args:
        params: the tensors, real ones; one group only.
        lr: length of a step relative to the direction, and the first length of a line search.
        max_iter: the most iterations in one call of ``step``.
        max_eval: the most calls of the closure in one call of ``step``; 1.25 times max_iter when
            left out.
        tolerance_grad: no entry of the gradient is larger: done.
        tolerance_change: parameters or loss change less: done.
        history_size: how many changes of the gradient are remembered.
        line_search_fn: None, or "strong_wolfe".

    Raises:
        ValueError: an option is out of its range, or there are several groups.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        CHECKS["lr"](lr)
        if line_search_fn not in (None, "strong_wolfe"):
            raise ValueError(f"line_search_fn is None or 'strong_wolfe', got {line_search_fn!r}")
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]
        for p in self._params:
            if p.is_complex():
                raise ValueError("LBFGS needs real parameters: use view_as_real() for complex ones")

    # -- one vector --------------------------------------------------------------------------------

    def _gradient(self) -> np.ndarray:
        parts = [
            np.zeros(p.numel(), p._array.dtype) if p.grad is None else p.grad._array.reshape(-1)
            for p in self._params
        ]
        return np.concatenate(parts)

    def _values(self) -> list[np.ndarray]:
        return [p._array.copy() for p in self._params]

    def _move(self, values: list[np.ndarray], t: float, direction: np.ndarray) -> None:
        """Parameters = values + t * direction."""
        start = 0
        for p, value in zip(self._params, values, strict=True):
            part = direction[start : start + value.size].reshape(value.shape)
            np.add(value, part.dtype.type(t) * part, out=p._array)
            _C.bump_version(p)
            start += value.size

    # -- steps -------------------------------------------------------------------------------------

    @no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Goes on until it is done or has used its iterations, and returns the first loss of the
        closure.
        """
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def value() -> float:
            with enable_grad():
                return float(closure())

        with enable_grad():
            first_loss = closure()
        loss, evaluations = float(first_loss), 1
        state["func_evals"] += 1
        gradient = self._gradient()
        if np.abs(gradient).max(initial=0) <= group["tolerance_grad"]:
            return first_loss
        memory = _Memory(state, group["history_size"])
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = memory.direction(gradient, state["n_iter"] == 1)
            last_loss = loss
            if state["n_iter"] == 1:
                t = min(1.0, 1.0 / float(np.abs(gradient).sum())) * group["lr"]
            else:
                t = group["lr"]
            slope = float(gradient @ direction)
            memory.length = t
            if slope > -group["tolerance_change"]:
                break
            values = self._values()
            used = 0
            if group["line_search_fn"] is not None:

                def evaluate(length: float) -> Point:
                    self._move(values, length, direction)  # noqa: B023
                    loss, gradient = value(), self._gradient()
                    return Point(length, loss, gradient, float(gradient @ direction))  # noqa: B023

                start = Point(0.0, loss, gradient, slope)
                found, used = strong_wolfe(evaluate, start, t, float(np.abs(direction).max()))
                self._move(values, found.t, direction)
                t, loss, gradient = found.t, found.value, found.gradient
            else:
                self._move(values, t, direction)
                if iteration != group["max_iter"]:  # else the next call begins with this one
                    loss, gradient, used = value(), self._gradient(), 1
            memory.length = t
            evaluations += used
            state["func_evals"] += used
            if (
                evaluations >= group["max_eval"]
                or np.abs(gradient).max() <= group["tolerance_grad"]
                or float(np.abs(direction * t).max()) <= group["tolerance_change"]
                or abs(loss - last_loss) < group["tolerance_change"]
            ):
                break
        memory.keep(state, last_loss)
        return first_loss


class _Memory:
    """The changes of the gradient and of the parameters that are remembered, and the direction that
    follows from them.
    """

    def __init__(self, state: dict[str, Any], most: int) -> None:
        def arrays(name: str) -> list[np.ndarray]:
            return [t._array for t in state.get(name) or []]

        self.most = most
        self.changes, self.steps = arrays("old_dirs"), arrays("old_stps")
        self.scales = [float(v) for v in state.get("ro") or []]
        self.curvature = float(state.get("H_diag", 1))
        self.last_direction = state["d"]._array if "d" in state else None
        self.last_gradient = state["prev_flat_grad"]._array if "prev_flat_grad" in state else None
        self.length = state.get("t")

    def direction(self, gradient: np.ndarray, first: bool) -> np.ndarray:
        if first:
            self.changes, self.steps, self.scales, self.curvature = [], [], [], 1.0
            result = -gradient
        else:
            self._remember(gradient)
            result = -gradient
            factors = []
            for change, step, scale in reversed(
                list(zip(self.changes, self.steps, self.scales, strict=True))
            ):
                factors.append(float(step @ result) * scale)
                result -= gradient.dtype.type(factors[-1]) * change
            result *= gradient.dtype.type(self.curvature)
            for change, step, scale in zip(self.changes, self.steps, self.scales, strict=True):
                back = float(change @ result) * scale
                result += gradient.dtype.type(factors.pop() - back) * step
        self.last_direction, self.last_gradient = result, gradient
        return result

    def _remember(self, gradient: np.ndarray) -> None:
        change = gradient - self.last_gradient
        step = self.last_direction * gradient.dtype.type(self.length)
        product = float(change @ step)
        if product <= 1e-10:
            return
        if len(self.changes) == self.most:
            for kept in (self.changes, self.steps, self.scales):
                kept.pop(0)
        self.changes.append(change)
        self.steps.append(step)
        self.scales.append(1.0 / product)
        self.curvature = product / float(change @ change)

    def keep(self, state: dict[str, Any], last_loss: float) -> None:
        tensor = _C.from_array
        state["d"], state["t"] = tensor(self.last_direction), self.length
        state["old_dirs"] = [tensor(a) for a in self.changes]
        state["old_stps"] = [tensor(a) for a in self.steps]
        state["ro"] = list(self.scales)
        state["H_diag"] = self.curvature
        state["prev_flat_grad"] = tensor(self.last_gradient)
        state["prev_loss"] = last_loss
