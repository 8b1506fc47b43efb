# SPDX-License-Identifier: BSD-3-Clause
"""Weights from the network, under the path that torch had before its hub: refused."""

from __future__ import annotations

from modtree.hub import load_state_dict_from_url
from modtree.hub import load_state_dict_from_url as load_url

__all__ = ["load_state_dict_from_url", "load_url"]
