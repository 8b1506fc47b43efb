# SPDX-License-Identifier: BSD-3-Clause
"""What ``modtree run`` and ``import modtree.dropin`` say where the native class cannot be had: one
sentence that says what to do.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from helpers.implementations import needs_torch
from helpers.launchers import environment, make_environment, ran
from helpers.limits import HANGS_AFTER

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs symbolic links")

#: Stands in for torch's file of Module, in environments without torch.
FILE = "torch/nn/modules/module.py"

IMPORTS = "import torch; print(torch.nn.modules.module.Module.__flags__ & 512)"  # 512: in C++


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A virtual environment without torch; tests that put something there make their own."""
    folder = tmp_path_factory.mktemp("environments") / "bare"
    make_environment(folder)
    return folder


def write_torch(folder: Path, text: str) -> None:
    file = folder / FILE
    file.parent.mkdir(parents=True)
    for package in (file.parents[2], file.parents[1], file.parent):
        (package / "__init__.py").write_text("")
    (file.parents[2] / "__init__.py").write_text("import torch.nn.modules.module\n")
    file.write_text(text)


def last(said: str) -> str:
    return said.strip().splitlines()[-1]


def note_of(said: str) -> str:
    """The note below an error, which CPython 3.10 has in its message."""
    line = last(said)
    return line[line.index("modtree run: ") :]


# -- no torch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["-I"]], ids=["", "isolated"])
@pytest.mark.parametrize("form", ["modtree run", "python -m modtree run"])
def test_no_torch(bare, tmp_path, form, options):
    python = str(bare / "bin" / "python")
    start = [str(bare / "bin" / "modtree")] if form == "modtree run" else [python, "-m", "modtree"]
    ended = ran([*start, "run", *options, "-c", "import torch"], tmp_path, PYTHONPATH="")
    assert (ended.status, ended.out) == (1, "")
    assert "ModuleNotFoundError: No module named 'torch'" in ended.err
    expected = f"modtree run: torch is not installed for {python}: {python} -m pip install torch"
    assert note_of(ended.err) == expected


def test_no_torch_where_another_environment_is_active(bare, tmp_path):
    there = tmp_path / "active"
    command = [str(bare / "bin" / "modtree"), "run", "-c", "import torch"]
    ended = ran(command, tmp_path, PYTHONPATH="", VIRTUAL_ENV=str(there))
    assert note_of(ended.err).endswith(
        f", or to run in the active environment: {there}/bin/python -m pip install modtree"
    )


def test_a_program_that_does_without_torch_is_told_nothing(bare, tmp_path):
    code = "import importlib.util as u, sys; print(u.find_spec('torch'))\n"
    code += "print(sys.meta_path[0].find_spec('torch'))\n"
    code += "try: import torch\nexcept ImportError as error: print(error.name)"
    ended = ran([str(bare / "bin" / "modtree"), "run", "-c", code], tmp_path, PYTHONPATH="")
    assert ended == (0, "None\nNone\ntorch\n", "")


# -- an environment other than its own -------------------------------------------------------------


def test_a_command_found_outside_of_the_active_environment(bare, tmp_path):
    active = tmp_path / "active"
    make_environment(active)
    (active / "bin" / "modtree").unlink()
    path = os.pathsep.join([str(active / "bin"), str(bare / "bin"), os.environ["PATH"]])
    line = ["sh", "-c", "modtree run -c 'import sys; print(sys.prefix)'"]
    ended = ran(line, tmp_path, PYTHONPATH="", PATH=path, VIRTUAL_ENV=str(active))
    assert (ended.status, ended.out) == (0, f"{bare}\n")
    assert ended.err == (
        f"modtree run: this runs {bare}/bin/python, the Python of {bare}/bin/modtree, and not that "
        f"of the active environment {active}: to run there, {active}/bin/python -m pip install "
        "modtree\n"
    )
    # A path names the Python that is meant, and so does python -m.
    for start in (["bin/modtree"], ["bin/python", "-m", "modtree"]):
        line = [str(bare / start[0]), *start[1:], "run", "-c", "pass"]
        path = os.pathsep.join([str(active / "bin"), os.environ["PATH"]])
        ended = ran(line, tmp_path, PYTHONPATH="", PATH=path, VIRTUAL_ENV=str(active))
        assert ended == (0, "", "")


@pytest.fixture
def environ_of_children(tmp_path):
    """The environment that a program of ``modtree run`` gives to its children."""
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    return json.loads(ran([sys.executable, "-m", "modtree", "run", "-c", code], tmp_path).out)


def test_a_child_of_another_environment(tmp_path, environ_of_children):
    packages = make_environment(tmp_path / "other")
    write_torch(packages, "class Module: pass\n")
    python = tmp_path / "other" / "bin" / "python"
    ended = ran([str(python), "-c", IMPORTS], tmp_path, **environ_of_children)
    assert (ended.status, ended.out) == (0, "512\n")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert ended.err == (
        f"modtree run: {python} runs on torch's own Module, because modtree was started for the "
        f"Python {version} of {sys.prefix}: start this one with {python} -m modtree run\n"
    )
    assert ran([str(python), "-c", "pass"], tmp_path, **environ_of_children).err == ""
    shutil.rmtree(packages / "torch")
    ended = ran([str(python), "-c", "import torch"], tmp_path, **environ_of_children)
    assert last(ended.err) == "ModuleNotFoundError: No module named 'torch'"


def test_a_child_whose_launcher_dropped_a_variable(tmp_path, environ_of_children):
    del environ_of_children["MODTREE_DROPIN"]
    write_torch(tmp_path, "class Module: pass\n")
    ended = ran([sys.executable, "-c", IMPORTS], tmp_path, **environ_of_children)
    assert ended.err == (
        "modtree run: this process has torch's own Module, because MODTREE_DROPIN is not in its "
        "environment: have its launcher pass on MODTREE_DROPIN and PYTHONPATH\n"
    )


def test_a_child_that_names_its_environment_by_a_link(tmp_path, environ_of_children):
    make_environment(tmp_path / "env")
    (tmp_path / "link").symlink_to("env")
    code = "import sys; print([type(f).__name__ for f in sys.meta_path][0], sys.prefix)"
    line = f"import subprocess; subprocess.run([{str(tmp_path / 'link/bin/python')!r}, '-c', "
    line += f"{code + '; import torch'!r}])"
    write_torch(tmp_path, "class Module: pass\n")
    ended = ran([str(tmp_path / "env/bin/modtree"), "run", "-c", line], tmp_path, PYTHONPATH="")
    assert "runs on torch's own" not in ended.err
    assert "does not know this torch" in ended.err


# -- a torch of unknown shape ----------------------------------------------------------------------


def test_a_torch_of_unknown_shape(tmp_path):
    packages = make_environment(tmp_path / "env")
    write_torch(packages, "class Module: pass\n")
    command = [str(tmp_path / "env" / "bin" / "modtree"), "run"]
    ended = ran([*command, "-c", IMPORTS], tmp_path, PYTHONPATH="")
    assert (ended.status, ended.out) == (1, "")
    said = last(ended.err)
    assert said.startswith("ImportError: modtree.dropin does not know this torch (unknown; ")
    assert "Nothing was changed: run the program without the drop-in (`modtree run --off`)" in said
    assert ran([*command, "--off", "-c", IMPORTS], tmp_path, PYTHONPATH="") == (0, "512\n", "")


# -- torch first -----------------------------------------------------------------------------------


def test_torch_was_imported_while_python_started(tmp_path):
    packages = make_environment(tmp_path / "env")
    write_torch(packages, "class Module: pass\n")
    (packages / "early.pth").write_text("import torch\n")
    command = [str(tmp_path / "env" / "bin" / "modtree"), "run", "--report", "-c", IMPORTS]
    ended = ran(command, tmp_path, PYTHONPATH="")
    assert ended == (
        0,
        "512\n",
        "modtree run: torch was imported before the program began, by a .pth file or a "
        f"sitecustomize of {tmp_path}/env, so the program has torch's own Module: keep torch out "
        "of that file\n",
    )


@needs_torch
@pytest.mark.parametrize("statement", ["import torch", "from torch import nn"])
def test_torch_was_imported_by_the_program(tmp_path, statement):
    ended = ran([sys.executable, "-c", f"{statement}\nimport modtree.dropin"], tmp_path)
    assert last(ended.err) == (
        "ImportError: modtree.dropin must be imported before torch, and torch is imported already "
        "(imported by __main__ (no file)): make `import modtree.dropin` the first import of the "
        "program, or start it with `modtree run`"
    )


IN_A_NOTEBOOK = (
    "restart the kernel with `import modtree.dropin` as the first line of its first cell, and with "
    "no startup file of IPython that imports torch"
)


@needs_torch
def test_torch_was_imported_in_a_notebook(tmp_path):
    code = "import builtins; builtins.get_ipython = lambda: None\nimport torch, modtree.dropin"
    said = last(ran([sys.executable, "-c", code], tmp_path).err)
    assert said.startswith("ImportError: modtree.dropin must be imported before torch")
    assert said.endswith(IN_A_NOTEBOOK)


NATIVE = "import sys, torch; print(torch.nn.Module is sys.modules['modtree._C'].ModuleBase)"


def run_cells(place: Path, *cells: str, **variables: str) -> list[str]:
    """What each cell prints in one kernel; of an error its text."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    variables.setdefault("IPYTHONDIR", str(place / "ipython"))
    manager.start_kernel(env={**environment(**variables)}, cwd=str(place))
    client = manager.blocking_client()
    client.start_channels()
    said: list[str] = []
    try:
        client.wait_for_ready(timeout=HANGS_AFTER)
        for cell in cells:
            texts: list[str] = []

            def keep(message, texts=texts):
                content = message["content"]
                texts.append(content.get("text") or content.get("evalue") or "")

            client.execute_interactive(cell, output_hook=keep, timeout=HANGS_AFTER)
            said.append("".join(texts).strip())
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return said


needs_jupyter = pytest.mark.skipif(
    any(importlib.util.find_spec(n) is None for n in ("ipykernel", "jupyter_client")),
    reason="needs ipykernel and jupyter_client",
)


@needs_torch
@needs_jupyter
@pytest.mark.filterwarnings("ignore")
def test_cells_of_a_notebook(tmp_path, environ_of_children):
    assert run_cells(tmp_path, "import modtree.dropin", NATIVE) == ["", "True"]
    first, second = run_cells(tmp_path, "import torch", "import modtree.dropin")
    assert first == "" and second.endswith(IN_A_NOTEBOOK) and "by __main__" in second
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    (startup / "00.py").write_text("import torch\n")
    (said,) = run_cells(tmp_path, "import modtree.dropin")
    assert said.endswith(IN_A_NOTEBOOK)
    # A kernel that a program of `modtree run` starts, as `modtree run -m jupyter lab` does.
    assert run_cells(tmp_path, NATIVE, **environ_of_children) == ["True"]
