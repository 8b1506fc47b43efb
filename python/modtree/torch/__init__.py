# SPDX-License-Identifier: BSD-3-Clause
"""Torch: what the core asks of its tensors, and its programs on modtree's Module."""
