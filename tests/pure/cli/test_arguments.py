from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from slipstream.base.errors import ConfigError
from slipstream.cli.arguments import ENGINE_SECTIONS, given_options, read_value, with_options
from slipstream.config.options import OPTION_BY_NAME, OPTIONS, Options


def run(arguments, *, expect=0, **decorator):
    """Run a command that records the options it was given; return them and its own flag."""
    app, seen = typer.Typer(pretty_exceptions_enable=False), []

    @app.command()
    @with_options(**decorator)
    def command(options, loud: Annotated[bool, typer.Option("--loud")] = False):
        seen.append((options, loud))

    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == expect, result.output
    return seen[0] if seen else None


def spell(option):
    """A command-line spelling of some value that differs from the default, and the value."""
    if option.choices:
        return option.choices[-1], option.choices[-1]
    if option.kind == "text":
        return "word", ("word",) if option.is_repeatable else "word"
    value = int((option.minimum or 0) + 1)
    return str(value), float(value) if option.kind == "number" else value


def test_a_repeatable_option_keeps_every_value_in_order():
    assert run(["--api-key", "b", "--api-key", "a"])[0].api_key == ("b", "a")
    with pytest.raises(ConfigError, match=r"api_key=\*\*\* is not allowed"):
        run(["--api-key", "good", "--api-key", " "])


def test_nothing_typed_leaves_everything_open():
    options, loud = run([])
    assert options == Options()
    assert given_options(options) == {}
    assert loud is False


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_of_the_table_has_a_flag(option):
    if option.name == "model":
        options, _ = run(["some/folder"])
        assert options.model == "some/folder"
    elif option.kind == "switch":
        assert given_options(run([option.flag])[0]) == {option.name: True}
        assert given_options(run([option.flag.replace("--", "--no-")])[0]) == {option.name: False}
    else:
        typed, value = spell(option)
        given = given_options(run([option.flag, typed])[0])
        assert given == {option.name: value}
        assert type(given[option.name]) is type(value)


def test_the_model_can_be_a_flag_and_own_flags_remain():
    options, loud = run(["--model", "x", "--loud"], is_model_flag=True)
    assert (options.model, loud) == ("x", True)
    assert run(["x"], expect=2, is_model_flag=True) is None


def test_sections_limit_the_flags():
    assert run(["--port", "1"], expect=2, sections=ENGINE_SECTIONS) is None
    options, _ = run(["--tp", "2"], sections=ENGINE_SECTIONS)
    assert options.tp == 2


@pytest.mark.parametrize(
    "words", [["--port", "abc"], ["--port", "1.5"], ["--port", "70000"], ["--device", "tpu"], ["--tp", "auto"]]
)
def test_values_outside_the_table_are_refused_in_its_words(words):
    with pytest.raises(ConfigError, match=words[0].removeprefix("--") + ".*is not allowed: give"):
        run(words)


def test_words_become_values_of_the_options_kind():
    assert read_value(OPTION_BY_NAME["draft_len"], "auto") == "auto"
    assert read_value(OPTION_BY_NAME["draft_len"], "3") == 3
    assert read_value(OPTION_BY_NAME["drain_s"], "1.5") == 1.5
    assert read_value(OPTION_BY_NAME["model"], "3") == "3"
    assert read_value(OPTION_BY_NAME["port"], None) is None
