# SPDX-License-Identifier: BSD-3-Clause
"""The native class in every process that a launcher starts: docs/dropin.md has the commands."""

from __future__ import annotations

import importlib.util
import re
import sys
import sysconfig
from pathlib import Path

import pytest
from helpers.dropin_programs import free_port
from helpers.implementations import needs_torch
from helpers.launchers import Ended, environment, ran
from helpers.needs import needs

pytestmark = needs_torch

RUN = [sys.executable, "-m", "modtree", "run"]

#: Calls a module ten times, and writes what class it was and which process of how many this is.
PROGRAM = """\
import os, sys
import torch
net = torch.nn.Linear(2, 2)
for _ in range(10):
    net(torch.ones(1, 2))
native = torch.nn.Module is getattr(sys.modules.get("modtree._C"), "ModuleBase", None)
names = [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")]
found = [os.environ[a] + " of " + os.environ[b] for a, b in names if a in os.environ]
os.write(1, f"{'native' if native else 'plain'} {found[0] if found else 'alone'}\\n".encode())
"""

#: Starts a command as often as it is told to, as srun does, with the variables that it sets.
SRUN = """\
import os, subprocess, sys
assert sys.argv[1] == "-n"
count, command = int(sys.argv[2]), sys.argv[3:]
started = []
for rank in range(count):
    task = {"SLURM_JOB_ID": "7", "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NTASKS": count}
    environ = {**os.environ, **{name: str(value) for name, value in task.items()}}
    started.append(subprocess.Popen(command, env=environ))
sys.exit(max(process.wait() for process in started))
"""

#: A daemon that is started apart from the program, and starts workers for it: each line of its
#: input has their variables, and they run the code that the next line has.
DAEMON = """\
import json, os, subprocess, sys
for line in sys.stdin:
    environ = {**os.environ, **json.loads(line)}
    code = json.loads(next(sys.stdin))
    subprocess.run([sys.executable, "-c", code], env=environ, check=True)
"""

#: Asks the daemon for a worker, with the variables that are named on its command line.
ASKS = """\
import json, os, subprocess, sys
plain = {k: v for k, v in os.environ.items() if not k.startswith("MODTREE_")}
plain["PYTHONPATH"] = os.environ["FOR_DAEMON"]
daemon = subprocess.Popen(
    [sys.executable, "daemon.py"], env=plain, stdin=subprocess.PIPE, text=True
)
environ = {name: os.environ[name] for name in sys.argv[2:]}
print(json.dumps(environ), json.dumps(sys.argv[1]), sep="\\n", file=daemon.stdin)
daemon.stdin.close()
sys.exit(daemon.wait())
"""


def script(name: str) -> str:
    """The path of a command that a package installs, or skips the test."""
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    found = [folder / name for folder in folders if (folder / name).exists()]
    if not found:
        pytest.skip(f"needs the command {name}")
    return str(found[0])


@pytest.fixture
def place(tmp_path):
    for name, text in {"train": PROGRAM, "srun": SRUN, "daemon": DAEMON, "asks": ASKS}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def torchrun() -> list[str]:
    port = str(free_port())
    words = ["--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", port]
    return ["-m", "torch.distributed.run", *words]


def accelerate(processes: int) -> list[str]:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("needs accelerate")
    words = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    kind = ["--multi_gpu", "--main_process_port", str(free_port())] if processes > 1 else ["--cpu"]
    words += ["--num_processes", str(processes), *kind]
    return [script("accelerate"), "launch", *words]


def deepspeed() -> list[str]:
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("needs deepspeed")
    words = ["--num_gpus", "2", "--master_port", str(free_port())]
    return [script("deepspeed"), *words]


#: A launcher inside of ``modtree run``, and one around it: the words for both, and the processes.
LAUNCHERS = {
    "torchrun": lambda: (
        [*RUN, "--report", *torchrun(), "train.py"],
        [sys.executable, *torchrun(), "--no-python", *RUN, "--report", "train.py"],
        2,
    ),
    "accelerate": lambda: (
        [*RUN, "--report", *accelerate(2), "train.py"],
        [*accelerate(2), "--no_python", *RUN, "--report", "train.py"],
        2,
    ),
    "accelerate on the CPU": lambda: (
        [*RUN, "--report", *accelerate(1), "train.py"],
        [*accelerate(1), "--no_python", *RUN, "--report", "train.py"],
        1,
    ),
    "deepspeed": lambda: (
        [*RUN, "--report", *deepspeed(), "train.py"],
        [*deepspeed(), "--no_python", "--no_local_rank", *RUN, "--report", "train.py"],
        2,
    ),
    "srun": lambda: (
        [*RUN, "--report", "srun.py", "-n", "2", sys.executable, "train.py"],
        [sys.executable, "srun.py", "-n", "2", *RUN, "--report", "train.py"],
        2,
    ),
}


def counted(ended: Ended) -> list[tuple[int, int]]:
    """How many other processes each report counts, and how many calls."""
    pattern = r"done natively(?:, (\d+) other process(?:es)? included)?\n +([\d,]+)  calls"
    return [(int(others or 0), int(calls)) for others, calls in re.findall(pattern, ended.err)]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_gives_each_process_the_native_class(place, name):
    inside, around, count = LAUNCHERS[name]()
    ended = ran(inside, place)
    assert ended.status == 0, ended.err
    ranks = [f"native {i} of 2" for i in range(2)] if count == 2 else ["native alone"]
    said = [line for line in ended.out.splitlines() if line.startswith(("native", "plain"))]
    assert sorted(said) == ranks
    # The launcher of deepspeed has a process between that imports torch and calls nothing.
    assert counted(ended) == [(count + (name == "deepspeed"), 10 * count)]

    ended = ran(around, place)
    said = [line for line in ended.out.splitlines() if line.startswith(("native", "plain"))]
    assert (ended.status, sorted(said)) == (0, ranks), ended.err
    # Each process prints a report of its own, and the lines of two may mix.
    assert ended.err.count("modtree run: done natively") == count
    assert len(re.findall(r" 10  calls\n", ended.err)) == count


@pytest.mark.slow
@needs("xdist")
def test_workers_of_pytest(place):
    (place / "test_it.py").write_text(
        "import subprocess, sys, pytest\n"
        "@pytest.mark.parametrize('n', range(2))\n"
        "def test_it(n):\n"
        "    said = subprocess.check_output([sys.executable, 'train.py'], text=True)\n"
        "    assert said == 'native alone\\n'\n"
        "    import torch\n"
        "    assert torch.nn.Module is sys.modules['modtree._C'].ModuleBase\n"
        "    torch.nn.Identity()(n)\n"
    )
    words = ["-q", "-p", "no:cacheprovider", "-n", "2", "test_it.py"]
    ended = ran([*RUN, "--report", "-m", "pytest", *words], place)
    assert ended.status == 0, ended.out
    # Two workers, and what each test starts.
    assert counted(ended) == [(2 + 2, 2 + 2 * 10)]


@pytest.mark.slow
def test_workers_of_a_daemon_that_knows_nothing_of_it(place):
    """As those of Ray: the program passes on two variables."""
    code = "exec(open('train.py').read())"
    path = {"FOR_DAEMON": environment()["PYTHONPATH"]}
    ended = ran([*RUN, "asks.py", code], place, **path)
    assert (ended.out, ended.err) == ("plain alone\n", "")
    ended = ran([*RUN, "asks.py", code, "MODTREE_DROPIN", "PYTHONPATH"], place, **path)
    assert (ended.out, ended.err) == ("native alone\n", "")
    ended = ran([*RUN, "asks.py", f"import modtree.dropin\n{code}"], place, **path)
    assert (ended.out, ended.err) == ("native alone\n", "")
    # With one of them alone, a line says what is missing.
    ended = ran([*RUN, "asks.py", code, "PYTHONPATH"], place, **path)
    assert ended.out == "plain alone\n"
    assert ended.err.count("pass on MODTREE_DROPIN and PYTHONPATH\n") == 1


@needs("ray")
def test_workers_of_ray(place):
    (place / "tasks.py").write_text(
        "import os, ray\n"
        "names = ('MODTREE_DROPIN', 'PYTHONPATH')\n"
        "passed = {name: os.environ[name] for name in names}\n"
        "ray.init(num_cpus=2, include_dashboard=False, runtime_env={'env_vars': passed})\n"
        "@ray.remote\n"
        "def work():\n"
        "    import sys, torch\n"
        "    return torch.nn.Module is sys.modules['modtree._C'].ModuleBase\n"
        "print('found', ray.get([work.remote(), work.remote()]))\n"
    )
    ended = ran([*RUN, "tasks.py"], place)
    assert "found [True, True]" in ended.out, ended.err
