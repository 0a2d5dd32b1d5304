from __future__ import annotations

import pytest

from slipstream.base.version import VERSION
from slipstream.cli.program import build_app


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        build_app()(args=list(arguments), prog_name="slipstream")
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_every_command_is_listed_with_what_it_does(capsys):
    shown = [line.split() for line in run(capsys, "--help").splitlines()]
    for name in ("serve", "generate", "chat", "explain", "doctor", "quantize", "train-drafter", "bench"):
        assert any(words[:1] == [name] and len(words) > 3 for words in shown), name


def test_the_version_is_shown(capsys):
    assert run(capsys, "--version") == f"slipstream {VERSION}\n"
