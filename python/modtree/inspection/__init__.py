# SPDX-License-Identifier: BSD-3-Clause
"""Seeing a model: what stands in its tree, as data, and what is made of that."""
