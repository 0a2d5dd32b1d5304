"""`slipstream quantize`, and that engines run what it writes: the same tokens as on dequantised weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slipstream import LLM, SamplingParams
from slipstream.cli.main import main
from slipstream.config.quantization.read import read_quantization
from slipstream.config.quantization.spec import QUANTISED
from slipstream.demo import demo_path
from support.quantised import dequantised_copy
from support.tiny_llm import make_tiny_llm

PROMPTS = ["What is 17 plus 25?", "The little boat", '{"name": "']
PLAIN_ENGINE = {"threads": 1, "drafter": "none", "max_model_len": 128, "kv_cache_bytes": 32 << 20}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bundled model as plain weights, however it is stored."""
    if not read_quantization(demo_path()).formats:
        return demo_path()
    return dequantised_copy(demo_path(), tmp_path_factory.mktemp("demo") / "plain")


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["quantize", *arguments])
    captured = capsys.readouterr()
    assert stopped.value.code == code, captured.err
    return captured.out, captured.err


def greedy(folder: Path, **options: object) -> list[list[int]]:
    with LLM(str(folder), **{**PLAIN_ENGINE, **options}) as llm:
        outputs = llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=24))
    return [list(output.token_ids) for output in outputs]


@pytest.mark.parametrize("wanted", QUANTISED)
def test_the_bundled_model_answers_as_its_dequantised_copy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, demo: Path, wanted: str
) -> None:
    target = tmp_path / "q"
    out, err = run(capsys, str(demo), str(target), "--format", wanted)
    assert "MiB -> " in out
    assert f" {wanted}" in err
    oracle = dequantised_copy(target, tmp_path / "plain")
    found = greedy(target, dtype="bfloat16")
    assert found == greedy(oracle, dtype="bfloat16")
    assert len({token for tokens in found for token in tokens}) > 10


def test_two_ranks_answer_as_one(capsys: pytest.CaptureFixture[str], tmp_path: Path, demo: Path) -> None:
    run(capsys, str(demo), str(tmp_path / "q"), "--format", "nvfp4-m31")
    assert greedy(tmp_path / "q", tp=2) == greedy(tmp_path / "q")


def test_a_plain_copy_undoes_a_quantised_one(capsys: pytest.CaptureFixture[str], tmp_path: Path, demo: Path) -> None:
    run(capsys, str(demo), str(tmp_path / "q"))
    out, err = run(capsys, str(tmp_path / "q"), str(tmp_path / "back"), "--format", "bfloat16")
    assert " mxfp8, " in err
    assert "MiB -> " in out
    oracle = load_file(dequantised_copy(tmp_path / "q", tmp_path / "oracle") / "model.safetensors")
    found = load_file(tmp_path / "back" / "model.safetensors")
    assert found.keys() == oracle.keys()
    assert all(torch.equal(found[name], oracle[name]) and found[name].dtype == oracle[name].dtype for name in found)


def test_options_reach_the_copy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = make_tiny_llm(tmp_path / "s", expert_intermediate_size=32)
    _, err = run(capsys, str(source), str(tmp_path / "q"), "--format", "nvfp4", "--recipe", "experts")
    assert " nvfp4" in err
    assert "mxfp8" not in err
    run(capsys, str(source), str(tmp_path / "q"), "--recipe", "experts", "--shard-gib", "0.0001", "--force")
    assert len(list((tmp_path / "q").glob("*.safetensors"))) > 1
    section = json.loads((tmp_path / "q" / "config.json").read_text())["quantization_config"]
    assert section["quant_method"] == "mxfp8"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("demo", "q", "--format", "int4"), "--format int4: allowed: mxfp8, nvfp4, nvfp4-m31, bfloat16"),
        (("demo", "q", "--recipe", "all"), "--recipe all: allowed: released, experts"),
        (("demo", "q", "--format", "bfloat16", "--recipe", "experts"), "--recipe experts: bfloat16 undoes whatever"),
        (("demo", "q", "--shard-gib", "0"), "--shard-gib 0: give a number above 0"),
        (("nowhere", "q"), "SRC=nowhere: no such folder"),
        (("demo", "taken"), "DST=taken: it exists already"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    out, err = run(capsys, *arguments, code=2)
    assert out == ""
    assert err.startswith(f"slipstream: {words}")
    assert err.count("\n") == 1
    assert [item.name for item in tmp_path.iterdir()] == ["taken"]
