# SPDX-License-Identifier: BSD-3-Clause
"""Formats that a library reads, where it is installed: HDF5, ONNX, Orbax."""
