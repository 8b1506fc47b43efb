# SPDX-License-Identifier: BSD-3-Clause
"""The libraries that are compared, and a virtual environment for each, made when it is missing."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

TORCH = "torch==2.13.0"


class Absent(Exception):
    """A library cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Peer:
    """
    Attributes:
        name: Of the adapter, ``bench/peers/NAME.py``.
        environment: Shared by the peers that name the same.
        requirements: What pip installs there; the first is the library.
        variables: Set before the library is imported.
        note: What a reader of the table must know.
    """

    name: str
    title: str
    environment: str
    requirements: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    note: str = ""


PEERS = (
    Peer("modtree", "modtree", "", ()),
    Peer("modtree_torch", "modtree, torch leaves", "", (TORCH,)),
    Peer("torch", "torch", "torch", (TORCH, "numpy")),
    Peer("flax", "flax NNX", "jax", ("flax", "numpy"), note="`nnx.Param` over one jax array"),
    Peer(
        "equinox",
        "equinox",
        "jax",
        ("equinox", "numpy"),
        note="NumPy leaves; modules are immutable: no writes, no `train`, and what changes a "
        "module makes a new one",
    ),
    Peer("mlx", "mlx", "mlx", ("mlx[cpu]", "numpy"), note="arrays are lazy: casts are only noted"),
    Peer(
        "tinygrad",
        "tinygrad",
        "tinygrad",
        ("tinygrad", "numpy"),
        {"DEV": "CPU"},
        "modules are plain Python objects; tensors are lazy: loading only exchanges them",
    ),
    Peer(
        "keras",
        "keras",
        "jax",  # which its NumPy backend imports too
        ("keras", "numpy", "scipy"),
        {"KERAS_BACKEND": "numpy"},
        "NumPy backend",
    ),
    Peer("paddle", "paddle", "paddle", ("paddlepaddle", "numpy")),
    Peer(
        "optree",
        "optree",
        "jax",
        ("optree", "numpy"),
        note="no modules: a walk of nested dicts and lists of NumPy arrays",
    ),
)


def _distribution(requirement: str) -> str:
    return requirement.partition("==")[0].partition("[")[0]


def _running(requirement: str) -> bool:
    """Does the running interpreter have the library, in the wanted version?"""
    name, _, wanted = requirement.partition("==")
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return not wanted or version.partition("+")[0] == wanted


def _make(folder: Path, requirements: list[str]) -> None:
    print(f"making {folder} with {', '.join(requirements)}", file=sys.stderr)
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    done = subprocess.run(
        [str(_python(folder)), "-m", "pip", "install", "--quiet", *requirements],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise Absent((errors or ["pip failed without a message"])[-1])
    (folder / "installed.json").write_text(json.dumps(sorted(requirements)))


def _python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def interpreter(peer: Peer, folder: Path) -> Path:
    """The Python that has the peer's library.

    modtree runs in the running interpreter, and so does torch where that has the version that is
    compared with. Others get an environment below ``folder``.

    Raises:
        Absent: pip cannot install the library here.
    """
    if not peer.environment or peer.name == "torch":
        if all(_running(r) for r in peer.requirements):
            return Path(sys.executable)
        if not peer.environment:
            raise Absent(f"this environment has no {', '.join(peer.requirements)}")
    requirements = sorted(
        {r for p in PEERS if p.environment == peer.environment for r in p.requirements}
    )
    place = folder / peer.environment
    record = place / "installed.json"
    if not record.is_file() or json.loads(record.read_text()) != requirements:
        try:
            _make(place, requirements)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Absent(str(error)) from error
    return _python(place)


def version(peer: Peer, python: Path) -> str:
    """The version of the peer's library there."""
    if not peer.requirements:
        return ""
    name = _distribution(peer.requirements[0])
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.check_output([str(python), "-c", code], text=True).strip()
