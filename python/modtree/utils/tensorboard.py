# SPDX-License-Identifier: BSD-3-Clause
"""Event files for TensorBoard: refused in the import of the writer, as by torch where the package
tensorboard is not installed.
"""

from __future__ import annotations

from modtree import _imports

__all__: list[str] = []

_imports.answer_for_missing(
    __name__,
    reason="the package tensorboardX has a SummaryWriter that takes NumPy arrays: "
    "from tensorboardX import SummaryWriter, and give it tensor.numpy()",
)
