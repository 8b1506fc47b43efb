# SPDX-License-Identifier: BSD-3-Clause
"""What a step did: its result, exception, warnings and events; and whether two outcomes agree."""

from __future__ import annotations

import contextlib
import re
import signal
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from helpers.support import same_shapes

from .observe import INTERNAL, Observer
from .program import Step, run_step
from .world import DEPTH, TooMuch, World


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raises TooMuch in what runs longer: torch has loops without end (docs/compat.md, legacy
    backward hooks).
    """

    def ring(*_: Any) -> None:
        raise TooMuch

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Outcome(NamedTuple):
    """What one world showed of a step. ``raised`` is the type and the message of an exception."""

    result: Any
    raised: tuple[type, str] | None
    warned: list[tuple[str, str]]
    events: list[Any]
    state: dict[str, Any]


# The load-bearing phrases of messages; what lies between the groups (names of types) differs
# between libraries.
PHRASES = tuple(
    re.compile(p, re.DOTALL)
    for p in (
        r"('[^']*' object has no attribute '.*')",
        r"(cannot assign ')[^']*(' as (?:parameter|child module|buffer) '.*' \(torch\.nn\..* "
        r"expected\))",
        r"(cannot assign ')[^']*(' object to (?:parameter|buffer) '.*' \(torch.* required\))",
        r"(cannot assign \w+ before Module\.__init__\(\) call)",
        r"(attribute '.*' already exists)",
        r"((?:parameter|buffer|module) name can't .*)",
        r"(is not a Module subclass)",
        r"(has no attribute `.*`)",
        r"(`.*` is not an nn\.(?:Module|Parameter))",
        r"(`.*` is not a buffer)",
        r"(Cannot assign non-leaf Tensor to parameter '.*')",
        r"(bad getter)",
        r"(changed size during iteration|mutated during iteration)",
        r"(is out of range|Index out of range)",
        r"(Non-positive multiplication factor)",
        r"(should be called with an iterable, but got)",
        r"(should be called with an iterable of key/value pairs, but got)",
        r"(should be Iterable; is)",
        r"(2 is required)",
        r"(cannot be used as a key as it is not a string)",
        r"(popitem\(\): dictionary is empty)",
        r"(add operator supports only objects of Sequential class)",
        r"(is missing the required \"forward\" function)",
        r"(only accepts floating point or complex dtypes)",
        r"(does not accept copy argument)",
        r"(Cannot use both regular backward hooks and full backward hooks)",
        r"(previously registered via register_state_dict_post_hook)",
        r"(post-hook must return None)",
        r"(should be done inplace)",
        r"(Expected state_dict to be dict-like)",
        r"(forward pre-hook must return None or a tuple)",
        r"(invalid number of grad_(?:input|output))",
        r"(Only Tensors of floating point and complex dtype can require gradients|only Tensors "
        r"of floating point dtype)",
    )
)
WARNINGS = tuple(
    re.compile(p)
    for p in (
        r"is a no-op",
        r"Positional args are being deprecated",
        r"forward hook with ``always_call=True``",
        r"non-full backward hook",
        r"For backward hooks to be called",
        r"Full backward hook is firing",
        r"Complex modules are a new feature",
        r"created with nn.DataParallel",
    )
)


# docs/compat.md: "a module assigned under a name with a dot, or an empty one".
# The other is given once in a process by torch.
IGNORED = re.compile(
    "the child module name .* contains a dot or is empty|Casting complex values to real"
)


def run(world: World, step: Step) -> Outcome:
    """Runs the step; the world counts as it looks afterwards."""
    world.events.clear()
    raised = result = None
    world.depth = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with alarm(10):
                result = run_step(world, step)
        except TooMuch:
            raise
        except Exception as error:
            kind = RecursionError if isinstance(error, RecursionError) else type(error)
            raised = (kind, message(error))
        world.muted, world.depth = True, DEPTH
        try:
            observer = Observer(world)
            state = observer.slots()
            shown = observer.show(result)
        finally:
            world.muted, world.depth = False, 0
    said = [
        (type_of(c), phrase(str(c.message))) for c in caught if not IGNORED.match(str(c.message))
    ]
    return Outcome(shown, raised, said, list(world.events), state)


INTERNAL_NAME = re.compile(rf"has no attribute '(?:{'|'.join(INTERNAL)})'")


def type_of(caught: warnings.WarningMessage) -> str:
    return caught.category.__name__


def message(error: BaseException) -> str:
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)


def phrase(text: str) -> str:
    found = next((p.pattern for p in WARNINGS if p.search(text)), None)
    return found or text[:50]


def lines(text: str) -> list[str]:
    """The lines of a failed load, without the parts in which the libraries speak for themselves."""
    shared = same_shapes(text).partition("\n\n")[0]  # below it ours explains
    return [line.partition("an exception occurred")[0] for line in shared.split("\n\t")]


def says_the_same(theirs: str, ours: str) -> bool:
    """Whether the message of ours contains what programs match on in torch's."""
    if theirs.startswith("Error(s) in loading state_dict"):
        return lines(theirs) == lines(ours)
    if "which is no tensor" in ours:  # ours says what stands where a tensor should
        return "has no attribute" in theirs
    for pattern in PHRASES:
        if found := pattern.search(theirs):
            return all(part in ours for part in found.groups())
    return True


def is_broken(outcome: Outcome) -> bool:
    """An internal attribute was missing. Which one is asked for first, and what ran until then, is
    nobody's business.
    """
    return outcome.raised is not None and INTERNAL_NAME.search(outcome.raised[1]) is not None


def narrow(label: str, theirs: Any, ours: Any) -> tuple[str, Any, Any]:
    """The innermost part in which two values differ, with the way to it in the label."""
    while isinstance(theirs, (list, tuple)) and type(theirs) is type(ours):
        if len(theirs) != len(ours):
            break
        at = next(
            (i for i, pair in enumerate(zip(theirs, ours, strict=True)) if pair[0] != pair[1]), None
        )
        if at is None:
            break
        label, theirs, ours = f"{label}[{at}]", theirs[at], ours[at]
    return label, theirs, ours


def difference(theirs: Outcome, ours: Outcome) -> tuple[str, Any, Any] | None:
    """The first part in which they differ, as (label, theirs, ours)."""
    if (theirs.raised is None) != (ours.raised is None):
        return "exception", theirs.raised or theirs.result, ours.raised or ours.result
    if theirs.raised and ours.raised:
        if is_broken(theirs):
            return None
        if theirs.raised[0].__name__ != ours.raised[0].__name__:
            return "exception type", theirs.raised, ours.raised
        if not says_the_same(theirs.raised[1], ours.raised[1]):
            return "message", theirs.raised, ours.raised
    if theirs.events != ours.events:
        return narrow("events", *first_difference(theirs.events, ours.events))
    if theirs.result != ours.result:
        return narrow("result", theirs.result, ours.result)
    if theirs.warned != ours.warned:
        return "warnings", theirs.warned, ours.warned
    for label, value in theirs.state.items():
        if value != ours.state[label]:
            return narrow(label, value, ours.state[label])
    return None


def first_difference(theirs: list[Any], ours: list[Any]) -> tuple[Any, Any]:
    for a, b in zip(theirs, ours, strict=False):
        if a != b:
            return a, b
    n = min(len(theirs), len(ours))
    return theirs[n:], ours[n:]
