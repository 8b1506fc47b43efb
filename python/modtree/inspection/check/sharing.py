# SPDX-License-Identifier: BSD-3-Clause
"""Tensors under several names, and tensors that share memory without being one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from modtree.editing.ties import meet, memory_of, span_of
from modtree.inspection.check.findings import Finding
from modtree.inspection.check.look import Held, Look

__all__ = ["shared_memory", "ties"]

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
                f"lies in the memory of {reach[1].leaf.path}, but is another object: an "
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
