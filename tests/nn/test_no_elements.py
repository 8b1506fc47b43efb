# SPDX-License-Identifier: BSD-3-Clause
"""Functions of layers that do not look at dtypes where there is nothing to compute."""

from __future__ import annotations

import pytest
from helpers.same import same

torch = pytest.importorskip("torch")

LINES = {
    "normalization": [
        "f.batch_norm(m.ones(0, 2).to(a), None, None)",
        "f.batch_norm(m.ones(2, 0), None, None, training=True)",
        "f.batch_norm(m.ones(0, 2).to(a), None, None, m.ones(2).to(b), m.ones(2).to(b))",
        "f.instance_norm(m.ones(2, 2, 0).to(a), weight=m.ones(2).to(b))",
        "f.instance_norm(m.ones(2, 2, 0).to(a), use_input_stats=False)",
        "f.instance_norm(m.ones(0, 2, 3).int(), m.ones(2).int(), m.ones(2).int())",
        "m.instance_norm(m.ones(0, 2).to(a), None, None, None, None, True, 0.1, 0.1, False)",
        "f.instance_norm(m.ones(2, 2, 0).to(a), m.ones(2).to(b), m.ones(2), None, None, False)",
    ],
    "attention": [
        "f.scaled_dot_product_attention(*[m.ones(0, 1).to(a)] * 3)",
        "f.scaled_dot_product_attention(*[m.ones(2, 0, 3).to(a)] * 3)",
        "f.scaled_dot_product_attention(*[m.ones(0, 3).to(a)] * 3, enable_gqa=True)",
        "f.scaled_dot_product_attention(*[m.ones(2, 0).int()] * 2, m.ones(2, 3).int())",
        "f.scaled_dot_product_attention(*[m.ones(2, 0)] * 2, m.ones(2, 3), dropout_p=1.5)",
    ],
    "grid": [
        "f.grid_sample(m.ones(0, 1, 2, 2).to(a), m.ones(0, 3, 3, 2).to(b), align_corners=False)",
        "f.grid_sample(m.ones(2, 0, 2, 2).to(a), m.ones(2, 3, 3, 2).to(b), align_corners=False)",
    ],
}


@pytest.mark.parametrize("first", ["int32", "bool", "float16"])
@pytest.mark.parametrize("second", ["int32", "bool", "float16"])
@pytest.mark.parametrize("line", [line for lines in LINES.values() for line in lines])
def test_dtypes_are_not_looked_at(line, first, second):
    def program(lib):
        a, b = getattr(lib, first), getattr(lib, second)
        return eval(line, {"m": lib, "f": lib.nn.functional, "a": a, "b": b})

    same(program)
