# SPDX-License-Identifier: BSD-3-Clause
"""How a program gets the native class, and what it is told where it cannot have it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

from helpers.implementations import needs_torch

pytestmark = needs_torch


def start(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def output(*arguments, cwd, **environment):
    ran = start(*arguments, cwd=cwd, **environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout.strip()


def error(*arguments, cwd, **environment):
    """The last line that a program that fails says."""
    ran = start(*arguments, cwd=cwd, **environment)
    assert ran.returncode != 0 and ran.stdout == "", ran.stdout
    return ran.stderr.strip().splitlines()[-1]


# -- ways to start -------------------------------------------------------------------------------


def test_the_first_import_of_a_program(tmp_path):
    program = (
        "import modtree.dropin as d; print(d.is_installed(), d.is_active()); import torch;"
        "from modtree import _C;"
        "print(d.is_active(), torch.nn.Module is _C.ModuleBase, torch.nn.Linear.mro()[1].__name__)"
    )
    assert output("-c", program, cwd=tmp_path) == "True False\nTrue True Module"


def test_a_script(tmp_path):
    (tmp_path / "beside.py").write_text("value = 3\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, beside, torch, modtree.dropin as d\n"
        "print(__name__, sys.argv[1:], beside.value, __file__ == sys.argv[0], d.is_active())\n"
        "print(sys.modules['__main__'].beside is beside)\n"
    )
    expected = "__main__ ['--lr', '3e-4', '-m'] 3 True True\nTrue"
    arguments = ("-m", "modtree", "run", str(script), "--lr", "3e-4", "-m")
    assert output(*arguments, cwd=os.getcwd()) == expected


def test_a_module_and_code(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(
        "import sys, torch, modtree.dropin as d; print(sys.argv[1:], __package__, d.is_active())\n"
    )
    run = ("-m", "modtree", "run")
    assert output(*run, "-m", "package", "-x", cwd=tmp_path) == "['-x'] package True"
    code = "import sys, torch, modtree.dropin as d; print(sys.argv, d.is_active())"
    assert output(*run, "-c", code, "a", cwd=tmp_path) == "['-c', 'a'] True"


def test_off(tmp_path):
    code = "import sys, torch; print('modtree.dropin' in sys.modules)"
    assert output("-m", "modtree", "run", "--off", "-c", code, cwd=tmp_path) == "False"


def test_exit_status_and_errors_are_those_of_the_program(tmp_path):
    run = ("-m", "modtree", "run", "-c")
    assert start(*run, "raise SystemExit(7)", cwd=tmp_path).returncode == 7
    assert error(*run, "1 / 0", cwd=tmp_path) == "ZeroDivisionError: division by zero"


# -- where it cannot be --------------------------------------------------------------------------


def test_torch_was_imported_before(tmp_path):
    (tmp_path / "early.py").write_text("import torch\n")
    said = error("-c", "import early; import modtree.dropin", cwd=tmp_path)
    assert said.startswith("ImportError: modtree.dropin must be imported before torch")
    assert "early" in said and "modtree run" in said


def test_no_torch(tmp_path):
    program = textwrap.dedent("""\
        import importlib.util
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: (
            None if name == "torch" else found(name, *rest)
        )
        import modtree.dropin
    """)
    said = error("-c", program, cwd=tmp_path)
    assert said.startswith("ModuleNotFoundError") and "pip install torch" in said


def test_an_unknown_torch_is_refused_before_anything_was_changed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""\
            import modtree.dropin
            from modtree import _C
            from modtree.dropin import _checks
            check = _checks.check

            def change_and_check(file):
                del file.Module.zero_grad
                check(file)

            _checks.check = change_and_check
            own = dict(vars(_C.ModuleBase))
            try:
                import torch
            finally:
                assert dict(vars(_C.ModuleBase)) == own and not modtree.dropin.is_active()
        """)
    )
    said = error(str(program), cwd=tmp_path)
    assert said.startswith("ImportError: modtree.dropin does not know this torch (2.")
    assert "Module has no method zero_grad" in said and "Nothing was changed" in said
    assert "modtree run --off" in said


def test_programs_that_are_not_there(tmp_path):
    run = ("-m", "modtree", "run")
    assert "there is no script 'nothing.py'" in error(*run, "nothing.py", cwd=tmp_path)
    assert "No module named nothing" in error(*run, "-m", "nothing", cwd=tmp_path)
    assert "which program?" in error(*run, cwd=tmp_path)
    assert "give one of them" in error(*run, "-m", "-c", "x", cwd=tmp_path)
