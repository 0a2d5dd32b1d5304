"""The edits together: order, every ladder row, requests beside requests, and bad rows."""

from __future__ import annotations

import pytest
import torch

from slipstream.batch.step_inputs import LogitEdits, Penalties, TokenBiases
from slipstream.sampling.classes import SamplingClass
from slipstream.sampling.edits import edit_logits
from slipstream.sampling.verify import verify
from slipstream.wire.sampling_params import SamplingParams
from support.edit_oracle import edited
from support.toy_target import sampling_inputs

VOCAB = 9
QUERY_LEN = 4
NEUTRAL = 1
"""The request that asks for nothing."""


def make_inputs() -> tuple[torch.Tensor, LogitEdits, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(3, QUERY_LEN, VOCAB, generator=generator) * 2
    history = torch.randint(0, VOCAB, (3, 16), generator=generator)
    bias = torch.zeros(3, VOCAB)
    bias[0, 2], bias[0, 4] = 1.5, -torch.inf
    bias[2] = -torch.inf
    bias[2, [1, 3, 5, 7]] = torch.tensor([0.0, -2.0, 0.0, 0.0])
    is_end = torch.zeros(3, VOCAB, dtype=torch.bool)
    is_end[0, 6] = is_end[2, [1, 3]] = True
    sequences = torch.full((3, 2, 3), -1)
    drafts = torch.tensor([[5, 8, 0], [1, 1, 2], [7, 5, -1]])
    sequences[0, 0, 1:] = torch.tensor([5, 8])
    sequences[2, 1] = torch.tensor([7, 5, 7])
    edits = LogitEdits(
        num_prompt_tokens=torch.tensor([3, 4, 2]),
        history=history,
        biases=TokenBiases(bias, is_end, torch.tensor([9, 0, 8])),
        sequences=sequences,
        penalties=Penalties(
            torch.tensor([1.4, 1.0, 0.8]), torch.tensor([0.5, 0.0, -1.0]), torch.tensor([0.25, 0.0, 0.75])
        ),
    )
    return logits, edits, torch.tensor([6, 9, 5]), drafts


def expected_row(logits: torch.Tensor, edits: LogitEdits, base: int, drafts: list[int], request: int, row: int):
    num_prompt = int(edits.num_prompt_tokens[request])
    text = edits.history[request, : base + 1].tolist()
    returned = text[num_prompt:] + [draft for draft in drafts[:row] if draft >= 0]
    bias = edits.biases.bias[request]
    values = edited(
        logits[request, row].tolist(),
        text[:num_prompt],
        returned,
        repetition_penalty=float(edits.penalties.repetition[request]),
        presence_penalty=float(edits.penalties.presence[request]),
        frequency_penalty=float(edits.penalties.frequency[request]),
        logit_bias={token: float(bias[token]) for token in range(VOCAB) if torch.isfinite(bias[token])},
        allowed_token_ids=[token for token in range(VOCAB) if torch.isfinite(bias[token])],
        sequences=[[token for token in one if token >= 0] for one in edits.sequences[request].tolist() if one[-1] >= 0],
        min_tokens=int(edits.biases.first_end_position[request]) - num_prompt,
        end_tokens=edits.biases.is_end_token[request].nonzero()[:, 0].tolist(),
    )
    return torch.tensor(values)


def test_every_row_is_what_plain_decoding_would_have_seen():
    logits, edits, base, drafts = make_inputs()
    found = edit_logits(logits, edits, base, drafts)
    for request in range(3):
        is_dead = [draft < 0 for draft in drafts[request].tolist()] + [True]
        for row in range(is_dead.index(True) + 1):
            wanted = expected_row(logits, edits, int(base[request]), drafts[request].tolist(), request, row)
            assert torch.allclose(found[request, row], wanted, atol=1e-6), (request, row)
    assert torch.equal(found[NEUTRAL], logits[NEUTRAL])


@pytest.mark.parametrize("parts", [("biases",), ("sequences",), ("penalties",), ("biases", "penalties")], ids="+".join)
def test_a_part_that_nobody_needs_may_be_left_out(parts: tuple[str, ...]):
    """Its neutral values and its absence are the same."""
    logits, edits, base, drafts = make_inputs()
    neutral = LogitEdits(
        edits.num_prompt_tokens,
        edits.history,
        TokenBiases(torch.zeros(3, VOCAB), torch.zeros(3, VOCAB, dtype=torch.bool), torch.zeros(3).long()),
        torch.full((3, 2, 3), -1),
        Penalties(torch.ones(3), torch.zeros(3), torch.zeros(3)),
    )
    chosen = {name: getattr(edits, name) for name in parts}
    absent = {name: None for name in ("biases", "sequences", "penalties") if name not in parts}
    fields = {"num_prompt_tokens": edits.num_prompt_tokens, "history": edits.history}
    whole = {name: getattr(neutral, name) for name in absent} | chosen
    left_out = edit_logits(logits, LogitEdits(**fields, **chosen, **absent), base, drafts)
    assert torch.equal(edit_logits(logits, LogitEdits(**fields, **whole), base, drafts), left_out)
    assert not torch.equal(left_out, logits)


@pytest.mark.parametrize("fault", [torch.nan, torch.inf], ids=str)
def test_a_bad_row_ends_its_own_request_only(fault: float):
    """Also when the bad value belongs to a forbidden token."""
    logits, edits, base, drafts = make_inputs()
    sampling = sampling_inputs([SamplingParams(temperature=0.7)] * 3, range(3))
    missing = torch.full_like(drafts, -1)
    good = verify(edit_logits(logits, edits, base, missing), missing, base, sampling, SamplingClass.PLAIN)
    assert good.is_finite.all()
    logits[0, 0, 4] = fault
    found = verify(edit_logits(logits, edits, base, missing), missing, base, sampling, SamplingClass.PLAIN)
    assert found.is_finite.tolist() == [False, True, True]
    assert torch.equal(found.emitted[1:], good.emitted[1:])
