# SPDX-License-Identifier: BSD-3-Clause
"""What editors and type checkers see: signatures, help, stubs."""

import ast
import inspect
import json
import os
import pydoc
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

import modtree
import modtree.nn.functional as F
from modtree.numpy.ops import registry, signatures

ROOT = Path(__file__).resolve().parents[2]
#: Of the package that the tests import. An installed one is where mypy looks anyway.
PACKAGE = Path(modtree.__file__).parent
IN_PLACE = PACKAGE == ROOT / "python" / "modtree"
FOR_MYPY = {"MYPYPATH": str(PACKAGE.parent)} if IN_PLACE else {}

# Methods that read their arguments by type, as torch's do (the stubs have overloads for them), and
# one whose keyword `from` no parameter can have.
BY_TYPE = {"Tensor.to", "Tensor.cuda", "Tensor.new", "Tensor.uniform_"}


def public_callables():
    for name in modtree.__all__:
        value = getattr(modtree, name)
        if callable(value) and not name.startswith("_") and not isinstance(value, type):
            yield f"modtree.{name}", value
    for name in dir(modtree.Tensor):
        value = inspect.getattr_static(modtree.Tensor, name)
        if callable(value) and not name.startswith("_"):
            yield f"Tensor.{name}", value
    for name in F.__all__:
        yield f"nn.functional.{name}", getattr(F, name)


PUBLIC = dict(public_callables())


def test_public_callables_are_many():
    assert len(PUBLIC) > 700


@pytest.mark.parametrize("path", PUBLIC)
def test_each_has_a_signature_and_a_docstring(path):
    value = PUBLIC[path]
    if isinstance(value, modtree.numpy.tensor.typed.Typed):
        pytest.skip("a type by another name")
    parameters = inspect.signature(value).parameters
    vague = {"args", "kwargs", "_", "__"} & set(parameters)
    assert not vague or path in BY_TYPE
    assert inspect.getdoc(value)
    assert value.__name__ != "<lambda>"


@pytest.mark.parametrize("name", [n for n in registry.ops if signatures.documented(n)[0]])
def test_an_operation_takes_what_its_signature_says(name):
    op = registry.ops[name]
    parameters = inspect.signature(op).parameters.values()
    count = sum(p.kind is p.POSITIONAL_ONLY for p in parameters)

    def call(number):
        makers = {
            "dot": lambda: modtree.ones(2, dtype=number),
            "outer": lambda: modtree.ones(2, dtype=number),
        }
        arguments = [makers.get(name, lambda: modtree.ones(2, 2, dtype=number))()] * count
        if name == "masked_select":
            arguments[1] = arguments[1].bool()
        elif name == "take":
            arguments[1] = arguments[1].long()
        return op(*arguments)

    integers = name.startswith("bitwise_")
    assert isinstance(call(modtree.int64 if integers else modtree.float32), modtree.Tensor)


def test_documented_operations_are_there():
    for table in (signatures._ONE, signatures._TWO):
        assert not set(table) - set(registry.ops)


def test_help_of_an_operation():
    for function in (modtree.Tensor.exp, modtree.exp):
        text = pydoc.plain(pydoc.render_doc(function))
        assert "exp(input, /, *, out=None)" in text and "    out: " in text
        assert "e to the power of each element." in text
    # CPython 3.14 shows annotations without quotes.
    text = pydoc.plain(pydoc.render_doc(modtree.Tensor.mul_)).replace("'", "")
    assert "mul_(self: Tensor, other: Operand, /)" in text


def test_functions_say_their_types():
    assert str(inspect.signature(modtree.lerp)) == (
        "(input: 'Tensor', end: 'Tensor', weight: 'Operand', *, out: 'Tensor | None' = None) "
        "-> 'Tensor'"
    )
    assert inspect.signature(modtree.Tensor.exp_).return_annotation == "Tensor"
    assert inspect.signature(modtree.zeros).parameters["layout"].annotation == "layout | None"


def test_an_inplace_method_has_the_signature_of_its_operation():
    assert list(inspect.signature(modtree.Tensor.pow_).parameters) == ["self", "exponent"]
    assert list(inspect.signature(modtree.Tensor.exp_).parameters) == ["self"]
    bound = modtree.ones(1, 2, 2).baddbmm_
    assert list(inspect.signature(bound).parameters)[:2] == ["batch1", "batch2"]
    assert "pin_memory" in inspect.signature(modtree.zeros).parameters
    assert "generator" not in inspect.signature(modtree.zeros).parameters


# -- stubs -----------------------------------------------------------------------------------------


def run_tool(*command, cwd=ROOT, **environment):
    paths = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )


def test_stubs_are_current():
    done = run_tool("tools/make_stubs", "--check", "--to", str(PACKAGE))
    assert done.returncode == 0, done.stderr


def test_stub_of_the_tensor_has_the_names_of_its_file_only():
    """CPython 3.13 and 3.14 put more names into every class."""
    stub = ast.parse((PACKAGE / "numpy" / "tensor" / "tensor.pyi").read_text())
    own = next(n for n in stub.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    values = {n.target.id for n in own.body if isinstance(n, ast.AnnAssign)}
    assert {name for name in values if name.startswith("__")} == {"__array_priority__"}


def test_completion_shows_public_names_only():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    names = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("modtree"):
            names |= {alias.asname or alias.name for alias in node.names}
    public = {name for name in names if not name.startswith("_")}
    assert public == set(modtree.__all__) - {"__version__"}


@pytest.fixture(scope="module")
def mypy_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.slow
@needs("mypy")
@pytest.mark.skipif(
    not (ROOT / "python" / "modtree" / "__init__.pyi").exists(), reason="needs tools/make_stubs"
)
def test_mypy_is_clean_on_the_package(mypy_cache):
    done = run_tool("-m", "mypy", "--cache-dir", str(mypy_cache))
    assert done.returncode == 0, done.stdout


#: What stubtest says and is right about, with the reason for leaving it.
STUBTEST = {
    # Methods are functions whose first parameter torch calls `input`; it comes from the dot.
    r'stub parameter "self" differs from runtime parameter "\w+"': r"modtree\.\w+\.\w+\.tensor\.",
    # Their metaclass answers isinstance(); to a checker they are names of Tensor.
    r"variable differs from runtime type [\w.]+\.typed\.Typed": r"modtree\.\w+Tensor$",
    # Classes made by __new__, with arguments that only the package gives.
    r"__(init|new)__ is inconsistent": r"modtree\._C\.",
    # A module of the extension, written as a class to keep it in one file.
    r"kernels is not a type": r"modtree\._C\.kernels",
    # Names and special methods that nothing asks for by type.
    r"__(name|qualname|copy|deepcopy)__ is not present in stub": r"modtree\._C\.",
    # Inherited from object; here for what they take.
    r"__(setattr|delattr)__ is not present at runtime": r"modtree\._C\.ModuleBase\.",
}


def has_stub(path):
    """Does the module that an object of this dotted path is in have a stub?"""
    parts = path.split(".")[1:]
    for count in range(len(parts), -1, -1):
        base = PACKAGE.joinpath(*parts[:count])
        if (base / "__init__.py").exists() or base.with_suffix(".py").exists():
            inside = base / "__init__.pyi" if base.is_dir() else base.with_suffix(".pyi")
            return inside.exists()
        if base.with_suffix(".pyi").exists():
            return True
    return False


def allowed(path, message):
    return any(
        re.search(text, f"{path} {message}") and re.match(where, path)
        for text, where in STUBTEST.items()
    )


@pytest.mark.slow
@needs("mypy")
def test_stubtest(tmp_path):
    done = run_tool(
        *("-m", "mypy.stubtest", "modtree", "--concise", "--ignore-disjoint-bases"),
        *("--mypy-config-file", str(ROOT / "pyproject.toml")),
        cwd=tmp_path,
        **FOR_MYPY,
    )
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    assert "error:" not in {path for path, _, _ in lines}, done.stdout
    wrong = [f"{p} {m}" for p, _, m in lines if has_stub(p) and not allowed(p, m)]
    assert wrong == []
    for text in STUBTEST:  # an entry that no longer holds goes
        assert re.search(text, done.stdout), text


# -- user programs ---------------------------------------------------------------------------------

PROGRAMS = sorted((ROOT / "tests" / "typing").glob("*.py"))


def expected(path):
    return {
        (number, kind)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for kind in re.findall(r"# error: (\S+)", line)
    }


@needs("mypy")
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_user_program(path, mypy_cache, tmp_path):
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\nfollow_imports = silent\npython_version = 3.10\n")
    done = run_tool(
        *("-m", "mypy", "--config-file", str(config), "--cache-dir", str(mypy_cache / "user")),
        *("--no-error-summary", "--hide-error-context", str(path)),
        cwd=tmp_path,
        **FOR_MYPY,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(r"^\S+:(\d+): error: .*\[(\S+)\]$", done.stdout, re.MULTILINE)
    assert {(int(n), kind) for n, kind in found} == expected(path), done.stdout


@pytest.mark.skipif(shutil.which("pyright") is None, reason="needs pyright")
def test_user_programs_with_pyright(tmp_path):
    """Strict, it finds errors in the lines where mypy does."""
    for path in PROGRAMS:
        shutil.copy(path, tmp_path)
    options = {"extraPaths": [str(PACKAGE.parent)], "pythonVersion": "3.10"}
    config = {**options, "typeCheckingMode": "strict", "exclude": []}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = ["pyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run([*command, "--outputjson"], capture_output=True, text=True)
    try:
        report = json.loads(done.stdout)
    except ValueError:  # its pip package fetches the program, and node, when it first runs
        pytest.skip(f"pyright does not run: {(done.stdout + done.stderr)[-200:]}")
    assert report["summary"]["filesAnalyzed"] >= len(PROGRAMS)
    found = {
        (Path(entry["file"]).name, entry["range"]["start"]["line"] + 1)
        for entry in report["generalDiagnostics"]
    }
    wanted = {(path.name, number) for path in PROGRAMS for number, _ in expected(path)}
    assert found == wanted, report["generalDiagnostics"]


def test_there_are_correct_and_wrong_programs():
    counts = [len(expected(path)) for path in PROGRAMS]
    assert counts.count(0) >= 3
    assert sum(counts) >= 40


@needs("typing_extensions")
@pytest.mark.parametrize("path", [p for p in PROGRAMS if not expected(p)], ids=lambda p: p.stem)
def test_a_correct_program_runs(path, tmp_path):
    done = run_tool(str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
