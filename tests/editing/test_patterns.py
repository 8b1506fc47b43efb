# SPDX-License-Identifier: BSD-3-Clause
"""Patterns on paths: what they match, and what is refused."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from modtree.core.patterns import DEAD, Machine, expanded, matching_paths

NAMES = ("a", "b", "ab")
PATHS = [".".join(each) for n in range(5) for each in itertools.product(NAMES, repeat=n)]


def matches(machine: Machine, path: str) -> bool:
    state = machine.start
    for name in path.split(".") if path else ():
        state = DEAD if state == DEAD else machine.step(state, name, 0, 1)
    return machine.accepts(state)


def regex(pattern: str) -> re.Pattern[str]:
    """The same pattern, as one expression on whole paths with a dot behind each part."""
    parts = pattern.split(".") if pattern else []
    text = ""
    for i, part in enumerate(parts):
        if part == "**":
            text += r"(?:[^.]+\.)+" if i == len(parts) - 1 else r"(?:[^.]+\.)*"
        else:
            text += part.replace("*", "[^.]*").replace("?", "[^.]") + r"\."
    return re.compile(text)


@pytest.mark.parametrize("seed", range(40))
def test_random_patterns_match_what_expressions_match(seed):
    rng = random.Random(seed)
    each = ["a", "b", "ab", "*", "**", "a*", "*b", "?", "a?"]
    for _ in range(20):
        parts = [rng.choice(each) for _ in range(rng.randint(0, 4))]
        pattern = re.sub(r"\*\*(\.\*\*)+", "**", ".".join(parts))
        machine, expected = Machine(pattern), regex(pattern)
        for path in PATHS:
            whole = path + "." if path else ""
            assert matches(machine, path) == bool(expected.fullmatch(whole)), (pattern, path)


@pytest.mark.parametrize("seed", range(20))
def test_within_and_exclude_are_whole_subtrees(seed):
    rng = random.Random(seed)
    each = ["a", "b", "ab", "a.b", "*.a", "**.ab", "b.*", "**"]
    include, within, exclude = (rng.sample(each, rng.randint(1, 2)) for _ in range(3))
    within, exclude = rng.choice([(within, exclude), (within, None), (None, exclude)])
    machine = Machine(include, within, exclude)
    for path in PATHS:
        above = [path[:i] for i, char in enumerate(path) if char == "."] + ["", path]

        def covers(patterns, above=above):
            return any(matches(Machine(p), each) for p in patterns for each in above)

        expected = any(matches(Machine(p), path) for p in include)
        expected = expected and (within is None or covers(within))
        assert matches(machine, path) == (expected and not (exclude and covers(exclude)))


def test_braces_stand_for_each_of_their_texts():
    assert expanded("{q,k}_proj") == ["q_proj", "k_proj"]
    assert expanded("{a,b{1,2}}.{x,}y") == ["a.xy", "a.y", "b1.xy", "b1.y", "b2.xy", "b2.y"]
    assert matches(Machine("{a.b,b}.ab"), "a.b.ab") and not matches(Machine("{a.b,b}"), "a")


def test_a_backslash_takes_its_meaning_from_a_character():
    assert matches(Machine(r"a\[0\]"), "a[0]") and matches(Machine(r"\{a\,b\}"), "{a,b}")
    assert matches(Machine(r"\*x*"), "*xy") and not matches(Machine(r"\*x*"), "yxy")


def test_a_glob_of_many_stars_does_not_try_all_splits():
    machine = Machine("*a" * 25 + "b")
    assert not matches(machine, "a" * 60) and matches(machine, "a" * 60 + "b")
    assert matches(Machine(r"\[x\]\?y*\*"), "[x]?yz*")
    assert matches(Machine("*!*"), "a!b") and not matches(Machine(r"\[!a\]*"), "b")


@pytest.mark.parametrize(
    "pattern", ["a..b", ".a", "a.", "{a", "a}", "a[x]", "a[1", "a[1:2:0]", "a[1]b", "{a,b}{,"]
)
def test_what_is_not_a_pattern_is_refused_by_name(pattern):
    with pytest.raises(ValueError, match=re.escape(repr(pattern)[1:3])):
        Machine(pattern)


def test_something_else_is_not_a_pattern():
    with pytest.raises(TypeError, match="expected a pattern such as .* got 3"):
        Machine([3])


def test_keys_match_at_and_below_a_pattern():
    keys = ["h.0.w", "h.0.b", "h.1.w", "h.10.w", "head.w", "head.b"]
    assert matching_paths("h.*.w", keys) == {"h.0.w", "h.1.w", "h.10.w"}
    assert matching_paths("head", keys) == {"head.w", "head.b"}
    assert matching_paths("h[-1]", keys) == {"h.10.w"}
    assert matching_paths(["h[0:2].w", "**.b"], keys) == {"h.0.w", "h.1.w", "h.0.b", "head.b"}
    assert matching_paths("x.**", keys) == set()
