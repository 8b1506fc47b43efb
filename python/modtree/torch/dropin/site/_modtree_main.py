# SPDX-License-Identifier: BSD-3-Clause
"""What python's main does, for a program that runs in a Python which was started for another one.

Two have use for it. With python's ``-I``, ``-E`` and ``-S`` nothing but a line of code can start
the drop-in (``modtree/torch/launch.py``), and that line is python's program then. A debugger or a
profiler that runs ``modtree run`` has a Python of its own, which must stay.

Whatever python's own modules can do is left to them; the rest follows ``Modules/main.c`` and
``Python/pythonrun.c`` of CPython. Frames of this file are kept out of tracebacks. Nothing can keep
them out of ``sys._getframe()``.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any


def start() -> None:
    """Runs the program that ``sys.argv`` names behind the line of code that calls this."""
    kind, program, count = sys.argv[1:4]
    given = sys.argv[4:]
    sys.orig_argv[:] = [sys.orig_argv[0], *given]
    start_dropin()
    is_isolated = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
    if not is_isolated:
        del sys.path[0]  # that of code
    run(kind, program, given[len(given) - int(count) :], not is_isolated, sys.modules["__main__"])


def start_dropin() -> None:
    """What ``sitecustomize`` does in a Python that finds it."""
    import _modtree_start

    _modtree_start.leave_path()
    sys.modules.pop(__name__, None)
    if _modtree_start.start_if_meant():
        sys.meta_path.insert(0, _BeforeProcesses())


class _BeforeProcesses:
    """multiprocessing starts its children with the options of this Python: the code that they run
    starts the drop-in first. Not on Windows.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "multiprocessing.util":
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = _LoaderOfUtil(spec.loader)  # type: ignore[assignment]
                return spec
        return None


class _LoaderOfUtil:
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        start_process = module.spawnv_passfds
        site = os.path.dirname(__file__)
        line = f"__import__('sys').path.insert(0, {site!r}); "
        line += "__import__('_modtree_main').start_dropin(); "

        def spawnv_passfds(path: Any, args: Any, passfds: Any) -> Any:
            args = list(args)
            if "-c" in args:
                args[args.index("-c") + 1] = line + args[args.index("-c") + 1]
            return start_process(path, args, passfds)

        module.spawnv_passfds = spawnv_passfds


def run(kind: str, program: str, arguments: list[str], adds_path: bool, main: ModuleType) -> None:
    """Runs a program in this process.

    Args:
        kind: "-m", "-c", "script", "-x" (a script without its first line), or "" where python goes
            on to ask for input.
        program: The module, the code, or the path.
        arguments: Those of the program.
        adds_path: Whether what python puts in front of ``sys.path`` is put there.
        main: The module whose names the program has.
    """
    sys.modules["__main__"] = main
    sys.argv[:] = [program if kind in ("script", "-x") else kind, *arguments]
    try:
        if kind == "-m":
            _run_module(program, adds_path)
        elif kind == "-c":
            _run_code(program, adds_path, main)
        elif program == "-":
            _run_input(adds_path, main)
        elif kind:
            _run_path(program, adds_path, main, kind == "-x")
        elif adds_path:
            sys.path.insert(0, "")
    except SystemExit:
        raise
    except BaseException as error:
        _hide_frames(error)
        raise


def _run_module(name: str, adds_path: bool) -> None:
    import runpy

    if adds_path:
        sys.path.insert(0, os.getcwd())
    vars(runpy)["_run_module_as_main"](name)


def _run_code(text: str, adds_path: bool, main: ModuleType) -> None:
    if adds_path:
        sys.path.insert(0, "")
    code = compile(text, "<string>", "exec", dont_inherit=True)
    _show_source(code, text, "<string>")
    exec(code, vars(main))


def _show_source(code: CodeType, text: str, name: str) -> None:
    """Lets tracebacks show lines of code without a file, from CPython 3.13 on: under the name of
    the file there, by their code objects from 3.14 on.
    """
    if sys.version_info >= (3, 13):
        import linecache

        by_name = "_interactive_cache" not in vars(linecache)
        vars(linecache)["_register_code"](name if by_name else code, text, name)


def _run_input(adds_path: bool, main: ModuleType) -> None:
    if adds_path:
        sys.path.insert(0, "")
    if sys.stdin is not None and sys.stdin.isatty():
        import code

        code.interact(local=vars(main))
        return
    vars(main).update(__file__="<stdin>", __cached__=None)
    exec(compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True), vars(main))


def _run_path(path: str, adds_path: bool, main: ModuleType, skips_line: bool) -> None:
    full = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    if _is_importable(path):
        import runpy

        sys.path.insert(0, full)
        vars(runpy)["_run_module_as_main"]("__main__", False)
        return
    if adds_path:
        sys.path.insert(0, os.path.dirname(os.path.abspath(_resolved(path))))
    vars(main).update(__file__=full, __cached__=None)
    exec(_code_of(full, vars(main), skips_line), vars(main))


def _code_of(path: str, names: dict[str, Any], skips_line: bool) -> CodeType:
    """The code of a script, whose loader is put among the names of its module."""
    from _frozen_importlib_external import (  # importlib's, which is imported already
        MAGIC_NUMBER,
        SourceFileLoader,
        SourcelessFileLoader,
    )

    with open(path, "rb") as file:
        source = file.read()
    if path.endswith(".pyc") or source.startswith(MAGIC_NUMBER[:2]):
        import marshal

        names["__loader__"] = SourcelessFileLoader("__main__", path)
        return marshal.loads(source[16:])  # behind the magic number, the flags, two of the source
    names["__loader__"] = SourceFileLoader("__main__", path)
    if skips_line:  # but not its end: the others keep their numbers
        source = b"\n" + source.partition(b"\n")[2]
    return compile(source, path, "exec", dont_inherit=True)


def _is_importable(path: str) -> bool:
    """True for a folder or a zip file, which an entry of ``sys.path`` can be."""
    for hook in sys.path_hooks:
        try:
            hook(path)
            return True
        except ImportError:
            pass
    return False


def _resolved(path: str) -> str:
    """A link is followed once, as python follows it."""
    try:
        return os.path.join(os.path.dirname(path), os.readlink(path))
    except (OSError, AttributeError):  # no link
        return path


def _hide_frames(error: BaseException) -> None:
    """Has the report of an error that ends the program begin with the program's own frame."""
    seen = error.__traceback__
    while seen is not None and seen.tb_frame.f_code.co_filename == __file__:
        seen = seen.tb_next
    hook = sys.excepthook

    def report(kind: Any, value: Any, traceback: Any) -> None:
        sys.excepthook = hook
        if value is error:
            traceback = sys.last_traceback = seen
            value = value.with_traceback(seen)
        hook(kind, value, traceback)

    sys.excepthook = report
