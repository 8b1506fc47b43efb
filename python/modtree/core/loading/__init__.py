# SPDX-License-Identifier: BSD-3-Clause
"""What surrounds a load: renaming keys, reports of what fits, what a failed load found."""
