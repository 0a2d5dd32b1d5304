"""Forbidden sequences at every ladder row, against list arithmetic."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given as for_all
from hypothesis import strategies as st

from slipstream.base.errors import ShapeError
from slipstream.kernels.sampling.forbid_sequences.cases import CASES, SequenceCase, make_inputs
from slipstream.kernels.sampling.forbid_sequences.contract import forbid_sequences
from support.edit_oracle import forbidden_by_sequences


def expected(case: SequenceCase, given: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = given["logits"].clone()
    for request, text in enumerate(case.texts):
        for row in range(logits.shape[1]):
            returned = [*text, *case.drafts[request][:row]][case.num_prompt_tokens[request] :]
            sequences = [sequence for sequence in case.sequences[request] if sequence]
            logits[request, row, list(forbidden_by_sequences(returned, sequences))] = -torch.inf
    return logits


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_list_arithmetic(case: SequenceCase):
    given = make_inputs(case)
    wanted = expected(case, given)
    assert torch.equal(forbid_sequences(**given), wanted)
    is_quiet = case.name in ("none", "short_text")
    assert torch.equal(wanted, given["logits"]) == is_quiet, "a case that forbids nothing proves nothing"


@for_all(
    st.lists(st.integers(0, 2), min_size=1, max_size=8),
    st.lists(st.integers(-1, 2), min_size=0, max_size=4),
    st.integers(0, 8),
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_any_text_and_any_sequences(text, drafts, num_prompt_tokens, sequences):
    case = SequenceCase(
        name="any",
        guards="any",
        seed=0,
        dtype=torch.float32,
        tolerance=CASES[0].tolerance,
        sizes={"vocab_size": 6, "sequence_len": 4},
        texts=(tuple(text),),
        drafts=(tuple(drafts),),
        num_prompt_tokens=(min(num_prompt_tokens, len(text)),),
        sequences=(tuple(map(tuple, sequences)),),
    )
    given = make_inputs(case)
    assert torch.equal(forbid_sequences(**given), expected(case, given))


def test_faults_stay_visible():
    given = make_inputs(next(case for case in CASES if case.name == "plain"))
    given["logits"][0, 0, 4] = torch.nan
    assert forbid_sequences(**given)[0, 0, 4].isnan()


def test_wrong_shapes_are_named():
    given = make_inputs(CASES[0])
    given["sequences"] = given["sequences"][0]
    with pytest.raises(ShapeError, match="sequences is"):
        forbid_sequences(**given)
