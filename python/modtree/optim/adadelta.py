# SPDX-License-Identifier: BSD-3-Clause
"""``Adadelta``, under torch's path."""

from __future__ import annotations

from modtree.optim.adagrad import Adadelta

__all__ = ["Adadelta"]
