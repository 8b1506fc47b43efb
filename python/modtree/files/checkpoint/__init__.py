# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoint files: reading, writing, converting and checking them."""
