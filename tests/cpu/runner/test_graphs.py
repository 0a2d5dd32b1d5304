"""Which graph stands for which batch. That a replay equals the step it stands for: tests/gpu."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from slipstream.runner.edit_rows import EditNeeds
from slipstream.runner.graphs import LadderGraphs, Rung, row_rungs
from slipstream.runner.step import BatchChoice
from slipstream.sampling.classes import SamplingClass


def graphs(max_rows=20, *, can_reject=True):
    parts = SimpleNamespace(rows=SimpleNamespace(scratch_row=max_rows), can_reject=can_reject)
    return LadderGraphs(parts, max_rows=max_rows, draft_len=3, device=torch.device("cpu"))


def choice(sampling_class=SamplingClass.GREEDY, **more):
    return BatchChoice((0,), sampling_class, more.pop("wants_logprobs", (False,)), **more)


@pytest.mark.parametrize("max_rows", [1, 2, 3, 8, 9, 64, 100])
def test_row_rungs_end_with_the_engine_s_rows_and_waste_less_than_eight(max_rows):
    rungs = row_rungs(max_rows)
    assert list(rungs) == sorted(set(rungs))
    assert (rungs[0], rungs[-1]) == (1, max_rows)
    for rows in range(1, max_rows + 1):
        rung = next(rung for rung in rungs if rung >= rows)
        assert rung - rows < 8


def test_every_batch_without_special_wishes_has_a_rung():
    made = graphs()
    known = set(made.rungs())
    assert len(known) == len(list(made.rungs()))
    for rows in range(1, 21):
        for sampling_class in SamplingClass:
            assert made.rung_of(rows, choice(sampling_class)) in known
    assert made.rung_of(3, choice(SamplingClass.PLAIN, has_rejection=True)) == Rung(4, SamplingClass.PLAIN, True)


def test_an_engine_that_cannot_reject_has_no_such_rungs():
    assert not any(rung.has_rejection for rung in graphs(can_reject=False).rungs())


def test_wishes_that_no_graph_knows_have_no_rung():
    made = graphs()
    assert made.rung_of(2, choice(wants_logprobs=(False, True))) is None
    assert made.rung_of(2, choice(needs=EditNeeds(has_penalties=True))) is None


def test_nothing_is_replayed_that_was_not_captured():
    made = graphs()
    assert made.num_graphs == 0
    assert made.replay((0,), choice()) is None
