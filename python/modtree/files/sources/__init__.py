# SPDX-License-Identifier: BSD-3-Clause
"""Where the bytes of a checkpoint are: paths, addresses, file objects, bytes."""
