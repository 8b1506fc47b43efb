# SPDX-License-Identifier: BSD-3-Clause
"""What differs on a CPython that can run without the GIL, whether it does or not."""

from __future__ import annotations

import sysconfig

import pytest

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

#: What is replaced ends when the native call is over, not at the moment of the store.
ends_at_once = pytest.mark.skipif(FREE_THREADED, reason="what is replaced ends after the call")
#: The collector runs between instructions of Python code, not in allocations.
collects_in_allocations = pytest.mark.skipif(FREE_THREADED, reason="no allocation collects")
#: A count says nothing there of how many references there are.
counts_references = pytest.mark.skipif(FREE_THREADED, reason="counts are spread over threads")
