# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures: the same test on modtree and on torch, the oracle."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sysconfig
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None

needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="needs torch")

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    # The extension turns the GIL on at import; children of the tests have it from the start, and no warning about it.
    os.environ["PYTHON_GIL"] = "1"


def _implementation(kind: str) -> SimpleNamespace:
    """The namespace behind ``impl``: one module system with one tensor library for its leaves.

    ``nn`` is the module namespace (``nn.Module``, ``nn.Parameter``, containers), ``lib`` the tensor library (``lib.zeros``,
    ``lib.float32``, ``lib.Tensor``, ``lib.no_grad``), ``module`` the home of global hooks and registries, ``is_torch`` true for
    the oracle alone.
    """
    if kind == "torch":
        import torch

        return SimpleNamespace(
            name=kind,
            is_torch=True,
            leaves="torch",
            lib=torch,
            nn=torch.nn,
            module=importlib.import_module("torch.nn.modules.module"),
            hooks=importlib.import_module("torch.utils.hooks"),
        )
    import modtree

    lib = modtree
    if kind == "modtree-torch":
        import torch

        lib = torch
    return SimpleNamespace(
        name=kind,
        is_torch=False,
        leaves="torch" if lib is not modtree else "numpy",
        lib=lib,
        nn=modtree.nn,
        module=importlib.import_module("modtree.module"),
        hooks=importlib.import_module("modtree.hooks"),
    )


def _params(*kinds: str) -> list[Any]:
    return [pytest.param(k, marks=() if k == "modtree" else needs_torch, id=k) for k in kinds]


@pytest.fixture(params=_params("modtree", "modtree-torch", "torch"))
def impl(request: pytest.FixtureRequest) -> SimpleNamespace:
    """modtree with NumPy leaves, modtree with torch leaves, and torch."""
    return _implementation(request.param)


@pytest.fixture(params=_params("modtree", "modtree-torch"))
def ours(request: pytest.FixtureRequest) -> SimpleNamespace:
    """modtree only, with either leaves: for what torch does differently (docs/compat.md) or has not."""
    return _implementation(request.param)


@pytest.fixture(params=_params("modtree", "torch"))
def lib(request: pytest.FixtureRequest) -> Any:
    """The tensor libraries: modtree and torch."""
    return importlib.import_module(request.param)


@pytest.fixture
def gc_tester() -> Callable[[Any], None]:
    """``gc_tester(obj)`` with the only reference: asserts that it is tracked and dies with its cycles."""

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
    """Collections in this file need not look at what was imported before: with torch that is most of the work."""
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
