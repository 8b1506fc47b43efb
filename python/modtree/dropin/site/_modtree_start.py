# SPDX-License-Identifier: BSD-3-Clause
"""The drop-in in a process that has not imported modtree: nothing of modtree is imported before the
process imports torch, so that a program without torch is no different.
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


def is_meant() -> bool:
    """Is this process to have the drop-in? Another Python that happens to be started is not."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return os.environ.get("MODTREE_DROPIN") == f"{sys.prefix}:{version}"


def start() -> None:
    """Has modtree.dropin imported when torch is, and a report printed at the end if wanted."""
    report = os.environ.get("MODTREE_DROPIN_REPORT")
    sys.meta_path.insert(0, _BeforeTorch(report is not None))
    if report is not None:
        import atexit

        if report == "1":  # This one prints. Its children may import torch, though it does not.
            import tempfile

            folder = tempfile.mkdtemp(prefix="modtree-report-")
            os.environ["MODTREE_DROPIN_REPORT"] = f"{os.getpid()}:{folder}"
        atexit.register(_end_report)


class _BeforeTorch:
    """Imports modtree.dropin once torch is asked for and there. Finds what the others find."""

    def __init__(self, wants_report):
        self._wants_report = wants_report
        self._asking = (
            set()
        )  # the threads in which modtree.dropin is imported, which asks for torch

    def find_spec(self, name, path=None, target=None):
        thread = _thread.get_ident()
        if name != "torch" or thread in self._asking:
            return None
        self._asking.add(thread)
        try:
            spec = self._ask_others(name, path, target)
            if spec is not None:
                _import_dropin()
                self._leave()
            return spec
        finally:
            self._asking.discard(thread)

    def _leave(self):
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self._wants_report:
            from modtree.dropin import _report

            _report.start_report()

    def _ask_others(self, name, path, target):
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


def _import_dropin() -> None:
    """Imports it from the path, or else from where this file is: python's ``-I`` does not look at
    PYTHONPATH, and a relative entry there leads nowhere once the program has changed its folder.
    """
    folder = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
    sys.path.append(folder)
    try:
        import modtree.dropin  # noqa: F401
    finally:
        if folder in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]


def _end_report() -> None:
    pid, _, folder = os.environ.get("MODTREE_DROPIN_REPORT", "").partition(":")
    prints = pid == str(os.getpid())
    if "modtree.dropin" not in sys.modules:
        if not prints:
            return
        if not os.listdir(folder):
            os.rmdir(folder)
            print("modtree run: the program did not import torch.nn", file=sys.stderr)
            return
        _import_dropin()
    from modtree.dropin import _report

    _report.end_report()
