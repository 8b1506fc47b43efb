# SPDX-License-Identifier: BSD-3-Clause
"""Folders of DeepSpeed."""
