# SPDX-License-Identifier: BSD-3-Clause
"""What all ways of pruning share: the hook with its mask, and several of them in one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from modtree.core.undo import undone_on_error
from modtree.nn.utils._library import family_of, library_of

# -- checks ----------------------------------------------------------------------------------------


def _check_scores(scores: Any, t: Any, what: str) -> Any:
    """The scores, by default the tensor itself."""
    if scores is None:
        return t
    if scores.shape != t.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {what}, got {scores.shape} vs "
            f"{t.shape}"
        )
    return scores


# -- masks -----------------------------------------------------------------------------------------


def ones_like(t: Any) -> Any:
    return library_of(t).ones_like(t)


def contiguous_copy(t: Any) -> Any:
    return t.clone(memory_format=library_of(t).contiguous_format)


def channels(t: Any, dim: int, which: Any) -> tuple[Any, ...]:
    """The index of some channels along a dimension."""
    index: list[Any] = [slice(None)] * t.ndim
    index[dim] = which
    return tuple(index)


# -- methods ---------------------------------------------------------------------------------------


def hooks_of(module: Any, name: str) -> list[Any]:
    return [key for key, hook in module._forward_pre_hooks.items() if _prunes(hook, name)]


def _prunes(hook: Any, name: str) -> bool:
    return isinstance(hook, BasePruningMethod) and hook._tensor_name == name


def pruning_undone_on_error(module: Any, name: str) -> AbstractContextManager[None]:
    """When the block raises, the tensor is pruned as before."""
    names = (name, name + "_orig", name + "_mask")
    return undone_on_error(module, *names, is_hook=lambda hook: _prunes(hook, name))


class BasePruningMethod(ABC):
    """A way to choose what is pruned, and the forward pre-hook that applies the mask.

    A subclass gives :meth:`compute_mask`, and ``PRUNING_TYPE``: ``"unstructured"`` (single values),
    ``"structured"`` (channels along ``self.dim``) or ``"global"`` (all of the tensor). It says
    which part of a tensor that is pruned already the next method sees: values, or channels, that
    are left.
    """

    __module__ = "modtree.nn.utils.prune"  # where users find it, and pickles look

    PRUNING_TYPE: ClassVar[str]
    _tensor_name: str

    def __call__(self, module: Any, inputs: Any) -> None:
        """Computes the pruned tensor anew."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The new mask.

        Args:
            t: The importance of the values.
            default_mask: The mask so far, of the same shape.
        """

    def apply_mask(self, module: Any) -> Any:
        """The pruned tensor: the original times its mask."""
        mask = getattr(module, self._tensor_name + "_mask")
        original = getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> Any:
        """Prunes a parameter; once more, if it is pruned already.

        Args:
            module: Changed in place.
            name: The parameter's name.
            *args: Arguments of the class.
            importance_scores: What decides in place of the values; of the same shape.
            **kwargs: Arguments of the class.

        Returns:
            The method that is the module's hook now: of this class, or a container.

        Raises:
            AssertionError: The scores have another shape.
        """
        keys = hooks_of(module, name)
        if len(keys) > 1:
            raise AssertionError(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module "
                f"{module}. Use a PruningContainer."
            )
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        tensor = getattr(module, name)
        scores = _check_scores(importance_scores, tensor, f"parameter {name} of {module}")
        if keys:
            method = PruningContainer._joined(module._forward_pre_hooks[keys[0]], method)
            mask = contiguous_copy(getattr(module, name + "_mask").detach())
        else:
            mask = ones_like(tensor)
        mask = method.compute_mask(scores, default_mask=mask)
        with pruning_undone_on_error(module, name):
            if not keys:
                module.register_parameter(name + "_orig", tensor)
                del module._parameters[name]
            module.register_buffer(name + "_mask", mask)
            setattr(module, name, method.apply_mask(module))
            for key in keys:
                del module._forward_pre_hooks[key]
            module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """The pruned form of a tensor that need not belong to a module.

        Args:
            t: The tensor.
            default_mask: A mask that it has already.
            importance_scores: What decides in place of the values; of the same shape.
        """
        scores = _check_scores(importance_scores, t, "tensor t")
        mask = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=mask)

    def remove(self, module: Any) -> None:
        """Makes pruning permanent: the parameter is there under its name again, with zeros. The
        hook stays; :func:`remove` takes it too.
        """
        name = self._tensor_name
        weight = self.apply_mask(module)
        original = module._parameters[name + "_orig"]
        family = family_of(original)
        with pruning_undone_on_error(module, name):
            if hasattr(module, name):
                delattr(module, name)
            del module._parameters[name + "_orig"]
            del module._buffers[name + "_mask"]
            setattr(module, name, original)
            family.set_data(original, family.detach(weight))


class PruningContainer(BasePruningMethod):
    """Several methods for one tensor, of which the last chooses among what the others left.

    Args:
        *args: The methods, all for the tensor of one name.
    """

    __module__ = "modtree.nn.utils.prune"  # where users find it, and pickles look

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if args:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    @classmethod
    def _joined(cls, old: Any, method: Any) -> PruningContainer:
        """A container with a method behind the old ones. An old container is as before."""
        methods = tuple(old) if isinstance(old, PruningContainer) else (old,)
        return cls(*methods, method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Adds a method behind the others.

        Raises:
            TypeError: It is none.
            ValueError: It is for a tensor of another name.
        """
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask so far, and what the last method takes of what it left.

        Args:
            t: The importance of the values.
            default_mask: The mask so far.
        """
        method = self._pruning_methods[-1]
        left = self._left(method, t, default_mask)
        mask = default_mask.to(dtype=t.dtype, copy=True)
        part = method.compute_mask(t[left], default_mask=default_mask[left])
        mask[left] = part.to(dtype=mask.dtype)
        return mask

    @staticmethod
    def _left(method: Any, t: Any, mask: Any) -> Any:
        """The index of what a method may choose from."""
        if method.PRUNING_TYPE == "unstructured":
            return mask == 1
        if method.PRUNING_TYPE == "global":
            return (slice(None),) * t.ndim
        if method.PRUNING_TYPE != "structured":
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        if not hasattr(method, "dim"):
            raise AttributeError(
                'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` '
                "defined."
            )
        if not -t.ndim <= method.dim < t.ndim:
            raise IndexError(f"Index is out of bounds for tensor with dimensions {t.ndim}")
        dim = method.dim % t.ndim
        others = [d for d in range(t.ndim) if d != dim]
        return channels(t, dim, (mask.sum(dim=others) if others else mask) != 0)
