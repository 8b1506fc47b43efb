# SPDX-License-Identifier: BSD-3-Clause
"""jax: what the core asks of its arrays, and its functions by torch's names. Beside
modtree.jax, whose import makes pytrees of all modules."""
