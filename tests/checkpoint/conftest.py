# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
from helpers.file_server import serving

from modtree.files.sources import addresses


@pytest.fixture
def quick(monkeypatch):
    """A request that failed is made again at once, and without the proxy of this machine."""
    monkeypatch.setattr(addresses, "_PAUSE", 0.001)
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.delenv("HTTP_PROXY", raising=False)


@pytest.fixture
def impatient(monkeypatch):
    """Servers that do not answer are given up soon: an honest one too, if this machine is busy."""
    monkeypatch.setattr(addresses, "_SILENCE", 0.5)
    monkeypatch.setattr(addresses, "_LONGEST", 0.5)


@pytest.fixture
def server(fsspec, aiohttp):
    """A server on this machine. Its tests need the packages that read from one."""
    with serving() as found:
        yield found
