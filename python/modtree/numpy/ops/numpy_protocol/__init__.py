# SPDX-License-Identifier: BSD-3-Clause
"""NumPy's functions called with tensors."""
