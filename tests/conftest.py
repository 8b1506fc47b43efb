# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures: the same test on modtree and on torch, the oracle."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import sysconfig
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import jax_side, needs
from helpers.implementations import LIBRARIES, implementation, params
from helpers.needs import is_installed

if sysconfig.get_config_var("Py_GIL_DISABLED") and sys.version_info < (3, 14):
    # The extension turns the GIL on at import; children of the tests have it from the start, and no
    # warning about it.
    os.environ["PYTHON_GIL"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests marked slow too")
    if "-n" in sys.argv and not is_installed("xdist"):
        raise pytest.UsageError(
            "-n needs pytest-xdist (pip install pytest-xdist); without it: python -m pytest -q"
        )


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """A file whose package is absent is not imported."""
    if collection_path.suffix == ".py" and (absent := needs.absent_at_the_top(collection_path)):
        needs.left_out["files", absent] += 1
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    needs.choose(items)
    jax_side.choose(items)
    count_absent_sides(items)
    if runs_slow_tests(config):
        return
    seen: Counter[tuple[Any, ...]] = Counter()
    slow = {item for item in items if is_left_out(item, seen)}
    items[:] = [item for item in items if item not in slow]
    config.hook.pytest_deselected(items=list(slow))
    needs.left_out["slow", ""] = len(slow)


def is_left_out(item: pytest.Item, seen: Counter[tuple[Any, ...]]) -> bool:
    """True for a slow test, except for the first ``keep`` of a function and a side."""
    mark = item.get_closest_marker("slow")
    if mark is None:
        return False
    given = getattr(getattr(item, "callspec", None), "params", {})
    key = (item.path, getattr(item, "originalname", item.name), *(given.get(s) for s in SIDES))
    seen[key] += 1
    return seen[key] > mark.kwargs.get("keep", 0)


def runs_slow_tests(config: pytest.Config) -> bool:
    """True with ``--all``, with a marker expression, and if tests are named one by one."""
    return config.option.all or config.option.markexpr or any("::" in a for a in config.args)


def count_absent_sides(items: list[pytest.Item]) -> None:
    """Count what the fixtures below would add if the library were there."""
    for item in items:
        given = getattr(getattr(item, "callspec", None), "params", {})
        for fixture, kinds in SIDES.items():
            if given.get(fixture) == "modtree":
                for kind in kinds:
                    package = LIBRARIES[kind]
                    if not is_installed(package) and jax_side.has(kind, item):
                        needs.left_out["tests", package] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = list(needs.left_out.items())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each worker of xdist collects all tests."""
    needs.left_out |= Counter(dict(getattr(node, "workeroutput", {}).get("left_out", ())))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in needs.summary():
        terminalreporter.write_line(line)


def pytest_sessionstart(session: pytest.Session) -> None:
    _progress["session"] = session


#: Of the process that prints: the session, and how many tests have passed or were skipped.
_progress: dict[str, Any] = {"quiet tests": 0}


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """A long run prints one letter for every few tests that pass or are skipped."""
    ends_quietly = report.when == "call" if report.passed else report.skipped
    if not ends_quietly or hasattr(report, "wasxfail"):
        return None
    _progress["quiet tests"] += 1
    step = max(1, _progress["session"].testscollected // 400)
    if _progress["quiet tests"] % step == 0:
        return None
    return report.outcome, "", report.outcome.upper()


#: Fixture -> the sides of its tests.
SIDES = {
    "impl": ("modtree", "modtree-torch", "torch", "modtree-jax"),
    "ours": ("modtree", "modtree-torch"),
    "lib": ("modtree", "torch"),
}


@pytest.fixture(params=params(*SIDES["impl"]))
def impl(request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    """modtree with NumPy leaves, modtree with torch leaves, and torch; modtree with jax leaves in
    the files that ``helpers/jax_side.py`` names.
    """
    with contextlib.ExitStack() as stack:
        if request.param == "modtree-jax":
            jax = importlib.import_module("jax")
            stack.enter_context(jax.enable_x64(True))  # torch has float64
        yield implementation(request.param)


@pytest.fixture(params=params(*SIDES["ours"]))
def ours(request: pytest.FixtureRequest) -> SimpleNamespace:
    """modtree only, with either leaves: for what torch does differently (docs/compat.md) or has
    not.
    """
    return implementation(request.param)


@pytest.fixture(params=params(*SIDES["lib"]))
def lib(request: pytest.FixtureRequest) -> Any:
    """The tensor libraries: modtree and torch."""
    return importlib.import_module(request.param)


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """``rounds(10, 1000)``: 10 in the plain run, 1000 where slow tests run too."""
    return lambda few, many: many if runs_slow_tests(request.config) else few


def package(name: str) -> Any:
    """A fixture: the package of this name. Its tests are left out where it is absent."""
    return pytest.fixture(scope="session", name=name)(lambda: importlib.import_module(name))


for _name in filter(str.isidentifier, needs.PACKAGES):
    globals()[f"{_name}_package"] = package(_name)


@pytest.fixture
def gc_tester() -> Callable[[Any], None]:
    """``gc_tester(obj)`` with the only reference: asserts that it is tracked and dies with its
    cycles.
    """

    def check(make: Callable[[], Any]) -> None:
        obj = make()
        assert gc.is_tracked(obj)
        ref = weakref.ref(obj)
        del obj
        gc.collect()
        assert ref() is None

    return check


@pytest.fixture(scope="module", autouse=True)
def _quick_collections() -> None:
    """Collections need not look at what was there before the tests of a file: with torch and
    thousands of tests that is most of the work.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_global_hooks_left(request: pytest.FixtureRequest):
    """A test that leaves a global hook behind would change the ones after it."""
    name = next((n for n in ("impl", "ours") if n in request.fixturenames), None)
    module = request.getfixturevalue(name).module if name else None
    yield
    if module is None:
        return
    left = [
        k for k, v in vars(module).items() if k.startswith("_global_") and isinstance(v, dict) and v
    ]
    for key in left:
        getattr(module, key).clear()
    module._global_is_full_backward_hook = None
    # torch leaks the id of a removed global with_kwargs hook (docs/compat.md).
    assert not [k for k in left if k != "_global_forward_hooks_with_kwargs"]
