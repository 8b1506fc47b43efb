# SPDX-License-Identifier: BSD-3-Clause
"""Every layer of torch.nn gives the same on the native class as on torch's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's table of layers needs it")

PROGRAM = Path(__file__).parent / "layers.py"


def test_every_layer(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    runs = [
        subprocess.Popen(
            [sys.executable, *start, str(PROGRAM)],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for start in ((), ("-m", "modtree", "run"))
    ]
    plain, dropin = (run.communicate(timeout=300) for run in runs)
    assert [run.returncode for run in runs] == [0, 0], plain[1][-2000:] + dropin[1][-2000:]
    expected, found = json.loads(plain[0]), json.loads(dropin[0])
    assert len(expected) > 200 and expected.keys() == found.keys()
    different = {name: found[name] for name in expected if found[name] != expected[name]}
    assert different == {}
    # The comparison is of results, not of refusals.
    trained = [facts for facts in expected.values() if not isinstance(facts[3], str)]
    assert len(trained) > 0.9 * len(expected)
