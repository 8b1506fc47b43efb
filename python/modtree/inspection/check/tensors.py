# SPDX-License-Identifier: BSD-3-Clause
"""Parameters and buffers that are not what they should be, tensors under several names, and tensors
that share memory without being one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from modtree.editing.ties import meet, memory_of, span_of
from modtree.inspection.check.look import Finding, Held, Look
from modtree.inspection.tree import values_of


def grad_flags(look: Look) -> Iterator[Finding]:
    """Findings ``buffer-requires-grad``, ``not-a-leaf`` and ``integer-parameter``."""
    for held in look.held:
        path, tensor, family, name = held.leaf.path, held.tensor, held.family, held.leaf.name
        if held.leaf.kind == "buffer":
            if held.leaf.requires_grad:
                yield _buffer_with_grad(held)
        elif family.has_grad_fn(tensor):
            yield Finding(
                path,
                "not-a-leaf",
                "the parameter is the result of an operation: it gets no .grad, an optimizer "
                "refuses it, and it keeps a graph alive",
                f"self.{name} = nn.Parameter(self.{name}.detach()) makes it one; or compute it in "
                f"forward",
            )
        elif held.leaf.requires_grad and not (
            family.is_floating_point(tensor) or family.is_complex(tensor)
        ):
            yield Finding(
                path,
                "integer-parameter",
                f"a parameter of {held.leaf.dtype} requires a gradient, which there is not for "
                f"integers",
                f"self.{name}.requires_grad_(False), or a buffer in its place",
            )


def _buffer_with_grad(held: Held) -> Finding:
    if held.family.has_grad_fn(held.tensor):
        return Finding(
            held.leaf.path,
            "buffer-requires-grad",
            "the buffer is the result of an operation, and keeps the graph of a forward alive",
            f"self.{held.leaf.name} = self.{held.leaf.name}.detach() lets the graph go; what is "
            f"written into a buffer is to be detached, or made under no_grad()",
        )
    return Finding(
        held.leaf.path,
        "buffer-requires-grad",
        "the buffer requires a gradient, but parameters(), and so the optimizer, do not have it",
        f"self.{held.leaf.name}.requires_grad_(False); if it is to be trained, self."
        f"{held.leaf.name} = nn.Parameter(self.{held.leaf.name}.detach())",
    )


def values(look: Look) -> Iterator[Finding]:
    """Findings ``not-finite``. Infinity in a buffer is what masks are made of."""
    for held in look.held:
        nans, infinities = _not_finite(held)
        if nans or (infinities and held.leaf.kind == "parameter"):
            parts = [f"{n:,} {word}" for n, word in ((nans, "NaN"), (infinities, "infinite")) if n]
            yield Finding(
                held.leaf.path,
                "not-finite",
                f"{' and '.join(parts)} among {held.leaf.numel:,} values of the {held.leaf.kind}",
                "load an earlier checkpoint, and look for the step that made them by "
                "autograd.detect_anomaly()",
            )


def _not_finite(held: Held) -> tuple[int, int]:
    """How many values are NaN, and how many infinite."""
    tensor, family = held.tensor, held.family
    inexact = family.is_floating_point(tensor) or family.is_complex(tensor)
    if held.leaf.shape is None or not held.leaf.numel or not inexact or family.is_meta(tensor):
        return 0, 0
    try:
        array = values_of(tensor, family)
    except Exception:  # sparse, quantized, wrapped: no plain values to look at
        return 0, 0
    if array.dtype.kind not in "fc":  # of another package, which knows fewer functions
        array = array.astype(np.float32)
    finite = np.isfinite(array)
    if finite.all():
        return 0, 0
    nans = int(np.isnan(array).sum())
    return nans, int(array.size - finite.sum()) - nans


def kinds_of_dtypes(look: Look) -> Iterator[Finding]:
    """One finding ``mixed-dtypes`` for floating parameters of several dtypes."""
    paths: dict[str, list[str]] = {}
    for held in look.held:
        if held.leaf.kind == "parameter" and held.family.is_floating_point(held.tensor):
            paths.setdefault(held.leaf.dtype, []).append(held.leaf.path)
    if len(paths) > 1:
        by_number = sorted(paths.items(), key=lambda item: len(item[1]))
        parts = [f"{len(found):,} of {dtype}" for dtype, found in reversed(by_number)]
        yield Finding(
            "",
            "mixed-dtypes",
            f"parameters of several dtypes: {', '.join(parts)}; {by_number[0][0]} has "
            f"{_some(by_number[0][1])}",
            f"right for mixed precision; else model.{_widest(paths)}() makes them one without "
            f"loss, and model.to(dtype) a smaller one that rounds",
        )


def _widest(dtypes: Iterable[str]) -> str:
    """The method that converts to a dtype that has all values of these."""
    return "double" if "float64" in dtypes else "float"


def meta_beside_real(look: Look) -> Iterator[Finding]:
    """Findings ``left-on-meta`` for tensors on meta in a model that has others with values: one for
    those that a checkpoint has, one for buffers that are not persistent.
    """
    on_meta = [held for held in look.held if held.family.is_meta(held.tensor)]
    if len(on_meta) == len(look.held):
        return
    saved = [held.leaf.path for held in on_meta if held.leaf.persistent]
    others = [held for held in on_meta if not held.leaf.persistent]
    if saved:
        yield Finding(
            saved[0],
            "left-on-meta",
            f"{len(saved):,} of {len(look.held):,} tensors {_are(saved)} on meta, without values: "
            f"{_some(saved)}",
            "model.load_state_dict(state_dict, strict=False, assign=True) gives values to those "
            "that the state dict has",
        )
    if others:
        paths = [held.leaf.path for held in others]
        yield Finding(
            paths[0],
            "left-on-meta",
            f"{len(paths):,} of {len(look.held):,} tensors {_are(paths)} on meta, without values, "
            f"and in no checkpoint, as buffers that are not persistent: {_some(paths)}",
            f"self.{others[0].leaf.name} = tensor, made as the constructor makes it but not on "
            f"meta, gives it values; no load does",
        )


def _are(paths: list[str]) -> str:
    return "is" if len(paths) == 1 else "are"


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more


_MOST_TIES = 3  # names in a hint


def ties(look: Look) -> Iterator[Finding]:
    """Findings ``tied``: one for each tensor under several names."""
    names: dict[str, list[str]] = {}
    immutable = {held.leaf.path for held in look.held if held.family.immutable}
    for node in look.nodes:
        for leaf in node.leaves:
            if leaf.first_path is not None:
                names.setdefault(leaf.first_path, []).append(leaf.path)
    for first, others in names.items():
        parting = "load_state_dict(assign=True), or copy.deepcopy of one of the modules, makes"
        if first in immutable:
            parting = "copy.deepcopy or load_state_dict of one of the modules makes"
        yield Finding(
            first,
            "tied",
            f"the same tensor as {', '.join(others)}: {parting} several of it",
            f"right where it is meant; {_tie(first, others)} ties them again after that",
        )


def _tie(first: str, others: list[str]) -> str:
    return "; ".join(f"{_at(other)} = {_at(first)}" for other in others[:_MOST_TIES]) + (
        ", and so on," if len(others) > _MOST_TIES else ""
    )


def _at(path: str) -> str:
    """What leads to an entry from the model."""
    module, _, name = path.rpartition(".")
    return f"model.get_submodule({module!r}).{name}" if module else f"model.{name}"


def shared_memory(look: Look) -> Iterator[Finding]:
    """Findings ``shared-memory``: different parameters over the same memory."""
    spans = sorted(_spans(look), key=lambda span: span[:2])
    reach: tuple[int, Held] | None = None
    for start, stop, held in spans:
        if reach is not None and start < reach[0] and meet(_array(reach[1]), _array(held)):
            yield Finding(
                held.leaf.path,
                "shared-memory",
                f"shares the memory of {reach[1].leaf.path}, but is another object: an "
                f"optimizer changes the values twice, and to() takes the two apart",
                _parted(reach[1], held),
            )
        if reach is None or stop > reach[0]:
            reach = stop, held


def _parted(one: Held, other: Held) -> str:
    name = other.leaf.name
    new = f"self.{name} = nn.Parameter(self.{name}.detach().clone()) gives it memory of its own"
    first, second = _array(one), _array(other)
    if first.shape == second.shape and span_of(first) == span_of(second):
        same = f"{_at(other.leaf.path)} = {_at(one.leaf.path)}"
        return f"{new}; where the two are to be one, {same} makes them so"
    return new


def _spans(look: Look) -> Iterator[tuple[int, int, Held]]:
    """From where to where in memory the parameters are."""
    for held in look.held:
        leaf = held.leaf
        if leaf.kind != "parameter" or not leaf.numel or held.family.is_meta(held.tensor):
            continue
        array = _array(held)
        if array is not None:
            yield *span_of(array), held


def _array(held: Held) -> Any:
    """The memory of a tensor; None where it is not in that of this process."""
    is_here = str(getattr(held.tensor, "device", "cpu")) == "cpu"
    return memory_of(held.tensor) if is_here else None
