from __future__ import annotations

import json

import pytest

from slipstream.cli.main import main
from support.tiny_checkpoints import write_tiny_config


@pytest.fixture
def folder(tmp_path):
    return str(write_tiny_config(tmp_path / "tiny"))


def explain(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["explain", *arguments])
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_values_come_with_their_origin_and_without_weights(capsys, folder):
    shown = json.loads(explain(capsys, folder, "--json", "--max-num-seqs", "3", "--api-key", "s3cret"))
    assert shown["scheduler"]["max_num_seqs"]["value"] == "3"
    assert shown["scheduler"]["max_num_seqs"]["origin"] == "option"
    assert shown["model"]["seed"]["origin"] == "default"
    assert shown["cache"]["page_size"]["origin"] == "checkpoint"
    assert int(shown["bytes"]["cache"]["value"]) > 0
    assert "s3cret" not in json.dumps(shown)


def test_the_table_says_the_same(capsys, folder):
    shown = explain(capsys, folder, "--drafter", "ngram")
    assert "[speculation]" in shown
    row = next(line for line in shown.splitlines() if line.split()[:1] == ["drafter"])
    assert row.split()[1:3] == ["ngram", "option"]
