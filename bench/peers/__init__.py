# SPDX-License-Identifier: BSD-3-Clause
"""One file per library that is compared with modtree: how each operation is said there."""
