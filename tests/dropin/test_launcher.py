# SPDX-License-Identifier: BSD-3-Clause
"""A program sees of ``modtree run`` what it sees of python: each row is run by python and by both
forms of the launcher, and output, traceback and exit status are the same.

The rows import no torch, and neither does the launcher for them.
"""

from __future__ import annotations

import os
import py_compile
import re
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from helpers.launchers import Ended, environment, make_command, ran
from helpers.needs import needs

from modtree.torch import launch as _launch

#: Prints what a program can know of its Python. The drop-in is an importer and two variables of the
#: environment for child processes, which are left out.
FACTS = '''\
"""Facts."""
import sys
seen = dict(globals())
modules = sorted(sys.modules)
importers = sorted(sys.path_importer_cache)
import atexit, gc, io, os, signal

def show(name, value):
    print(f"{name}: {value!r}")

def site_of(environ):
    path = environ.get("PYTHONPATH", "").split(os.pathsep)
    dropin = [p for p in path if p.endswith(os.path.join("modtree", "torch", "dropin", "site"))]
    return os.pathsep.join(p for p in path if p not in dropin)

for name in "__name__ __file__ __cached__ __doc__ __package__ __annotations__".split():
    show(name, seen.get(name, "absent"))
show("names", sorted(seen))
show("builtins", seen["__builtins__"] is sys.modules["builtins"])
loader, spec = seen["__loader__"], seen["__spec__"]
show("loader", loader if isinstance(loader, type) else (type(loader), vars(loader).get("path")))
show("spec", spec and (spec.name, spec.origin, spec.parent, type(spec.loader)))
show("main", vars(sys.modules["__main__"]) is globals())
for name in (
    "argv orig_argv path executable prefix flags warnoptions _xoptions dont_write_bytecode "
    "pycache_prefix".split()
):
    show(name, getattr(sys, name))
show("modules", modules)
show("importers", importers)
show("finders", [type(f) for f in sys.meta_path if "_Before" not in type(f).__name__])
environ = {k: v for k, v in os.environ.items() if k not in ("MODTREE_DROPIN", "PYTHONPATH", "_")}
show("environ", (sorted(environ.items()), site_of(os.environ)))
show("exits", atexit._ncallbacks())
depth, frame = 0, sys._getframe()
while frame:
    depth, frame = depth + 1, frame.f_back
show("depth", depth)
show("signals", [signal.getsignal(n) for n in sorted(signal.valid_signals())])
show("collector", (gc.isenabled(), gc.get_threshold(), sys.getrecursionlimit()))
for stream in (sys.stdin, sys.stdout, sys.stderr):
    show("stream", (stream.encoding, stream.errors, stream.line_buffering, stream.write_through))
show("hooks", (sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getprofile()))
'''

FAILING = """\
def outer():
    inner()

def inner():
    raise ValueError("wrong")

outer()
"""

CHAINED = """\
try:
    1 / 0
except ZeroDivisionError as error:
    raise RuntimeError("second") from error
"""

PICKLED = """\
import pickle
class Point:
    pass
print(pickle.loads(pickle.dumps(Point())).__class__ is Point, Point.__module__)
import inspect, linecache, traceback, warnings, faulthandler, sys
def function():
    warnings.warn("first")
    warnings.warn("second", stacklevel=2)
    traceback.print_stack()
    faulthandler.dump_traceback(all_threads=False)
    return [frame.function for frame in inspect.stack()]
print(function())
print(inspect.getsource(function), inspect.getfile(Point), linecache.getline(__file__, 2))
def deeper(n):
    try:
        return deeper(n + 1)
    except RecursionError:
        return n
print(deeper(0))
"""

WARNING = """\
import warnings
def function():
    warnings.warn("careful", stacklevel=2)
function()
"""

AT_END = """\
import atexit, sys, threading, weakref
class Last:
    def __del__(self):
        print("deleted")
last = Last()
atexit.register(print, "first registered")
atexit.register(print, "last registered")
def work():
    threading.main_thread().join()  # done when the interpreter waits for this thread
    print("thread")
threading.Thread(target=work).start()
print(threading.current_thread() is threading.main_thread(), threading.active_count())
sys.exit({exit})
"""

CHILDREN = """\
import multiprocessing, os, sys
def child(queue):
    main = sys.modules["__main__"]
    queue.put((__name__, main.__name__, __file__, sys.argv, sys.path, tuple(sys.flags)))
if __name__ == "__main__":
    for method in sys.argv[1:]:
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        print(method, queue.get())
        process.join()
        print(process.exitcode)
"""

BROKEN_PIPE = """\
import os
reading, writing = os.pipe()
os.dup2(writing, 1)
os.close(reading)
print("nobody reads")
"""

TO_DEBUG = """\
def function(value):
    doubled = 2 * value
    return doubled
print(function(3))
"""


@dataclass
class Row:
    """One program.

    Attributes:
        words: Those after ``python``, and after ``modtree run``.
        files: What is in the folder, beside the files of ``place``.
        given: Its standard input.
        env: Further variables of the environment.
        differs: The facts that differ by intention.
        hides: What is no fact, as a time or an address.
    """

    words: list[str]
    files: dict[str, str] = field(default_factory=dict)
    given: str = ""
    env: dict[str, str] = field(default_factory=dict)
    differs: tuple[str, ...] = ()
    hides: str = r"0x[0-9a-f]+"


#: Facts of a program for which a line of code has to stand in, as python does not look for the
#: drop-in: the frames of that line are below its own, and it has imported something.
WITHOUT_SITE = ("depth", "modules", "importers")

ROWS = {
    # kinds of programs
    "a script": Row(["facts.py", "--lr", "3e-4", "-m", "-c", "--off"]),
    "an absolute path": Row(["{place}/facts.py"]),
    "a path with dots": Row(["./sub/../facts.py", "a"]),
    "a script in a folder": Row(["sub/facts.py"]),
    "a link": Row(["link.py"]),
    "a link to a link": Row(["twice.py"]),
    "no suffix": Row(["plain", "a b", "", "ü", "*"]),
    "compiled": Row(["compiled.pyc"]),
    "compiled, by its content": Row(["compiled"]),
    "a folder": Row(["app", "x"]),
    "a zip file": Row(["app.zip", "x"]),
    "a module": Row(["-m", "module", "-x", "y"]),
    "a package": Row(["-m", "package", "a"]),
    "a module in a package": Row(["-m", "package.inner"]),
    "a glued module": Row(["-mmodule"]),
    "code": Row(["-c", FACTS, "-m", "a"]),
    "glued code": Row(["-cimport sys; print(sys.argv, sys.orig_argv)", "a"]),
    "input": Row(["-", "a"], given=FACTS),
    "after two dashes": Row(["-u", "--", "facts.py", "-x"]),
    "a name with a dash": Row(["--", "-facts.py"]),
    # options of python
    "-P": Row(["-P", "sub/facts.py"]),
    "-u": Row(["-u", "facts.py"]),
    "-O": Row(["-O", "facts.py"]),
    "-OO": Row(["-OO", "-c", FACTS]),
    "-um": Row(["-um", "module"]),
    "-X": Row(["-X", "dev", "-Xutf8=1", "-X", "mine=0", "facts.py"]),
    "-W": Row(["-Wignore", "-W", "error::UserWarning", "facts.py"]),
    "-Bbqsx": Row(["-Bbqs", "-bb", "facts.py"]),
    "-x": Row(["-x", "odd.py"], {"odd.py": "no python\nprint(__file__)\n1 / 0\n"}),
    "-i": Row(["-i", "-q", "small.py"], given="print(x, __name__)\n"),
    "-i and an error": Row(
        ["-iq", "failing.py"], given="import sys; print(sys.last_value); exit(4)\n"
    ),
    "-i without a program": Row(["-iq"], given="print(__name__)\nexit(3)\n"),
    "-V": Row(["-V"]),
    "-I": Row(["-I", "facts.py", "a"], differs=WITHOUT_SITE),
    "-I of a module": Row(["-Im", "json.tool"], given="[1]"),
    "-I of code": Row(["-Ic", FACTS, "a"], differs=WITHOUT_SITE),
    "-I of a folder": Row(["-I", "app"], differs=WITHOUT_SITE),
    "-I of a zip file": Row(["-I", "app.zip"], differs=WITHOUT_SITE),
    "-I of input": Row(["-I", "-", "a"], given=FACTS, differs=WITHOUT_SITE),
    "-I of a compiled file": Row(["-I", "compiled.pyc"], differs=WITHOUT_SITE),
    "-I and an error": Row(["-I", "failing.py"]),
    "-I and an error of a module": Row(["-I", "-c", CHAINED]),
    "-I and a status": Row(["-I", "-c", AT_END.format(exit=3)]),
    "-I and an interrupt": Row(["-I", "-c", "raise KeyboardInterrupt"]),
    "-E": Row(["-E", "sub/facts.py"], differs=WITHOUT_SITE, env={"PYTHONOPTIMIZE": "1"}),
    "-E of a module": Row(["-Em", "package"], differs=WITHOUT_SITE),
    "-E and -X": Row(["-EX", "dev", "./link.py", "-u"], differs=WITHOUT_SITE),
    "-S": Row(["-S", "-c", FACTS, "a"], differs=WITHOUT_SITE),
    "-I and a warning": Row(["-I", "-Walways", "-c", WARNING]),
    "-I and -x": Row(["-Ix", "odd.py"], {"odd.py": "no python\nprint(__file__)\n1 / 0\n"}),
    "-I and -i": Row(["-Ii", "small.py"], given="print(x, __name__)\n"),
    "variables": Row(
        ["facts.py"],
        env={
            "PYTHONOPTIMIZE": "2",
            "PYTHONWARNINGS": "ignore,error::UserWarning",
            "PYTHONSAFEPATH": "1",
            "PYTHONUNBUFFERED": "x",
            "PYTHONNOUSERSITE": "1",
        },
    ),
    "the C locale": Row(["facts.py"], env={"LC_ALL": "", "LC_CTYPE": "", "LANG": "C"}),
    "only the C locale": Row(["facts.py"], env={"LC_ALL": "C"}),
    # errors
    "an error": Row(["failing.py"]),
    "an error of code": Row(["-c", FAILING]),
    "an error of input": Row(["-"], given=FAILING),
    "an error of a module": Row(["-m", "failing"]),
    "an error of a zip file": Row(["failing.zip"]),
    "a chain of errors": Row(["-c", CHAINED]),
    "no grammar": Row(["bad.py"], {"bad.py": "x = = 1\n"}),
    "a group": Row(["-c", "raise ExceptionGroup('g', [ValueError(1)])"]),
    "no module": Row(["-m", "nowhere.at_all"]),
    "no folder of a program": Row(["sub"]),
    "a hook for errors": Row(
        ["-c", "import sys; sys.excepthook = lambda *a: print(a[1], a[2].tb_next); 1 / 0"]
    ),
    "an error with -X dev": Row(["-Xdev", "failing.py"]),
    # ends
    "a status": Row(["-c", AT_END.format(exit=3)]),
    "a text": Row(["-c", AT_END.format(exit="'text'")]),
    "None": Row(["-c", AT_END.format(exit=None)]),
    "a list": Row(["-c", AT_END.format(exit="[1, 2]")]),
    "a large status": Row(["-c", "raise SystemExit(2**40)"]),
    "a bare end": Row(["-c", "raise SystemExit"]),
    "an interrupt": Row(
        ["-c", "import atexit; atexit.register(print, 'end'); raise KeyboardInterrupt"]
    ),
    "a signal": Row(["-c", "import signal; signal.raise_signal(signal.SIGINT)"]),
    "a killing signal": Row(["-c", "import os; os.kill(os.getpid(), 15)"]),
    "no reader": Row(["-c", BROKEN_PIPE]),
    "an error at the end": Row(["-c", "import atexit; atexit.register(lambda: 1 / 0)"]),
    "os._exit": Row(["-c", "import os; print('lost'); os._exit(5)"]),
    # what looks at programs
    "inspection": Row(["pickled.py"]),
    "processes": Row(["children.py", "spawn", "fork", "forkserver"]),
    "processes of a module": Row(["-Wignore", "-m", "children", "spawn"]),
    "pdb": Row(["-m", "pdb", "debug.py"], given="b 3\nc\nw\np doubled\nq\n"),
    "breakpoint": Row(["-c", "breakpoint()\nprint(1)"], given="w\nc\n"),
    "pdb after an error": Row(["-m", "pdb", "-c", "c", "failing.py"], given="w\nq\n"),
    "cProfile": Row(
        ["-m", "cProfile", "-s", "name", "debug.py"], hides=r"\d+\.\d+(?= )|\d+\.\d+ seconds"
    ),
    "coverage": Row(["-m", "coverage", "run", "--data-file=data", "debug.py"]),
    "timeit": Row(["-m", "timeit", "-n1", "-r1", "-s", "print(1)"], hides=r"[\d.]+ .?sec.*"),
    "runpy": Row(["-c", "import runpy; runpy.run_path('facts.py', run_name='__main__')"]),
    "trace": Row(["-m", "trace", "--listfuncs", "debug.py"]),
}

POSIX_ONLY = {"processes", "a killing signal", "an interrupt", "-I and an interrupt", "a signal"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with programs of every kind, and a command of modtree beside it."""
    place = tmp_path_factory.mktemp("place")
    for folder in ("sub", "package", "app"):
        (place / folder).mkdir()
    for name in (
        "facts.py -facts.py sub/facts.py plain module.py package/__main__.py package/inner.py "
        "app/__main__.py"
    ).split():
        (place / name).write_text(FACTS)
    (place / "package" / "__init__.py").write_text("")
    (place / "failing.py").write_text(FAILING)
    (place / "pickled.py").write_text(PICKLED)
    (place / "children.py").write_text(CHILDREN)
    (place / "debug.py").write_text(TO_DEBUG)
    (place / "small.py").write_text("x = 3\n")
    (place / "link.py").symlink_to(Path("sub", "facts.py"))
    (place / "twice.py").symlink_to("link.py")
    py_compile.compile(str(place / "facts.py"), str(place / "compiled.pyc"))
    (place / "compiled").write_bytes((place / "compiled.pyc").read_bytes())
    for name, source in (("app.zip", FACTS), ("failing.zip", FAILING)):
        with zipfile.ZipFile(place / name, "w") as archive:
            archive.writestr("__main__.py", source)
    return place


@pytest.fixture(scope="module")
def launchers(tmp_path_factory):
    """python, and both forms of the launcher."""
    command = make_command(tmp_path_factory.mktemp("command"))
    return {
        "python": [sys.executable],
        "python -m modtree run": [sys.executable, "-m", "modtree", "run"],
        "modtree run": [str(command), "run"],
    }


def told(row: Row, ended: Ended) -> Ended:
    """What is to be equal."""
    lines = [
        x for x in ended.out.splitlines() if not x.startswith(tuple(f"{d}:" for d in row.differs))
    ]
    texts = (re.sub(row.hides, "...", text) for text in ("\n".join(lines), ended.err))
    return Ended(ended.status, *texts)


def with_coverage(names):
    return [pytest.param(n, marks=needs("coverage") if n == "coverage" else ()) for n in names]


@pytest.mark.parametrize("name", with_coverage(ROWS))
def test_a_program_sees_what_it_sees_of_python(place, launchers, name):
    row = ROWS[name]
    if os.name != "posix" and name in POSIX_ONLY:
        pytest.skip("needs POSIX")
    if name == "a group" and sys.version_info < (3, 11):
        pytest.skip("needs CPython 3.11")
    for path, text in row.files.items():
        (place / path).write_text(text)
    words = [word.replace("{place}", str(place)) for word in row.words]
    first, *others = (
        (form, told(row, ran([*launcher, *words], place, row.given, **row.env)))
        for form, launcher in launchers.items()
    )
    for form, ended in others:
        assert ended == first[1], form


# -- what is not on the path -----------------------------------------------------------------------


#: What ``python -m`` itself imports, from the working folder.
NEEDED_BY_M = {"collections", "enum", "functools", "importlib", "types"}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("form", ["python -m modtree run", "modtree run"])
def test_files_beside_the_launcher_are_no_modules(tmp_path, form):
    """Neither those of the working folder, which ``python -m`` puts on the path, nor those of the
    folder of the command; not for the launcher, and not for the program.
    """
    command = make_command(tmp_path)
    is_command = form == "modtree run"
    start = [str(command)] if is_command else [sys.executable, "-m", "modtree"]
    names = set(
        "_modtree_main _modtree_start argparse atexit datasets inspect json logging numpy random "
        "re safetensors signal sitecustomize subprocess time torch typing".split()
    )
    for name in names | (NEEDED_BY_M if is_command else set()):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(f'{__file__} was imported')\n")
    program = tmp_path / "sub" / "program.py"
    program.parent.mkdir()
    program.write_text(
        "import argparse, inspect, json, logging, random, signal, subprocess, sys, typing\n"
        "print(json.dumps([1]), sys.path[0])\n"
    )
    for words in ([], ["--off"], ["-I"], ["--compare", "--rounds=1"]):
        ended = ran([*start, "run", *words, "sub/program.py"], tmp_path)
        folder = "" if "-I" in words else program.parent
        assert (ended.status, "wall time" in ended.err) == (0, "--compare" in words), ended
        assert ended.out.startswith(f"[1] {folder}"), words


def test_another_sitecustomize_has_its_turn(place, launchers, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("value = 7\n")
    code = "import sys; print(sys.modules['sitecustomize'].value, sys.path)"
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    ends = {ran([*start, "-c", code], place, PYTHONPATH=path) for start in launchers.values()}
    assert len(ends) == 1 and ends.pop().out.startswith("7 ")


def test_a_program_without_torch_sees_that_there_is_none(place, launchers):
    code = """if True:
        import importlib.util, sys
        print(importlib.util.find_spec("torch"))
        try:
            import torch
        except ImportError as error:
            print(str(error).partition(";")[0], error.name)  # a note, on CPython 3.10 in the text
        print("modtree" in sys.modules)
    """
    ends = {ran([*start, "-S", "-c", code], place) for start in launchers.values()}
    assert ends == {Ended(0, "None\nNo module named 'torch' torch\nFalse\n", "")}


# -- in a Python that belongs to something else ----------------------------------------------------

RUN_MODULE = "import sys, runpy; runpy.run_module(sys.argv.pop(1), None, '__main__', True)"
TOOLS = {
    "runpy": ["-c", RUN_MODULE],
    "cProfile": ["-m", "cProfile", "-o", "profile", "-m"],
    "trace": ["-m", "trace", "--listfuncs", "--module"],
    "coverage": ["-m", "coverage", "run", "--data-file=data", "-m"],
}


@pytest.mark.parametrize("tool", with_coverage(TOOLS))
def test_a_tool_keeps_its_process(place, tool):
    """It finds the program in it, which is set up as python does it."""
    code = "import sys\nprint(__name__, sys.argv, sys.path[0], __file__, __spec__)\n1 / 0\n"
    (place / "sub" / "here.py").write_text(code)
    words = [*TOOLS[tool], "modtree", "run", "--off", "sub/here.py", "-x"]
    ended = ran([sys.executable, *words], place)
    sub = place / "sub"
    facts = f"__main__ ['sub/here.py', '-x'] {sub} {sub / 'here.py'} None"
    assert ended.out.splitlines()[0] == facts
    own = ran([sys.executable, "sub/here.py"], place).err
    if tool in ("runpy", "coverage"):  # the others print more of an error than python does
        assert ended.err == own
    if tool == "coverage":
        report = ran([sys.executable, "-m", "coverage", "report", "--data-file=data"], place)
        assert re.search(r"sub/here\.py +3 +0 +100%", report.out)


@pytest.mark.parametrize("words", [["facts.py"], ["-c", FACTS], ["-m", "package"], ["app", "a"]])
def test_a_call_of_main_sets_a_program_up_as_python_does(place, words):
    """With words of its own it runs the program in the process of its caller, and comes back."""
    code = "import sys; from modtree.cli import main; print(main(['run', '--off', *sys.argv[1:]]))"
    python = ran([sys.executable, *words], place).out.splitlines()
    main = ran([sys.executable, "-c", code, *words], place).out.splitlines()
    assert main.pop() == "0"
    for line, expected in zip(main, python, strict=True):
        kind = line.partition(":")[0]
        if kind == "path":  # that of the caller stays
            assert line.startswith(expected.partition(",")[0])
        elif kind in ("names loader spec main argv builtins".split()) or kind.startswith("__"):
            assert line == expected


def test_options_of_python_are_for_a_python_that_starts(place):
    code = "from modtree.cli import main; main(['run', '-O', 'small.py'])"
    ended = ran([sys.executable, "-c", code], place)
    assert (ended.status, ended.out) == (2, "")
    assert "-O: this Python runs already" in ended.err.splitlines()[-1]


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which program?"),
        (["-u"], "which program?"),
        (["--reprot", "x.py"], "unknown option --reprot"),
        (["-Z", "x.py"], "unknown option -Z"),
        (["-X"], "-X expects a value"),
        (["-m"], "-m expects a value"),
        (["-m", "-c", "x"], "give one of them"),
        (["--off", "--report", "x.py"], "--off and --report exclude each other"),
        (["nothing.py"], "there is no script 'nothing.py'"),
    ],
)
def test_words_that_name_no_program(place, launchers, words, said):
    for form in ("python -m modtree run", "modtree run"):
        ended = ran([*launchers[form], *words], place)
        assert (ended.status, ended.out) == (2, "") and said in ended.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("given", "switches", "options", "program"),
    [
        (["x.py", "--off"], [], [], ("script", "x.py", ["--off"])),
        (["--off", "-u", "x.py"], ["--off"], ["-u"], ("script", "x.py", [])),
        (["-OO", "--report", "-um", "x", "-c"], ["--report"], ["-OO", "-u"], ("-m", "x", ["-c"])),
        (
            ["-Xdev", "-W", "error", "-cpass", "-"],
            [],
            ["-Xdev", "-W", "error"],
            ("-c", "pass", ["-"]),
        ),
        (["-bEW", "error", "-", "a"], [], ["-bEW", "error"], ("script", "-", ["a"])),
        (["-B", "--", "--off"], [], ["-B"], ("script", "--off", [])),
        (
            ["--check-hash-based-pycs", "always", "x"],
            [],
            ["--check-hash-based-pycs", "always"],
            ("script", "x", []),
        ),
    ],
)
def test_words_are_read_as_python_reads_them(given, switches, options, program):
    words = _launch.read(given)
    assert (words.switches, words.options) == (switches, options)
    assert (words.kind, words.program, words.arguments) == program
    assert words.as_given == [word for word in given if word not in switches]
