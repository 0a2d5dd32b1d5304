"""The fake runner must refuse what a device would not survive; otherwise the scheduler's tests prove nothing."""

from __future__ import annotations

import msgspec
import pytest

from slipstream.cache.logical.pages import GroupSpec
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import PageEdit, PrefillChunk, RowStart, StepPlan
from support.fake_runner import (
    DeviceFault,
    FakeRunner,
    accept_pattern,
    expected_stream,
    make_request,
    model_token,
    prefix_digest,
)

PAGE = 4


def make_runner(**options) -> FakeRunner:
    return FakeRunner((GroupSpec("target", 12),), PAGE, 3, 32, **options)


def start_row(row: int, tokens, *, num_computed: int = 0, max_seq_len: int = 32) -> RowStart:
    return RowStart(
        row=row,
        token_ids=tuple(tokens),
        num_computed_tokens=num_computed,
        max_seq_len=max_seq_len,
        sampling=SamplingParams(),
        seed=1,
    )


def edit(row: int, first: int, *pages: int) -> PageEdit:
    return PageEdit(group="target", row=row, first=first, pages=pages)


def prefill(step_id: int, row: int, tokens, *pages: int, draft_len: int = 0, num_computed: int = 0) -> StepPlan:
    return StepPlan(
        step_id=step_id,
        starts=(start_row(row, tokens, num_computed=num_computed),),
        page_edits=(edit(row, 0, *pages),),
        chunks=(PrefillChunk(row=row, start=num_computed, end=len(tokens), is_last=True),),
        draft_len=draft_len,
    )


def test_a_row_emits_the_models_tokens_whatever_is_accepted():
    request = make_request("a", range(5), max_tokens=9)
    stream, _ = expected_stream(request)
    runner = make_runner(accept=accept_pattern([0, 3, 1]))
    runner.submit(prefill(0, 0, range(5), 1, 2, 3, 4, draft_len=3))
    for step_id in (1, 2, 3):
        runner.submit(StepPlan(step_id=step_id, decode_rows=(0,), draft_len=3))
    runs = [runner.collect(step_id).runs[0] for step_id in range(4)]
    assert [run.num_accepted for run in runs] == [0, 0, 3, 1]
    emitted = [token for run in runs for token in run.token_ids]
    assert tuple(emitted[:8]) == stream[:8]
    assert emitted[0] == model_token(1, prefix_digest(range(5)))


def test_a_write_without_a_page_is_a_fault():
    runner = make_runner()
    runner.submit(prefill(0, 0, range(4), 1))
    with pytest.raises(DeviceFault, match="position 4: no page"):
        runner.submit(StepPlan(step_id=1, decode_rows=(0,)))


def test_draft_rows_need_pages_too():
    with pytest.raises(DeviceFault, match="position 4: no page"):
        make_runner().submit(prefill(0, 0, range(4), 1, draft_len=3))


def test_nothing_is_written_at_or_past_the_limit():
    runner = make_runner(accept=accept_pattern([3]))
    plan = prefill(0, 0, range(4), 1, 2, draft_len=3)
    runner.submit(msgspec.structs.replace(plan, starts=(start_row(0, range(4), max_seq_len=6),)))
    runner.submit(StepPlan(step_id=1, decode_rows=(0,), draft_len=3))
    assert runner.contents["target"][2][2:] == [None, None]


def test_a_page_has_one_writer():
    runner = make_runner()
    runner.submit(prefill(0, 0, range(3), 1, 2))
    with pytest.raises(DeviceFault, match="several tables"):
        runner.submit(prefill(1, 1, range(3), 1, 3))


def test_a_shared_page_that_is_full_may_be_read_by_many_and_written_by_none():
    runner = make_runner()
    runner.submit(prefill(0, 0, range(5), 1, 2))
    runner.submit(prefill(1, 1, range(5), 1, 3, num_computed=4))
    assert runner.collect().runs[0].token_ids == runner.collect().runs[0].token_ids
    with pytest.raises(DeviceFault, match="content"):
        runner.submit(prefill(2, 2, [9, 9, 9, 9, 9], 1, 4, num_computed=4))


def test_a_hit_on_a_page_that_is_not_written_is_a_fault():
    runner = make_runner()
    first = prefill(0, 0, range(5), 1, 2)
    second = prefill(0, 1, range(5), 1, 3, num_computed=4)
    both = StepPlan(
        step_id=0,
        starts=first.starts + second.starts,
        page_edits=first.page_edits + second.page_edits,
        chunks=first.chunks + second.chunks,
    )
    with pytest.raises(DeviceFault):
        runner.submit(both)


def test_a_row_and_its_pages_are_not_reused_while_a_step_is_in_flight():
    runner = make_runner()
    runner.submit(prefill(0, 0, range(3), 1))
    with pytest.raises(DeviceFault, match="row 0 reused while in flight"):
        runner.submit(prefill(1, 0, range(3), 1))
    runner = make_runner()
    runner.submit(prefill(0, 0, range(3), 1))
    moved = prefill(1, 1, range(3), 1)
    moved = StepPlan(step_id=1, starts=moved.starts, page_edits=(edit(0, 0, 0), *moved.page_edits), chunks=moved.chunks)
    with pytest.raises(DeviceFault, match="while a step in flight may write it"):
        runner.submit(moved)


def test_a_start_clears_the_rows_tables():
    runner = make_runner()
    runner.submit(prefill(0, 0, range(3), 1, 2))
    runner.collect()
    runner.submit(prefill(1, 0, range(3), 3))
    assert runner.tables["target"][0][:2] == [3, 0]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (StepPlan(step_id=1), "step 1 submitted"),
        (StepPlan(step_id=0, decode_rows=(1, 0)), "ascending"),
        (StepPlan(step_id=0, decode_rows=(0, 0)), "ascending"),
        (
            StepPlan(step_id=0, decode_rows=(0,), chunks=(PrefillChunk(row=0, start=0, end=1, is_last=True),)),
            "twice in one plan",
        ),
        (StepPlan(step_id=0, starts=(start_row(3, [1]),)), "does not exist"),
        (StepPlan(step_id=0, starts=(start_row(0, [1, 2], num_computed=2),)), "a hit of 2 tokens"),
        (StepPlan(step_id=0, starts=(start_row(0, [1, 2], max_seq_len=2),)), "limits"),
        (StepPlan(step_id=0, page_edits=(PageEdit(group="other", row=0, first=0, pages=(1,)),)), "unknown group"),
        (StepPlan(step_id=0, page_edits=(edit(0, 8, 1),)), "past the table"),
        (StepPlan(step_id=0, page_edits=(edit(0, 0, 12),)), "page 12 does not exist"),
        (StepPlan(step_id=0, page_edits=(edit(0, 0, 1),)), "never started"),
    ],
)
def test_a_plan_against_the_contract_is_refused(plan, message):
    with pytest.raises(DeviceFault, match=message):
        make_runner().submit(plan)


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        (PrefillChunk(row=0, start=1, end=2, is_last=False), "bad chunk"),
        (PrefillChunk(row=0, start=0, end=9, is_last=True), "known tokens"),
        (PrefillChunk(row=0, start=0, end=2, is_last=True), "is_last"),
        (PrefillChunk(row=0, start=0, end=6, is_last=False), "is_last"),
    ],
)
def test_a_chunk_continues_where_the_row_stands(chunk, message):
    plan = StepPlan(step_id=0, starts=(start_row(0, range(6)),), page_edits=(edit(0, 0, 1, 2),), chunks=(chunk,))
    with pytest.raises(DeviceFault, match=message):
        make_runner().submit(plan)


def test_a_row_decodes_only_after_its_last_chunk():
    plan = StepPlan(step_id=0, starts=(start_row(0, range(6)),), page_edits=(edit(0, 0, 1, 2),), decode_rows=(0,))
    with pytest.raises(DeviceFault, match="before its last chunk"):
        make_runner().submit(plan)


def test_results_are_collected_in_order():
    runner = make_runner()
    runner.submit(prefill(0, 0, range(3), 1))
    runner.submit(StepPlan(step_id=1, decode_rows=(0,)))
    with pytest.raises(DeviceFault, match="step 1 collected before 0"):
        runner.collect(1)
