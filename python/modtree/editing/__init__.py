# SPDX-License-Identifier: BSD-3-Clause
"""Changing and observing a tree: find modules by pattern, put others in their place, read and
replace what they return.

Works on modules of modtree and of torch. Imports the core alone.
"""
