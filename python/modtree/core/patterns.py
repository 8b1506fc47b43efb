# SPDX-License-Identifier: BSD-3-Clause
"""Glob patterns on dotted paths, compiled to a machine that reads a path part by part.

A walk that carries the machine's state does not enter a prefix that cannot match.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

Patterns: TypeAlias = str | Iterable[str]

_MOST_ALTERNATIVES = 10_000
_INDEX = re.compile(r"(-?\d+)|(-?\d+)?:(-?\d+)?(?::(-?\d+)?)?")


class Part(NamedTuple):
    """One step of a pattern."""

    kind: str
    """``"name"``, ``"any"``, ``"glob"``, ``"index"`` or ``"deep"`` (the ``**``)."""
    value: Any = None
    """The name, the expression of a glob, or the bounds of a slice of positions."""

    def takes(self, name: str) -> bool:
        """True for a name that a name or a glob matches."""
        if self.kind == "glob":
            return self.value.fullmatch(name) is not None
        return self.kind == "name" and self.value == name


_DEEP = Part("deep")
_ANY = Part("any")


class _Node:
    """A place in the patterns of one role, behind the parts that were read."""

    __slots__ = ("accepts", "edges", "loops", "role")

    def __init__(self, role: str, loops: bool = False) -> None:
        self.role = role
        self.loops = loops
        self.accepts = False
        self.edges: dict[Part, _Node] = {}

    def to(self, part: Part) -> _Node:
        """The node behind a part, made if it is not there: patterns share what they begin with."""
        node = self.edges.get(part)
        if node is None:
            node = self.edges[part] = _Node(self.role, loops=part.kind == "deep")
        return node


#: What a machine knows of a state: whether the path so far matches, whether no longer path can, the
#: states behind names, and that behind all other names. A state is its index among these rows.
State: TypeAlias = tuple[bool, bool, dict[str, int], int]

DEAD = -1  # nothing at and below a path can match
_ASK = -2  # the state behind a name must be computed


class Machine:
    """The patterns of a search as one machine, which native code carries through a tree
    (``csrc/core/module/walk/match_paths.cpp``).

    Args:
        include: What to find.
        within: If given, only at and below what matches one of these.
        exclude: Nothing at and below what matches one of these.
    """

    def __init__(
        self, include: Patterns, within: Patterns | None = None, exclude: Patterns | None = None
    ) -> None:
        self.states: list[State] = []
        self._nodes: list[frozenset[_Node]] = []
        self._indices: dict[frozenset[_Node], int] = {}
        self._counted: dict[tuple[int, int], tuple[list[tuple[_Node, ...]], bool]] = {}
        self._behind: dict[tuple[int, str, tuple[_Node, ...]], int] = {}
        self._needs_within = within is not None
        roots = [_trie("include", texts_of(include))]
        if within is not None:
            roots.append(_trie("within", texts_of(within), below=True))
        if exclude is not None:
            roots.append(_trie("exclude", texts_of(exclude), below=True))
        self.start = self._state(_closure(roots))

    def step(self, state: int, name: str, position: int, count: int) -> int:
        """The state behind a child; DEAD if nothing at and below it can match.

        Args:
            state: The state of the parent.
            name: The name of the child.
            position: Its place among its siblings.
            count: Their number.
        """
        known, others = self.states[state][2:]
        if name in known:
            return known[name]
        if others != _ASK:
            return others
        nodes = self._nodes[state]
        hits, reads_names = self._counted_in(state, count)
        if not hits:
            found = known[name] = self._state(_next(nodes, name, ()))
            return found
        here = hits[position] if position < count else ()  # a registry may give more than it says
        key = (state, name if reads_names else "", here)
        if key not in self._behind:
            self._behind[key] = self._state(_next(nodes, name, here))
        return self._behind[key]

    def _counted_in(self, state: int, count: int) -> tuple[list[tuple[_Node, ...]], bool]:
        """The nodes behind each position among siblings, or nothing if no pattern counts them; and
        whether one reads their names.
        """
        key = (state, count)
        if key not in self._counted:
            edges = [edge for node in self._nodes[state] for edge in node.edges.items()]
            counted = [(part.value, target) for part, target in edges if part.kind == "index"]
            hits: list[tuple[_Node, ...]] = [()] * count if counted else []
            for where, target in counted:
                for position in range(count)[slice(*where)]:
                    hits[position] += (target,)
            reads_names = any(part.kind in ("name", "glob") for part, _ in edges)
            self._counted[key] = hits, reads_names
        return self._counted[key]

    def accepts(self, state: int) -> bool:
        """True if the path that leads to a state matches."""
        return state != DEAD and self.states[state][0]

    def _state(self, nodes: frozenset[_Node]) -> int:
        if nodes in self._indices:
            return self._indices[nodes]
        roles = {node.role for node in nodes}
        ends = {node.role for node in nodes if node.accepts}
        needed = {"include", "within"} if self._needs_within else {"include"}
        if not needed <= roles or "exclude" in ends:  # and so is all that is below
            return DEAD
        edges = [part for node in nodes for part in node.edges]
        is_end = not any(node.loops or node.edges for node in nodes if node.role == "include")
        must_ask = any(part.kind in ("glob", "index") for part in edges)
        index = self._indices[nodes] = len(self.states)
        self._nodes.append(nodes)
        known: dict[str, int] = {}
        self.states.append((needed <= ends, is_end, known, _ASK))
        if not must_ask:
            names = [part.value for part in edges if part.kind == "name"]
            known.update((name, self._state(_next(nodes, name, ()))) for name in names)
            others = self._state(_next(nodes, None, ()))
            self.states[index] = (needed <= ends, is_end, known, others)
        return index


def _trie(role: str, texts: Iterable[str], below: bool = False) -> _Node:
    """The first node of all patterns of a role.

    Args:
        role: ``"include"``, ``"within"`` or ``"exclude"``.
        texts: The patterns.
        below: Whether all that is below a match matches too.
    """
    root = _Node(role)
    for text in texts:
        for parts in map(_parts, expanded(text)):
            node = root
            if parts and parts[-1].kind == "deep":
                parts.append(_ANY)  # below, not the module itself
            for part in parts:
                if part.kind != "deep" or not node.loops:
                    node = node.to(part)
            node.accepts = True
            if below:
                node.to(_DEEP).accepts = True
    return root


def _closure(nodes: Iterable[_Node]) -> frozenset[_Node]:
    """With the nodes behind a ``**`` that matches zero parts."""
    found = set(nodes)
    for node in nodes:
        target = node.edges.get(_DEEP)
        if target is not None:
            found.add(target)
            if len(node.edges) == 1 and not node.accepts:  # it says nothing more
                found.discard(node)
    return frozenset(found)


def _next(nodes: frozenset[_Node], name: str | None, hits: Iterable[_Node]) -> frozenset[_Node]:
    """The nodes behind a child.

    Args:
        nodes: Those of its parent.
        name: Its name; None for one that no pattern has.
        hits: What its position leads to.
    """
    found = {*hits, *(node for node in nodes if node.loops)}
    for node in nodes:
        for part, target in node.edges.items():
            if part.kind == "any" or (name is not None and part.takes(name)):
                found.add(target)
    return _closure(found)


# -- reading patterns ------------------------------------------------------------------------------


def texts_of(patterns: Patterns) -> list[str]:
    """One or several patterns as a list.

    Raises:
        TypeError: One is not a str.
    """
    is_one = isinstance(patterns, str) or not isinstance(patterns, Iterable)
    texts: list[Any] = [patterns] if is_one else [*patterns]
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"expected a pattern such as 'layers.*.mlp', got {text!r}")
    return texts


def expanded(pattern: str) -> list[str]:
    """The pattern once for each alternative of its braces.

    Raises:
        ValueError: A brace is not closed.
    """
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        start = _first(text, "{")
        if start is None:
            if _first(text, "}") is not None:
                raise ValueError(f"{pattern!r} has a '}}' without its '{{'")
            done.append(text)
            continue
        stop, commas = _braces(text, start, pattern)
        cuts = [start, *commas, stop]
        rest = text[stop + 1 :]
        inner = [text[a + 1 : b] for a, b in zip(cuts, cuts[1:], strict=False)]
        waiting += [text[:start] + one + rest for one in reversed(inner)]
        if len(waiting) + len(done) > _MOST_ALTERNATIVES:
            raise ValueError(f"{pattern!r} has more than {_MOST_ALTERNATIVES:,} alternatives")
    return done


def _braces(text: str, start: int, pattern: str) -> tuple[int, list[int]]:
    """Where a brace ends, and its own commas."""
    depth, commas = 0, []
    for i, char in _chars(text, start):
        if char == "{":
            depth += 1
        elif char == "," and depth == 1:
            commas.append(i)
        elif char == "}":
            depth -= 1
            if not depth:
                return i, commas
    raise ValueError(f"{pattern!r} has a '{{' without its '}}'")


def _chars(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """The characters that may mean something: none behind a backslash."""
    i = start
    while i < len(text):
        if text[i] == "\\":
            i += 2
            continue
        yield i, text[i]
        i += 1


def _first(text: str, wanted: str) -> int | None:
    return next((i for i, char in _chars(text) if char == wanted), None)


def _parts(pattern: str) -> list[Part]:
    """A pattern without braces as its parts; none for the model itself.

    Raises:
        ValueError: A part is empty, or brackets do not hold an index.
    """
    found: list[Part] = []
    for text in split_parts(pattern):
        if not text:
            raise ValueError(f"{pattern!r} has an empty part: a part is a name, '*' or '**'")
        found += _part(text, pattern)
    return found


def split_parts(pattern: str) -> list[str]:
    """The text of each part of a pattern without braces; none for the model itself."""
    if not pattern:
        return []
    cuts = [-1, *(i for i, char in _chars(pattern) if char == "."), len(pattern)]
    return [pattern[a + 1 : b] for a, b in zip(cuts, cuts[1:], strict=False)]


def _part(text: str, pattern: str) -> Iterator[Part]:
    start = _first(text, "[")
    name, index = (text, "") if start is None else (text[:start], text[start:])
    if name == "**":
        yield _DEEP
    elif name == "*":
        yield _ANY
    elif any(char in "*?" for _, char in _chars(name)):
        yield Part("glob", _regex(name))
    elif name:
        yield Part("name", re.sub(r"\\(.)", r"\1", name))
    while index:
        inner, bracket, rest = index[1:].partition("]")
        match = _INDEX.fullmatch(inner)
        if index[0] != "[" or not bracket or match is None:
            raise ValueError(
                f"{pattern!r}: expected an index such as [3], [-1] or [4:8], got {index!r}; a "
                f"backslash before the bracket makes it part of the name"
            )
        single, *bounds = match.groups()
        start, stop, step = (int(bound) if bound else None for bound in bounds)
        if step == 0:
            raise ValueError(f"{pattern!r}: the step of a slice cannot be zero")
        if single:
            start, stop = int(single), int(single) + 1 or None
        yield Part("index", (start, stop, step))
        index = rest


def _regex(glob: str) -> re.Pattern[str]:
    """The expression of ``fnmatch``, in which a ``*`` does not try all splits."""
    text = ""
    for escaped, char in re.findall(r"\\(.)|(.)", glob, re.DOTALL):
        text += char if char in ("*", "?") else re.sub(r"([*?[])", r"[\1]", escaped or char)
    return re.compile(fnmatch.translate(text))


# -- paths without a tree --------------------------------------------------------------------------


def matching_paths(patterns: Patterns, paths: Iterable[str]) -> set[str]:
    """Those of some paths, such as the keys of a checkpoint, that match or are below a match.

    Args:
        patterns: One or several patterns.
        paths: All paths that there are: indices count the names that they have in common.
    """
    machine = Machine("**", within=patterns)
    tree: dict[str, Any] = {}
    paths = list(paths)
    for path in paths:
        at = tree
        for name in path.split("."):
            at = at.setdefault(name, {})
    found: set[str] = set()
    waiting: list[tuple[str, Mapping[str, Any], int]] = [("", tree, machine.start)]
    while waiting:
        prefix, names, state = waiting.pop()
        for position, (name, below) in enumerate(names.items()):
            after = DEAD if state == DEAD else machine.step(state, name, position, len(names))
            if machine.accepts(after):
                found.add(prefix + name)
            waiting.append((f"{prefix}{name}.", below, after))
    return found.intersection(paths)
