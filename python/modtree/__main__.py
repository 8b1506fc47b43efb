# SPDX-License-Identifier: BSD-3-Clause
"""``python -m modtree``: the command line."""

import sys

from modtree.cli import main

if __name__ == "__main__":
    sys.exit(main())
