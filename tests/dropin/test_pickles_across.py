# SPDX-License-Identifier: BSD-3-Clause
"""A file that plain torch writes is read under the drop-in, and the other way round."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

PROGRAM = """
import pickle, sys
import torch
from torch import nn

def ignore(*args, **kwargs):
    return None

def make():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ModuleDict({"a": nn.ModuleList([nn.ReLU()])}),
        nn.LSTM(3, 2), nn.LazyLinear(2), nn.ParameterList([torch.ones(2)]), nn.Module(),
    )
    net.plain = {"any": [1, 2]}
    net[0].register_forward_hook(ignore, with_kwargs=True)
    net[0].register_forward_pre_hook(ignore)
    net[0].register_full_backward_hook(ignore)
    net[0].register_state_dict_pre_hook(ignore)
    net[0].register_buffer("hidden", torch.ones(1), persistent=False)
    net[1].register_load_state_dict_post_hook(ignore)
    net[1].weight.requires_grad_(False)
    net[1].eval()
    net[6].itself = net[0]
    return net

def facts(net):
    result = [repr(net), net.plain, net[1].training, net[1].weight.requires_grad]
    result += [(name, tuple(map(float, value.flatten()))) for name, value in net.named_buffers()]
    result += [name for name, _ in net.named_parameters()]
    for module in net.modules():
        result.append(sorted(module.__dict__))
        for name, table in sorted(module.__dict__.items()):
            if name.endswith("hooks"):
                result.append([name, *(type(value).__name__ for value in table.values())])
        result.append(sorted(map(str, module._non_persistent_buffers_set)))
    result.append(net[6].itself is net[0])
    result.append(sorted((name, type(value).__name__) for name, value in net[0].__dict__.items()))
    return result

how, path = sys.argv[1:]
if how == "write":
    net = make()
    with open(path + ".pickle", "wb") as file:
        pickle.dump([pickle.dumps(net, protocol) for protocol in range(6)], file)
    torch.save(net, path + ".pt")
    torch.save(net[:4].state_dict(), path + ".state")
else:
    expected = facts(make())
    with open(path + ".pickle", "rb") as file:
        for data in pickle.load(file):
            read = facts(pickle.loads(data))
            assert read == expected, [pair for pair in zip(read, expected) if pair[0] != pair[1]]
    assert facts(torch.load(path + ".pt", weights_only=False)) == expected
    state = torch.load(path + ".state", weights_only=True)
    make()[:4].load_state_dict(state)
    assert list(state._metadata) == list(make()[:4].state_dict()._metadata)
"""


def python(how, *arguments, cwd):
    start = [sys.executable] + (["-m", "modtree", "run"] if how == "dropin" else [])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [*start, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.mark.slow(keep=1)
@needs_torch
@pytest.mark.parametrize(
    ("writer", "reader"), [("torch", "dropin"), ("dropin", "torch"), ("dropin", "dropin")]
)
def test_files(tmp_path, writer, reader):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    python(writer, str(program), "write", str(tmp_path / writer), cwd=tmp_path)
    python(reader, str(program), "read", str(tmp_path / writer), cwd=tmp_path)


@needs_torch
def test_a_pickle_names_nothing_of_ours(tmp_path):
    program = (
        "import pickle, pickletools, operator, torch\n"
        "net = torch.nn.Sequential(torch.nn.Linear(2, 2))\n"
        "net[0].register_forward_hook(operator.eq)\n"
        "print(b'modtree' in pickle.dumps([net, net.state_dict(), net.parameters]))\n"
    )
    assert python("dropin", "-c", program, cwd=tmp_path).strip() == "False"
