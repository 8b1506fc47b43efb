# SPDX-License-Identifier: BSD-3-Clause
"""Rules of the code itself: layers, stubs, versions, what the pages promise."""

from __future__ import annotations

import ast
import graphlib
import importlib.metadata
import importlib.util
import inspect
import io
import re
import shutil
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.needs import needs

import modtree
from modtree import _C

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "modtree"
SOURCE_FOLDERS = ("csrc", "python", "tests", "bench", "examples", "tools", "cmake", ".ci")

# Folders that includes are written against, and which of their folders a folder may include from:
# the core knows nothing of NumPy's tensor and its kernels.
INCLUDE_FOLDERS = ("csrc/core", "csrc/numpy", "csrc")
MAY_INCLUDE = {
    "kernels": {"kernels"},
    "python": {"python"},
    "family": {"python", "family"},
    "module": {"python", "family", "module"},
    "tensor": {"python", "family", "kernels", "tensor"},
    "bind": {"kernels", "python", "family", "module", "tensor", "bind"},
}

needs_sources = pytest.mark.skipif(not (ROOT / "csrc").is_dir(), reason="needs the source tree")


def native_sources() -> list[Path]:
    return sorted(p for p in (ROOT / "csrc").rglob("*") if p.suffix in {".h", ".cpp"})


def included_as(path: Path) -> str:
    """How includes name a header: by the folder within csrc/core or csrc/numpy."""
    parts = path.relative_to(ROOT / "csrc").parts
    return "/".join(parts[1:] if parts[0] in ("core", "numpy") else parts)


def text_files() -> list[Path]:
    found = []
    for folder in SOURCE_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if (
                path.is_file()
                and "__pycache__" not in path.parts
                and path.suffix not in {".so", ".pyd", ".pyc"}
            ):
                found.append(path)
    return found


@needs_sources
def test_includes_point_down():
    wrong = []
    for path in native_sources():
        folder = included_as(path).partition("/")[0]
        for included in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE):
            parts = included.split("/")
            if not any((ROOT / place / included).is_file() for place in INCLUDE_FOLDERS):
                wrong.append(f"{path.name}: {included} is not in {INCLUDE_FOLDERS}")
            elif parts[0] not in MAY_INCLUDE[folder]:
                wrong.append(f"{path.name}: {folder} may not include {included}")
            elif included.endswith(".cpp"):
                wrong.append(f"{path.name}: includes a .cpp")
    assert wrong == []


@needs_sources
def test_pybind11_stays_at_the_edge():
    # <pybind11/pytypes.h> serves everywhere else: <pybind11/pybind11.h> takes four times as long to
    # compile. Functions of the extension are declared in bind/ only.
    wrong = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in native_sources()
        for line in re.findall(r"#\s*include\s*[<\"]pybind11/.*|\.def\b.*", path.read_text())
        if "<pybind11/pytypes.h>" not in line
        and (path.parent.name != "bind" or ("pybind11.h" in line and path.name != "init.cpp"))
    ]
    assert wrong == []


@needs_sources
def test_native_code_imports_nothing_of_modtree():
    # It gets what it needs by _install (csrc/core/python/installed.h).
    pattern = re.compile(r'(?:import_attribute|ImportModule\w*|module_::import)\(\s*"modtree')
    assert [p.name for p in native_sources() if pattern.search(p.read_text())] == []


@needs_sources
def test_headers_include_each_other_in_no_ring():
    headers = {included_as(p): p for p in native_sources()}
    graph = {
        name: re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE)
        for name, path in headers.items()
    }
    # Raises CycleError, which names the ring.
    list(graphlib.TopologicalSorter(graph).static_order())


@needs_sources
@pytest.mark.parametrize("folder", ["attributes", "convert", "walk"])
def test_files_of_a_folder_need_each_other_in_one_direction(folder):
    graph: dict[str, set[str]] = {}
    for path in (ROOT / "csrc" / "core" / "module" / folder).iterdir():
        needed = re.findall(rf'#include "module/{folder}/(\w+)\.h"', path.read_text())
        graph.setdefault(path.stem, set()).update(set(needed) - {path.stem})
    assert graph
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError


@needs_sources
def test_kernels_know_no_python():
    pattern = re.compile(r"#\s*include\s*<(Python\.h|pybind11/|numpy/)|\bPyObject\b")
    wrong = [
        str(p)
        for p in native_sources()
        if (p.parent.name == "kernels" or p.stem == "pointer_set") and pattern.search(p.read_text())
    ]
    assert wrong == []


@needs_sources
def test_python_version_conditions_live_in_one_file():
    wrong = [
        p.name
        for p in native_sources()
        if p.name != "compat.h" and "PY_VERSION_HEX" in p.read_text()
    ]
    assert wrong == []


@needs_sources
def test_every_source_names_its_licence():
    wrong = []
    for path in text_files():
        if path.suffix not in {".py", ".pyi", ".cpp", ".h", ".cmake"}:
            continue
        lines = path.read_text().splitlines()
        line = lines[1 if lines[0].startswith("#!") else 0]
        if line not in {
            "# SPDX-License-Identifier: BSD-3-Clause",
            "// SPDX-License-Identifier: BSD-3-Clause",
        }:
            wrong.append(str(path.relative_to(ROOT)))
    assert wrong == []


@needs_sources
def test_no_path_of_a_machine():
    pattern = re.compile(r"/(?:root|home|work|Users|tmp)/\w+|file:///")
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "pyproject.toml",
        ROOT / "CMakeLists.txt",
    ]
    wrong = []
    for path in [*text_files(), *pages]:
        if path == Path(__file__):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        wrong += [f"{path.relative_to(ROOT)}: {m}" for m in pattern.findall(text)]
    assert wrong == []


def test_one_version():
    installed = None
    try:
        installed = importlib.metadata.version("modtree")
    except importlib.metadata.PackageNotFoundError:
        pass  # built in place
    versions = {modtree.__version__, _C.__version__} | ({installed} if installed else set())
    if (ROOT / "pyproject.toml").is_file():
        match = re.search(
            r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
        )
        assert match
        versions.add(match[1])
    assert len(versions) == 1, versions


# -- the stub --------------------------------------------------------------------------------------


def public(names) -> set[str]:
    """What the stub must have: no dunders but the version (slots are the interpreter's business),
    nothing internal to tests.
    """
    return {n for n in names if not (n.startswith("__") and n.endswith("__"))} - {"_testing"}


def stub_tree() -> ast.Module:
    return ast.parse((Path(modtree.__file__).parent / "_C.pyi").read_text())


def stub_names(body: list[ast.stmt]) -> set[str]:
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return names


def test_the_stub_names_what_the_extension_has():
    declared = {n for n in stub_names(stub_tree().body) if not n.startswith("_T")}
    assert public(declared) == public(vars(_C)) - {"_TensorMeta"}  # a name of `type`


def test_the_stub_names_what_each_class_and_submodule_has():
    declared = {n.name: n for n in stub_tree().body if isinstance(n, ast.ClassDef)}
    for name, value in vars(_C).items():
        if value is not type and (inspect.isclass(value) or inspect.ismodule(value)):
            assert public(stub_names(declared[name].body)) == public(vars(value)), name


def test_typing_marker_is_shipped():
    assert (Path(modtree.__file__).parent / "py.typed").is_file()


# -- the shim --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["__setattr__", "__delattr__", "__getattribute__", "__init__"])
def test_hot_slots_of_module_are_native(name):
    """A Python function here would put a Python frame on every attribute access."""
    assert type(getattr(modtree.nn.Module, name)) is type(object.__setattr__)


# -- the pages -------------------------------------------------------------------------------------


@needs_sources
def test_compat_page_names_tests_that_exist():
    rows = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "compat.md").read_text())
    assert len(rows) > 100
    missing = []
    for file, function in rows:
        path = ROOT / file
        if not path.is_file() or f"def {function}(" not in path.read_text():
            missing.append(f"{file}::{function}")
    assert missing == []


@needs_sources
def test_compat_rows_are_complete():
    bad = []
    for line in (ROOT / "docs" / "compat.md").read_text().splitlines():
        if line.startswith("|") and not line.startswith(("|---", "| what ")):
            cells = [c.strip() for c in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            if len(cells) != 4 or "tests/" not in cells[3]:
                bad.append(line)
    assert bad == []


@needs_sources
def test_files_of_tests_have_different_names():
    """Pytest imports them by their names alone."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


@needs_sources
def test_packages_are_asked_for_at_the_top_of_a_file():
    """Within a test it would be a skipped test; tests/helpers/needs.py has the other ways."""
    inside = re.compile(r"^ +.*importorskip\(", re.MULTILINE)
    others = (p for p in (ROOT / "tests").rglob("test_*.py") if p.name != Path(__file__).name)
    assert [path.name for path in others if inside.search(path.read_text())] == []


@needs_sources
def test_check_script_runs_the_commands_of_the_pages():
    script = (ROOT / ".ci" / "run").read_text()
    readme = (ROOT / "README.md").read_text()
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    pages = {"test_command": readme, "main_job": readme, "contribute": contributing}
    for name, page in pages.items():
        match = re.search(rf'^{name}="(.+)"$', script, re.MULTILINE)
        assert match and match[1] in page, name


@needs_sources
@pytest.mark.parametrize("name, most", [("README.md", 120), ("CHANGELOG.md", 60)])
def test_the_first_pages_are_short(name, most):
    """Of the changelog, each release."""
    releases = re.split(r"^## ", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    parts = ["".join(releases)] if name == "README.md" else releases[1:]
    assert [part[:20] for part in parts if len(part.splitlines()) > most] == []


@needs_sources
def test_targets_stay_with_the_benchmarks():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/guide/*.md")]
    wrong = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in pages
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("|") and re.search(r"\(missed\)|<= [\d.]+ x", line)
    ]
    assert wrong == []


@needs_sources
def test_lines_of_python_have_100_columns():
    """With what ruff overlooks: comments for linters at the end."""
    assert "/python/modtree/**/*.pyi" in (ROOT / ".gitignore").read_text()
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("python", "tests", "bench", "examples", "docs", "csrc")
        for path in (ROOT / folder).rglob("*.py*")
        if path.suffix == ".py" or path.name == "extension.pyi"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 100
    ]
    assert wrong == []


@needs_sources
def test_lines_of_documents_have_100_columns():
    """Tables and headings cannot be broken, and commands are copied."""
    wrong = []
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("examples/*/*.md")]
    for path in [*pages, *ROOT.glob("docs/*/*.md")]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            broken = not line.startswith(("|", "#", "    pip ")) and " " in line.strip("- `")
            if len(line) > 100 and broken:
                wrong.append(f"{path.relative_to(ROOT)}:{number}")
    assert wrong == []


# -- words -----------------------------------------------------------------------------------------

#: Folders whose comments and docstrings are checked below.
READ = ("csrc", "python/modtree")
#: Letters of a piece of text, with its quotes, that ends before the line is full.
SHORT_PIECE = 40


def files_of(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))]
    return [path for path in found if path.suffix in {".py", ".cpp", ".h"}]


def python_tokens(path: Path) -> list[tokenize.TokenInfo]:
    text = path.read_text(encoding="utf-8")
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def comments_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of comments with their numbers."""
    if path.suffix == ".py":
        for token in python_tokens(path):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        comment = re.search(r"(?:^|\s)(//.*)$", line)
        if comment:
            yield number, comment[1]


@needs_sources
def test_comments_do_not_ask():
    asking = [
        f"{path.relative_to(ROOT)}:{number}: {comment}"
        for path in files_of(*READ)
        for number, comment in comments_of(path)
        if comment.rstrip(" -").endswith("?")
    ]
    assert asking == []


@needs_sources
def test_docstrings_do_not_begin_with_a_question():
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    asking = []
    for path in files_of(*READ):
        tree = ast.parse(path.read_text(encoding="utf-8") if path.suffix == ".py" else "")
        for node in ast.walk(tree):
            text = ast.get_docstring(node) if isinstance(node, kinds) else None
            if text and text.splitlines()[0].endswith("?"):
                asking.append(f"{path.relative_to(ROOT)}: {text.splitlines()[0]}")
    assert asking == []


def cut_texts(path: Path) -> Iterator[str]:
    """Short pieces of a text that goes on in the next line, where nothing in them ends a line."""
    piece = None
    for token in python_tokens(path):
        if token.type in (tokenize.NL, tokenize.COMMENT):
            continue
        is_text = token.type == tokenize.STRING
        if is_text and piece is not None and token.start[0] > piece.start[0]:
            is_whole_line = piece.string[:-1].endswith("\\n")
            is_pattern = "r" in re.split("['\"]", piece.string)[0].lower()
            if len(piece.string) < SHORT_PIECE and not is_whole_line and not is_pattern:
                yield f"{path.relative_to(ROOT)}:{piece.start[0]}: {piece.string}"
        piece = token if is_text else None


@needs_sources
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="f-strings are several tokens there")
def test_texts_fill_their_lines():
    files = [path for path in files_of("python/modtree") if path.suffix == ".py"]
    assert [cut for path in files for cut in cut_texts(path)] == []


# -- links -----------------------------------------------------------------------------------------

#: The pages in docs/api, those that are lists, and a picture.
MADE_FOR_THE_SITE = (".rst", "missing.md", "family_functions.md", "growth.svg")


def anchors(page: Path) -> set[str]:
    """What GitHub and the site make of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@needs_sources
def test_links_of_documents_lead_somewhere():
    """The site does not warn of files that are not pages of it."""
    wrong = []
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/*.md")]
    for page in {*pages, *ROOT.glob("tests/*/*.md")}:
        text = re.sub(
            r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S
        )
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            if link.startswith(("https:", "mailto:")) or file.endswith(MADE_FOR_THE_SITE):
                continue
            if not target.exists() or (anchor and anchor not in anchors(target)):
                wrong.append(f"{page.relative_to(ROOT)}: {link}")
    assert wrong == []


# -- tools, where present --------------------------------------------------------------------------


@needs_sources
@needs("ruff")
@pytest.mark.parametrize("command", ["check", "format --check"])
def test_ruff(command):
    command = [sys.executable, "-m", "ruff", *command.split(), "-q", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@needs_sources
@pytest.mark.skipif(shutil.which("clang-format") is None, reason="clang-format is not installed")
def test_clang_format():
    version = subprocess.run(["clang-format", "--version"], capture_output=True, text=True).stdout
    pinned = re.search(r"clang-format==([\d.]+)", (ROOT / "pyproject.toml").read_text())
    if pinned[1] not in version:
        pytest.skip(f"clang-format {pinned[1]} decides, not {version.strip()}")
    sources = [*native_sources(), *(ROOT / "tests" / "cpp").glob("*.[ch]*")]
    command = ["clang-format", "--dry-run", "-Werror", *map(str, sources)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@needs_sources
@needs("mypy")
@pytest.mark.skipif(not (PACKAGE / "_C.pyi").exists(), reason="needs tools/make_stubs")
def test_the_stub_is_well_formed():
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", str(PACKAGE / "_C.pyi")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
