# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of several ranks: torch.distributed.checkpoint's, and a file for each rank."""
