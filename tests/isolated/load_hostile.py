# SPDX-License-Identifier: BSD-3-Clause
"""Loads every file of a corpus of hostile ones in a process whose memory is limited; prints how
many were refused.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import resource
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "serialization")]

import modtree as mt  # noqa: E402

cases = importlib.import_module(sys.argv[1]).CASES
pages = Path("/proc/self/statm")
if pages.exists() and "asan" not in os.environ.get("LD_PRELOAD", ""):  # it maps terabytes
    limit = int(pages.read_text().split()[0]) * resource.getpagesize() + (256 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

refused = 0
for case, (data, message) in cases.items():
    try:
        mt.load(io.BytesIO(data))
    except pickle.UnpicklingError as error:
        if message not in str(error):
            raise SystemExit(f"{case}: {error}") from error
        refused += 1
    else:
        raise SystemExit(f"{case}: accepted")
print("refused", refused)
