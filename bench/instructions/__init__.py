# SPDX-License-Identifier: BSD-3-Clause
"""How many instructions the operations take, counted by valgrind's callgrind.

Counts do not depend on what else the machine does, so that two commits can be compared where
timings cannot: ``python -m bench.instructions --against main``.
"""
