# SPDX-License-Identifier: BSD-3-Clause
"""Packages that only some tests need, and what is left out without them.

A file that needs one says so at its top, ``torch = pytest.importorskip("torch")``, and is then not
collected without it. A test says so with ``@needs("torch")``, or by taking the package as a
fixture, ``def test_x(torch):``.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

#: Import name -> what tests do with it.
PACKAGES = {
    "torch": "the oracle: most tests run on it too",
    "jax": "arrays of jax as leaves, and modtree.jax",
    "optax": "optimizers of jax",
    "ml_dtypes": "bfloat16 and float8 in NumPy",
    "safetensors": "the library, compared with modtree's reader and writer",
    "fsspec": "addresses as files",
    "aiohttp": "addresses of the web",
    "argcomplete": "the command line, completed in a shell",
    "xdist": "workers of pytest, which `modtree run` has to survive",
    "accelerate": "sharded checkpoints",
    "coverage": "a launcher in front of `modtree run`",
    "deepspeed": "its conversion of checkpoints, and its launcher",
    "diffrax": "a solver that takes modules as pytrees",
    "equinox": "filters of pytrees",
    "gguf": "its writer",
    "greenlet": "calls that are left in the middle",
    "h5py": "HDF5 files",
    "joblib": "a pickler of its own",
    "matplotlib": "the plots of an example",
    "mypy": "types",
    "onnx": "ONNX files",
    "orbax.checkpoint": "checkpoints of jax",
    "peft": "adapters",
    "pybind11": "the build",
    "ray": "its worker processes under `modtree run`",
    "rich": "tables in its console",
    "ruff": "lint",
    "tensorstore": "zarr arrays of orbax",
    "timm": "examples of the guide",
    "torchvision": "examples of the guide",
    "transformers": "models and their folders",
    "typing_extensions": "types",
}

_AT_THE_TOP = re.compile(r'^(?:\w+ = )?pytest\.importorskip\("([\w.]+)"', re.MULTILINE)

#: ("tests" or "files", package) -> how many this run left out for want of it; ("slow", "") -> how
#: many because they are slow.
left_out: Counter[tuple[str, str]] = Counter()


@functools.cache
def is_installed(package: str) -> bool:
    parent = package.rpartition(".")[0]
    return (not parent or is_installed(parent)) and importlib.util.find_spec(package) is not None


def needs(*packages: str) -> pytest.MarkDecorator:
    """Marks a test that is left out unless all of the packages are installed."""
    unknown = set(packages) - PACKAGES.keys()
    assert not unknown, f"not in helpers/needs.py: {unknown}"
    return pytest.mark.needs(*packages)


def absent_at_the_top(path: Path) -> str | None:
    """The first package that a file of tests needs and that is not installed."""
    names = _AT_THE_TOP.findall(path.read_text(encoding="utf-8"))
    return next((n.partition(".")[0] for n in names if not is_installed(n)), None)


def absent_of(item: pytest.Item) -> str | None:
    """The first package that a test needs and that is not installed."""
    marked = [name for mark in item.iter_markers("needs") for name in mark.args]
    fixtures = [n for n in getattr(item, "fixturenames", ()) if n in PACKAGES]
    return next((name for name in (*marked, *fixtures) if not is_installed(name)), None)


def choose(items: list[pytest.Item]) -> None:
    """Takes the tests whose package is absent out of the list, and counts them."""
    kept = []
    for item in items:
        absent = absent_of(item)
        if absent:
            left_out["tests", absent] += 1
        else:
            kept.append(item)
    items[:] = kept


def summary() -> list[str]:
    """One line for torch, one for jax, and one for all other packages."""
    lines = []
    for name in ("torch", "jax"):
        tests, files = left_out["tests", name], left_out["files", name]
        if tests or files:
            lines.append(
                f"{name} is not installed: {tests:,} comparisons with it and {files} files of "
                f"tests were left out (pip install {name})"
            )
    others = {n: c for (_, n), c in sorted(left_out.items()) if n not in ("torch", "jax", "")}
    if others:
        lines.append(f"{sum(others.values())} tests need other packages: {', '.join(others)}")
    if left_out["slow", ""]:
        lines.append(f"{left_out['slow', '']} slow tests were left out: --all runs them")
    return lines
