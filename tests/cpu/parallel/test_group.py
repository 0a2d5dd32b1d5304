from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ConfigError
from slipstream.parallel.group import RankLost, TensorParallelGroup, connect, one_rank
from slipstream.parallel.mesh import Mesh
from support.layer_parts import run_ranks
from support.rank_processes import part_company, run_processes, use_group

VALUES = (1.0, 2.0**-24, 2.0**-24)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    return run_processes(2, use_group, tmp_path_factory.mktemp("ranks"))


def test_two_processes_sum_and_concatenate(two_processes):
    own = torch.arange(6.0).view(2, 3)
    for results in two_processes:
        assert torch.equal(results["sum"], 2 * own + 10)
        assert torch.equal(results["half_sum"], torch.full((4,), 3.0, dtype=torch.bfloat16))
        assert torch.equal(results["last"], torch.cat([own, own + 10], dim=1))
        assert torch.equal(results["first"], torch.cat([own, own + 10], dim=0))
        assert torch.equal(results["strided"], torch.cat([own.t(), own.t() + 10], dim=1))
        assert torch.equal(results["broadcast"], torch.full((2, 3), 40, dtype=torch.int32))
        assert torch.equal(results["broadcast_floats"], own)


def test_a_rank_that_leaves_is_an_error_for_the_others_and_not_a_wait(tmp_path):
    stayed, left = run_processes(2, part_company, tmp_path)
    for operation in ("sum", "gather", "broadcast"):
        assert stayed[operation].startswith("RankLost: rank 0 of 2: another rank is gone or silent (")
        # A closed group must not pass a partial sum on as the whole.
        assert left[operation] == "EngineError: rank 1 of 2 has left its group"
    assert not stayed["is_default_group"], "a program's own default group would be taken"


def test_ranks_that_nobody_joins_give_up(tmp_path):
    with pytest.raises(RankLost, match="rank 0 of 2 did not meet the others at file:.* within 0.5 s"):
        connect(Mesh(2, 0), init_method=f"file://{tmp_path}/meeting", backend="gloo", timeout_s=0.5)


def test_one_rank_launches_nothing():
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    group = connect(Mesh(), init_method="nowhere", backend="gloo", timeout_s=1.0)
    assert group.all_reduce(x) is x
    assert group.all_gather(x) is x
    assert group.broadcast(x) is x
    group.close()
    assert not torch.distributed.is_initialized()


def test_sums_are_taken_in_rank_order_on_every_rank():
    """1 + 2^-24 + 2^-24 in float32 is 1; the two small ones first give more than 1."""
    in_order = run_ranks(3, lambda group: group.all_reduce(torch.tensor([VALUES[group.mesh.tp_rank]])))
    backwards = run_ranks(3, lambda group: group.all_reduce(torch.tensor([VALUES[2 - group.mesh.tp_rank]])))
    assert [result.item() for result in in_order] == [1.0] * 3
    assert [result.item() for result in backwards] == [1.0 + 2.0**-23] * 3


def test_bfloat16_is_summed_in_float32_and_rounded_once():
    """256 + 1 + 1 rounds to 256 twice in bfloat16, but 258 can be represented."""
    results = run_ranks(
        3, lambda group: group.all_reduce(torch.tensor([256.0 if group.mesh.tp_rank == 0 else 1.0]).bfloat16())
    )
    assert [result.item() for result in results] == [258.0] * 3


def test_mesh_and_process_group_must_agree():
    with pytest.raises(ConfigError, match="tp_size = 2: a process group is needed"):
        TensorParallelGroup(Mesh(2, 0))
    with pytest.raises(ConfigError, match=r"\(rank, size\) = \(1, 2\), mesh = \(0, 2\)"):
        run_ranks(2, lambda group: TensorParallelGroup(Mesh(2, 0), group._process_group))
    with pytest.raises(ConfigError, match="needed exactly when"):
        run_ranks(2, lambda group: TensorParallelGroup(Mesh(1, 0), group._process_group))


def test_one_rank_is_the_default_mesh():
    assert one_rank().mesh == Mesh(1, 0)
