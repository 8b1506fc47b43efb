# SPDX-License-Identifier: BSD-3-Clause
"""The build: what is installed once is not compiled again, and what changed is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

ROOT = Path(__file__).resolve().parents[2]
CMAKE, NINJA = shutil.which("cmake"), shutil.which("ninja")

pytestmark = [
    pytest.mark.skipif(not (ROOT / "csrc").is_dir(), reason="needs the source tree"),
    pytest.mark.skipif(CMAKE is None, reason="needs cmake"),
]


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder: Path) -> Path:
    """pybind11 and NumPy's headers in another place, as pip makes them for every build."""
    import numpy
    import pybind11

    shutil.copytree(Path(pybind11.__file__).parent, folder / "pybind11")
    shutil.copytree(numpy.get_include(), folder / "numpy")
    return folder


def configure(build: Path, env: Path) -> list[str]:
    run(
        *(CMAKE, "-S", ROOT, "-B", build, "-G", "Ninja"),
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DPython_NumPy_INCLUDE_DIR={env / 'numpy'}",
        f"-Dpybind11_DIR={env / 'pybind11' / 'share' / 'cmake' / 'pybind11'}",
    )
    return run(NINJA, "-C", build, "-t", "commands", "all").splitlines()


def sources_of(unit: Path) -> list[Path]:
    """Itself, or the files that it includes where it stands for a folder."""
    if unit.parent.name != "Unity":
        return [unit]
    return [Path(path) for path in re.findall(r'#include "(.*)"', unit.read_text())]


@pytest.mark.skipif(NINJA is None, reason="needs ninja")
@needs("pybind11")
def test_a_new_isolated_environment_changes_no_command_and_no_header(tmp_path):
    build = tmp_path / "build"
    first_env = environment(tmp_path / "env1")
    first = configure(build, first_env)
    headers = {p: p.stat().st_mtime_ns for p in (build / "csrc" / "include").rglob("*.h")}
    assert any(p.name == "pytypes.h" for p in headers)
    assert any(p.name == "arrayobject.h" for p in headers)

    # What pip and scikit-build-core do between two installations.
    shutil.rmtree(first_env)
    (build / "CMakeCache.txt").unlink()
    shutil.rmtree(build / "CMakeFiles")
    second = configure(build, environment(tmp_path / "env2"))

    assert second == first
    assert {p: p.stat().st_mtime_ns for p in headers} == headers
    commands = [line for line in first if " -c " in line]
    units = [Path(line.rpartition(" -c ")[2]) for line in commands]
    compiled = [source for unit in units for source in sources_of(unit)]
    common = [source for source in compiled if source.name == "cmake_pch.hxx.cxx"]
    sources = [*(ROOT / "csrc").rglob("*.cpp")]
    assert sorted(compiled) == sorted(sources + common) and len(common) == 1
    assert len(units) < len(sources) / 2
    # Objects in the top folder's CMakeFiles/ would be gone by now.
    assert [line for line in commands if re.search(r" -o CMakeFiles/", line)] == []
    assert [line for line in first if str(tmp_path / "env") in line or str(CMAKE) in line] == []


#: Stands in for a compiler: g++ of another time, as far as CMake can see.
OLD = """\
#!/bin/sh
for word; do
  case $word in
    -std=*17 | -std=*1z) echo "unrecognized command-line option '$word'" >&2; exit 1 ;;
  esac
done
exec {compiler} {options} "$@"
"""

GET_ONE = (
    "install g++ 9, clang 10, Visual Studio 2019 or a later one, or name it in the variable CXX."
)


def said_without(compiler: object, build: Path) -> str:
    """What CMake says with a compiler that cannot build modtree, without its line breaks."""
    done = subprocess.run(
        [str(CMAKE), "-S", str(ROOT), "-B", str(build), "-G", "Ninja"],
        capture_output=True,
        text=True,
        env={**os.environ, "CXX": str(compiler)},
    )
    assert done.returncode != 0
    (said,) = re.findall(r"CMake Error at .* \(message\):(.*?)Call Stack", done.stderr, re.DOTALL)
    return " ".join(said.split())


@pytest.mark.skipif(NINJA is None or os.name == "nt", reason="needs ninja and a shell")
def test_without_a_compiler_one_sentence_says_what_to_do(tmp_path):
    for compiler in (tmp_path / "nothing", shutil.which("false")):
        assert said_without(compiler, tmp_path / "build") == (
            f"modtree needs a C++17 compiler, and {compiler}, which CXX names, compiles no program:"
            f" {GET_ONE}"
        )


@pytest.mark.skipif(NINJA is None or shutil.which("g++") is None, reason="needs ninja and g++")
@pytest.mark.parametrize("options", ["", "-U__GNUC__ -D__GNUC__=4"], ids=["C++14", "version 4"])
def test_with_an_old_compiler_one_sentence_says_what_to_do(tmp_path, options):
    compiler = tmp_path / "old"
    compiler.write_text(OLD.format(compiler=shutil.which("g++"), options=options))
    compiler.chmod(0o755)
    said = said_without(compiler, tmp_path / "build")
    assert said.startswith(f"modtree needs a C++17 compiler, and {compiler} (GNU ")
    assert said.endswith(f" is too old for it: {GET_ONE}")


def copy_headers(tmp_path: Path) -> None:
    script = tmp_path / "copy.cmake"
    script.write_text(
        f'include("{(ROOT / "cmake" / "copy_headers.cmake").as_posix()}")\n'
        f'modtree_copy_headers("{tmp_path.as_posix()}/from" "{tmp_path.as_posix()}/to")\n'
    )
    run(CMAKE, "-P", script)


def test_a_changed_header_is_copied_with_a_new_time_and_a_removed_one_goes(tmp_path):
    source, copy = tmp_path / "from", tmp_path / "to"
    (source / "deep").mkdir(parents=True)
    for name in ("same.h", "gone.h", "deep/changed.h"):
        (source / name).write_text(name)
    copy_headers(tmp_path)
    assert (copy / "deep" / "changed.h").read_text() == "deep/changed.h"
    for name in ("same.h", "gone.h", "deep/changed.h"):
        os.utime(copy / name, (10**9, 10**9))

    (source / "gone.h").unlink()
    (source / "deep" / "changed.h").write_text("another version")
    os.utime(source / "deep" / "changed.h", (10**8, 10**8))  # older than what was built
    copy_headers(tmp_path)

    assert sorted(p.name for p in copy.rglob("*.h")) == ["changed.h", "same.h"]
    assert (copy / "same.h").stat().st_mtime == 10**9
    assert (copy / "deep" / "changed.h").read_text() == "another version"
    assert (copy / "deep" / "changed.h").stat().st_mtime > 10**9


def test_headers_that_are_not_there_stop_the_build(tmp_path):
    (tmp_path / "from").mkdir()
    with pytest.raises(AssertionError, match="no headers in"):
        copy_headers(tmp_path)


def test_build_time_explains_itself():
    help_text = run(sys.executable, ROOT / "tools" / "build_time", "--help")
    assert "--ref" in help_text and "CPU" in help_text


def test_build_time_records_what_a_command_took(tmp_path):
    log = tmp_path / "record"
    command = [sys.executable, ROOT / "tools" / "build_time", "--record", sys.executable]
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    status = subprocess.run(
        [*command, "-c", burn, "-o", "a.o"],
        env={**os.environ, "MODTREE_BUILD_TIME_RECORD": str(log)},
    )
    assert status.returncode == 0
    seconds, peak, path = log.read_text().splitlines()[0].split("\t")
    assert float(seconds) >= 0.2 and int(peak) > 1000
    failed = subprocess.run(
        [*command, "-c", "raise SystemExit(3)", "-o", "a.o"],
        env={**os.environ, "MODTREE_BUILD_TIME_RECORD": str(log)},
    )
    assert failed.returncode == 3
