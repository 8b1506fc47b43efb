# SPDX-License-Identifier: BSD-3-Clause
"""States of optimizers that follow their parameters by name: to another model, order or group."""
