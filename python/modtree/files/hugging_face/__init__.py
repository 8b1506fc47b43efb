# SPDX-License-Identifier: BSD-3-Clause
"""Folders of transformers' Trainer and of peft."""
