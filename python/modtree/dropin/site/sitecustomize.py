# SPDX-License-Identifier: BSD-3-Clause
"""Carries the drop-in over to child processes: ``modtree.dropin`` puts this folder on their path.

Nothing of modtree is imported before the process imports torch.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _is_meant() -> bool:
    # Not for another Python that happens to be started.
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return os.environ.get("MODTREE_DROPIN") == f"{sys.prefix}:{version}"


class _BeforeTorch:
    """Imports modtree.dropin when torch is asked for, and finds nothing itself."""

    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            sys.meta_path.remove(self)
            import modtree.dropin  # noqa: F401


def _run_the_next() -> None:
    """Another ``sitecustomize`` further along the path has its turn, as it would without this."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if _is_meant():
    sys.meta_path.insert(0, _BeforeTorch())
_run_the_next()
