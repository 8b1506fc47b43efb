# SPDX-License-Identifier: BSD-3-Clause
"""Runs the programs of ``tests/dropin/programs`` in processes of their own, on torch as it is and
on modtree's Module (``modtree run``), and compares what they report.

``tools/ecosystem`` uses this too, from outside of the environment that the programs run in.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.limits import HANGS_AFTER

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "dropin" / "programs"

#: Not programs: what they share, and one that takes arguments.
SHARED = {"outcome", "exchange", "distributed_common", "distributed_names"}

#: What a program needs beside torch, by the start of its name.
LIBRARIES = {
    "accelerate": ("accelerate", "safetensors"),
    "diffusers": ("diffusers", "transformers", "accelerate"),
    "gpytorch": ("gpytorch",),
    "lightning": ("lightning", "torchmetrics"),
    "peft": ("peft", "transformers"),
    "pyro_ppl": ("pyro",),
    "safetensors": ("safetensors",),
    "sentence_transformers": ("sentence_transformers", "transformers"),
    "timm": ("timm", "torchvision"),
    "torchmetrics": ("torchmetrics",),
    "torchvision": ("torchvision",),
    "transformers": ("transformers", "accelerate"),
    "distributed": (),
    "torch": (),
}

#: What every process gets: no network, one thread, nothing that changes from run to run.
SETTINGS = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "CUDA_VISIBLE_DEVICES": "",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}

#: Characters of a failed program's output that are kept, of the end: torchrun says 3,000 itself.
MOST_SAID = 12_000


@dataclass
class Outcome:
    """What one run of a program gave: the facts of each process that reported, or the error."""

    facts: dict[str, Any]
    native: bool
    seconds: float
    error: str = ""


def names(distributed: bool = False) -> list[str]:
    """The programs, those of several processes or the others."""
    found = sorted(p.stem for p in PROGRAMS.glob("*.py") if p.stem not in SHARED)
    return [name for name in found if (library_of(name) == "distributed") is distributed]


def library_of(name: str) -> str:
    matches = [library for library in LIBRARIES if name.startswith(f"{library}_")]
    if not matches:
        raise ValueError(
            f"the name of the program {name}.py starts with no library of LIBRARIES, which has "
            f"{', '.join(LIBRARIES)}"
        )
    return max(matches, key=len)


def needs(name: str) -> tuple[str, ...]:
    return LIBRARIES[library_of(name)]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def command(python: str, script: Path, dropin: bool, processes: int) -> list[str]:
    """The command line a user would type."""
    program = [*(["-m", "modtree", "run"] if dropin else []), str(script)]
    if processes == 1:
        return [python, *program]
    launcher = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    launcher += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    if dropin:
        launcher += ["--no-python", python]
    return [*launcher, *program]


def environment(place: Path, device: str = "cpu") -> dict[str, str]:
    # Of a test that runs under the drop-in, or under torchrun, itself.
    others = {"MODTREE_DROPIN", "RANK", "WORLD_SIZE", "LOCAL_RANK"}
    settings = {**SETTINGS, "MODTREE_PROGRAM_DEVICE": device}
    if device != "cpu":
        del settings["CUDA_VISIBLE_DEVICES"]
    kept = {k: v for k, v in os.environ.items() if k not in others}
    path = [os.path.abspath(p) for p in kept.get("PYTHONPATH", "").split(os.pathsep) if p]
    folders = {
        "PYTHONPATH": os.pathsep.join(path),
        "HF_HOME": str(place / "hub"),
        "MPLCONFIGDIR": str(place / "matplotlib"),
        "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"),
        "MODTREE_OUTCOME": str(place / "outcome"),
    }
    return {**kept, **settings, **folders}


@contextlib.contextmanager
def started(arguments: list[str], **options: Any) -> Iterator[subprocess.Popen]:
    """A process that does not outlive the block, nor do its children."""
    process = subprocess.Popen(arguments, start_new_session=True, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            # The launcher of several processes ends them when it is asked to, not when it is
            # killed.
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(40)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(
    name: str,
    dropin: bool,
    place: Path,
    *arguments: str,
    python: str = sys.executable,
    processes: int = 1,
    timeout: float = HANGS_AFTER,
    errors: bool = False,
    device: str = "cpu",
) -> Outcome:
    """Run the program, with ``place`` as its working directory.

    Args:
        name: The program's name without ``.py``.
        dropin: Whether it runs on modtree's Module.
        place: An existing empty folder.
        arguments: What follows the script on the command line.
        python: The interpreter.
        processes: More than one are started with torchrun.
        timeout: In seconds; a program that takes longer is ended, and has failed.
        errors: Whether what a part of a program raises is a result, as for an older torch.
        device: Where the program's tensors are made.
    """
    line = [*command(python, PROGRAMS / f"{name}.py", dropin, processes), *arguments]
    begin = time.perf_counter()
    output = place / "output.txt"
    with (
        output.open("wb") as file,
        started(
            line,
            cwd=place,
            env=environment(place, device) | ({"MODTREE_OUTCOME_OF_ERRORS": "1"} if errors else {}),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        ) as process,
    ):
        try:
            code: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
    seconds = time.perf_counter() - begin
    said = output.read_text(errors="replace")[-MOST_SAID:]
    if code is None:
        return Outcome({}, False, seconds, f"ended after {timeout:.0f} s\n{said}")
    if code:
        return Outcome({}, False, seconds, f"exit status {code}\n{said}")
    reports = [json.loads(p.read_text()) for p in sorted(place.glob("outcome.*"))]
    if len(reports) != processes:
        return Outcome({}, False, seconds, f"{len(reports)} of {processes} reported\n{said}")
    facts = {f"process {i}": report["facts"] for i, report in enumerate(reports)}
    return Outcome(facts, all(report["native"] for report in reports), seconds)


def differing(left: Any, right: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Where two reports differ, and what each has there."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = [*left, *(k for k in right if k not in left)]
        pairs = [(k, left.get(k, "(absent)"), right.get(k, "(absent)")) for k in keys]
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = [(i, a, b) for i, (a, b) in enumerate(zip(left, right, strict=True))]
    else:
        same = left == right and type(left) is type(right)
        return {} if same else {path: (left, right)}
    found = [differing(a, b, f"{path}/{k}") for k, a, b in pairs]
    return {at: both for part in found for at, both in part.items()}


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """The same as lines ``path: this | that``."""
    return _lines(differing(left, right, path))


def _lines(found: dict[str, tuple[Any, Any]]) -> list[str]:
    return [f"{path}: {left} | {right}" for path, (left, right) in found.items()]


def _below(path: str, others: Collection[str]) -> bool:
    return any(path == other or path.startswith(f"{other}/") for other in others)


def compared(
    plain: Outcome, other: Outcome, dropin: bool = True, varied: Collection[str] = ()
) -> list[str]:
    """What is wrong with two runs that should have given the same; empty when nothing is.

    Args:
        plain: A run on torch as it is.
        other: The run to compare it with.
        dropin: Whether ``other`` has to have run on modtree's Module.
        varied: Where they may differ.
    """
    wrong = [f"plain: {plain.error}"] if plain.error else []
    if other.error:
        wrong.append(f"{'drop-in' if dropin else 'again'}: {other.error}")
    if wrong:
        return wrong
    if plain.native:
        wrong.append("the plain run had modtree's Module")
    if other.native is not dropin:
        wrong.append(f"the run under the drop-in had {'no ' * (not other.native)}modtree's Module")
    if not any(plain.facts.values()):
        wrong.append("the program reported nothing")
    found = differing(plain.facts, other.facts)
    return wrong + _lines({at: both for at, both in found.items() if not _below(at, varied)})


def errors_in(facts: Any) -> int:
    """How many parts of a program ended in an error."""
    if isinstance(facts, dict):
        own = int(list(facts) == ["error"] and isinstance(facts["error"], str))
        return own + sum(errors_in(value) for value in facts.values())
    return 0


def cause_of(error: str) -> str:
    """The first error that the processes of the program said, else the last line that is not a
    rule; without what differs from run to run: numbers of processes, addresses, stray bytes.
    """
    lines = [line for line in error.splitlines() if re.search(r"\w", line)]
    # torchrun's own error and hint follow those of the processes that it started.
    said = [line for line in lines if re.match(r"(\[rank\d+\]: )?[\w.]+(Error|Exception)\b", line)]
    of_processes = [line for line in said if "ChildFailedError" not in line]
    line = (of_processes or lines[-1:] or [""])[0]
    line = re.sub(r"(can't decode byte) .*", r"\1", line)
    return re.sub(r"0x[0-9a-f]+|\d+", "0", line)


def result_of(plain: Outcome, dropin: Outcome, *again: Outcome) -> tuple[str, list[str]]:
    """What the table says, and the lines of what differs.

    Args:
        plain: A run on torch as it is.
        dropin: A run on modtree's Module.
        *again: More runs on torch as it is. What differs among those says nothing of the drop-in.
    """
    cause = cause_of(dropin.error)
    if any(cause_of(run.error) == cause for run in (plain, *again) if run.error):
        return "plain torch fails too", [f"both: {cause}"]
    first, *others = [run for run in (plain, *again) if not run.error] or [plain]
    varied = {at for run in others for at in differing(first.facts, run.facts)}
    wrong = compared(first, dropin, varied=varied)
    if wrong:
        return "different", wrong
    parts = errors_in(first.facts)
    notes = [f"{parts} raised"] * bool(parts) + [f"{len(varied)} varied"] * bool(varied)
    return f"equal ({', '.join(notes)})" if notes else "equal", []


def write_between(page: Path, marks: tuple[str, str], text: str) -> None:
    """Between the marks that the page has for it, or as a page of its own."""
    old = page.read_text() if page.exists() else ""
    before, begin, rest = old.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    page.write_text(f"{before}{begin}\n{text}{end}{after}" if begin and end else text)
