from __future__ import annotations

import tomllib

from slipstream.training.checkpoints import LogRow
from slipstream.training.measure import DomainScore, DrafterScore
from slipstream.training.results import Outcome, format_outcome, write_outcome
from slipstream.training.settings import TrainSettings


def score(drafter, length, answers):
    domains = tuple(
        DomainScore(
            domain=domain,
            num_prompts=2,
            num_tokens=9,
            num_verify_steps=4,
            acceptance_length=length,
            acceptance_rates=(0.5, 0.25) if length else (),
        )
        for domain in ("code", "all")
    )
    return DrafterScore(drafter=drafter, domains=domains, answers=answers)


OUTCOME = Outcome(
    kind="eagle3",
    settings=TrainSettings(),
    identity={"settings.seed": 0, "prompts": "abc"},
    device="cpu",
    num_threads=1,
    num_texts=3,
    num_written_tokens=30,
    num_skipped_prompts=1,
    text_hashes={"00000.safetensors": "f00"},
    peak_rate=0.01,
    steps=7,
    tokens=700,
    seconds=12.0,
    last=LogRow(step=7, tokens=700, seconds=12.0, loss=1.5, reached=(0.5,)),
    is_held_out=True,
    draft_len=2,
    scores=(
        score("eagle3", 2.5, ((1, 2), (3,))),
        score("untrained", 1.0, ((1, 2), (3,))),
        score("none", None, ((1, 2), (4,))),
    ),
)


def test_the_result_can_be_read_back_with_its_provenance(tmp_path):
    write_outcome(tmp_path / "result.toml", OUTCOME)
    result = tomllib.loads((tmp_path / "result.toml").read_text(encoding="utf-8"))
    assert result["kind"] == "train-drafter"
    assert result["provenance"]["versions"]["torch"]
    assert result["inputs"] == {"prompts": "abc"}
    assert result["texts"]["sha256"] == {"00000.safetensors": "f00"}
    assert result["settings"]["budget"] == {"unit": "steps", "amount": 1000}
    assert result["training"]["last_loss"] == 1.5
    assert [d["acceptance_length"] for d in result["acceptance"]["eagle3"]] == [2.5, 2.5]
    assert set(result["acceptance"]) == {"eagle3", "untrained"}
    assert (result["measurement"]["num_answers"], result["measurement"]["num_equal_answers"]) == (2, 1)


def test_a_reader_sees_domains_controls_and_what_differs():
    shown = format_outcome(OUTCOME)
    assert [line.split() for line in shown.splitlines() if line.startswith("code")] == [
        ["code", "2", "2.50", "1.00", "0.50", "0.25"]
    ]
    assert "held-out prompts, greedy, 2 drafts per step" in shown
    assert "1 of 2 answers are the same without a drafter" in shown
    assert "7 steps, 700 tokens, 12 s of training on cpu" in shown
