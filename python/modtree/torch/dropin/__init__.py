# SPDX-License-Identifier: BSD-3-Clause
"""torch programs on modtree's native Module: import this before torch.

``import modtree.dropin`` puts the native class in the place of ``torch.nn.Module`` when torch is
imported, before torch defines its layers. Nothing else of the program changes; ``modtree run`` does
the same for a script from the command line. docs/dropin.md says how it works.

Raises:
    ImportError: torch is imported already, is not installed, or is not as modtree knows it.
"""

from modtree.torch.dropin._hook import install, is_active, is_installed

__all__ = ["install", "is_active", "is_installed"]

install()
