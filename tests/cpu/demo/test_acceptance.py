"""The bundled EAGLE-3 head inside the engine drafts exactly what it drafts in plain tensors, and drafts well.

The offline side is `recipes/demo/simulate_acceptance.py`, which shares no code with the engine: its own network, its
own cache, its own walk over verify steps. Any fault of positions, taps or draft slots parts the two.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from slipstream import LLM, SamplingParams
from slipstream.demo import demo_drafter_path, demo_path
from slipstream.harness import stats

RECIPE = Path(__file__).parents[3] / "recipes" / "demo" / "simulate_acceptance.py"
MAX_NEW = 48
PER_DOMAIN = 4
DRAFT_LEN = 3


@dataclass(frozen=True)
class Answer:
    """One prompt's answer on one side."""

    domain: str
    token_ids: list[int]
    num_verify_steps: int


def acceptance_length(answers: list[Answer]) -> float:
    """Tokens emitted per verify step; the first token of an answer comes from its prompt's own pass."""
    length = stats.acceptance_length(
        sum(one.num_verify_steps for one in answers), sum(len(one.token_ids) - 1 for one in answers)
    )
    assert length is not None
    return length


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    folder = tmp_path_factory.mktemp("offline")
    rows = [json.loads(line) for line in (demo_path().parent / "prompts.jsonl").read_text().splitlines()]
    kept: dict[str, list[str]] = {}
    for row in rows:
        domain = kept.setdefault(row["domain"], [])
        if len(domain) < PER_DOMAIN:
            domain.append(json.dumps(row))
    prompts, result = folder / "prompts.jsonl", folder / "result.json"
    prompts.write_text("\n".join(line for domain in kept.values() for line in domain))
    command = [sys.executable, str(RECIPE), str(prompts), str(demo_path()), str(demo_drafter_path())]
    command += ["--num-drafts", str(DRAFT_LEN), "--max-new", str(MAX_NEW), "--json", str(result)]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    return json.loads(result.read_text())


@pytest.fixture(scope="module")
def in_engine(offline: list[dict[str, object]]) -> list[Answer]:
    with LLM("demo", drafter="eagle3", draft_len=DRAFT_LEN, threads=1) as llm:
        completions = llm.generate(
            [row["prompt"] for row in offline],
            SamplingParams(temperature=0, max_tokens=MAX_NEW, skip_special_tokens=False),
        )
    return [
        Answer(str(row["domain"]), list(one.token_ids), one.num_verify_steps)
        for row, one in zip(offline, completions, strict=True)
    ]


@pytest.fixture(scope="module")
def simulated(offline: list[dict[str, object]]) -> list[Answer]:
    return [Answer(str(row["domain"]), row["answer"], row["num_steps"]) for row in offline]  # type: ignore[arg-type]


def test_the_engine_writes_what_plain_tensors_write(simulated: list[Answer], in_engine: list[Answer]) -> None:
    assert [one.token_ids for one in in_engine] == [one.token_ids for one in simulated]


def test_acceptance_in_the_engine_equals_the_simulation_to_one_percent(
    simulated: list[Answer], in_engine: list[Answer]
) -> None:
    assert acceptance_length(in_engine) == pytest.approx(acceptance_length(simulated), rel=0.01)


def test_the_head_is_accepted_on_held_out_prompts(in_engine: list[Answer]) -> None:
    assert acceptance_length(in_engine) >= 2.0


def test_a_head_with_taps_of_other_layers_is_accepted_less(
    offline: list[dict[str, object]], in_engine: list[Answer], tmp_path: Path
) -> None:
    """The control: the figure above is sensitive to the taps, so equality with the simulation means something."""
    config = json.loads((demo_drafter_path() / "config.json").read_text())
    shifted = [layer - 1 for layer in config["eagle_aux_hidden_state_layer_ids"]]
    config["eagle_aux_hidden_state_layer_ids"] = shifted
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = shifted
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((demo_drafter_path() / "model.safetensors").read_bytes())
    with LLM("demo", drafter=str(tmp_path), draft_len=DRAFT_LEN, threads=1) as llm:
        completions = llm.generate(
            [row["prompt"] for row in offline], SamplingParams(temperature=0, max_tokens=MAX_NEW)
        )
    answers = [
        Answer(str(row["domain"]), list(one.token_ids), one.num_verify_steps)
        for row, one in zip(offline, completions, strict=True)
    ]
    assert [one.token_ids for one in answers] == [one.token_ids for one in in_engine], "a poor head changes no token"
    assert acceptance_length(answers) < 0.9 * acceptance_length(in_engine)
