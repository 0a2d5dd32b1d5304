from typing import Any

import msgspec
import pytest

from slipstream.base.errors import ConfigError
from slipstream.config.options import AUTO, OPTION_BY_NAME, OPTIONS, Options, check_value, read_options


def test_the_table_and_the_struct_are_the_same_list() -> None:
    assert tuple(option.name for option in OPTIONS) == Options.__struct_fields__
    assert all(value is None for value in msgspec.structs.asdict(Options()).values())


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_default_is_allowed_and_every_option_is_described(option: Any) -> None:
    if option.default is not None:
        assert check_value(option, option.default) == option.default
    assert option.help.endswith(".")
    assert option.flag == "--" + option.name.replace("_", "-")
    assert option.allowed


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("draft_len", 17, "give auto or a whole number from 0 to 16"),
        ("draft_len", -1, "from 0 to 16"),
        ("draft_len", 2.0, "a whole number"),
        ("draft_len", True, "a whole number"),
        ("draft_len", "three", "auto or a whole number"),
        ("max_num_seqs", "auto", "a whole number"),
        ("port", 70000, "from 0 to 65535"),
        ("dtype", "float16", "auto, float32, bfloat16"),
        ("device", "tpu", "auto, cpu, cuda"),
        ("prefix_cache", 1, "true or false"),
        ("host", "", "an address"),
        ("host", 5, "an address"),
        ("drain_s", float("nan"), "a number"),
        ("drain_s", -1, "a number from 0"),
        ("api_key_file", " ", "a file"),
        ("log_format", "xml", "text, json"),
        ("log_level", "loud", "auto, debug, info, warning, error"),
        ("engine_timeout_s", -1, "from 0 to 86400"),
        ("max_model_len", 1, "at least 2"),
    ],
)
def test_a_bad_value_names_the_option_the_value_and_what_is_allowed(name: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_value(OPTION_BY_NAME[name], value)
    assert f"{name}={value!r}" in str(caught.value)
    assert words in str(caught.value)
    assert OPTION_BY_NAME[name].flag in str(caught.value)


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**5000, -(10**5000)], ids="abcd")
@pytest.mark.parametrize("name", ["drain_s", "port", "max_model_len"])
def test_a_number_beyond_every_float_is_refused_like_any_other(name: str, value: int) -> None:
    words = {"drain_s": "from 0 to 3600", "port": "from 0 to 65535", "max_model_len": "at least 2 that fits 64 bits"}
    with pytest.raises(ConfigError, match=words[name]) as caught:
        check_value(OPTION_BY_NAME[name], value)
    assert str(caught.value).startswith(f"{name}=")


@pytest.mark.parametrize("value", [" ", ["good", ""], ("good", 5), 5, b"topsecret", [["topsecret"]]])
def test_a_secret_that_is_not_allowed_is_not_shown(value: object) -> None:
    with pytest.raises(ConfigError, match=r"api_key=\*\*\* is not allowed: give .*\(--api-key\)") as caught:
        check_value(OPTION_BY_NAME["api_key"], value)
    assert "topsecret" not in str(caught.value)


def test_a_repeatable_option_is_a_tuple_however_it_is_given() -> None:
    option = OPTION_BY_NAME["api_key"]
    assert check_value(option, "a") == ("a",)
    assert check_value(option, ["a", "b"]) == check_value(option, ("a", "b")) == ("a", "b")


def test_the_queue_may_be_empty() -> None:
    assert check_value(OPTION_BY_NAME["max_queue"], 0) == 0
    with pytest.raises(ConfigError, match="at least 0"):
        check_value(OPTION_BY_NAME["max_queue"], -1)


def test_auto_and_numbers_are_accepted_where_they_should_be() -> None:
    assert check_value(OPTION_BY_NAME["draft_len"], AUTO) == AUTO
    assert check_value(OPTION_BY_NAME["draft_len"], 0) == 0
    assert check_value(OPTION_BY_NAME["drain_s"], 3) == 3.0


def test_options_are_read_from_names_and_values() -> None:
    options = read_options({"draft_len": 2, "host": None})
    assert (options.draft_len, options.host) == (2, None)
    with pytest.raises(ConfigError, match=r"drft_len is not an option; allowed: model, "):
        read_options({"drft_len": 2})
    with pytest.raises(ConfigError, match="port='x'"):
        read_options({"port": "x"})
