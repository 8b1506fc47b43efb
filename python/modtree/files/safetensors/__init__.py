# SPDX-License-Identifier: BSD-3-Clause
"""Files of the safetensors format: headers, reading, writing."""
