# SPDX-License-Identifier: BSD-3-Clause
"""Starts the drop-in in a process of ``modtree run`` and in those that it starts: this folder is on
their ``PYTHONPATH``.

Afterwards the folder leaves ``sys.path``, and what has the name of this file there has its turn, as
it would without modtree. Where nothing has, the ImportError tells ``site`` so.
"""

import sys

import _modtree_start

_modtree_start.leave_path()
_modtree_start.start_if_meant()
sys.modules.pop(__name__, None)

import sitecustomize  # noqa: E402, F401
