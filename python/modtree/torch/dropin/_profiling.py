# SPDX-License-Identifier: BSD-3-Clause
"""Calls of modules that torch's profiler sees.

With ``with_stack`` or ``with_modules`` its tracer notes calls of Python functions, and knows those
of modules by the code of ``Module.__call__``. While a profiler of torch is at work, modules are
called by that function in the threads that are traced.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType

from modtree import _C


def show_calls_to_profilers(file: ModuleType) -> None:
    """Follows the function by which ``torch.autograd.profiler`` notes that a profiler is at work:
    it runs before the tracer starts, and so leaves no frame in the stacks.
    """
    original = getattr(file, "_set_is_profiler_enabled", None)
    if original is None:
        return

    @functools.wraps(original)
    def set_is_profiler_enabled(enable: bool) -> None:
        original(enable)
        module = sys.modules["torch.nn.modules.module"].Module
        _C._show_calls(vars(module)["_wrapped_call_impl"] if enable else None)

    file._set_is_profiler_enabled = set_is_profiler_enabled  # type: ignore[attr-defined]
