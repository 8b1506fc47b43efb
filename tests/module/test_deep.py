# SPDX-License-Identifier: BSD-3-Clause
"""Chains of up to 100,000 nested modules, in a process of their own: a crash there is a failure
here, no more.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest
from helpers.limits import HANGS_AFTER

ISOLATED = pathlib.Path(__file__).parents[1] / "isolated"
DEEP, C_STACK = ISOLATED / "deep.py", ISOLATED / "c_stack.py"


def operations_in(text: str) -> list[str]:
    return re.findall(r"^    def ([a-z]\w*)\(self\):", text, re.MULTILINE)


OPERATIONS = operations_in(DEEP.read_text())
ON_MODULES, ON_TENSORS = map(operations_in, C_STACK.read_text().split("class Tensors"))
_RESULTS: dict[tuple[str, ...], dict[str, str]] = {}


def outcomes(script: pathlib.Path, words: list[str], operations: list[str]) -> dict[str, str]:
    """What the script printed. After a crash it goes on with the operations that were left."""
    key = (script.name, *words)
    if key not in _RESULTS:
        found: dict[str, str] = {}
        left = list(operations)
        while left:
            process = subprocess.run(
                [sys.executable, str(script), *words, *left],
                capture_output=True,
                text=True,
                timeout=HANGS_AFTER,
            )
            started = None
            for line in process.stdout.splitlines():
                event = json.loads(line)
                started = event.get("start")
                if "done" in event:
                    found[event["done"]] = event["outcome"]
            if started:
                found[started] = f"crashed with {process.returncode}: {process.stderr[-500:]}"
            elif not process.stdout:
                found |= {name: f"did not start: {process.stderr[-500:]}" for name in left}
            left = [name for name in left if name not in found]
        _RESULTS[key] = found
    return _RESULTS[key]


@pytest.mark.parametrize("depth", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_deep_chain(ours, operation, depth):
    assert outcomes(DEEP, [ours.name, str(depth)], OPERATIONS)[operation] == "ok"


def test_the_scripts_know_their_operations():
    assert {"modules", "train", "state_dict", "death", "repr"} <= set(OPERATIONS)
    assert {"train", "call", "getattr"} <= set(ON_MODULES) and "operator" in ON_TENSORS


@pytest.mark.parametrize("operation", ON_MODULES + ON_TENSORS)
def test_calls_nested_to_the_end_of_the_c_stack(ours, operation):
    if ours.name != "modtree" and operation in ON_TENSORS:
        pytest.skip("these are functions of torch")
    of_library = ON_MODULES if ours.name != "modtree" else ON_MODULES + ON_TENSORS
    found = outcomes(C_STACK, [ours.name], of_library)[operation]
    # From CPython 3.12 on, Python's own limit ends nested copies before the C stack does, and from
    # 3.14 on, its own look at the C stack may end any.
    ends_in_python = operation == "copy" and sys.version_info >= (3, 12)
    of_python = ("maximum recursion depth exceeded",) if ends_in_python else ()
    if sys.version_info >= (3, 14):
        of_python += ("Stack overflow",)
    of_native = "calls are nested too deeply for the C stack of this thread (512 KiB)"
    assert found.startswith((of_native, *of_python))


class Looked:
    """Any look at an attribute is Python code, so each child is asked through its methods."""

    def __getattribute__(self, name):
        return super().__getattribute__(name)


NESTED = {
    "state_dict": lambda m: m.state_dict(),
    "train": lambda m: m.train(),
    "apply": lambda m: m.apply(id),
    "_apply": lambda m: m._apply(lambda t: t),
    "double": lambda m: m.double(),
}


@pytest.mark.parametrize("operation", NESTED)
def test_a_cycle_of_modules_that_are_asked_is_a_recursion_error(impl, operation):
    m = type("Own", (Looked, impl.nn.Module), {})()
    m.c = m
    with pytest.raises(RecursionError):
        NESTED[operation](m)


@pytest.mark.parametrize("operation", NESTED)
def test_a_chain_of_modules_that_are_asked_is_a_recursion_error(ours, operation):
    own = type("Own", (Looked, ours.nn.Module), {})
    m = own()
    for _ in range(12_000):
        outer = own()
        outer.c = m
        m = outer
    with pytest.raises(RecursionError):
        NESTED[operation](m)


@pytest.mark.filterwarnings("ignore:Positional args are being deprecated:FutureWarning")
@pytest.mark.parametrize("name", ["get_extra_state", "_save_to_state_dict"])
def test_a_state_dict_that_asks_itself_is_a_recursion_error(ours, name):
    own = type("Own", (ours.nn.Module,), {name: ours.nn.Module.state_dict})
    with pytest.raises(RecursionError):
        own().state_dict()


@pytest.mark.filterwarnings("ignore:Positional args are being deprecated:FutureWarning")
def test_a_state_dict_that_is_its_own_hook_is_a_recursion_error(ours):
    m = ours.nn.Module()
    m._state_dict_hooks[0] = ours.nn.Module.state_dict
    with pytest.raises(RecursionError):
        m.state_dict()
