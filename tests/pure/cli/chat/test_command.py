"""The flags of `chat`; how it runs is in tests/e2e/test_chat.py."""

from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError
from slipstream.cli.chat.command import check_place, wants_colour
from slipstream.cli.main import main
from slipstream.config.options import Options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("chat --think perhaps", "--think perhaps is not allowed: give one of auto, on, off"),
        ("chat --temperature -1", "temperature=-1.0 is not allowed"),
        ("chat demo --url http://there", "--url together with model"),
        ("chat --drafter none --draft-len 0 --url http://there", "--url together with drafter, draft_len"),
        ("chat --api-key k", "give its --url too"),
        ("chat --url there", "give http://HOST:PORT"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())
    captured = capsys.readouterr()
    assert stopped.value.code == 2
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_one_place_is_enough():
    check_place(Options(), url=None, api_key=None)
    check_place(Options(model="demo"), url=None, api_key=None)
    check_place(Options(), url="http://there", api_key="k")
    with pytest.raises(ConfigError, match="model"):
        check_place(Options(model="demo"), url="http://there", api_key=None)


@pytest.mark.parametrize(
    ("asked", "environment", "expected"),
    [
        (None, {}, True),
        (None, {"NO_COLOR": ""}, True),
        (None, {"NO_COLOR": "1"}, False),
        (None, {"TERM": "dumb"}, False),
        (True, {"NO_COLOR": "1"}, True),
        (False, {}, False),
    ],
)
def test_colour_is_as_asked_else_as_the_environment_says(monkeypatch, asked, environment, expected):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wants_colour(asked) is expected
