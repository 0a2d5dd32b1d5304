"""API keys come from options, the environment and a file; no message shows one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slipstream.base.errors import ConfigError
from slipstream.base.switches import API_KEY, Switches, read_switches
from slipstream.config.choices import Choices
from slipstream.config.options import Options
from slipstream.config.resolve import collect_keys, read_key_file


def test_every_place_counts_and_each_key_once(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# team\n\n  from-file \nfrom-option\n#not-a-key\n")
    choices = Choices(Options(api_key=("from-option", " padded "), api_key_file=str(file)))
    keys = collect_keys(choices, Switches(api_key="from-environment"))
    assert keys == ("from-option", "padded", "from-environment", "from-file")
    assert dict(choices.origins)["server.api_keys"] == "option"
    note = dict(choices.notes)["server.api_keys"]
    assert note == f"from --api-key, {API_KEY}, the file {file}"


@pytest.mark.parametrize(("switches", "origin"), [(Switches(), "default"), (Switches(api_key="k"), "switch")])
def test_without_options_the_environment_decides(switches: Switches, origin: str) -> None:
    choices = Choices(Options())
    assert collect_keys(choices, switches) == (("k",) if switches.api_key else ())
    assert dict(choices.origins)["server.api_keys"] == origin


def test_the_variable_is_read_and_no_representation_shows_it() -> None:
    switches = read_switches({API_KEY: "topsecret", "SLIPSTREAM_LOG_LEVEL": "debug"})
    assert switches.api_key == "topsecret"
    assert "topsecret" not in repr(switches)
    assert switches.given == {"log_level"}, "what is compared and shown about the environment leaves the key out"


def test_an_empty_variable_is_an_error_and_not_an_open_door() -> None:
    with pytest.raises(ConfigError, match=f"{API_KEY} is empty"):
        collect_keys(Choices(Options()), Switches(api_key="  "))


@pytest.mark.parametrize("text", ["", "\n\n", "# only\n  # comments\n"])
def test_a_file_without_a_key_is_an_error_and_not_an_open_door(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"holds no key.*--api-key-file"):
        read_key_file(file)


def test_a_byte_order_mark_is_no_part_of_a_key(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"\xef\xbb\xbffirst\nsecond\n")
    assert read_key_file(file) == ["first", "second"]


def test_a_file_that_cannot_be_read_is_named_and_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no-such-file.*cannot be read: No such file"):
        read_key_file(tmp_path / "no-such-file")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_key_file(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"topsecret\n\xff\xfe" + os.urandom(8))
    with pytest.raises(ConfigError, match="not a text in UTF-8") as caught:
        read_key_file(binary)
    assert "topsecret" not in str(caught.value)
