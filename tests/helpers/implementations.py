# SPDX-License-Identifier: BSD-3-Clause
"""The module systems that one test runs on: modtree with leaves of NumPy or torch, and torch, the
oracle.
"""

from __future__ import annotations

import importlib
import os
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.needs import is_installed, needs

HAS_TORCH = is_installed("torch")
HAS_JAX = is_installed("jax")

needs_torch = needs("torch")
needs_jax = needs("jax")

#: For tests of how much memory is taken, and of greenlets, which copy stacks under ASan's eyes.
not_under_a_sanitizer = pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer has memory of its own"
)


def implementation(kind: str) -> SimpleNamespace:
    """The namespace behind ``impl``: one module system with one tensor library for its leaves.

    ``nn`` is the module namespace (``nn.Module``, ``nn.Parameter``, containers), ``lib`` the tensor
    library (``lib.zeros``, ``lib.float32``, ``lib.Tensor``, ``lib.no_grad``), ``module`` the home
    of global hooks and registries, ``is_torch`` true for the oracle alone.
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

    lib: Any = modtree
    if kind == "modtree-jax":
        from helpers.jax_library import library

        lib = library
    if kind == "modtree-torch":
        import torch

        lib = torch
    return SimpleNamespace(
        name=kind,
        is_torch=False,
        leaves=kind.partition("-")[2] or "numpy",
        lib=lib,
        nn=modtree.nn,
        module=importlib.import_module("modtree.core.module"),
        hooks=importlib.import_module("modtree.core.hooks"),
    )


#: Kind -> the package that it needs.
LIBRARIES = {"modtree": "numpy", "modtree-torch": "torch", "torch": "torch", "modtree-jax": "jax"}


def params(*kinds: str) -> list[Any]:
    """Those whose library is installed."""
    return [pytest.param(k, id=k) for k in kinds if is_installed(LIBRARIES[k])]
