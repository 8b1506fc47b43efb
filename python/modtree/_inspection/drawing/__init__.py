# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of a tree of modules: one outline (what is drawn), and a writer for each format."""
