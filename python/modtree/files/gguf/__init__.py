# SPDX-License-Identifier: BSD-3-Clause
"""GGUF files, as llama.cpp reads them."""
