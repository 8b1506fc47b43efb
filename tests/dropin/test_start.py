# SPDX-License-Identifier: BSD-3-Clause
"""How a program gets the native class, and what it is told where it cannot have it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import textwrap

import pytest
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

pytestmark = needs_torch


def start(*arguments, cwd, input="", **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        input=input,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
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


@pytest.mark.slow
def test_options_of_python(tmp_path):
    """-I does not look at PYTHONPATH, from where the tests may have modtree."""
    code = (
        "import sys, torch; C = sys.modules['modtree._C']; print(torch.nn.Module is C.ModuleBase)"
    )
    (tmp_path / "script.py").write_text(code)
    for words in (["-I", "script.py"], ["-OEc", code], ["-um", "script"]):
        assert output("-m", "modtree", "run", *words, cwd=tmp_path) == "True", words
    assert output("-m", "modtree", "run", "-Iiq", cwd=tmp_path, input=code) == "True"


@pytest.mark.slow
def test_children(tmp_path):
    """Those of multiprocessing, which get the options of python too, and another Python."""
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""\
            import multiprocessing, subprocess, sys
            def is_native(_=None):
                import torch
                return torch.nn.Module is sys.modules["modtree._C"].ModuleBase
            if __name__ == "__main__":
                for method in sys.argv[1:]:
                    with multiprocessing.get_context(method).Pool(1) as pool:
                        print(method, pool.map(is_native, [1]))
                code = "import script; print(script.is_native())"
                print(subprocess.check_output([sys.executable, "-c", code], text=True).strip())
        """)
    )
    methods = [m for m in ("spawn", "forkserver") if m in multiprocessing.get_all_start_methods()]
    expected = [f"{method} [True]" for method in methods]
    run = ("-m", "modtree", "run")
    said = output(*run, "script.py", *methods, cwd=tmp_path).splitlines()
    assert said == [*expected, "True"]
    said = output(*run, "-E", "script.py", *methods, cwd=tmp_path).splitlines()
    assert said == [*expected, "True"]


def test_off_is_off_below_a_program_with_the_drop_in(tmp_path):
    """Also where it runs in a Python that was started for something else."""
    code = "import torch, sys, os; print('modtree.dropin' in sys.modules, "
    code += "'MODTREE_DROPIN' in os.environ)"
    call = f"from modtree.cli import main; main(['run', '--off', '-c', {code!r}])"
    for words in (["-m", "modtree", "run", "--off", "-c", code], ["-c", call]):
        line = [sys.executable, *words]
        program = f"import subprocess; print(subprocess.check_output({line!r}, text=True))"
        assert output("-m", "modtree", "run", "-c", program, cwd=tmp_path) == "False False"


def test_a_report_follows_all_that_the_program_says(tmp_path):
    code = "import atexit, torch; atexit.register(print, 'end', flush=True); torch.nn.Linear(1, 1)"
    ran = start("-m", "modtree", "run", "--report", "-uIc", code, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "end\n")
    assert ran.stderr.startswith("modtree run: done natively\n") and " reads\n" in ran.stderr
    ran = start("-m", "modtree", "run", "--report", "-c", "pass", cwd=tmp_path)
    assert ran.stderr == "modtree run: the program did not import torch.nn\n"


@pytest.mark.slow
@pytest.mark.parametrize("imports", ["", "import torch; work(100)"], ids=["children", "all"])
def test_a_report_counts_what_children_did(tmp_path, imports):
    """Those of multiprocessing, forked before or after the import of torch, and other Pythons."""
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""\
            import multiprocessing, subprocess, sys
            def work(count):
                import torch
                relu = torch.nn.ReLU()
                for _ in range(count):
                    relu(torch.ones(1))
            if __name__ == "__main__":
                exec(sys.argv[1])
                for method in sys.argv[2:]:
                    process = multiprocessing.get_context(method).Process(target=work, args=(10,))
                    process.start()
                    process.join()
                subprocess.run([sys.executable, "-c", "import script; script.work(10)"], check=True)
        """)
    )
    methods = multiprocessing.get_all_start_methods()
    # Of a short path: the server of forkserver has a socket there.
    with tempfile.TemporaryDirectory(prefix="mt") as left:
        words = ("-m", "modtree", "run", "--report", "script.py", imports, *methods)
        ran = start(*words, cwd=tmp_path, TMPDIR=left)
        assert os.listdir(left) == []
    children = len(methods) + 1
    first, calls, *_ = ran.stderr.splitlines()
    assert first == f"modtree run: done natively, {children} other processes included"
    assert calls.split() == [str(10 * children + (100 if imports else 0)), "calls"]


def test_only_modules_of_modtree_are_imported_beside_those_of_torch(tmp_path):
    """A file of the program may have the name of any other."""
    code = "import sys, torch; print(*(m for m in sys.modules if m.split('.')[0] != 'modtree'))"
    with_dropin = set(output("-m", "modtree", "run", "-c", code, cwd=tmp_path).split())
    assert with_dropin - set(output("-c", code, cwd=tmp_path).split()) == set()


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
    assert (
        said.startswith("ModuleNotFoundError") and f"{sys.executable} -m pip install torch" in said
    )


def test_an_unknown_torch_is_refused_before_anything_was_changed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""\
            import modtree.dropin
            from modtree import _C
            from modtree.torch.dropin import _checks
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
