"""What a probe reads is what the scheduler is told and what the rows then hold."""

from __future__ import annotations

import pytest

from slipstream.runner.agreement import probe_step, read_probe
from support.engine_world import DRAFT_LEN, World, make_world
from support.engines import Knobs
from support.no_host_read import NoHostRead


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("tiny"))


class Probing:
    """A runner whose every step is probed when it is submitted, and read a step later."""

    def __init__(self, runner):
        self._runner = runner
        self.plans = []
        self.probes = []
        self.results = []

    def submit(self, plan):
        handle = self._runner.submit(plan)
        self.plans.append(plan)
        with NoHostRead():
            self.probes.append(probe_step(self._runner._parts.rows, plan, handle))
        return handle

    def collect_ladders(self, handle):
        self.results.append(self._runner.collect(handle))
        return self._runner.collect_ladders(handle)

    def collect(self, handle):
        result = self._runner.collect(handle)
        if not self.results or self.results[-1].step_id != result.step_id:
            self.results.append(result)
        return result


def test_a_probe_tells_what_was_decided_and_keeps_it(world: World) -> None:
    engine = world.engine("eagle3", Knobs(overlap=True, prefill_chunk_tokens=17))
    probing = Probing(engine.runner)
    engine.core._runner = probing
    engine.run(world.requests("greedy")[:4])
    num_rows = num_drafts = 0
    computed = {}
    for plan, probe, result in zip(probing.plans, probing.probes, probing.results, strict=True):
        runs = {run.row: run for run in result.runs}
        computed |= {start.row: start.num_computed_tokens for start in plan.starts}
        rows = read_probe(probe)
        assert [row.row for row in rows] == [*plan.decode_rows, *(chunk.row for chunk in plan.chunks)]
        for row in rows:
            run = runs.get(row.row)
            assert row.token_ids == (run.token_ids if run else ())
            assert row.num_accepted == (run.num_accepted if run else 0)
            if row.row in plan.decode_rows:
                assert row.num_computed_tokens == computed[row.row] + row.num_accepted + 1
            else:
                chunk = next(chunk for chunk in plan.chunks if chunk.row == row.row)
                assert row.num_computed_tokens == chunk.end
            computed[row.row] = row.num_computed_tokens
            if run is not None:
                assert row.last_token == run.token_ids[-1]
                assert len(row.draft_tokens) == DRAFT_LEN
                num_drafts += sum(token >= 0 for token in row.draft_tokens)
            num_rows += 1
    assert num_rows > 50
    assert num_drafts > 50
