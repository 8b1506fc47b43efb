# SPDX-License-Identifier: BSD-3-Clause
"""NumPy: the tensor of modtree, its operations, and what the core asks of it."""
