# SPDX-License-Identifier: BSD-3-Clause
"""Benchmarks: ``python -m bench`` from the project's root (bench/README.md)."""
