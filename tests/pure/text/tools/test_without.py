"""The regex matches exactly the texts that do not hold the string."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from slipstream.text.tools.syntax import NAMESPACE
from slipstream.text.tools.without import text_without

STRINGS = ["ab", "aa", "aba", "aab", "abab", "aabaa", "]<]m", "a.b", "^-]", NAMESPACE]


@pytest.mark.parametrize("string", STRINGS)
def test_all_short_texts(string):
    regex = re.compile(text_without(string))
    letters = [*sorted(set(string))[:4], "x", "\n"]
    for size in range(1, 6):
        for text in map("".join, itertools.product(letters, repeat=size)):
            assert bool(regex.fullmatch(text)) == (string not in text), text
    assert regex.fullmatch("") is None


@pytest.mark.parametrize("string", STRINGS)
def test_texts_made_of_parts_of_the_string(string):
    draws, regex = random.Random(0), re.compile(text_without(string))
    seen = set()
    for _ in range(3000):
        places = [draws.randrange(len(string) + 1) for _ in range(draws.randrange(1, 6))]
        text = "".join(draws.choice([string[:place], string[place:], draws.choice(string), "é"]) for place in places)
        if text:
            assert bool(regex.fullmatch(text)) == (string not in text), text
            seen.add(string in text)
    assert seen == {False, True}
