# SPDX-License-Identifier: BSD-3-Clause
"""The tensor: its class, creation, dtypes, devices, printing and random sources."""
