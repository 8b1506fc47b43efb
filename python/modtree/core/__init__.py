# SPDX-License-Identifier: BSD-3-Clause
"""The module: its class, conversions, hooks, state dicts, parameters, containers and repr."""
