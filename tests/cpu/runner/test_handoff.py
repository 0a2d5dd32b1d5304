"""Device results become runs: cut at the accepted count, log-probabilities only where asked."""

import torch

from slipstream.runner.handoff import PendingRuns, StepHandle, collect


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
