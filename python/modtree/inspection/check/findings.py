# SPDX-License-Identifier: BSD-3-Clause
"""What ``modtree.check`` returns."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding", "Findings"]

# So many of a kind are printed.
_PRINTED = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is probably a mistake.

    Attributes:
        path: Where: the path of a module, with the attribute where there is one; "" is the model.
        kind: A word for what it is, one of those in the guide "Seeing a model".
        message: What was found.
        hint: What to do about it.
    """

    path: str
    kind: str
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.path or 'the model'}: {self.message} [{self.kind}]\n  {self.hint}"


class Findings(list[Finding]):
    """A list of findings that prints as a report: by kind, the first few of each."""

    def __str__(self) -> str:
        if not self:
            return "nothing found"
        kinds: dict[str, list[Finding]] = {}
        for finding in self:
            kinds.setdefault(finding.kind, []).append(finding)
        return "\n\n".join(_section(kind, found) for kind, found in kinds.items())

    __repr__ = __str__  # what a prompt shows


def _section(kind: str, found: list[Finding]) -> str:
    lines = [f"{kind} ({len(found):,})"]
    hint = ""
    for finding in found[:_PRINTED]:
        if hint and finding.hint != hint:
            lines.append(f"    {hint}")
        hint = finding.hint
        lines.append(f"  {finding.path or 'the model'}: {finding.message}")
    lines.append(f"    {hint}")
    if len(found) > _PRINTED:
        lines.append(f"  and {len(found) - _PRINTED:,} more")
    return "\n".join(lines)
