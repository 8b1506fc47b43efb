# SPDX-License-Identifier: BSD-3-Clause
"""JSON in which a name may be there twice: readers would disagree about what it means."""

from __future__ import annotations

import json
import random

import pytest

from modtree.files.checkpoint.base import CheckpointError
from modtree.files.checkpoint.untrusted import parsed_json


def exact(text):
    """The content, and whether a name is there twice, by a function for each object."""
    twice = []

    def note(pairs):
        twice.extend([None] * (len(pairs) - len(dict(pairs))))
        return dict(pairs)

    content = json.loads(text, object_pairs_hook=note)
    return content, bool(twice)


ENTRY = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
TEXTS = [
    f'{{"a":{ENTRY},"b":{ENTRY}}}',
    f'{{"a":{ENTRY},"a":{ENTRY}}}',
    f'{{"a":{ENTRY},"\\u0061":{ENTRY}}}',
    '{"a":{"dtype":"F32","dtype":"F32"}}',
    '{"a":{"shape":{"x":1,"x":2}}}',
    '{"a":[{"x":1,"x":2}]}',
    f'{{"a:b":{ENTRY},"a:b":{ENTRY}}}',
    f'{{"a:b":{ENTRY},"c:d":{ENTRY}}}',
    f'{{"a\\u003ab":{ENTRY},"c":{ENTRY},"c":{ENTRY}}}',
    f'{{"a\\u003Ab":{ENTRY},"c":{ENTRY},"c":{ENTRY}}}',
    f'{{"__metadata__":{{"x":"1:2","x":"3"}},"c":{ENTRY}}}',
    f'{{"__metadata__":{{"x":"a\\u003a"}},"c":{ENTRY},"c":{ENTRY}}}',
    f'{{"__metadata__":{{"x:":"{{\\"a\\":1}}"}},"c":{ENTRY}}}',
    f'{{"__metadata__":{{"x":"1:2"}},"__metadata__":{{"y":"2"}},"c":{ENTRY}}}',
    f'{{"__metadata__":{{"x":"1:2"}},"__metadata__":{{"y":"2:"}},"c":{ENTRY}}}',
    "{}",
]


def assert_as_exact(text):
    content, is_twice = exact(text)
    if is_twice:
        with pytest.raises(CheckpointError, match="names it twice"):
            parsed_json(text.encode(), "header", "file")
    else:
        assert parsed_json(text.encode(), "header", "file") == content


@pytest.mark.parametrize("text", TEXTS)
def test_a_name_that_is_there_twice_is_refused(text):
    assert_as_exact(text)


def test_random_texts():
    rng = random.Random(3)
    names = ['"a"', '"b"', '"a:"', '":"', '"\\u003a"', '"\\u003A:"', '"__metadata__"', '"\\""']
    values = ["1", '":"', '"\\u003a"', "[]", "{}", '{"a":1}', '{"a":1,"a":2}', '{"a":":"}',
              '[{"a":1}]', '{"a":{"b":1}}', "null", '"\\":"']  # fmt: skip
    for _ in range(4000):
        pairs = [f"{rng.choice(names)}:{rng.choice(values)}" for _ in range(rng.randrange(5))]
        assert_as_exact(f"{{{','.join(pairs)}}}")
