# SPDX-License-Identifier: BSD-3-Clause
"""The tensor that a function inside of ``vmap`` sees: one sample, which stands for all."""

from __future__ import annotations

from typing import Any

from modtree import _C
from modtree._ops.registry import ops
from modtree._tensor.tensor import Tensor

__all__ = ["BatchedTensor", "batched"]


def batched(full: Any, level: Any) -> Any:
    """A tensor with the batch of the level as dimension 0, as one sample."""
    shape = tuple(full.shape)
    self = _C.make_subclass(BatchedTensor, _C.empty_meta(shape[1:], full.dtype))
    self._full = full
    self._level = level
    return self


def _refuse_values(what: str) -> RuntimeError:
    return RuntimeError(
        f"vmap: It looks like you're calling {what} on a Tensor. We don't support vmap over "
        f"calling {what} on a Tensor, as it is a different value for each sample: write what you "
        f"do with operations on tensors"
    )


class _Sample:
    """What can be said of a sample's array: all but the values."""

    def __init__(self, tensor: Any) -> None:
        self.dtype = tensor.dtype.dtype
        self.shape = tuple(tensor.shape)
        self.ndim = len(self.shape)
        self.size = tensor.numel()

    def __getattr__(self, name: str) -> Any:
        raise _refuse_values(f"a function that looks at the values (array.{name})")


class BatchedTensor(Tensor):
    """One sample of a batch. Its shape is that of the sample; ``_full`` has the whole batch."""

    _full: Any
    _level: Any

    # -- what the sample is ------------------------------------------------------------------------

    @property
    def _array(self) -> Any:
        return _Sample(self)

    @property
    def device(self) -> Any:
        return self._full.device

    @property
    def is_meta(self) -> bool:
        return bool(self._full.is_meta)

    @property
    def requires_grad(self) -> bool:
        return bool(self._full.requires_grad)

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        self._full.requires_grad = flag

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        self._full.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        return bool(self._full.is_leaf)

    @property
    def grad_fn(self) -> Any:
        return self._full.grad_fn

    @property
    def grad(self) -> Any:  # type: ignore[override]
        found = self._full.grad
        return None if found is None else batched(found, self._level)

    @property
    def data(self) -> Any:  # type: ignore[override]
        return batched(self._full.data, self._level)

    @property
    def _version(self) -> int:
        return int(self._full._version)

    def __repr__(self) -> str:
        return f"BatchedTensor(size={self._level.size}, value={self._full!r})"

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return True

    # -- values ------------------------------------------------------------------------------------

    def item(self) -> Any:
        raise _refuse_values(".item()")

    def tolist(self) -> Any:
        raise _refuse_values(".tolist()")

    def numpy(self, *, force: bool = False) -> Any:
        raise _refuse_values(".numpy()")

    def data_ptr(self) -> int:
        raise _refuse_values(".data_ptr()")

    def __bool__(self) -> bool:
        raise RuntimeError(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control "
            "flow. We don't support that yet: each sample might go another way. Write it with "
            "where(), or leave the condition out of vmap"
        )

    def __float__(self) -> float:
        raise _refuse_values("float()")

    def __int__(self) -> int:
        raise _refuse_values("int()")

    def __index__(self) -> int:
        raise _refuse_values("int()")

    def __complex__(self) -> complex:
        raise _refuse_values("complex()")

    def __format__(self, spec: str) -> str:
        return object.__format__(self, spec)

    def __contains__(self, element: Any) -> bool:
        return bool((self == element).any())

    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("vmap: tensors cannot be copied by copy.deepcopy() inside: use clone()")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("vmap: tensors cannot be pickled inside")

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "backward() called inside torch.vmap. This is not supported, please call backward() "
            "outside, or use func.grad() inside"
        )

    def _refused(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "vmap: this method changes or watches one tensor object: call it outside of vmap"
        )

    register_hook = register_post_accumulate_grad_hook = retain_grad = _refused
    detach_ = set_ = resize_ = apply_ = share_memory_ = _refused

    # -- other handles -----------------------------------------------------------------------------

    def _each(self, name: str, *args: Any) -> Any:
        return batched(getattr(self._full, name)(*args), self._level)

    def detach(self) -> Any:
        return self._each("detach")

    def clone(self, *, memory_format: Any = None) -> Any:
        return self._each("clone")

    def _convert(self, *args: Any) -> Any:
        result = self._full._convert(*args)
        return self if result is self._full else batched(result, self._level)

    def __copy__(self) -> Any:
        return batched(self._full, self._level)

    # -- in place ----------------------------------------------------------------------------------

    def copy_(self, other: Any, non_blocking: bool = False) -> Any:
        self._full.copy_(self._like_full(other, self.ndim))
        return self

    def zero_(self) -> Any:
        self._full.zero_()
        return self

    def fill_(self, value: Any) -> Any:
        if type(value) is BatchedTensor:
            return self.copy_(value)
        self._full.fill_(value)
        return self

    def _like_full(self, value: Any, ndim: int) -> Any:
        """What a sample has in this place, for all samples: the batch in front of ``ndim``
        dimensions.
        """
        if type(value) is not BatchedTensor or value._level is not self._level:
            return value
        lead = (1,) * (ndim - value.ndim)
        return ops["reshape"](value._full, (self._level.size, *lead, *value.shape))

    def __setitem__(self, index: Any, value: Any) -> None:
        parts = index if isinstance(index, tuple) else (index,)
        if all(
            p is None or p is Ellipsis or isinstance(p, (int, slice)) for p in parts
        ) and not any(isinstance(p, bool) for p in parts):
            whole = (slice(None), *parts)
            ndim = self._full[whole].ndim - 1
            self._full[whole] = self._like_full(value, ndim)
            return
        level = self._level
        columns = [level.samples_of(part) for part in parts]
        values = level.samples_of(value)
        for i, where in enumerate(zip(*columns, strict=True)):
            self._full[i][where] = values[i]

    # -- siblings ----------------------------------------------------------------------------------

    def _with_batch(self, values: Any) -> Any:
        """A new tensor, with the batches of this one: it can be written as this one can."""
        if type(values) is BatchedTensor:
            return values
        size = self._level.size
        full = ops["expand"](values.unsqueeze(0), (size, *values.shape)).clone()
        if type(self._full) is BatchedTensor:
            full = self._full._with_batch(full)
        return batched(full, self._level)

    def _new(self, make: Any, size: Any, kwargs: Any) -> Any:
        values = super()._new(make, size, kwargs)
        return values if values.requires_grad else self._with_batch(values)


for _name in "float double half long int short char byte bool cfloat cdouble contiguous".split():

    def _cast(self: Any, *args: Any, _name: str = _name, **kwargs: Any) -> Any:
        return batched(getattr(self._full, _name)(), self._level)

    _cast.__name__ = _cast.__qualname__ = _name
    setattr(BatchedTensor, _name, _cast)
