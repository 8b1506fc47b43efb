# SPDX-License-Identifier: BSD-3-Clause
"""Files of torch: its archives and its older form, read and written without torch."""
