# SPDX-License-Identifier: BSD-3-Clause
"""What is run to look at a model: the model, or a copy of a lazy one, and the arguments."""

from __future__ import annotations

import copy
import importlib
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from modtree._C import as_tuple
from modtree.core import pytree as _pytree
from modtree.core.families import family_of
from modtree.editing.walking import registry
from modtree.inspection.tree import Node, every_node, read_tree, tensor_of


def arguments_of(
    tree: Node, input_shape: Any = None, example: Any = None, dtypes: Any = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments for the model of a tree.

    Args:
        tree: The model, which decides on library, device and dtype of zeros.
        input_shape: The shape of the only input, a list of shapes, or a dict of them by name.
        example: The only argument itself, a tuple or list of arguments, or a dict of them by name.
        dtypes: One dtype for all inputs that are made, or as many as shapes.

    Raises:
        TypeError: a shape or the number of dtypes makes no sense, or both ways are used.
    """
    if example is not None:
        if input_shape is not None or dtypes is not None:
            other = "input_shape" if input_shape is not None else "dtypes"
            raise TypeError(f"example is the input itself: pass it without {other}")
        return _on_device(tree, *_spread(example))
    shapes = _shapes(input_shape)
    kinds = _dtypes(dtypes, shapes)
    made = {key: _zeros(tree, shape, kinds[key]) for key, shape in shapes.items()}
    positional = tuple(value for key, value in made.items() if isinstance(key, int))
    return positional, {key: value for key, value in made.items() if isinstance(key, str)}


def _spread(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return as_tuple(example), {}
    return (example,), {}


def _on_device(
    tree: Node, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, on meta where the model is there: values could not meet its parameters."""
    leaf = first_leaf(tree)
    if leaf is None:
        return args, kwargs
    family = family_of(leaf)
    if family is None or not family.is_meta(leaf):
        return args, kwargs

    def moved(value: Any) -> Any:
        own = family_of(value)
        return value if own is None else own.to(value, "meta", None, False, None)

    return _pytree.tree_map(moved, args), _pytree.tree_map(moved, kwargs)


def holds_tensor(given: Any) -> bool:
    """True for a tensor, or arguments with one: an input, not a shape."""
    parts: Any = (given,)
    if isinstance(given, Mapping):
        parts = given.values()
    elif isinstance(given, (list, tuple)):
        parts = given
    return any(family_of(part) is not None for part in parts)


def _shapes(given: Any) -> dict[int | str, tuple[int, ...]]:
    """Shapes by position or by name."""
    if isinstance(given, Mapping):
        return {str(name): _shape(shape, given) for name, shape in given.items()}
    if isinstance(given, Sequence) and not isinstance(given, str):
        if not given or not any(isinstance(part, Sequence) for part in given):
            return {0: _shape(given, given)}
        return {i: _shape(shape, given) for i, shape in enumerate(given)}
    raise _bad_shape(given)


def _shape(shape: Any, given: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        raise _bad_shape(given) from None
    if any(size < 0 for size in sizes):
        raise _bad_shape(given)
    return sizes


def _bad_shape(given: Any) -> TypeError:
    return TypeError(
        f"input_shape is a shape with the batch dimension, such as (1, 3, 224, 224), or a list or "
        f"a dict of shapes, got {given!r}"
    )


def _dtypes(given: Any, shapes: dict[int | str, Any]) -> dict[int | str, Any]:
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in shapes]
        if unknown:
            raise TypeError(f"dtypes names inputs that input_shape does not have: {unknown}")
        return {key: given.get(key) for key in shapes}
    if isinstance(given, (list, tuple)):
        if len(given) != len(shapes):
            raise TypeError(f"got {len(given)} dtypes for {len(shapes)} inputs")
        return dict(zip(shapes, given, strict=True))
    return dict.fromkeys(shapes, given)


# -- zeros -----------------------------------------------------------------------------------------


def _zeros(tree: Node, shape: tuple[int, ...], dtype: Any) -> Any:
    leaf = first_leaf(tree)
    family = None if leaf is None else family_of(leaf)
    name = _library_without_leaves(tree) if family is None else family.name
    if family is not None and name not in ("numpy", "torch"):
        try:
            return family.zeros(shape, _floating_dtype(tree) if dtype is None else dtype, leaf)
        except NotImplementedError as error:
            raise TypeError(
                f"{error}: pass example=..., the input itself, in the place of input_shape"
            ) from None
    device = None if leaf is None else leaf.device
    if dtype is None:
        dtype = _floating_dtype(tree)
    if name == "numpy":
        library = sys.modules["modtree"]
        kind = None if dtype is None else library.as_dtype(dtype)
        return library.zeros(shape, dtype=kind, device=device)
    as_torch_dtype = importlib.import_module("modtree.torch.family").as_torch_dtype
    return sys.modules["torch"].zeros(shape, dtype=as_torch_dtype(dtype), device=device)


def _library_without_leaves(tree: Node) -> str:
    """For a model that holds no tensor: the library of its class."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(tree.module, torch.nn.Module):
        return "torch"
    return "numpy"


def _leaves(tree: Node) -> Iterator[Any]:
    for node in every_node(tree):
        for table in ("_parameters", "_buffers"):
            for value in registry(node.module, table).values():
                if family_of(value) is not None:
                    yield value


def first_leaf(tree: Node) -> Any:
    """The first tensor in a registry of the model; None where there is none."""
    return next(_leaves(tree), None)


def _floating_dtype(tree: Node) -> Any:
    """Of the first parameter or buffer that has one: inputs are of it as a rule."""
    for leaf in _leaves(tree):
        family = family_of(leaf)
        if family is not None and family.is_floating_point(leaf):
            return leaf.dtype
    return None


# -- models with lazy modules: their first forward changes them, so a copy runs it -----------------


def to_run(tree: Node) -> Node:
    """The tree itself, or that of a copy of its model where tensors do not have a shape yet."""
    memo: dict[int, Any] = {}
    for node in every_node(tree):
        for leaf in node.leaves:
            if leaf.shape is None:
                _copy_uninitialized(tensor_of(node, leaf), memo)
    return read_tree(copy.deepcopy(tree.module, memo)) if memo else tree


def _copy_uninitialized(tensor: Any, memo: dict[int, Any]) -> None:
    """torch refuses to copy these; they are nothing but a few flags."""
    family = family_of(tensor)
    if family is not None and family.is_uninitialized(tensor):
        data = tensor.data
        copied = type(tensor)(
            requires_grad=tensor.requires_grad, device=data.device, dtype=data.dtype
        )
        if hasattr(tensor, "persistent"):
            copied.persistent = tensor.persistent
        memo[id(tensor)] = copied
