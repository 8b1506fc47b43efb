# SPDX-License-Identifier: BSD-3-Clause
"""The examples in docstrings, and the code in the pages, run as they are written."""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.implementations import HAS_JAX, HAS_TORCH
from helpers.needs import needs

import modtree as mt
from modtree import nn
from modtree.nn import functional as F

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(mt.__file__).parent
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

#: What an example need not import.
NAMES = {"mt": mt, "nn": nn, "F": F, "np": np}


def example_text(path: Path) -> Iterator[tuple[str, int, str]]:
    """(name, line, text) of the docstrings of a file that have examples."""
    source = path.read_text(encoding="utf-8")
    if ">>>" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text and ">>>" in text:
                yield getattr(node, "name", "module"), node.body[0].lineno - 1, text


def docstrings() -> list[Any]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for name, line, text in example_text(path):
            where = path.relative_to(PACKAGE).with_suffix("").as_posix()
            found.append(pytest.param(path, line, text, id=f"{where}:{name}"))
    return found


def pages() -> list[Path]:
    return [p for p in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if p.is_file()]


def page_parameters() -> list[Any]:
    found = []
    for path in pages():
        named = re.search("(from|import) safetensors", path.read_text(encoding="utf-8"))
        marks = needs("safetensors") if named else ()
        found.append(pytest.param(path, marks=marks, id=path.relative_to(ROOT).as_posix()))
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Deprecated classes say so in their examples; output is checked by doctest only."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore", FutureWarning)
        yield


def run_examples(text: str, names: dict[str, Any], path: Path, line: int) -> None:
    test = doctest.DocTestParser().get_doctest(text, names, path.name, str(path), line)
    test.globs = names  # not a copy: later blocks of a page go on with it
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    assert not runner.summarize(verbose=False).failed, "".join(report)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = mt.get_rng_state()
    mt.manual_seed(0)
    yield
    mt.set_rng_state(state)


@pytest.mark.parametrize("path, line, text", docstrings())
def test_docstring(path, line, text):
    with quiet():
        run_examples(text, {**NAMES, "__name__": "__main__"}, path, line)


def test_every_prompt_stands_in_a_docstring():
    """One in a comment or in a string of another kind would never run."""
    for path in PACKAGE.rglob("*.py"):
        prompts = path.read_text(encoding="utf-8").count(">>> ")
        assert prompts == sum(text.count(">>> ") for *_, text in example_text(path)), path


#: A fenced block, also one indented in a list.
BLOCK = re.compile(r"^( *)```(python|pycon)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("page", page_parameters())
def test_page(page):
    """The blocks of a page share one namespace, in their order."""
    source = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "page"}
    with quiet():
        for block in BLOCK.finditer(source):
            line = source.count("\n", 0, block.start(3))
            text = textwrap.dedent(block[3])
            if "import torch" in text and not HAS_TORCH:
                break
            if "import jax" in text and not HAS_JAX:
                break
            if block[2] == "pycon":
                run_examples(text, names, page, line)
            else:
                exec(compile("\n" * line + text, str(page), "exec"), names)


def test_pages_have_no_prompt_outside_a_block():
    for page in pages():
        source = page.read_text(encoding="utf-8")
        assert ">>> " not in BLOCK.sub("", source), page
