"""Commits against a scalar loop, twice, with padding and at the end of the history."""

from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.select import select
from slipstream.kernels.step.commit_rows import cpu, reference
from slipstream.kernels.step.commit_rows.cases import CASES, CommitCase, make_inputs
from slipstream.kernels.step.commit_rows.contract import commit_rows

STATE = ("num_computed_tokens", "last_token", "token_history")


def scalar_commit(given: dict[str, torch.Tensor]) -> dict[str, list]:
    wanted = {name: given[name].tolist() for name in STATE}
    batch = [given[name].tolist() for name in ("row_of_batch", "base_positions", "num_accepted", "emitted")]
    for row, base, accepted, emitted in zip(*batch, strict=True):
        if row < 0:
            continue
        wanted["num_computed_tokens"][row] = base + accepted + 1
        wanted["last_token"][row] = emitted[accepted]
        for index in range(accepted + 1):
            if base + 1 + index < len(wanted["token_history"][row]):
                wanted["token_history"][row][base + 1 + index] = emitted[index]
    return wanted


def test_the_host_commits_on_a_cpu():
    assert select("step/commit_rows", "cpu").function is cpu.commit_rows
    assert select("step/commit_rows", "cuda").implementation == "triton_impl"


@pytest.mark.parametrize("implementation", [cpu.commit_rows, reference.commit_rows], ids=["cpu", "reference"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_a_scalar_loop_and_is_idempotent(case: CommitCase, implementation):
    given = make_inputs(case)
    wanted = scalar_commit(given)
    for _ in range(2):
        implementation(**given)
        assert {name: given[name].tolist() for name in STATE} == wanted


def test_stale_entries_do_not_matter():
    given, other = make_inputs(CASES[1]), make_inputs(CASES[1])
    offsets = torch.arange(given["emitted"].shape[1])
    is_stale = offsets > given["num_accepted"][:, None]
    assert is_stale.any()
    other["emitted"] = torch.where(is_stale, -(10**12), given["emitted"])
    commit_rows(**given)
    commit_rows(**other)
    assert all(torch.equal(given[name], other[name]) for name in STATE)


def test_an_empty_batch_changes_nothing():
    given, before = make_inputs(CASES[1]), make_inputs(CASES[1])
    for name in ("row_of_batch", "base_positions", "num_accepted", "emitted"):
        given[name] = given[name][:0]
    commit_rows(**given)
    assert all(torch.equal(given[name], before[name]) for name in STATE)


def test_wrong_dtype_is_named():
    given = make_inputs(CASES[0])
    given["row_of_batch"] = given["row_of_batch"].int()
    with pytest.raises(ShapeError, match=r"row_of_batch is \[1\] int32, allowed is \[any\] int64"):
        commit_rows(**given)
