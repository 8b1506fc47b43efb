# SPDX-License-Identifier: BSD-3-Clause
"""Operations on tensors: the table of them (:mod:`modtree.ops.table`) and torch's calling conventions on top."""
