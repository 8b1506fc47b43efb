# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures: the same test on modtree and on torch, the oracle."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import jax_side
from helpers.implementations import HAS_TORCH, implementation, params

if sysconfig.get_config_var("Py_GIL_DISABLED") and sys.version_info < (3, 14):
    # The extension turns the GIL on at import; children of the tests have it from the start, and no
    # warning about it.
    os.environ["PYTHON_GIL"] = "1"


@pytest.fixture(params=params("modtree", "modtree-torch", "torch", "modtree-jax"))
def impl(request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    """modtree with NumPy leaves, modtree with torch leaves, and torch; modtree with jax leaves in
    the files that ``helpers/jax_side.py`` names.
    """
    with contextlib.ExitStack() as stack:
        if request.param == "modtree-jax":
            jax = importlib.import_module("jax")
            stack.enter_context(jax.enable_x64(True))  # torch has float64
        yield implementation(request.param)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = jax_side.choose(items)
    if left_out:
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(params=params("modtree", "modtree-torch"))
def ours(request: pytest.FixtureRequest) -> SimpleNamespace:
    """modtree only, with either leaves: for what torch does differently (docs/compat.md) or has
    not.
    """
    return implementation(request.param)


@pytest.fixture(params=params("modtree", "torch"))
def lib(request: pytest.FixtureRequest) -> Any:
    """The tensor libraries: modtree and torch."""
    return importlib.import_module(request.param)


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


@pytest.fixture(scope="module")
def quick_collections():
    """Collections in this file need not look at what was imported before: with torch that is most
    of the work.
    """
    if HAS_TORCH:
        importlib.import_module("torch")
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


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
