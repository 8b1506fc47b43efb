# SPDX-License-Identifier: BSD-3-Clause
"""A tree of modules as data: each module a node, each parameter and buffer a leaf, and siblings
that are built alike as one.

Modules of modtree and of torch, with leaves of any tensor library, look the same here. Nothing is
recursive, so a deep chain is as good as a flat list.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from modtree.core.families import family_of
from modtree.core.module import Module
from modtree.editing.walking import check_model, joined, registry
from modtree.inspection.forward import bytes_of

# What is there when a class does not have an `extra_repr` of its own.
_SILENT = (None, Module.extra_repr)

# A pattern takes a line of its own, which is worth it from so many rounds on.
_ROUNDS_OF_A_PATTERN = 3

# Up to so many siblings with names of their own (query, key, value) stay apart, however alike.
_NAMED_APART = 8

_NUMBERED = re.compile(r"(.*?)(\d+)\Z", re.DOTALL)


@dataclass(slots=True, eq=False)
class Leaf:
    """A parameter or buffer, under one of its names."""

    name: str
    path: str
    kind: str
    """``"parameter"`` or ``"buffer"``."""
    shape: tuple[int, ...] | None
    """None where it is not known yet."""
    dtype: str
    numel: int
    nbytes: int
    requires_grad: bool
    persistent: bool
    first_path: str | None
    """Where the same tensor was before; None the first time."""


@dataclass(slots=True, eq=False)
class Node:
    """A module, under one of its names. Totals are of its whole subtree, and count a tensor in
    its first place in the whole tree: a parent has what it holds itself plus what its children
    have.
    """

    path: str
    name: str
    module: Any = field(repr=False)
    type_name: str
    extra: str
    """What ``extra_repr`` says, in one line; "" where it raises."""
    first_path: str | None = None
    """Where the same module was before, None the first time. A repeat has neither leaves nor
    children, and adds nothing to totals."""
    leaves: list[Leaf] = field(default_factory=list, repr=False)
    children: list[Node] = field(default_factory=list, repr=False)
    parameters: int = 0
    trainable: int = 0
    buffers: int = 0
    nbytes: int = 0
    signature: int = 0
    """Equal for the nodes of one tree that are built alike."""


@dataclass(slots=True, eq=False)
class Fold:
    """Consecutive siblings that are built alike; or one that is not like its neighbours."""

    nodes: list[Node]
    period: int = 1
    """How many nodes make one round: 2 for A B A B A B."""

    @property
    def first(self) -> Node:
        return self.nodes[0]

    @property
    def pattern(self) -> list[Node]:
        """The first round."""
        return self.nodes[: self.period]

    @property
    def count(self) -> int:
        """The number of rounds."""
        return len(self.nodes) // self.period

    @property
    def label(self) -> str:
        """The name of the only node, or the names from the first to the last: ``"0-23"``."""
        first, last = self.nodes[0].name, self.nodes[-1].name
        if len(self.nodes) == 1:
            return first
        if _are_numbered(self.nodes):
            number = _NUMBERED.match(last)
            assert number is not None
            return f"{first}-{number[2]}"
        return f"{first} .. {last}"


def read_tree(model: Any) -> Node:
    """What is in the tree of a model, as it is now.

    Args:
        model: A module of modtree or of torch.

    Raises:
        TypeError: it is not a module.
    """
    order = _walk(check_model(model))
    _add_up(order)
    return order[0]


def every_node(tree: Node) -> Iterator[Node]:
    """All nodes of a tree, each before its children."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def first_nodes(tree: Node) -> list[Node]:
    """The nodes of a tree, each module once, in its first place."""
    return [node for node in every_node(tree) if node.first_path is None]


def tensor_of(node: Node, leaf: Leaf) -> Any:
    """What a registry of the module of a node has under the name of a leaf; None if it is gone."""
    table = "_buffers" if leaf.kind == "buffer" else "_parameters"
    return registry(node.module, table).get(leaf.name)


def signature(node: Node) -> int:
    """Equal for two nodes of one tree that have the same class, ``extra_repr``, leaves (names,
    shapes, dtypes, kinds, ties) and children; their own names do not count.
    """
    return node.signature


def fold(
    children: list[Node],
    *,
    alike: Callable[[Node], Hashable] = signature,
    longest_pattern: int = 1,
) -> list[Fold]:
    """Siblings in their order, those that follow each other and are built alike as one.

    Names that count up (``0``, ``1``, ... or ``layer1``, ``layer2``, ...) are folded from two on;
    other names only where there are many, since query, key and value say more than "x 3".

    Args:
        children: The nodes.
        alike: What is equal for nodes that may be folded.
        longest_pattern: Rounds of up to so many different nodes are found too: 2 finds A B A B.
    """
    kinds = [alike(child) for child in children]
    found: list[Fold] = []
    start = 0
    while start < len(children):
        period, length = 1, 1
        for candidate in range(1, longest_pattern + 1):
            covered = _covered(children, kinds, start, candidate)
            if covered > length:
                period, length = candidate, covered
        found.append(Fold(children[start : start + length], period))
        start += length
    return found


def _covered(children: list[Node], kinds: list[Hashable], start: int, period: int) -> int:
    """How many nodes from ``start`` on are rounds of the first ``period``; 1 where there is only
    one round, or where the names are to stay apart.
    """
    stop = start + period
    while stop < len(kinds) and kinds[stop] == kinds[stop - period]:
        stop += 1
    length = (stop - start) // period * period
    least = 2 if period == 1 else _ROUNDS_OF_A_PATTERN * period
    if length < least:
        return 1
    numbered = _numbered_length(children, start, start + length) // period * period
    if numbered >= least:
        return numbered
    return length if length > _NAMED_APART * period else 1


def _numbered_length(nodes: list[Node], start: int, stop: int) -> int:
    """How many of the nodes from ``start`` on have names that count up by one."""
    before = _NUMBERED.match(nodes[start].name)
    length = 1
    while before is not None and start + length < stop:
        name = _NUMBERED.match(nodes[start + length].name)
        if name is None or name[1] != before[1] or int(name[2]) != int(before[2]) + 1:
            break
        before = name
        length += 1
    return length


def _are_numbered(nodes: list[Node]) -> bool:
    return _numbered_length(nodes, 0, len(nodes)) == len(nodes)


# -- reading ---------------------------------------------------------------------------------------


def _walk(model: Any) -> list[Node]:
    """All nodes, each before its children, in the order of ``named_modules``; without totals."""
    order: list[Node] = []
    seen: dict[int, str] = {}
    reader = _LeafReader()
    waiting: list[tuple[Node | None, str, Any]] = [(None, "", model)]
    while waiting:
        parent, name, module = waiting.pop()
        path = name if parent is None else joined(parent.path, name)
        first_path = seen.get(id(module))
        node = Node(path, name, module, type(module).__name__, extra_of(module), first_path)
        order.append(node)
        if parent is not None:
            parent.children.append(node)
        if first_path is None:
            seen[id(module)] = path
            node.leaves = reader.leaves_of(module, path)
            below = reversed(registered(module, "_modules", path))
            waiting += [(node, key, child) for key, child in below]
    return order


def registered(module: Any, table: str, path: str) -> list[tuple[str, Any]]:
    """What is registered in a module under a name, without the names that hold None.

    Raises:
        TypeError: A key is not a name: it was written into the registry past all checks.
    """
    entries = [(key, v) for key, v in registry(module, table).items() if v is not None]
    for key, _ in entries:
        if not isinstance(key, str):
            raise TypeError(
                f"{table} of {f'the module {path!r}' if path else 'the model'} has the key "
                f"{key!r:.80}, a {type(key).__name__}, where names are str: take it out, or "
                f"register its value under a name"
            )
    return entries


def extra_of(module: Any) -> str:
    """What ``extra_repr`` of a module says, in one line; "" where it raises or is not a text."""
    describe = getattr(type(module), "extra_repr", None)
    if describe in _SILENT and "extra_repr" not in getattr(module, "__dict__", {}):
        return ""
    try:
        return " ".join(module.extra_repr().split())
    except Exception:  # it is the user's code, and may read what a half-built module has not yet
        return ""


class _LeafReader:
    """Reads leaves, and remembers which tensors it saw and what their dtypes are called.

    Tensors that it saw stay alive meanwhile: scripted modules make theirs anew.
    """

    def __init__(self) -> None:
        self._seen: dict[int, str] = {}
        self._alive: list[Any] = []
        self._dtypes: dict[Any, tuple[str, int]] = {}

    def leaves_of(self, module: Any, path: str) -> list[Leaf]:
        prefix = f"{path}." if path else ""
        leaves = [
            self._leaf(prefix, name, "parameter", value, True)
            for name, value in registered(module, "_parameters", path)
        ]
        transient = getattr(module, "_non_persistent_buffers_set", ())
        leaves += [
            self._leaf(prefix, name, "buffer", value, name not in transient)
            for name, value in registered(module, "_buffers", path)
        ]
        leaves += [
            self._leaf(prefix, name, "buffer", value, True) for name, value in _packed(module)
        ]
        return leaves

    def _leaf(self, prefix: str, name: str, kind: str, value: Any, persistent: bool) -> Leaf:
        path = prefix + name
        first_path = self._seen.get(id(value))
        if first_path is None:
            self._seen[id(value)] = path
            self._alive.append(value)
        family = family_of(value)
        if family is None:  # written into the registry past all checks
            dtype = type(value).__name__
            return Leaf(name, path, kind, None, dtype, 0, 0, False, persistent, first_path)
        # Where gradients are not of tensors but of functions, no buffer is meant.
        is_asked = kind == "parameter" or not family.immutable
        requires_grad = is_asked and bool(family.requires_grad(value))
        dtype, itemsize = self._dtype(family, value)
        if family.is_uninitialized(value):
            return Leaf(name, path, kind, None, dtype, 0, 0, requires_grad, persistent, first_path)
        shape = tuple(family.shape(value))
        numel = math.prod(shape)
        nbytes = numel * itemsize
        inner = _inner_tensors(value)
        if any(part.dtype != value.dtype for part in inner):
            nbytes = sum(map(bytes_of, inner))
            dtype = self._dtype(family, max(inner, key=bytes_of))[0]
        return Leaf(
            name, path, kind, shape, dtype, numel, nbytes, requires_grad, persistent, first_path
        )

    def _dtype(self, family: Any, value: Any) -> tuple[str, int]:
        """Its name, and the bytes of an element."""
        dtype = value.dtype
        known = self._dtypes.get(dtype)
        if known is None:
            name = family.dtype_name(value)
            itemsize = getattr(dtype, "itemsize", None)
            known = name, np.dtype(name).itemsize if itemsize is None else itemsize
            self._dtypes[dtype] = known
        return known


def _inner_tensors(value: Any) -> list[Any]:
    """The tensors that a wrapper of torch consists of, such as one with quantized values."""
    flatten = getattr(type(value), "__tensor_flatten__", None)
    if flatten is None:
        return []
    parts = [getattr(value, name) for name in flatten(value)[0]]
    parts = [part for part in parts if family_of(part) is not None]  # a mesh of devices is none
    return [inner for part in parts for inner in _inner_tensors(part) or [part]]


def _packed(module: Any) -> list[tuple[str, Any]]:
    """Weight and bias that a quantized layer of torch keeps in a native object."""
    state = getattr(module, "__dict__", {})
    packed = state.get("_packed_params", state.get("_packed_weight"))
    if type(packed).__name__ != "ScriptObject":
        return []
    unpack = getattr(module, "_weight_bias", None) or getattr(module, "_weight", None)
    if unpack is None:
        return []
    found = unpack()
    values = found if isinstance(found, tuple) else (found,)
    names = zip(("weight", "bias"), values, strict=False)
    return [(name, value) for name, value in names if value is not None]


def _add_up(order: list[Node]) -> None:
    """Totals and signatures, children before parents."""
    kinds: dict[Hashable, int] = {}
    for node in reversed(order):
        for leaf in node.leaves:
            if leaf.first_path is not None:
                continue
            node.nbytes += leaf.nbytes
            if leaf.kind == "buffer":
                node.buffers += leaf.numel
            else:
                node.parameters += leaf.numel
                node.trainable += leaf.numel if leaf.requires_grad else 0
        for child in node.children:
            node.parameters += child.parameters
            node.trainable += child.trainable
            node.buffers += child.buffers
            node.nbytes += child.nbytes
        node.signature = kinds.setdefault(_structure(node), len(kinds))


def _structure(node: Node) -> Hashable:
    """What two nodes that are built alike have in common; children by their signatures."""
    cls = type(node.module)
    return (
        cls.__module__,
        cls.__qualname__,
        node.extra,
        _relative(node.path, node.first_path),
        tuple(
            (
                leaf.name,
                leaf.kind,
                leaf.shape,
                leaf.dtype,
                leaf.requires_grad,
                leaf.persistent,
                _relative(leaf.path, leaf.first_path),
            )
            for leaf in node.leaves
        ),
        tuple((child.name, child.signature) for child in node.children),
    )


def _relative(path: str, first_path: str | None) -> tuple[int, str] | None:
    """How far up, and then where to, a repeat goes: blocks that share the same way are alike."""
    if first_path is None:
        return None
    here, there = path.split("."), first_path.split(".")
    common = 0
    while common < min(len(here), len(there)) and here[common] == there[common]:
        common += 1
    return len(here) - common, ".".join(there[common:])


def values_of(tensor: Any, family: Any) -> Any:
    """The values as an array. Of a torch tensor it is a copy: torch never resizes memory again that
    an array was made of, which observers of quantization do in their next forward.
    """
    if family.name == "torch":
        tensor = tensor.detach().clone()
    return np.asarray(family.to_numpy(tensor))
