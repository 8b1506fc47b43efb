# SPDX-License-Identifier: BSD-3-Clause
"""Steps on arrays: options and their checks, the loop over parameters, working memory."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, ParamSpec

import numpy as np

from modtree import _C
from modtree.numpy.tensor.tensor import Tensor
from modtree.optim.optimizer import Optimizer, run_closure

P = ParamSpec("P")

# Options that checkpoints of earlier versions of torch lack: there the default holds.
_ADDED_LATER = frozenset(
    (
        "amsgrad",
        "capturable",
        "centered",
        "decoupled_weight_decay",
        "differentiable",
        "foreach",
        "fused",
        "maximize",
        "momentum",
        "nesterov",
    )
)

#: State that counts: 0-d tensors in memory, numbers in old checkpoints.
_COUNTERS = ("step", "mu_product", "eta", "mu")


# -- options ---------------------------------------------------------------------------------------


def check_lr(words: str) -> Callable[[Any], None]:
    """A check of learning rates, with the words of its error."""

    def check(lr: Any) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:  # NaN is refused too
            raise ValueError(f"{words}: {lr}")

    return check


def at_least(bound: int, name: str) -> Callable[[Any], None]:
    """A check of numbers that have a lower bound."""

    def check(value: Any) -> None:
        if not bound <= value:
            raise ValueError(f"{name} should be >= {bound} but is: {value}")

    return check


def _check_etas(etas: Any) -> None:
    if not 0.0 < etas[0] < 1.0 < etas[1]:
        raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")


def _check_betas(betas: Any) -> None:
    for i in range(2):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")


def _check_rho(rho: Any) -> None:
    if not 0.0 <= rho <= 1.0:
        raise ValueError(f"Invalid rho value: {rho}")


def _not_negative(words: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if not 0.0 <= value:
            raise ValueError(f"Invalid {words}: {value}")

    return check


# What an option must be, whichever optimizer has it.
CHECKS: dict[str, Callable[[Any], None]] = {
    "lr": check_lr("Invalid learning rate"),
    "etas": _check_etas,
    "betas": _check_betas,
    "rho": _check_rho,
    "eps": _not_negative("epsilon value"),
    **{
        name: _not_negative(f"{name} value")
        for name in (
            "alpha",
            "initial_accumulator_value",
            "lr_decay",
            "momentum",
            "momentum_decay",
            "weight_decay",
        )
    },
}


def takes_options(init: Callable[P, None]) -> Callable[P, None]:
    """Makes an optimizer's constructor from its signature: the parameters after ``params`` are the
    options, which are checked and handed to :meth:`ArrayOptimizer._set_options`.
    """
    signature = inspect.signature(init)
    _, _, *options = signature.parameters.values()

    @functools.wraps(init)
    def constructor(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            init(*args, **kwargs)  # says it in Python's own words
            raise
        bound.apply_defaults()
        self, params, *_ = bound.arguments.values()
        values = {option.name: bound.arguments[option.name] for option in options}
        checks = {**CHECKS, **self._checks}
        for name, value in values.items():
            check = checks.get(name)
            if check is not None:
                check(value)
        self._set_options(params, values)

    defaults = {option.name: option.default for option in options}
    constructor.options = defaults  # type: ignore[attr-defined]
    return constructor


# -- the base --------------------------------------------------------------------------------------


class ArrayOptimizer(Optimizer):
    """An optimizer whose step is one kernel or a few ufuncs on the arrays of each parameter.

    ``foreach``, ``fused`` and ``capturable`` choose among torch's implementations; they are kept
    for its state dicts and change nothing here. A subclass declares its options in the signature of
    a constructor with :func:`takes_options`, and gives :meth:`_start`, the state of a parameter
    before its first step, and :meth:`_step_group`.
    """

    #: Names and defaults of the options.
    _options: ClassVar[Mapping[str, Any]] = {}
    #: Their order in torch's state dicts, where the signature has another.
    _order: ClassVar[tuple[str, ...]] = ()
    #: Checks of options that differ from those of other optimizers; None for no check.
    _checks: ClassVar[Mapping[str, Callable[[Any], None] | None]] = {}
    #: Options that are no parameters of the constructor.
    _fixed: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._options = getattr(cls.__dict__.get("__init__"), "options", cls._options)

    def _set_options(self, params: Iterable[Any], options: dict[str, Any]) -> None:
        """The end of the constructor. Subclasses check in front what options have to do with each
        other.
        """
        if options.get("fused") and options.get("differentiable"):
            raise RuntimeError("`fused` does not support `differentiable`")
        if options.get("fused") and options.get("foreach"):
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        if options.get("differentiable"):
            raise RuntimeError(
                f"{type(self).__name__}(differentiable=True): steps change arrays in place and are "
                "not recorded; compute the update from tensors with autograd.grad(..., "
                "create_graph=True) instead"
            )
        ordered = {name: options[name] for name in self._order}
        Optimizer.__init__(self, params, {**ordered, **options, **self._fixed})

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(state)
        # Not of the defaults: the base adds one that not every optimizer has.
        missing = {name: self._options[name] for name in self._options if name in _ADDED_LATER}
        for group in self.param_groups:
            for name, default in missing.items():
                group.setdefault(name, default)
            group.update(self._fixed)
            for p in group["params"]:
                own = self.state.get(p, {})
                for name in _COUNTERS:
                    if name in own and not isinstance(own[name], Tensor):
                        own[name] = counter(float(own[name]))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient.

        Args:
            closure: computes the loss anew, with gradients; its value is returned.
        """
        loss = run_closure(closure)
        with np.errstate(all="ignore"):  # as torch: infinities and NaN go on silently
            for group in self.param_groups:
                self._step_group(group)
        return loss

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        raise NotImplementedError

    def _step_group(self, group: dict[str, Any]) -> None:
        raise NotImplementedError

    def _active(self, group: dict[str, Any]) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
        """Array, gradient and state of each parameter to be changed; the change is announced when
        the loop goes on.
        """
        states = self.state
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            state = states.get(p)
            if not state:
                state = {}
                self._start(p, state, group)
                if state:  # parameters without state have no place in a state_dict
                    states[p] = state
            if p.is_meta:
                continue
            yield p._array, grad._array, state
            _C.bump_version(p)

    def _scratch(self, like: Any, slot: int) -> Any:
        """Working memory of an array's shape and dtype. Arrays share it: what it holds is gone with
        the next array.
        """
        key = (slot, like.shape, like.dtype)
        # Not in __init__: unpickled optimizers do not pass through it.
        views = self.__dict__.setdefault("_scratch_views", {})
        view = views.get(key)
        if view is None:
            pools = self.__dict__.setdefault("_scratch_pools", {})
            pool = pools.get((slot, like.dtype))
            if pool is None or pool.size < like.size:
                pool = pools[slot, like.dtype] = np.empty(like.size, like.dtype)
                # Views of the smaller pool would keep it alive.
                for old in [k for k in views if k[0] == slot and k[2] == like.dtype]:
                    views[old] = pool[: views[old].size].reshape(old[1])
            view = views[key] = pool[: like.size].reshape(like.shape)
        return view

    def _gradient(self, array: Any, grad: Any, decay: float, maximize: bool) -> Any:
        """The gradient to go down: with the penalty's, and turned round for ``maximize``."""
        if decay:
            out = np.multiply(array, decay, out=self._scratch(array, 0))
            return (np.subtract if maximize else np.add)(out, grad, out=out)
        return np.negative(grad, out=self._scratch(array, 0)) if maximize else grad


def counter(value: float = 0.0) -> Any:
    """A 0-d tensor for a number of the state, as torch's state dicts have it."""
    kind = np.float64 if _C.get_default_dtype() is _C.as_dtype("float64") else np.float32
    return _C.own_array(np.array(value, kind))


def count(state: dict[str, Any]) -> float:
    """One more step; how many that makes."""
    steps = state["step"]._array
    steps += 1
    return steps.item()


def zeros_like(p: Any) -> Any:
    """State of a parameter's shape, dtype and layout in memory."""
    if p.is_meta:
        return _C.empty_meta(p.shape, p.dtype)
    return _C.own_array(np.zeros_like(p._array))


def lerp(a: Any, b: Any, weight: float) -> None:
    """Moves an array towards another one, in place: all the way for a weight of 1."""
    way = b - a
    if weight < 0.5:
        way *= weight
        a += way
    else:
        way *= 1 - weight
        np.subtract(b, way, out=a)


def start_moments(state: dict[str, Any], p: Any) -> None:
    """Running means of the gradient and of its square, for Adam and its relatives."""
    state["exp_avg"] = zeros_like(p)
    state["exp_avg_sq"] = zeros_like(p)


def weight_decay(group: dict[str, Any], lr: float) -> tuple[float, float]:
    """The factor of the weights if their decay is decoupled, and the penalty's in the gradient if
    it is not.
    """
    decay = float(group["weight_decay"])
    return (1 - lr * decay, 0.0) if group["decoupled_weight_decay"] else (1.0, decay)


def array_of(state: dict[str, Any], name: str) -> Any:
    """The array of an optional entry of the state."""
    value = state.get(name)
    return None if value is None else value._array


def real_parts(*arrays: Any) -> tuple[Any, ...]:
    """The arrays, or for complex ones first their real parts and then the imaginary ones: both are
    stepped alone.
    """
    if arrays[0].dtype.kind != "c":
        return (arrays,)
    return (
        tuple(None if a is None else a.real for a in arrays),
        tuple(None if a is None else a.imag for a in arrays),
    )


_KERNEL_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def fits_kernel(array: Any, *state: Any) -> bool:
    """Can the kernels work on these arrays? The array is float32 or float64, and all that are there
    are C-contiguous.
    """
    return (
        array.dtype in _KERNEL_DTYPES
        and array.flags.c_contiguous
        and all(a is None or a.flags.c_contiguous for a in state)
    )
