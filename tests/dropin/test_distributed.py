# SPDX-License-Identifier: BSD-3-Clause
"""torch's engines for several processes do the same on modtree's Module: two processes on gloo,
started with torchrun.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.dropin_programs import command, compared, environment, names, run, started
from helpers.implementations import HAS_TORCH, needs_torch
from helpers.limits import HANGS_AFTER

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_distributed.py"


def has_gloo() -> bool:
    if not HAS_TORCH or importlib.util.find_spec("torch.distributed") is None:
        return False
    import torch.distributed as dist

    return dist.is_available() and dist.is_gloo_available()


pytestmark = [needs_torch, pytest.mark.skipif(not has_gloo(), reason="needs torch with gloo")]


@pytest.mark.slow
@pytest.mark.parametrize("name", names(distributed=True))
def test_two_processes_plain_and_under_the_dropin(name, tmp_path):
    for side in ("plain", "dropin"):
        (tmp_path / side).mkdir()
    plain = run(name, False, tmp_path / "plain", processes=2)
    assert compared(plain, run(name, True, tmp_path / "dropin", processes=2)) == []
    assert set(plain.facts) == {"process 0", "process 1"}


@pytest.mark.slow
@pytest.mark.skipif(not EXAMPLE.is_file(), reason="needs the source tree")
@pytest.mark.parametrize("method", ["ddp", "fsdp"])
def test_example_trains_and_goes_on_from_its_checkpoint(method, tmp_path):
    printed = {}
    for dropin in (False, True):
        place = tmp_path / str(dropin)
        place.mkdir()
        line = [*command(sys.executable, EXAMPLE, dropin, 2), "--method", method]
        said = []
        for epochs in ("2", "3"):
            with started(
                [*line, "--epochs", epochs, "--checkpoint", str(place / "checkpoint")],
                cwd=place, env=environment(place), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True,
            ) as process:  # fmt: skip
                out, _ = process.communicate(timeout=HANGS_AFTER)
            assert process.returncode == 0, out
            said.append([text for text in out.splitlines() if text.startswith("epoch")])
        assert [len(texts) for texts in said] == [2, 1]
        printed[dropin] = said
    assert printed[False] == printed[True]
