from __future__ import annotations

import json
import shlex

import msgspec
import pytest

from slipstream.cli.serve import describe_ready, example_request
from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.resolve import resolve
from support.tiny_checkpoints import write_tiny_config


@pytest.fixture
def config(tmp_path):
    folder = write_tiny_config(tmp_path / "tiny")
    machine = Hardware(num_cpus=1, total_memory_bytes=2**33, available_memory_bytes=2**32)
    return resolve(Options(model=str(folder)), machine)


def with_server(config, **fields):
    return msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, **fields))


def test_the_example_is_a_request_to_this_server(config):
    words = shlex.split(example_request(with_server(config, served_model_name="my model"), "http://h:1"))
    assert words[:3] == ["curl", "-sS", "http://h:1/v1/chat/completions"]
    body = json.loads(words[words.index("-d") + 1])
    assert body["model"] == "my model"
    assert body["messages"][0]["role"] == "user"
    assert body["temperature"] == 0


def test_the_key_is_asked_for_but_not_shown(config):
    shown = example_request(with_server(config, api_keys=("s3cret",)), "http://h:1")
    assert "Authorization: Bearer YOUR_KEY" in shown
    assert "s3cret" not in shown
    assert "Authorization" not in example_request(with_server(config, api_keys=()), "http://h:1")


def test_the_ready_line_names_model_and_drafter(config):
    line = describe_ready(config, "http://h:1").splitlines()[0]
    assert config.server.served_model_name in line
    assert f"drafter {config.speculation.drafter}" in line
