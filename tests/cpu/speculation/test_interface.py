"""Every drafter, real or scripted, obeys the protocol: shapes, dtypes, padding, and no host read of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.speculation.interface import DraftCache, Drafter, ObserveInputs, ProposeInputs
from slipstream.speculation.ngram import NgramDrafter
from slipstream.speculation.none import NoDrafter
from slipstream.wire.ids import NO_TOKEN
from slipstream.wire.sampling_params import SamplingParams
from support.drafters import (
    AlwaysWrongDrafter,
    ConstantDrafter,
    NoTokenDrafter,
    OracleDrafter,
    RandomDrafter,
    RightThenWrongDrafter,
)
from support.eagle3_rig import VOCAB, load, make_head, make_tables
from support.no_host_read import NoHostRead
from support.toy_target import sampling_inputs

STREAM = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
DRAFTERS = {
    "none": lambda _: NoDrafter(),
    "ngram": lambda _: NgramDrafter(3, 3, 1),
    "eagle3": lambda folder: load(folder, make_head(folder), make_tables(), 3)[0],
    "random": lambda _: RandomDrafter(3, VOCAB),
    "constant": lambda _: ConstantDrafter(3, 4),
    "no_token": lambda _: NoTokenDrafter(3),
    "oracle": lambda _: OracleDrafter(3, [STREAM], VOCAB, wrong_at=[6]),
    "always_wrong": lambda _: AlwaysWrongDrafter(3, [STREAM], VOCAB),
    "right_then_wrong": lambda _: RightThenWrongDrafter(3, [STREAM], VOCAB, num_right=1),
}


def propose_inputs(num_accepted: list[int], bases: list[int], query_len: int) -> ProposeInputs:
    count = len(bases)
    history = torch.full((count, 16), 3)
    for row in range(count):
        history[row, : len(STREAM)] = torch.tensor(STREAM)
    return ProposeInputs(
        emitted=history[:, 1 : 1 + query_len].contiguous(),
        num_accepted=torch.tensor(num_accepted, dtype=torch.int64),
        base_positions=torch.tensor(bases, dtype=torch.int64),
        max_seq_lens=torch.full((count,), 16),
        taps=torch.randn(count, query_len, 96, generator=torch.Generator().manual_seed(0)),
        page_table=torch.arange(1, 1 + 4 * count, dtype=torch.int32).reshape(count, 4),
        sampling=sampling_inputs([SamplingParams()] * count, range(count)),
        history=history,
        is_greedy=False,
    )


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize(
    ("bases", "accepted", "query_len"),
    [([3], [0], 1), ([0, 2, -1, 4], [3, 0, 1, 2], 4), ([-1, -1], [0, 0], 4), ([], [], 4)],
)
def test_obeys_the_protocol(tmp_path: Path, name: str, bases: list[int], accepted: list[int], query_len: int):
    drafter: Drafter = DRAFTERS[name](tmp_path)
    cache = DraftCache(torch.zeros(17, 4, 2, 8), torch.zeros(17, 4, 2, 8), 4)
    tokens, positions = torch.tensor([5, 6, 0]), torch.tensor([0, 1, -1])
    observed = ObserveInputs(tokens, positions, torch.zeros(3, 96), torch.tensor([-1, 5, -1]))
    inputs = propose_inputs(accepted, bases, query_len)
    with NoHostRead():
        drafter.observe(observed, cache)
        proposal = drafter.propose(inputs, cache)
    drafts = proposal.draft_tokens
    assert proposal.draft_probs is None, "no request is verified by rejection"
    assert drafts.shape == (len(bases), drafter.spec.draft_len)
    assert drafts.dtype == torch.int64
    assert ((drafts >= NO_TOKEN) & (drafts < VOCAB)).all()


def test_the_oracle_is_right_but_where_it_is_told_to_be_wrong():
    drafts = OracleDrafter(3, [[1, 2], STREAM], VOCAB, wrong_at=[6]).propose(
        propose_inputs([0, 1, 2, 3], [2, 2, 4, 4], 4), DraftCache(None, None, 4)
    )
    assert drafts.draft_tokens.tolist() == [[9, 10, 12], [10, 12, 12], [13, 14, -1], [14, -1, -1]]


def test_an_oracle_proposes_nothing_for_a_text_it_does_not_know():
    inputs = propose_inputs([0], [4], 4)
    inputs.history[0, 2] += 1
    proposal = OracleDrafter(3, [STREAM], VOCAB).propose(inputs, DraftCache(None, None, 4))
    assert (proposal.draft_tokens == NO_TOKEN).all()
