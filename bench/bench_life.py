# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_life``: what is done with a model of many modules around its forward, and
before and after a compilation, on torch's Module and on the native one. With transformers, peft and
accelerate where they are installed.
"""

from __future__ import annotations

from . import bench_dropin

if __name__ == "__main__":
    raise SystemExit(bench_dropin.main(("life", "compiled"), "bench-life.json"))
