# SPDX-License-Identifier: BSD-3-Clause
"""Why a checkpoint does not fit a model: what the core asks for after a load that failed."""

from __future__ import annotations

from modtree.inspection.load_failures.causes import likely_causes
from modtree.inspection.load_failures.explain import explain_given, explain_load
from modtree.inspection.load_failures.key_rules import explain_names

__all__ = ["explain_given", "explain_load", "explain_names", "likely_causes"]
