# SPDX-License-Identifier: BSD-3-Clause
"""Files of save and load: a pickle interpreter of our own, and archives in the form of torch."""
