"""The commands on a tiny checkpoint, as a user types them."""

from __future__ import annotations

import json
import re

import pytest

from slipstream.cli import doctor as doctor_module
from slipstream.cli.doctor import model_checks
from slipstream.cli.main import main
from support.tiny_llm import make_tiny_llm

PROMPTS = [{"domain": "code", "prompt": "the quick brown fox"}, {"domain": "text", "prompt": "jumps over the dog"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(make_tiny_llm(tmp_path_factory.mktemp("tiny")))


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    captured = capsys.readouterr()
    assert stopped.value.code == 0, captured.err
    return captured.out, captured.err


def test_generate_streams_text_and_tells_what_it_cost(capsys, folder):
    words = ["generate", "the fox", "a dog", "--model", folder, "--max-tokens", "12", "--threads", "1", "--stats"]
    out, err = run(capsys, *words, "--max-model-len", "64", "--drafter", "ngram")
    assert len(out.split("\n\n")) >= 2
    assert err.count("acceptance length") == 2
    again, _ = run(capsys, *words, "--max-model-len", "64", "--drafter", "none")
    assert again == out


def test_bench_decode_writes_scores_of_every_contender(capsys, folder, tmp_path):
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("\n".join(json.dumps(line) for line in PROMPTS), encoding="utf-8")
    out = tmp_path / "r.json"
    words = ["bench", "decode", folder, "--prompts", str(prompts), "--out", str(out), "--threads", "1"]
    sizes = ["--prompt-tokens", "0", "--max-tokens", "6", "--repetitions", "2", "--max-model-len", "64"]
    shown, _ = run(capsys, *words, *sizes, "--drafter", "ngram", "--draft-len", "2", "--peer", "transformers")
    result = json.loads(out.read_text(encoding="utf-8"))
    names = ["transformers", "no drafter", "ngram, 2 drafts"]
    assert [s["contender"] for s in result["scores"] if s["domain"] == "all"] == names
    assert len(result["trials"]) == 3 * 2 * 2
    assert result["differing"]["ngram, 2 drafts"] == 0
    assert result["provenance"]["num_threads"] == 1
    assert result["config"]["cache.enable_prefix"] == "off"
    assert all(name in shown for name in names)
    assert folder not in json.dumps(result["config"])


def test_doctor_compares_drafters(folder, monkeypatch):
    monkeypatch.setattr(doctor_module, "SELF_TEST_MODEL", folder)
    monkeypatch.setattr(doctor_module, "SELF_TEST_TOKENS", 10)
    checks = model_checks(["none", "ngram"])
    assert [check.status for check in checks] == ["pass", "pass"], checks
    assert "acceptance length" in checks[1].detail
    assert re.search(r", \d+ tokens/s, the others are compared with this$", checks[0].detail)
    assert re.search(r", \d+ tokens/s, equal tokens: yes$", checks[1].detail)
    broken = model_checks(["no/such/drafter"])
    assert broken[0].status == "fail"
    assert "no/such/drafter" in broken[0].detail
