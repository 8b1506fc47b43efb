# SPDX-License-Identifier: BSD-3-Clause
"""Archives of arrays that numpy.savez() wrote."""
