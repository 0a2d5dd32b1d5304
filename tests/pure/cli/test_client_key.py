from __future__ import annotations

import pytest

from slipstream.base.switches import API_KEY
from slipstream.cli.client_key import KEY_REMEDY, client_key


@pytest.mark.parametrize(
    ("typed", "environment", "expected"),
    [
        (None, None, None),
        (None, "k", "k"),
        (None, " k\n", "k"),
        (None, " ", None),
        ("typed", "k", "typed"),
        ("typed", None, "typed"),
    ],
)
def test_a_typed_key_goes_before_that_of_the_environment(monkeypatch, typed, environment, expected):
    monkeypatch.delenv(API_KEY, raising=False)
    if environment is not None:
        monkeypatch.setenv(API_KEY, environment)
    assert client_key(typed) == expected


def test_the_remedy_names_both_ways():
    assert "--api-key" in KEY_REMEDY
    assert API_KEY in KEY_REMEDY
