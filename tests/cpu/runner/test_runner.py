"""The runner follows plans, waits in one place only, and warm-up leaves no trace."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from slipstream.base.errors import EngineError
from slipstream.wire.step import StepPlan
from support.engine_world import World, make_world
from support.engines import Knobs, TestEngine, tokens_of
from support.no_host_read import HostRead, NoHostRead


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("tiny"))


def state_of(engine: TestEngine) -> dict[str, torch.Tensor]:
    """Everything a step may change, but for the scratch row."""
    parts = engine.runner._parts
    rows = {name: getattr(parts.rows, name)[:-1].clone() for name in parts.rows.__slots__}
    pools = {name: parts.pools._arena[name].clone() for name in parts.pools._arena}
    tables = {group: parts.tables.table(group).clone() for group in parts.tables.groups}
    return {**rows, **pools, **tables}


@pytest.mark.parametrize("mode", ["greedy", "coupled"])
@pytest.mark.parametrize("drafter", ["none", "ngram", "eagle3"])
def test_a_whole_run_reads_the_device_in_the_handoff_only(world: World, drafter: str, mode: str) -> None:
    engine = world.engine(drafter, Knobs(overlap=True, poison=False), mode=mode)
    with NoHostRead():
        outcomes = engine.run(world.requests(mode))
    assert tokens_of(outcomes) == world.reference_tokens(mode)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.item(),
        lambda x: x.tolist(),
        bool,
        int,
        str,
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x.to("cpu"),
        lambda x: x.to(device="cpu"),
        np.asarray,
        lambda x: x.repeat_interleave(x),
        lambda x: torch.repeat_interleave(x),
        lambda x: torch.where(x > 0),
        torch.bincount,
        torch.argwhere,
        lambda x: torch.arange(3).tensor_split(x),
    ],
)
def test_the_double_sees_every_kind_of_read(read: Callable[[torch.Tensor], object]) -> None:
    with NoHostRead(), pytest.raises(HostRead):
        read(torch.ones(1, dtype=torch.int64))


def test_the_double_lets_calls_pass_that_read_nothing() -> None:
    x = torch.ones(2, dtype=torch.int64)
    with NoHostRead():
        torch.where(x > 0, x, 0)
        x.to(torch.float32)
        x.to(device=x.device, dtype=torch.int32)
        x.repeat_interleave(3)
        x.repeat_interleave(x, output_size=2)
        x.split(1)


@pytest.mark.parametrize("drafter", ["none", "ngram", "eagle3"])
def test_warm_up_changes_neither_rows_nor_pages(world: World, drafter: str) -> None:
    engine = world.engine(drafter, Knobs(poison=False))
    engine.run(world.requests("greedy")[:3])
    before = state_of(engine)
    engine.runner.warm_up()
    for name, value in state_of(engine).items():
        assert torch.equal(value, before[name]), name


def test_a_plan_with_more_drafts_than_the_rows_hold_is_refused(world: World) -> None:
    engine = world.engine("eagle3", Knobs())
    with pytest.raises(EngineError, match="drafts"):
        engine.runner.submit(StepPlan(step_id=1, decode_rows=(0,), draft_len=world.draft_len + 1))


def test_padding_rows_change_nothing(world: World) -> None:
    """The same step with and without padding entries in its batch: a rung larger than the batch."""
    from slipstream.runner.inputs import ladder_batch
    from slipstream.runner.step import BatchChoice, run_ladders
    from slipstream.sampling.classes import SamplingClass

    results: list[tuple[list[list[int]], dict[str, torch.Tensor]]] = []
    for num_padding in (0, 3):
        engine = world.engine("eagle3", Knobs(max_num_seqs=4, poison=False), mode="coupled")
        for request in world.requests("coupled")[:3]:
            engine.submit(request)
        for _ in range(12):
            engine.turn()
        parts = engine.runner._parts
        scratch = parts.rows.scratch_row
        rows = torch.tensor([0, 1, 2] + [scratch] * num_padding)
        batch = ladder_batch(parts.rows, parts.tables, rows, world.draft_len, parts.page_size)
        with torch.inference_mode():
            pending = run_ladders(parts, batch, BatchChoice((0, 1, 2), SamplingClass.FULL, (False,) * 3))
        results.append((pending.emitted[:3].tolist(), state_of(engine)))
    assert results[0][0] == results[1][0]
    for name, value in results[0][1].items():
        torch.testing.assert_close(results[1][1][name], value, atol=1e-4, rtol=1e-4, msg=name)
