# SPDX-License-Identifier: BSD-3-Clause
"""The drop-in in a process that has not imported modtree: nothing of modtree is imported before the
process imports torch, so that a program without torch is the same.
"""

import _thread
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def leave_path() -> None:
    """Takes this folder and its modules out of what the program sees of python's imports."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    sys.path_importer_cache.pop(_HERE, None)
    sys.modules.pop(__name__, None)


def start_if_meant() -> bool:
    """Starts the drop-in in a process that is to have it; any other says why it has none, once it
    asks for torch. Another Python that happens to be started is one of these.
    """
    why_not = _why_not()
    if why_not is None:
        start()
    else:
        sys.meta_path.insert(0, _BeforeTorch(lambda: _say(why_not), _leave_missing))
    return why_not is None


def _why_not():
    """Why this process is not to have the drop-in, as one line; None where it is to have it."""
    meant = os.environ.get("MODTREE_DROPIN")
    if meant is None:
        return (
            "this process has torch's own Module, because MODTREE_DROPIN is not in its "
            "environment: have its launcher pass on MODTREE_DROPIN and PYTHONPATH"
        )
    prefix, _, version = meant.rpartition(":")
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    is_same = sys.prefix == prefix or os.path.realpath(sys.prefix) == os.path.realpath(prefix)
    if version == own and is_same:
        return None
    return (
        f"{sys.executable} runs on torch's own Module, because modtree was started for the Python "
        f"{version} of {prefix}: start this one with {sys.executable} -m modtree run"
    )


def start() -> None:
    """Has modtree.dropin imported when torch is, and a report printed at the end if wanted."""
    if "torch.nn.modules.module" in sys.modules:
        _say(
            "torch was imported before the program began, by a .pth file or a sitecustomize of "
            f"{sys.prefix}, so the program has torch's own Module: keep torch out of that file"
        )
        return
    report = os.environ.get("MODTREE_DROPIN_REPORT")
    sys.meta_path.insert(
        0, _BeforeTorch(_import_dropin if report is None else _import_with_report, _missing_error)
    )
    if report is not None:
        import atexit

        if report == "1":  # This one prints. Its children may import torch, though it does not.
            import tempfile

            folder = tempfile.mkdtemp(prefix="modtree-report-")
            os.environ["MODTREE_DROPIN_REPORT"] = f"{os.getpid()}:{folder}"
        atexit.register(_end_report)


def _say(line: str) -> None:
    if sys.stderr is not None:
        print(f"modtree run: {line}", file=sys.stderr)


class _BeforeTorch:
    """Does something once torch is asked for. Finds what the other importers find.

    Args:
        found: Called when there is a torch, for the first time.
        missing: Called at each import of a torch that is not there. Returns the error, or None for
            python's own.
    """

    def __init__(self, found, missing):
        self._found = found
        self._missing = missing
        self._asking = set()  # the threads in which this asks for torch

    def find_spec(self, name, path=None, target=None):
        thread = _thread.get_ident()
        if name != "torch" or thread in self._asking:
            return None
        self._asking.add(thread)
        try:
            spec = self._ask_others(name, path, target)
            if spec is not None:
                self._found()
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
            elif _is_import(sys._getframe(1)):
                error = self._missing()
                if error is not None:
                    raise error
            return spec
        finally:
            self._asking.discard(thread)

    def _ask_others(self, name, path, target):
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


def _is_import(caller) -> bool:
    """True if an import statement, or a function like it, asks: find_spec() still answers None."""
    above = caller.f_back
    return above is not None and above.f_code.co_name == "_find_and_load_unlocked"


def _leave_missing() -> None:
    """Leaves the error to python."""


def _missing_error() -> ModuleNotFoundError:
    """Python's error, with a note that says what to do."""
    python = sys.executable
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    note = f"modtree run: torch is not installed for {python}: {python} -m pip install torch"
    if active and os.path.realpath(active) != os.path.realpath(sys.prefix):
        there = os.path.join(active, "Scripts" if os.name == "nt" else "bin", "python")
        note += f", or to run in the active environment: {there} -m pip install modtree"
    error = ModuleNotFoundError("No module named 'torch'", name="torch")
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        error.msg += f"; {note}"
    return error


def _import_with_report() -> None:
    _import_dropin()
    from modtree.torch.dropin import _report

    _report.start_report()


def _import_dropin() -> None:
    """Imports it from the path, or else from where this file is: python's ``-I`` does not look at
    PYTHONPATH, and a relative entry there leads nowhere once the program has changed its folder.
    """
    folder = _HERE.removesuffix(os.path.join(os.sep, "modtree", "torch", "dropin", "site"))
    sys.path.append(folder)
    try:
        import modtree.dropin  # noqa: F401
    finally:
        if folder in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]


def _end_report() -> None:
    pid, _, folder = os.environ.get("MODTREE_DROPIN_REPORT", "").partition(":")
    prints = pid == str(os.getpid())
    if "modtree.torch.dropin" not in sys.modules:
        if not prints:
            return
        if not os.listdir(folder):
            os.rmdir(folder)
            print("modtree run: the program did not import torch.nn", file=sys.stderr)
            return
        _import_dropin()
    from modtree.torch.dropin import _report

    _report.end_report()
