"""A pattern of a schema and the regex for a whole text agree about every text."""

from __future__ import annotations

import itertools
import re

import pytest

from slipstream.text.tools.patterns import whole_text

TEXTS = ["".join(letters) for size in range(5) for letters in itertools.product("ab1|\n-", repeat=size)]


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a",
        "^a",
        "b$",
        "^ab?$",
        "a|b",
        "^(a|b)+$",
        "[a|b]",
        "[^a]b",
        "\\d",
        "[\\d-]+",
        "^\\w*$",
        "\\D",
        "\\Wa",
        "a\\|b",
        "[\\]a]",
        "^(a(b|1))*$",
    ],
)
def test_the_whole_text_matches_where_the_pattern_is_found(pattern):
    regex = whole_text(pattern)
    # The standard's dollar is the very end of the text.
    searched = re.compile(re.sub(r"\$$", r"\\Z", pattern), re.ASCII)
    matches = [bool(re.fullmatch(regex, text)) for text in TEXTS]
    assert matches == [searched.search(text) is not None for text in TEXTS]
    assert any(matches)


@pytest.mark.parametrize("pattern", ["a|^b", "^a|b", "a$|b", "a^", "(^a)", "a$b", "\\ba", "a\\B"])
def test_anchors_inside_are_not_served(pattern):
    assert whole_text(pattern) is None
