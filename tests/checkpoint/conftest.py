# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
from helpers.file_server import serving

from modtree.files.sources import patience


@pytest.fixture
def quick(monkeypatch):
    """A request that failed is made again at once, and without the proxy of this machine."""
    monkeypatch.setattr(patience, "_PAUSE", 0.001)
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.delenv("HTTP_PROXY", raising=False)


@pytest.fixture
def impatient(monkeypatch):
    """Servers that do not answer are given up soon: an honest one too, if this machine is busy."""
    monkeypatch.setattr(patience, "_TIMEOUT", 0.5)
    monkeypatch.setattr(patience, "_GRACE", 0.5)


@pytest.fixture
def server():
    with serving() as found:
        yield found
