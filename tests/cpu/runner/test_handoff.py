"""Device results become runs: cut at the accepted count, log-probabilities only where asked."""

import torch

from slipstream.runner.handoff import (
    NO_TOKEN_LEFT,
    ConstraintNews,
    PendingRuns,
    StepHandle,
    begin_copy,
    collect,
    collect_first,
    end_copy,
    words_for_device,
)
from slipstream.runner.prompts import PendingPrompt
from slipstream.sampling.logprobs import TopLogprobs
from slipstream.wire.step import NO_TOKEN_CODE, PromptRun


def test_runs_are_cut_at_the_accepted_count() -> None:
    pending = PendingRuns(
        rows=(4, 1),
        emitted=torch.tensor([[7, 8, 9], [5, 6, 3]]),
        num_accepted=torch.tensor([0, 2]),
        num_draft_tokens=torch.tensor([2, 2]),
        is_finite=torch.tensor([True, False]),
        logprobs=torch.tensor([[-1.0, -2.0, -3.0], [-0.5, -0.25, -0.125]]),
        wants_logprobs=(False, True),
    )
    result = collect(StepHandle(step_id=3, pending=(pending,)))
    first, second = result.runs
    assert (result.step_id, first.row, first.token_ids, first.logprobs, first.is_finite) == (3, 4, (7,), (), True)
    assert (second.row, second.token_ids, second.num_accepted, second.is_finite) == (1, (5, 6, 3), 2, False)
    assert second.logprobs == (-0.5, -0.25, -0.125)


def test_padding_entries_at_the_end_are_left_out() -> None:
    pending = PendingRuns(
        rows=(4,),
        emitted=torch.tensor([[7], [0]]),
        num_accepted=torch.tensor([0, 0]),
        num_draft_tokens=torch.tensor([0, 0]),
        is_finite=torch.tensor([True, True]),
        logprobs=None,
        wants_logprobs=(True,),
    )
    assert [run.row for run in collect(StepHandle(step_id=1, pending=(pending,))).runs] == [4]


def test_alternatives_are_cut_by_row_and_by_what_each_asked() -> None:
    ids = torch.tensor([[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]], [[1, 1, 1], [1, 1, 1]]])
    pending = PendingRuns(
        rows=(4, 1, 2),
        emitted=torch.tensor([[7, 8], [5, 6], [3, 3]]),
        num_accepted=torch.tensor([0, 1, 1]),
        num_draft_tokens=torch.tensor([1, 1, 1]),
        is_finite=torch.tensor([True, True, True]),
        logprobs=torch.zeros(3, 2),
        wants_logprobs=(True, True, False),
        top=TopLogprobs(ids, -ids.float()),
        num_top=(3, 2, 0),
    )
    first, second, third = collect(StepHandle(step_id=3, pending=(pending,))).runs
    assert first.top_logprobs == (((1, -1.0), (2, -2.0), (3, -3.0)),)
    assert second.top_logprobs == (((7, -7.0), (8, -8.0)), ((10, -10.0), (11, -11.0)))
    assert third.top_logprobs == ()


def test_the_first_part_of_a_step_is_collected_alone() -> None:
    def part(row: int) -> PendingRuns:
        return PendingRuns(
            rows=(row,),
            emitted=torch.tensor([[row]]),
            num_accepted=torch.tensor([0]),
            num_draft_tokens=torch.tensor([0]),
            is_finite=torch.tensor([True]),
            logprobs=None,
            wants_logprobs=(False,),
        )

    prompt = PendingPrompt(row=7, first=1, logprobs=torch.tensor([-0.5]), top=None)
    whole = StepHandle(step_id=5, pending=(part(4), part(7)), prompts=(prompt,))
    first, left = collect_first(whole)
    rest = collect(left)
    assert (first.step_id, rest.step_id) == (5, 5)
    assert [run.row for run in first.runs] == [4]
    assert first.prompt_runs == ()
    assert [run.row for run in rest.runs] == [7]
    assert (*first.runs, *rest.runs) == collect(whole).runs
    assert rest.prompt_runs == collect(whole).prompt_runs


def test_prompts_come_with_the_step_that_computed_them() -> None:
    top = TopLogprobs(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[-1.0, -2.0], [-3.0, -4.0]]))
    prompts = (
        PendingPrompt(row=2, first=1, logprobs=torch.tensor([-0.5, -0.25]), top=top),
        PendingPrompt(row=0, first=9, logprobs=torch.tensor([-0.5]), top=None),
    )
    result = collect(StepHandle(step_id=1, pending=(), prompts=prompts))
    assert result.prompt_runs == (
        PromptRun(
            row=2,
            first=1,
            logprobs=(-0.5, -0.25),
            top_logprobs=(((1, -1.0), (2, -2.0)), ((3, -3.0), (4, -4.0))),
        ),
        PromptRun(row=0, first=9, logprobs=(-0.5,)),
    )


def test_constrained_rows_say_why_they_end_and_free_ones_do_not() -> None:
    pending = PendingRuns(
        rows=(4, 1, 2, 0),
        emitted=torch.tensor([[7], [5], [3], [1]]),
        num_accepted=torch.zeros(4, dtype=torch.int64),
        num_draft_tokens=torch.zeros(4, dtype=torch.int64),
        is_finite=torch.tensor([False, False, False, True]),
        logprobs=None,
        wants_logprobs=(False,) * 4,
        constraints=ConstraintNews(
            is_constrained=(True, True, False, True),
            faults=("no way on", None, None, None),
            is_empty=torch.tensor([True, True, True, False]),
        ),
    )
    runs = collect(StepHandle(step_id=1, pending=(pending,))).runs
    assert [run.error for run in runs] == ["no way on", NO_TOKEN_LEFT, None, None]
    assert [run.error_code for run in runs] == [None, NO_TOKEN_CODE, None, None]
    assert "min_tokens" in NO_TOKEN_LEFT


def test_a_copy_is_of_the_moment_when_it_was_begun() -> None:
    values = torch.tensor([[1, 2], [3, 4]])
    copy = begin_copy(values)
    values.fill_(9)
    assert end_copy(copy) == [[1, 2], [3, 4]]


def test_words_for_a_device_start_with_all_bits_set_and_share_their_memory() -> None:
    words, words_host = words_for_device((2, 3), torch.device("cpu"))
    assert words.tolist() == [[-1] * 3] * 2
    words_host[1, 2] = 7
    assert words[1, 2] == 7
