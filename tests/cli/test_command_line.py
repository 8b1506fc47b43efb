# SPDX-License-Identifier: BSD-3-Clause
"""The command line as a process: statuses, help, terminals, pipes."""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.command_line import command_of, environment_of, process, save_model

import modtree as mt
from modtree.cli import COMMANDS
from modtree.cli.words import in_command_words
from modtree.files.checkpoint import progress

HELP_OF_RUN = """\
usage: modtree run [--off | --report | --compare [--rounds N]] (script | -m module | -c code) ...

Runs a torch program on modtree's native Module, otherwise as python runs it:

    modtree run train.py --lr 3e-4
    modtree run -m pytest tests/
    modtree run -c "import torch; print(torch.nn.Linear(2, 2))"

positional arguments:
  program     the script and its arguments
"""

SLOW_MODEL = """\
import time

def build():
    print("building", flush=True)
    time.sleep(60)
"""

on_posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX")


def test_help_and_version(cli):
    ended = cli("--help")
    assert ended.status == 0 and all(
        re.search(rf"^ +{name}( |$)", ended.out, re.M) for name in COMMANDS
    )
    assert cli("--version").out == f"modtree {mt.__version__}\n"
    assert cli("run", "-h").out.startswith(HELP_OF_RUN)


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"run"}))
def test_help_of_a_command(cli, command):
    ended = cli(command, "--help")
    assert ended.status == 0 and ended.err == ""
    assert "examples:\n    modtree " in ended.out
    assert re.search(r"exit status:\n    0: ", ended.out)
    assert all(len(line) <= 100 for line in ended.lines)


@pytest.mark.parametrize("arguments", [["no-such"], ["--wrong"], ["diff"], ["inspect"]])
def test_wrong_usage(cli, arguments):
    ended = cli(*arguments)
    assert ended.status == 2 and ended.out == "" and "modtree" in ended.err.splitlines()[-1]


def test_without_a_command_the_help_is_printed(cli):
    assert cli() == cli("--help")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspct"], "modtree: error: there is no command 'inspct'; did you mean inspect?"),
        (["xyz"], "modtree: error: there is no command 'xyz'"),
        (
            ["--versoin"],
            "modtree: error: unrecognized arguments: --versoin; did you mean --version?",
        ),
        (
            ["inspect", "a", "--mach", "x"],
            "modtree inspect: error: unrecognized arguments: --mach x; did you mean --match?",
        ),
        (
            ["diff", "a", "b", "c", "--renam=a=b"],
            "modtree diff: error: unrecognized arguments: c --renam=a=b; did you mean --rename?",
        ),
    ],
)
def test_near_names(cli, arguments, message):
    ended = cli(*arguments)
    assert ended.status == 2 and ended.err.splitlines()[-1] == message


@pytest.mark.parametrize("command", ["inspect", "diff", "convert", "verify"])
def test_help_names_what_can_be_read(cli, command):
    text = " ".join(cli(command, "--help").out.split())
    assert all(word in text for word in ("GGUF", "npz", "a folder", "https://"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "a.safetensors"],
        ["diff", "a.safetensors", "a.safetensors"],
        ["convert", "a.safetensors", "b.safetensors"],
        ["verify", "a.safetensors", "--json"],
        ["verify", "a.safetensors", "--progress"],
    ],
)
def test_quiet(cli, arguments):
    save_model(Path("a.safetensors"))
    ended = cli(*arguments, "-q")
    assert ended == (0, "", "")


# -- progress --------------------------------------------------------------------------------------


def test_progress_on_request(cli):
    save_model(Path("a.safetensors"))
    for arguments, what in (
        (["convert", "a.safetensors", "b.safetensors"], "Writing b.safetensors"),
        (["verify", "a.safetensors", "--finite"], "Reading values"),
        (["diff", "a.safetensors", "b.safetensors"], "Comparing"),
    ):
        ended = cli(*arguments, "--progress")
        assert ended.status == 0 and f"{what}: 100%" in ended.err, ended.err
        assert what not in ended.out and cli(*arguments).err == ""


def test_what_takes_long_shows_its_time(cli, models, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "_LONG_SECONDS", 0.01)
    slow = "time.sleep(0.2)\n    return nn.ReLU()"
    text = f"import time\nfrom modtree import nn\n\n\ndef build():\n    {slow}\n"
    (tmp_path / "slow.py").write_text(text)
    assert "\rBuilding slow.py:build: 0 s" in cli("summary", "slow.py:build", "--progress").err
    assert cli("summary", "slow.py:build").err == ""
    assert cli("summary", "slow.py:build", "--progress", "-q") == (0, "", "")


# -- errors in the words of the command line -------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("large_header=True (--large-header) reads it", "--large-header reads it"),
        ("cannot; atomic=False (--in-place) writes", "cannot; --in-place writes"),
        ("no rule of join= says how", "no rule of --join says how"),
        ("got 2 dtypes for 1 inputs of input_shape", "got 2 --dtype for 1 inputs of --input-shape"),
        (
            "say it, with modtree.load_file(p, join={'*': 0}) or --join '*=0'",
            "say it, with --join '*=0'",
        ),
    ],
)
def test_arguments_of_functions_become_options(text, said):
    assert in_command_words(text) == said


def test_only_the_file_of_the_command_is_imported():
    program = (
        "import sys; from modtree.cli import main; main(sys.argv[1:]);"
        "print(sorted(m for m in sys.modules if m.startswith('modtree.cli.')))"
    )
    code = "import sys; print(sorted(m for m in sys.modules if m.startswith('modtree.cli.')))"
    command = [sys.executable, "-c", program, "run", "--off", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == (
        "['modtree.cli.ending', 'modtree.cli.run', 'modtree.cli.words']"
    )


def test_statuses_of_the_process(tmp_path):
    a = save_model(tmp_path / "a.safetensors")
    done = process("diff", a, a)
    assert (done.returncode, done.stderr) == (0, "")
    done = process("diff", a, "nowhere", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("modtree diff: nowhere: No such file or directory")
    done = process("inspect", a, "--match", "x")
    assert done.returncode == 1


# -- terminals -------------------------------------------------------------------------------------


def on_a_terminal(columns, *arguments, **environment):
    """What the command writes to a terminal of this width."""
    fcntl, pty, termios = map(pytest.importorskip, ("fcntl", "pty", "termios"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    settings = {"COLUMNS": "", "NO_COLOR": "", "TERM": "xterm", **environment}
    options = {"stdout": theirs, "env": environment_of(**settings)}
    with subprocess.Popen(command_of(*arguments), **options) as running:
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 65536):
                text += part
        except OSError:  # EIO: the other side is closed
            pass
        os.close(ours)
    assert running.returncode in (0, 1)
    return text.decode().replace("\r\n", "\n").splitlines()


@on_posix
def test_colours_and_width(tmp_path):
    model = save_model(tmp_path / "m.safetensors", **{"x" * 90: mt.ones(1).numpy()})
    wide = on_a_terminal(160, "inspect", model)
    assert "\x1b[1m" in wide[0] and any("x" * 90 in line for line in wide)
    plain = on_a_terminal(160, "inspect", model, NO_COLOR="1")
    assert not any("\x1b" in line for line in plain)
    assert plain == process("inspect", model).stdout.splitlines()
    narrow = on_a_terminal(80, "inspect", model, NO_COLOR="1")
    assert max(map(len, narrow[1:])) <= 80 and any("xx...xx" in line for line in narrow)
    assert not any("\x1b" in line for line in on_a_terminal(80, "inspect", model, TERM="dumb"))


def test_a_pipe_gets_no_colours_and_whole_names(tmp_path):
    model = save_model(tmp_path / "m.safetensors", **{"x" * 90: mt.ones(1).numpy()})
    done = process("inspect", model, env={"COLUMNS": "40", "TERM": "xterm"})
    assert "x" * 90 in done.stdout and "\x1b" not in done.stdout


# -- pipes, encodings, signals ---------------------------------------------------------------------


@on_posix
def test_a_reader_that_goes_away(tmp_path):
    entries = {f"entry_{'x' * 40}_{i}": mt.zeros(1) for i in range(3000)}
    mt.save_file(entries, tmp_path / "m.safetensors")
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment_of()}
    command = command_of("inspect", "m.safetensors")
    with subprocess.Popen(command, cwd=tmp_path, **options) as running:
        assert running.stdout.readline().startswith(b"m.safetensors: ")
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 128 + signal.SIGPIPE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(tmp_path):
    model = save_model(tmp_path / "m.safetensors")
    command = command_of("inspect", model)
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "modtree inspect: No space left on device\n")


def test_names_that_the_encoding_lacks(tmp_path):
    mt.save_file({"größe": mt.zeros(1)}, tmp_path / "m.safetensors")
    done = process("inspect", tmp_path / "m.safetensors", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and "gr\\xf6\\xdfe" in done.stdout


def _take_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell may have them ignored


@on_posix
def test_an_interrupt(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_MODEL)
    command = command_of("summary", f"{tmp_path / 'slow.py'}:build")
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, preexec_fn=_take_interrupts, **pipe) as running:
        assert running.stderr.readline() == b"building\n"
        running.send_signal(signal.SIGINT)
        assert running.communicate()[1] == b""
    assert running.returncode == 128 + signal.SIGINT
