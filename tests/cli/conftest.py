# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures of the tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.command_line import MODELS, CommandLine


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CommandLine]:
    """Calls ``main()`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield CommandLine(capsys)


@pytest.fixture
def models(cli: CommandLine, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The name of a module with models in the folder."""
    name = f"models_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(MODELS)
    return name
