"""Plans and results cross rooms as plain values and come back equal from the wire."""

import msgspec

from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import PageEdit, PrefillChunk, RowStart, StepPlan, StepResult, TokenRun


def test_a_plan_survives_the_wire() -> None:
    plan = StepPlan(
        step_id=3,
        starts=(
            RowStart(row=1, token_ids=(5, 6), num_computed_tokens=0, max_seq_len=9, sampling=SamplingParams(), seed=-1),
            RowStart(
                row=2,
                token_ids=(5,),
                num_computed_tokens=0,
                max_seq_len=9,
                sampling=SamplingParams(grammar=GrammarSpec.regex("a+")),
                seed=4,
                grammar_id="r",
            ),
        ),
        page_edits=(PageEdit(group="target", row=1, first=0, pages=(4,)),),
        decode_rows=(0, 2),
        chunks=(PrefillChunk(row=1, start=0, end=2, is_last=True),),
        draft_len=3,
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=StepPlan) == plan


def test_a_result_survives_the_wire() -> None:
    run = TokenRun(row=1, token_ids=(5, 6), num_draft_tokens=3, num_accepted=1, logprobs=(-0.5, -1.0))
    failed = TokenRun(row=2, token_ids=(0,), num_draft_tokens=0, num_accepted=0, is_finite=False, error="no way on")
    result = StepResult(step_id=3, runs=(run, failed))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=StepResult) == result
