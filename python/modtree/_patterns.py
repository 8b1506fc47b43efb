# SPDX-License-Identifier: BSD-3-Clause
"""Glob patterns on dotted paths, compiled to a machine that reads a path part by part.

A walk that carries the machine's state does not enter a prefix that cannot match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

__all__ = [
    "Machine",
    "Patterns",
    "State",
    "Tail",
    "expanded",
    "matching_paths",
    "split_parts",
    "tail_needle",
    "tail_regex",
    "tail_text",
    "texts_of",
]

Patterns: TypeAlias = str | Iterable[str]

_MOST_ALTERNATIVES = 10_000
_INDEX = re.compile(r"(-?\d+)|(-?\d+)?:(-?\d+)?(?::(-?\d+)?)?")


class Part(NamedTuple):
    """One step of a pattern."""

    kind: str
    """``"name"``, ``"any"``, ``"glob"``, ``"index"`` or ``"deep"`` (the ``**``)."""
    value: Any = None


Tail: TypeAlias = tuple[Part, ...]

_DEEP = Part("deep")
_ANY = Part("any", re.compile(r"[^.]+"))


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


class State:
    """Where a machine is after some parts of a path."""

    __slots__ = (
        "accepts",
        "default",
        "is_end",
        "known",
        "last_names",
        "loops",
        "nodes",
        "only",
        "positional",
        "tails",
    )

    nodes: frozenset[_Node]
    accepts: bool
    """True if the path so far matches."""
    is_end: bool
    """True if no longer path can match."""
    loops: bool
    """True if the machine may be in this state at any depth."""
    positional: bool
    """True if the next state depends on the position of a child too."""
    known: dict[str, State | None]
    default: Any
    """The next state for a name that is not in :attr:`known`; ``...`` if it must be computed."""
    only: str | None
    """The one name that leads on, if there is just one."""
    last_names: frozenset[str]
    """The names behind which a path matches and ends, if nothing else leads on."""
    tails: tuple[Tail, ...]
    """If paths below match by how they end alone: their ends."""


class Machine:
    """The patterns of a search as one machine.

    Args:
        include: What to find.
        within: If given, only at and below what matches one of these.
        exclude: Nothing at and below what matches one of these.
    """

    def __init__(
        self, include: Patterns, within: Patterns | None = None, exclude: Patterns | None = None
    ) -> None:
        self._states: dict[frozenset[_Node], State] = {}
        self._needs_within = within is not None
        roots = [_trie("include", texts_of(include))]
        if within is not None:
            roots.append(_trie("within", texts_of(within), below=True))
        if exclude is not None:
            roots.append(_trie("exclude", texts_of(exclude), below=True))
        self.start = self._state(_closure(roots))

    def step(self, state: State, name: str, position: int = 0, count: int = 1) -> State | None:
        """The state behind a child; None if nothing at and below it can match.

        Args:
            state: The state of the parent.
            name: The name of the child.
            position: Its place among its siblings.
            count: Their number.
        """
        if state.positional:
            return self._state(_next(state.nodes, name, position, count))
        if name in state.known:
            return state.known[name]
        if state.default is not ...:
            return state.default
        found = state.known[name] = self._state(_next(state.nodes, name, 0, 1))
        return found

    def _state(self, nodes: frozenset[_Node]) -> State | None:
        state = self._states.get(nodes)
        if state is None:
            roles = {node.role for node in nodes}
            ends = {node.role for node in nodes if node.accepts}
            if "include" not in roles or (self._needs_within and "within" not in roles):
                return None
            if "exclude" in ends:  # and so is all that is below
                return None
            state = self._states[nodes] = self._made(nodes)
            state.accepts = "include" in ends and (not self._needs_within or "within" in ends)
        return state

    def _made(self, nodes: frozenset[_Node]) -> State:
        state = State()
        state.nodes, state.known, state.only, state.tails = nodes, {}, None, ()
        state.last_names = frozenset()
        self._states[nodes] = state  # a loop leads back here
        parts = {part for node in nodes for part in node.edges if part.kind != "deep"}
        kinds = {part.kind for part in parts}
        state.loops = any(node.loops for node in nodes)
        includes = [node for node in nodes if node.role == "include"]
        state.is_end = not any(node.loops or node.edges for node in includes)
        state.positional = "index" in kinds
        state.default = ...
        if not state.positional and "glob" not in kinds:
            state.default = self._state(_next(nodes, None, 0, 1))
            names = [part.value for part in parts if part.kind == "name"]
            for name in names:
                state.known[name] = self._state(_next(nodes, name, 0, 1))
            behind = [after for after in state.known.values() if after is not None]
            if state.default is None and not state.loops:
                state.only = names[0] if len(names) == 1 else None
                if all(after.is_end and after.accepts for after in behind):
                    state.last_names = frozenset(n for n in names if state.known[n] is not None)
        if len(nodes) == 1 and state.loops:
            state.tails = _tails(next(iter(nodes)))
        return state


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
    """With the nodes behind a ``**`` that stands for no part at all."""
    found = set(nodes)
    for node in nodes:
        target = node.edges.get(_DEEP)
        if target is not None:
            found.add(target)
            if len(node.edges) == 1 and not node.accepts:  # it says nothing more
                found.discard(node)
    return frozenset(found)


def _next(nodes: frozenset[_Node], name: str | None, position: int, count: int) -> frozenset[_Node]:
    """The nodes behind a child; of a name that no pattern has, if it is None."""
    found = {node for node in nodes if node.loops}
    for node in nodes:
        for part, target in node.edges.items():
            if part.kind == "any" or (name is not None and _takes(part, name, position, count)):
                found.add(target)
    return _closure(found)


def _takes(part: Part, name: str, position: int, count: int) -> bool:
    if part.kind == "name":
        return part.value == name
    if part.kind == "glob":
        return part.value.fullmatch(name) is not None
    if part.kind != "index":
        return False
    if isinstance(part.value, int):
        return position == (part.value if part.value >= 0 else part.value + count)
    return position in range(*slice(*part.value).indices(count))


def _tails(node: _Node) -> tuple[Tail, ...]:
    """What may follow a ``**`` up to the end of a path; nothing if a path without it says more."""
    found: list[Tail] = []
    waiting: list[tuple[_Node, tuple[Part, ...]]] = [(node, ())]
    while waiting:
        at, parts = waiting.pop()
        if at.accepts and parts:
            found.append(parts)
        for part, target in at.edges.items():
            if part.kind not in ("name", "any", "glob"):
                return ()
            waiting.append((target, (*parts, part)))
    return tuple(found)


def tail_text(tail: Tail) -> str:
    """The end of a path, if it is made of names alone; otherwise nothing."""
    is_text = all(part.kind == "name" for part in tail)
    return ".".join(part.value for part in tail) if is_text else ""


def tail_regex(tails: Iterable[Tail], start: str) -> re.Pattern[str]:
    """An expression for the paths that begin with ``start`` and have one of these ends."""
    texts = [
        r"\.".join(
            re.escape(part.value) if part.kind == "name" else part.value.pattern for part in tail
        )
        for tail in tails
    ]
    return re.compile(f"{re.escape(start)}(?:.*\\.)?(?:{'|'.join(texts)})", re.DOTALL)


def tail_needle(tails: tuple[Tail, ...]) -> str:
    """Some text that is in each path with these ends."""
    names = [part.value for part in tails[0] if part.kind == "name"] if len(tails) == 1 else []
    return max(names, key=len, default="")


# -- reading patterns ------------------------------------------------------------------------------


def texts_of(patterns: Patterns) -> list[str]:
    """One or several patterns as a list.

    Raises:
        TypeError: One is not a str.
    """
    texts = [patterns] if isinstance(patterns, str) else list(patterns)
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
        value = int(single) if single else tuple(int(b) if b else None for b in bounds)
        if isinstance(value, tuple) and value[2] == 0:
            raise ValueError(f"{pattern!r}: the step of a slice cannot be zero")
        yield Part("index", value)
        index = rest


def _regex(glob: str) -> re.Pattern[str]:
    special = dict(_chars(glob))
    found, i = "", 0
    while i < len(glob):
        char = special.get(i)
        if char is None:  # a backslash, and what it protects
            found += re.escape(glob[i + 1 : i + 2])
            i += 2
            continue
        found += {"*": "[^.]*", "?": "[^.]"}.get(char, re.escape(char))
        i += 1
    return re.compile(found)


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
    waiting: list[tuple[str, Mapping[str, Any], State | None]] = [("", tree, machine.start)]
    while waiting:
        prefix, names, state = waiting.pop()
        for position, (name, below) in enumerate(names.items()):
            after = state and machine.step(state, name, position, len(names))
            if after is not None:
                path = prefix + name
                if after.accepts:
                    found.add(path)
                waiting.append((path + ".", below, after))
    return found.intersection(paths)
