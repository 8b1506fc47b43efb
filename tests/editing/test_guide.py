# SPDX-License-Identifier: BSD-3-Clause
"""The guide "Change a model" on torch: its examples, and those with libraries of torch."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest
from helpers.needs import needs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "editing.md"
BLOCK = re.compile(r"^```(python|pycon|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="needs the source tree")


def blocks(*kinds):
    text = PAGE.read_text(encoding="utf-8")
    return [match[2] for match in BLOCK.finditer(text) if match[1] in kinds]


def on_torch(text):
    for ours in ("randn", "optim", "zeros"):
        text = text.replace(f"mt.{ours}", f"torch.{ours}")
    return text.replace("from modtree import nn", "import torch\nfrom torch import nn")


def test_the_examples_on_torch(torch):
    torch.manual_seed(0)
    names = {"__name__": "page"}
    flags = doctest.NORMALIZE_WHITESPACE
    for text in map(on_torch, blocks("python", "pycon")):
        if ">>>" not in text:
            exec(text, names)
            continue
        test = doctest.DocTestParser().get_doctest(text, names, PAGE.name, str(PAGE), 0)
        test.globs = names
        runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
        report = []
        runner.run(test, out=report.append, clear_globs=False)
        assert not runner.summarize(verbose=False).failed, "".join(report)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "library", [pytest.param(n, marks=needs(n)) for n in ("transformers", "torchvision", "timm")]
)
def test_the_examples_with_libraries(library, tmp_path, monkeypatch, torch):
    found = [text for text in blocks("py") if re.search(rf"^(from|import) {library}\b", text, re.M)]
    assert len(found) == 1
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = {"__name__": "page", "mt": importlib.import_module("modtree")}
    lora = next(text for text in blocks("python") if "class LoRA" in text)
    exec("from torch import nn\n" + lora.partition("\n\n\nold")[0], names)
    exec(found[0], names)
