# SPDX-License-Identifier: BSD-3-Clause
"""Reading pickles from anywhere: an interpreter, and the names that it knows."""
