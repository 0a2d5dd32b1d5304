"""Penalties at every ladder row against a loop over one row's text."""

from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.sampling.penalise_logits.cases import CASES, PenaltyCase, make_inputs
from slipstream.kernels.sampling.penalise_logits.contract import penalise_logits
from support.edit_oracle import penalised


def expected(given: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = given["logits"].clone()
    for request in range(len(logits)):
        base, num_prompt = int(given["base_positions"][request]), int(given["num_prompt_tokens"][request])
        text = given["history"][request, : base + 1].tolist()
        drafts = given["draft_tokens"][request].tolist()
        penalties = [float(given[name][request]) for name in ("repetition", "presence", "frequency")]
        for row in range(logits.shape[1]):
            returned = text[num_prompt:] + [draft for draft in drafts[:row] if draft >= 0]
            values = logits[request, row].tolist()
            logits[request, row] = torch.tensor(penalised(values, text[:num_prompt], returned, *penalties))
    return logits


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_a_loop_over_the_text(case: PenaltyCase):
    given = make_inputs(case)
    assert torch.allclose(penalise_logits(**given), expected(given), rtol=1e-6, atol=1e-6)


def test_requests_without_penalties_keep_their_bits():
    for case in CASES:
        given = make_inputs(case)
        found = penalise_logits(**given)
        for request, penalties in enumerate(case.penalties):
            is_off = penalties == (1.0, 0.0, 0.0)
            assert torch.equal(found[request], given["logits"][request]) == is_off, case.name


def mutant(given: dict[str, torch.Tensor], fault: str) -> torch.Tensor:
    """Return what a known mistake gives."""
    given = dict(given)
    if fault == "drafts_forgotten":
        given["draft_tokens"] = torch.full_like(given["draft_tokens"], -1)
    elif fault == "all_rows_see_all_drafts":
        rows = [penalise_logits(**given)[:, -1:]] * given["logits"].shape[1]
        change = rows[0] - given["logits"][:, -1:]
        return given["logits"] + change
    elif fault == "prompt_is_returned":
        given["num_prompt_tokens"] = torch.zeros_like(given["num_prompt_tokens"])
    elif fault == "last_token_forgotten":
        given["base_positions"] = given["base_positions"] - 1
    elif fault == "stale_history_counts":
        given["base_positions"] = given["base_positions"] + 3
    elif fault == "missing_is_token_0":
        given["draft_tokens"] = given["draft_tokens"].clamp(min=0)
    return penalise_logits(**given)


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("drafts_forgotten", "frequency"),
        ("all_rows_see_all_drafts", "frequency"),
        ("prompt_is_returned", "presence"),
        ("last_token_forgotten", "frequency"),
        ("stale_history_counts", "frequency"),
        ("missing_is_token_0", "missing"),
    ],
)
def test_the_cases_reject_mutants(fault: str, name: str):
    given = make_inputs(next(case for case in CASES if case.name == name))
    assert not torch.allclose(mutant(given, fault), expected(given), rtol=1e-4, atol=1e-4)


def test_nothing_becomes_allowed_and_faults_stay_visible():
    given = make_inputs(next(case for case in CASES if case.name == "mixed"))
    given["logits"][0, 1, 2] = -torch.inf
    given["logits"][2, 0, 3] = torch.nan
    found = penalise_logits(**given)
    assert found[0, 1, 2] == -torch.inf
    assert found[2, 0, 3].isnan()
    assert int(found.isnan().sum()) == 1


def test_wrong_shapes_are_named():
    given = make_inputs(CASES[0])
    given["repetition"] = torch.ones(2)
    with pytest.raises(ShapeError, match=r"repetition is \[2\] float32, allowed is \[1\] float32"):
        penalise_logits(**given)
