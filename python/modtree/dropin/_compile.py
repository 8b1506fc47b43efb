# SPDX-License-Identifier: BSD-3-Clause
"""What torch.compile is to trace where Python code calls native methods: torch's own functions."""

from __future__ import annotations

from types import ModuleType

from modtree.dropin import _faces

__all__ = ["teach_dynamo"]


def teach_dynamo(dynamo: ModuleType) -> None:
    """Tells ``torch._dynamo``, once it was imported, which function stands for which native one."""
    from modtree.dropin._adopt import original_functions

    originals = original_functions()
    for name, native in _faces.NATIVE.items():
        dynamo.decorators.substitute_in_graph(native, skip_signature_check=True)(originals[name])
