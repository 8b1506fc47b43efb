# SPDX-License-Identifier: BSD-3-Clause
"""What the core asks when a load has failed. Guesses at the cause are not the module system's: the
package says which tool makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modtree import _C, _imports


def tool() -> Any:
    """What has ``explain_load``, ``explain_given``, ``explain_names`` and ``likely_causes``."""
    return _imports.find_tool("failed loads")


def _explain_load(
    module: Any,
    state_dict: Mapping[str, Any],
    missing: list[str],
    unexpected: list[str],
    messages: list[str],
) -> str:
    text: str = tool().explain_load(module, state_dict, missing, unexpected, messages)
    return text


def _explain_given(module: Any, given: Any) -> str:
    text: str = tool().explain_given(module, given)
    return text


_C._install(explain_given=_explain_given, explain_load=_explain_load)
