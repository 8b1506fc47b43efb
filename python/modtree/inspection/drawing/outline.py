# SPDX-License-Identifier: BSD-3-Clause
"""What a drawing shows of a tree: the boxes, folded and limited in number, and the links between
boxes that share a module or a tensor. All formats draw the same outline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from modtree.inspection.tree import Fold, Leaf, Node, fold

# Levels that are drawn where no depth is asked for: more of them would be a line, not a picture.
_LEVELS = 20
# So many different modules in a row are looked for as one round of a repeat.
_LONGEST_PATTERN = 8
# More lines than that across a picture say nothing; Mermaid takes 500 with those of the tree.
_MOST_LINKS = 200
# Part of the children of a box is drawn only where it is at least so many; else none is.
_FEWEST = 8


@dataclass(slots=True, eq=False)
class Box:
    """A rectangle of the drawing."""

    kind: str
    """``"module"``; ``"shared"``, a module that has its box elsewhere; ``"round"``, several modules
    that repeat together; ``"parameter"`` and ``"buffer"``; ``"more"``, siblings without a box."""
    label: str
    depth: int
    node: Node | None = None
    leaf: Leaf | None = None
    count: int = 1
    """How many modules the box stands for, or rounds of modules."""
    copies: int = 1
    """How often it is in the model, with the repeats that it is in."""
    parameters: int = 0
    """Of one of these."""
    hidden: int = 0
    """Modules below without a box."""
    hidden_tensors: int = 0
    """Own tensors that have none, where tensors have boxes."""
    last_path: str | None = None
    """The last of the modules that the box stands for, where these are several."""
    children: list[Box] = field(default_factory=list)
    places: list[Box] | None = None
    """For each child of the node, the box where it is drawn; None where none has a box."""
    tensors: dict[str, Box] = field(default_factory=dict)
    """Boxes of own parameters and buffers, by name."""
    number: int = 0
    """Its place in ``Outline.boxes``."""


@dataclass(slots=True, eq=False)
class Link:
    """Two boxes that have something in common."""

    source: Box
    target: Box
    kind: str
    """``"shared"``, the same module; ``"tied"``, the same tensor."""
    names: list[str]
    """Of the tensors."""


@dataclass(slots=True, eq=False)
class Outline:
    """What is drawn."""

    boxes: list[Box]
    """Each before its children, which follow it in order."""
    links: list[Link]
    modules: int
    """In the whole tree, each counted once."""

    @property
    def root(self) -> Box:
        return self.boxes[0]


def make_outline(
    root: Node, *, depth: int | None, is_folded: bool, leaves: bool, max_boxes: int
) -> Outline:
    """Boxes and links of a tree.

    Levels are opened from the top. Where the next one has more boxes than are left, the modules
    with the fewest children are opened, and the others only say how many modules they have.

    Args:
        root: The tree.
        depth: How many levels there are below the root.
        is_folded: Whether siblings that are built alike are one box.
        leaves: Whether parameters and buffers have boxes of their own.
        max_boxes: How many boxes there are at most.
    """
    sizes = _subtree_sizes(root)
    maker = _Maker(sizes, _LEVELS if depth is None else depth, is_folded, leaves)
    top = maker.box_of(Fold([root]), None)
    maker.open_levels(top, max_boxes - 1)
    boxes = _in_order(top)
    return Outline(boxes, _find_links(root, top), sizes[id(root)])


def _subtree_sizes(root: Node) -> dict[int, int]:
    """How many modules a node and what is below it are, by the id of the node; repeats are none."""
    order = [root]
    for node in order:
        order += node.children
    sizes: dict[int, int] = {}
    for node in reversed(order):
        below = sum(sizes[id(child)] for child in node.children)
        sizes[id(node)] = below + (node.first_path is None)
    return sizes


def _in_order(top: Box) -> list[Box]:
    found: list[Box] = []
    waiting = [top]
    while waiting:
        box = waiting.pop()
        box.number = len(found)
        found.append(box)
        waiting += reversed(box.children)
    return found


class _Maker:
    """Makes boxes level by level."""

    def __init__(self, sizes: dict[int, int], levels: int, is_folded: bool, leaves: bool) -> None:
        self._sizes = sizes
        self._levels = levels
        self._is_folded = is_folded
        self._leaves = leaves

    def open_levels(self, top: Box, left: int) -> None:
        """Gives boxes to what is below a box, at most so many."""
        level = [top]
        while level:
            entries = [self._entries(box) for box in level]
            costs = [sum(map(_cost, found)) for found in entries]
            grants = _grants(costs, left)
            below: list[Box] = []
            for box, found, cost, grant in zip(level, entries, costs, grants, strict=True):
                left -= self._open(box, found, cost, grant, below)
            level = below

    def _entries(self, box: Box) -> list[Fold | Leaf]:
        """What is to be drawn in a box: own tensors, then modules."""
        assert box.node is not None
        found: list[Fold | Leaf] = [*box.node.leaves] if self._leaves else []
        if box.depth < self._levels:
            children = box.node.children
            if self._is_folded:
                found += fold(children, longest_pattern=_LONGEST_PATTERN)
            else:
                found += [Fold([child]) for child in children]
        return found

    def _open(
        self, box: Box, entries: list[Fold | Leaf], cost: int, grant: int, below: list[Box]
    ) -> int:
        """Puts boxes into a box, and those that can be opened behind ``below``. Returns how many
        it took.
        """
        assert box.node is not None
        shown = len(entries)
        if cost > grant:
            shown = _fitting(entries, grant - 1) if grant >= _FEWEST else 0
        has_modules = shown > 0 and any(isinstance(entry, Fold) for entry in entries)
        if not has_modules:
            box.hidden = sum(self._sizes[id(child)] for child in box.node.children)
        if not shown:
            box.hidden_tensors = sum(isinstance(entry, Leaf) for entry in entries)
            return 0
        places: list[Box] = []
        for entry in entries[:shown]:
            if isinstance(entry, Leaf):
                box.children.append(self._leaf_box(entry, box))
            else:
                made = self.box_of(entry, box)
                box.children.append(made)
                boxes = made.children if made.kind == "round" else [made]
                places += [boxes[i % len(boxes)] for i in range(len(entry.nodes))]
                below += [inner for inner in boxes if inner.kind == "module"]
        taken = sum(map(_cost, entries[:shown]))
        if shown < len(entries):
            more = self._more_box(box, entries[shown:])
            box.children.append(more)
            places += [more] * (len(box.node.children) - len(places))
            taken += 1
        box.places = places if has_modules else None
        return taken

    def box_of(self, group: Fold, parent: Box | None) -> Box:
        """The box of siblings that are built alike; of a round of several, with their boxes."""
        depth = 0 if parent is None else parent.depth + 1
        copies = group.count * (1 if parent is None else parent.copies)
        first = group.first
        parameters = sum(node.parameters for node in group.pattern)
        box = Box(
            "module", group.label, depth, count=group.count, copies=copies, parameters=parameters
        )
        if group.count > 1:
            box.last_path = group.nodes[-1].path
        if group.period > 1:
            box.kind = "round"
            box.children = [
                Box("module", node.name, depth, node, copies=copies, parameters=node.parameters)
                for node in group.pattern
            ]
        else:
            box.node = first
        for made in box.children or [box]:
            if made.node is not None and made.node.first_path is not None:
                made.kind = "shared"
        return box

    def _leaf_box(self, leaf: Leaf, parent: Box) -> Box:
        size = leaf.numel if leaf.kind == "parameter" and leaf.first_path is None else 0
        box = Box(leaf.kind, leaf.name, parent.depth + 1, leaf=leaf, parameters=size)
        box.copies = parent.copies
        parent.tensors[leaf.name] = box
        return box

    def _more_box(self, parent: Box, entries: Sequence[Fold | Leaf]) -> Box:
        groups = [entry.nodes for entry in entries if isinstance(entry, Fold)]
        box = Box("more", "", parent.depth + 1, copies=parent.copies)
        box.hidden = sum(self._sizes[id(node)] for nodes in groups for node in nodes)
        box.hidden_tensors = sum(isinstance(entry, Leaf) for entry in entries)
        return box


def _cost(entry: Fold | Leaf) -> int:
    """The boxes that it takes."""
    return 1 + entry.period if isinstance(entry, Fold) and entry.period > 1 else 1


def _fitting(entries: Sequence[Fold | Leaf], left: int) -> int:
    """How many of the entries from the first on take no more than so many boxes."""
    for i, entry in enumerate(entries):
        left -= _cost(entry)
        if left < 0:
            return i
    return len(entries)


def _grants(costs: list[int], left: int) -> list[int]:
    """Shares out the boxes that are left. Who wants few is served first; several who want more
    than there is get as many each, where that is enough to say something.
    """
    grants = [0] * len(costs)
    order = sorted(range(len(costs)), key=costs.__getitem__)
    for done, i in enumerate(order):
        share = left // (len(order) - done)
        if costs[i] > share >= _FEWEST:
            grants[i] = share
        elif costs[i] <= left:
            grants[i] = costs[i]
        left -= grants[i]
    return grants


# -- links -----------------------------------------------------------------------------------------


def _find_links(root: Node, top: Box) -> list[Link]:
    """Links for all modules and tensors that the tree has twice, from box to box; none within
    one box, and no more than can be told apart.
    """
    homes: dict[str, Box] = {}  # of modules and tensors in their first places
    repeats: list[tuple[Box, str, str, str]] = []
    waiting = [(root, top, True)]  # a node, the box where it is, and whether that box is its own
    while waiting:
        node, box, is_own = waiting.pop()
        if node.first_path is None:
            homes.setdefault(node.path, box)
        else:
            repeats.append((box, node.first_path, "shared", ""))
        for leaf in node.leaves:
            home = box.tensors.get(leaf.name, box) if is_own else box
            if leaf.first_path is None:
                homes.setdefault(f"{leaf.path}\0", home)
            else:
                repeats.append((home, f"{leaf.first_path}\0", "tied", leaf.name))
        if is_own and box.places is not None:
            below = [(n, b, True) for n, b in zip(node.children, box.places, strict=True)]
        else:
            below = [(child, box, False) for child in node.children]
        waiting += reversed(below)
    links: dict[tuple[int, int, str], Link] = {}
    for source, path, kind, name in repeats:
        target = homes[path]
        if source is target:
            continue
        link = links.setdefault(
            (source.number, target.number, kind), Link(source, target, kind, [])
        )
        if name and name not in link.names:
            link.names.append(name)
    return list(links.values())[:_MOST_LINKS]
