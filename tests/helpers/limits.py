# SPDX-License-Identifier: BSD-3-Clause
"""How long a test waits for a process that it has started."""

from __future__ import annotations

#: In seconds. A process that takes longer hangs. It is far above what any takes on an idle machine:
#: no test fails because other programs use the processors too.
HANGS_AFTER = 1800
