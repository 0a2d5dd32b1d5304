"""How the attention references cut batches into runs and read pages."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.attention import paged
from slipstream.kernels.attention.paged import attend, attend_safely, load_pages, rows_of, runs_of


def spans(req_of_token, positions, num_heads=4):
    runs = runs_of(torch.tensor(req_of_token), torch.tensor(positions), num_heads)
    return [(run.start, run.end, run.req, run.min_position, run.max_position) for run in runs]


def test_runs_are_neighbouring_tokens_of_one_request():
    assert spans([0, 0, 2, 1, 1, 1, 0], [3, 4, 9, -1, -1, 7, 5]) == [
        (0, 2, 0, 3, 4),
        (2, 3, 2, 9, 9),
        (3, 6, 1, -1, 7),
        (6, 7, 0, 5, 5),
    ]
    assert spans([3], [8]) == [(0, 1, 3, 8, 8)]
    assert spans([], []) == []


def test_rows_of_a_run():
    """A part is a part; a run that is the whole batch costs nothing."""
    first, second = torch.arange(5), torch.arange(10).view(5, 2)
    part = rows_of(paged.Run(1, 3, 0, 7, 8), first, second)
    assert torch.equal(part[0], first[1:3])
    assert torch.equal(part[1], second[1:3])
    assert rows_of(paged.Run(0, 5, 0, 7, 8), first, second) == (first, second)


def test_long_runs_are_cut_into_tiles():
    limit = paged.MAX_TILE_TOKENS
    cut = spans([5] * (2 * limit + 1), list(range(2 * limit + 1)))
    assert [(start, end) for start, end, *_ in cut] == [(0, limit), (limit, 2 * limit), (2 * limit, 2 * limit + 1)]
    assert [highest for *_, highest in cut] == [limit - 1, 2 * limit - 1, 2 * limit]


@pytest.mark.parametrize("num_keys", [100, 20_000, 10**6])
def test_scores_of_a_tile_are_bounded(num_keys):
    positions = list(range(num_keys - 200, num_keys)) if num_keys > 200 else list(range(num_keys))
    for start, end, *_ in spans([0] * len(positions), positions, num_heads=64):
        assert (end - start) * 64 * num_keys <= paged.MAX_TILE_SCORES or end - start == 1


def test_a_run_s_tiles_do_not_depend_on_the_batch():
    short, long = [0] * 90, [1] * 2
    alone = spans(short, list(range(90)), num_heads=64)
    together = spans(short + long, [*range(90), 10**6, 10**6 + 1], num_heads=64)
    assert together[: len(alone)] == alone


@pytest.mark.parametrize("ids", [[3], [2, 3, 4], [4, 2, 3], [2, 4, 3], [0, 5], [1, 1]])
def test_pages_are_loaded_in_order(ids):
    pool = torch.arange(6 * 2 * 3, dtype=torch.float32).view(6, 2, 3)
    other = pool.flip(2).bfloat16()
    tokens, others = load_pages((pool, other), ids)
    assert torch.equal(tokens, pool[ids].flatten(0, 1))
    assert torch.equal(others, other[ids].flatten(0, 1))


def test_neighbouring_pages_are_not_copied():
    pool = torch.zeros(6, 2, 3)
    (tokens,) = load_pages((pool,), [2, 3, 4])
    assert tokens.data_ptr() == pool[2].data_ptr()


def test_hidden_values_are_repaired_only_where_needed(monkeypatch):
    """The slow path is taken for NaN behind a mask, and not for a query that merely sees nothing."""
    calls = []
    strict = paged._attend_strictly
    monkeypatch.setattr(paged, "_attend_strictly", lambda *a: calls.append(1) or strict(*a))
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(n, 2, 4, generator=generator) for n in (3, 5, 5))
    is_hidden = torch.zeros(1, 3, 5, dtype=torch.bool)
    is_hidden[0, 0, 3:] = True
    is_hidden[0, 1] = True
    mixed = attend_safely(q, k, v, is_hidden)
    assert calls == []
    assert not mixed[1].any()
    assert torch.equal(mixed[0], attend(q, k, v, is_hidden)[0])
    stained = v.clone()
    stained[4] = float("nan")
    repaired = attend_safely(q, k, stained, is_hidden)
    assert calls == [1]
    assert torch.allclose(repaired[:2], mixed[:2], atol=1e-6)
    assert repaired[2].isnan().all()
