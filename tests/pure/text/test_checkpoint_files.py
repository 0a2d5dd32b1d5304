"""Broken files of a checkpoint are named, with the remedy."""

from __future__ import annotations

import json

import pytest

from slipstream.base.errors import CheckpointError
from slipstream.text.checkpoint_files import (
    eos_token_ids,
    named_tokens,
    read_object,
    read_optional_object,
    read_text,
)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is missing"),
        (b"", "is empty"),
        (b'{"a": 1', "not complete JSON"),
        (b"[1]", "not an object"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 100_000, "not complete JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not complete JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
    ],
)
def test_a_broken_file_is_named(tmp_path, content, says):
    path = tmp_path / "some.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=says) as caught:
        read_object(path)
    assert str(path) in str(caught.value)


def test_a_folder_in_place_of_a_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_text(tmp_path)


def test_an_absent_optional_file_is_empty(tmp_path):
    assert read_optional_object(tmp_path / "none.json") == {}


def test_named_tokens_may_be_text_or_objects():
    config = {"bos_token": "B", "eos_token": {"content": "E"}, "pad_token": None, "other": "x"}
    assert named_tokens(config) == {"bos_token": "B", "eos_token": "E"}


def test_generation_config_wins_over_config_and_text_section_over_top(tmp_path):
    assert eos_token_ids(tmp_path) == ()
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 3}))
    assert eos_token_ids(tmp_path) == (3,)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 3, "text_config": {"eos_token_id": 4}}))
    assert eos_token_ids(tmp_path) == (4,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6, 5]}))
    assert eos_token_ids(tmp_path) == (5, 6)


@pytest.mark.parametrize("value", ["5", True, [], [1, None], -1, 1.0])
def test_a_strange_end_token_is_refused(tmp_path, value):
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
    with pytest.raises(CheckpointError, match="eos_token_id"):
        eos_token_ids(tmp_path)
