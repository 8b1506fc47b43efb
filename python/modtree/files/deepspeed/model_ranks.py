# SPDX-License-Identifier: BSD-3-Clause
"""How the parts of model-parallel ranks are put together, as the files of DeepSpeed say it for its
universal checkpoints: by patterns of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from modtree.files.checkpoint.base import CheckpointError, shortened
from modtree.files.distributed.joining import Joins, Rule

__all__ = ["UniversalRules"]

_INFO = "universal_checkpoint_info"
#: What is said of tensors that are not split into rows: by the name of the list of patterns.
_RULES = {
    "tp_replicated_parameter_patterns": Rule(None),
    "parameter_to_average_patterns": Rule(None, is_mean=True),
    "parameter_with_row_parallelism_patterns": Rule(1),
    "parameter_with_2_sub_params_cat_dim_0": Rule(0, 2),
}
_PADDED = "vocabulary_parameter_patterns"
_ROWS = "original_vocab_size"
_OTHERS = ("parameter_with_sub_params", "affine_map")
#: Regular expressions of a stranger: of names and digits, and few that repeat.
_PLAIN = re.compile(r"(?:[\w^$-]|\\?\.|\\[d_-]|\[0-9\]|(?:\.|\\d|\[0-9\])[+*])*")
_MOST_PATTERNS = 1000
_LONGEST = 300
#: Steps that all comparisons of names with patterns take together, at most.
_MOST_STEPS = 50_000_000


class UniversalRules:
    """Rules from the state of a model-parallel rank, after those of the caller.

    Args:
        state: What the file of the first rank holds.
        joins: The rules of the caller, or None.
        path: Of the file, for errors.

    Attributes:
        are_there: False where neither the file nor the caller says how.

    Raises:
        CheckpointError: The file has patterns of another kind.
    """

    def __init__(self, state: dict[Any, Any], joins: Joins | None, path: str) -> None:
        info = state.get(_INFO)
        self._joins, self._path = joins, path
        self._steps = 0
        self._is_said = isinstance(info, dict) and bool(info)
        self._patterns: list[tuple[re.Pattern[str], int, Rule]] = []
        if not isinstance(info, dict):
            return
        if other := [name for name in _OTHERS if info.get(name)]:
            raise CheckpointError(f"its ranks are split by {other[0]}, which is not known", path)
        rows = info.get(_ROWS)
        is_known = type(rows) is int and 0 < rows < 1 << 40
        padded = Rule(0, rows=rows if is_known else None)
        for name, rule in {_PADDED: padded, **_RULES}.items():
            for pattern in self._listed(info, name):
                repeats = 1 + len(re.findall(r"[+*]", pattern))
                self._patterns.append((re.compile(pattern), repeats, rule))

    @property
    def are_there(self) -> bool:
        return self._is_said or self._joins is not None

    def _listed(self, info: dict[Any, Any], name: str) -> Iterator[str]:
        patterns = info.get(name) or ()
        if not isinstance(patterns, (list, tuple)) or len(patterns) > _MOST_PATTERNS:
            raise CheckpointError(f"its {name} are {shortened(patterns)}", self._path)
        for pattern in patterns:
            is_plain = type(pattern) is str and len(pattern) <= _LONGEST
            if not is_plain or not _PLAIN.fullmatch(pattern):
                raise CheckpointError(
                    f"its {name} have the pattern {shortened(pattern)}, which is not one of names "
                    f"and digits",
                    self._path,
                )
            yield pattern

    def rule(self, key: str) -> Rule | None:
        """The rule for a key, which begins with the part that it is in."""
        rule = None if self._joins is None else self._joins.rule(key)
        if rule is not None or not self._is_said:
            return rule
        name = key.partition(".")[2]
        for pattern, repeats, rule in self._patterns:
            self._steps += min(len(name) + 1, _MOST_STEPS) ** repeats
            if self._steps > _MOST_STEPS:
                raise CheckpointError("its patterns of names take too long", self._path, key)
            if pattern.match(name):
                return rule
        return Rule(0)  # as DeepSpeed puts together what no pattern names
