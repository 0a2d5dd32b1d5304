"""What ranks say to each other survives the wire, in its own direction only."""

from __future__ import annotations

import pytest

from slipstream.base.errors import EngineError
from slipstream.wire.codec import decode_to_leader, decode_to_worker, encode
from slipstream.wire.ranks import (
    Hello,
    Leave,
    Loaded,
    Meet,
    RankFailed,
    RankIdentity,
    RowAgreement,
    RunStep,
    StepAgreement,
    WarmUp,
)
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import PageEdit, PrefillChunk, RowStart, StepPlan

START = RowStart(
    row=1,
    token_ids=(3, 4, 5),
    num_computed_tokens=0,
    max_seq_len=9,
    sampling=SamplingParams(temperature=0.7, top_k=5, logprobs=0),
    seed=-(2**63),
)
PLAN = StepPlan(
    step_id=7,
    starts=(START,),
    page_edits=(PageEdit(group="index", row=1, first=0, pages=(4, 2)),),
    decode_rows=(0, 2),
    chunks=(PrefillChunk(row=1, start=0, end=3, is_last=True),),
    draft_len=3,
)
ROW = RowAgreement(
    row=1, token_ids=(7, 8), num_accepted=1, num_computed_tokens=2**40, last_token=8, draft_tokens=(-1, 5)
)
IDENTITY = RankIdentity(config="c", switches="s", version="1", torch="2", arithmetic="AVX2")
TO_WORKER = [Meet(init_method="file:///x"), WarmUp(), RunStep(plan=PLAN), Leave()]
TO_LEADER = [
    Hello(rank=1, identity=IDENTITY),
    Loaded(rank=1),
    StepAgreement(rank=1, step_id=7, rows=(ROW,)),
    RankFailed(rank=1, kind="KernelError", reason="why"),
]


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda message: type(message).__name__)
def test_messages_to_a_worker_survive(message):
    assert decode_to_worker(encode(message)) == message
    with pytest.raises(EngineError, match="cannot be read"):
        decode_to_leader(encode(message))


@pytest.mark.parametrize("message", TO_LEADER, ids=lambda message: type(message).__name__)
def test_messages_to_rank_0_survive(message):
    assert decode_to_leader(encode(message)) == message
    with pytest.raises(EngineError, match="cannot be read"):
        decode_to_worker(encode(message))
