# SPDX-License-Identifier: BSD-3-Clause
"""The tensor: its class, creation, dtypes, devices, printing and random sources."""

from modtree import _imports

_imports.complete_numpy_side()
