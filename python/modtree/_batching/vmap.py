# SPDX-License-Identifier: BSD-3-Clause
"""vmap: a function of one sample as a function of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from modtree import _C
from modtree._batching.level import Level
from modtree._batching.tensor import batched
from modtree._ops.registry import ops
from modtree._pytree import broadcast, flatten, unflatten
from modtree.core import families

__all__ = ["vmap"]


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The function over a batch: ``func`` is written for one sample, and operations in it are
    carried out on all samples at once.

    Args:
        func: Takes tensors, or nested dicts, lists and tuples of them, and returns such.
        in_dims: Which dimension of the inputs is the batch: one number for all, or numbers nested
            as the inputs are; None for an input that is the same for all samples, as keyword
            arguments are.
        out_dims: Where the batch stands in the results.
        randomness: ``"error"``; ``"different"`` draws other numbers for each sample, ``"same"`` the
            same.
        chunk_size: At most so many samples at once; all without.

    Raises:
        ValueError: ``in_dims`` or ``out_dims`` do not fit, or sizes of the batch differ.
        RuntimeError: The function looks at the values (``item()``, ``if``), or draws random numbers
            with ``randomness="error"``.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def over_batch(*args: Any, **kwargs: Any) -> Any:
        inputs = _Inputs(func, in_dims, args, kwargs)
        size = inputs.size
        if chunk_size is None or chunk_size >= size:
            return inputs.call(0, size, out_dims, randomness)
        parts = [
            inputs.call(start, min(chunk_size, size - start), out_dims, randomness)
            for start in range(0, size, chunk_size)
        ]
        return _joined(parts, out_dims)

    return over_batch


def _name(func: Any) -> str:
    return getattr(func, "__name__", repr(func))


def _advice(value: Any) -> str:
    if families.family_of(value) is None:
        return ""
    return " (for tensors of torch, use torch.func.vmap)"


def _is_dim(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


class _Inputs:
    """The arguments of one call, with the dimension of the batch in each."""

    def __init__(self, func: Any, in_dims: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self.func = func
        self.given = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
        if not isinstance(in_dims, (int, list, tuple)):
            raise ValueError(
                f"{self.given}: expected `in_dims` to be int or a (potentially nested) tuple "
                f"matching the structure of inputs, got: {type(in_dims)}."
            )
        if not args and not kwargs:
            raise ValueError(
                f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or "
                f"you are trying to vmap over a function with no inputs. The latter is "
                f"unsupported."
            )
        self.flat, self.structure = flatten(args)
        dims = broadcast(in_dims, self.structure, _is_dim)
        if dims is None:
            raise ValueError(
                f"{self.given}: in_dims is not compatible with the structure of `inputs`. in_dims "
                f"is {in_dims!r}, the inputs are {self.structure!r}."
            )
        self.named = kwargs
        self.dims = [self._checked(v, d) for v, d in zip(self.flat, dims, strict=True)]
        self.size = self._size()

    def _checked(self, value: Any, dim: int | None) -> int | None:
        if dim is None:
            return None
        if not isinstance(value, _C.TensorBase):
            raise ValueError(
                f"{self.given}: Got in_dim={dim} for an input but the input is of type "
                f"{type(value)}. We cannot vmap over non-Tensor arguments, please use None as the "
                f"respective in_dim{_advice(value)}"
            )
        if not -value.ndim <= dim < value.ndim:
            raise ValueError(
                f"{self.given}: Got in_dim={dim} for some input, but that input is a Tensor of "
                f"dimensionality {value.ndim} so expected in_dim to satisfy -{value.ndim} <= "
                f"in_dim < {value.ndim}."
            )
        return dim % value.ndim

    def _size(self) -> int:
        sizes = [v.shape[d] for v, d in zip(self.flat, self.dims, strict=True) if d is not None]
        if not sizes:
            raise ValueError(
                f"{self.given}: no input has a batch: at least one in_dim must not be None"
            )
        if len(set(sizes)) > 1:
            raise ValueError(
                f"vmap: Expected all tensors to have the same size in the mapped dimension, got "
                f"sizes {sizes} for the mapped dimension"
            )
        return int(sizes[0])

    def call(self, start: int, count: int, out_dims: Any, randomness: str) -> Any:
        """Calls the function for ``count`` samples from ``start`` on."""
        values = []
        for value, dim in zip(self.flat, self.dims, strict=True):
            if dim is not None:
                value = value if dim == 0 else ops["movedim"](value, dim, 0)
                value = value if count == self.size else value[start : start + count]
            values.append(value)
        level = Level(count, randomness)
        with level:
            samples = [
                v if d is None else batched(v, level)
                for v, d in zip(values, self.dims, strict=True)
            ]
            result = self.func(*unflatten(samples, self.structure), **self.named)
            return _results(self.func, result, out_dims, level)


def _results(func: Any, result: Any, out_dims: Any, level: Level) -> Any:
    flat, structure = flatten(result)
    for value in flat:
        if not isinstance(value, _C.TensorBase):
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type "
                f"{type(value)}. Did you mean to set the `out_dims=` to None for output?"
            )
    return unflatten(
        [
            _result(func, v, d, level)
            for v, d in zip(flat, _dims(func, out_dims, structure), strict=True)
        ],
        structure,
    )


def _dims(func: Any, out_dims: Any, structure: Any) -> list[Any]:
    if isinstance(out_dims, (tuple, list)) and len(out_dims) == 1 and structure.kind is None:
        out_dims = out_dims[0]
    dims = broadcast(out_dims, structure, _is_dim)
    if dims is None:
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible "
            f"with the structure of `outputs`. out_dims is {out_dims!r}, the outputs are "
            f"{structure!r}."
        )
    return dims


def _result(func: Any, value: Any, dim: int | None, level: Level) -> Any:
    if dim is None:
        if level.holds(value):
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` can not return a BatchedTensor when "
                f"out_dim is None"
            )
        return value
    if not -value.ndim - 1 <= dim <= value.ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-value.ndim - 1}, "
            f"{value.ndim}], but got {dim})"
        )
    full = level.full_of(value)
    return full if dim == 0 else ops["movedim"](full, 0, dim)


def _joined(parts: list[Any], out_dims: Any) -> Any:
    """The results of several chunks as one."""
    flat = [flatten(part)[0] for part in parts]
    structure = flatten(parts[0])[1]
    dims = _dims(None, out_dims, structure)
    columns = zip(*flat, strict=True)
    return unflatten(
        [
            column[0] if dim is None else ops["cat"](list(column), dim % column[0].ndim)
            for column, dim in zip(columns, dims, strict=True)
        ],
        structure,
    )
