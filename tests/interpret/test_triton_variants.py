"""What benchmarks vary of a kernel changes how it runs, never what it returns beyond its tolerance."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.attention.index_score import reference as index_score_reference
from slipstream.kernels.attention.index_score.triton_impl import score_visible
from slipstream.kernels.attention.select_blocks import reference as select_blocks_reference
from slipstream.kernels.attention.select_blocks.triton_impl import choose_from
from slipstream.kernels.linear.matmul_mxfp8.triton_impl import launch
from support.kernel_cases import inputs_of


def paged(page_size, contexts, query_len, seed):
    """Integer queries and float8 keys of requests with long contexts: every product is exact."""
    generator = torch.Generator().manual_seed(seed)
    num_reqs = len(contexts)
    max_pages = -(-max(contexts) // page_size) + 2
    table = 1 + torch.randperm(num_reqs * max_pages, generator=generator).view(num_reqs, max_pages).int()
    keys = torch.randint(-4, 5, (1 + num_reqs * max_pages, page_size, 32), generator=generator)
    queries = torch.randint(-4, 5, (num_reqs * query_len, 1, 32), generator=generator)
    positions = torch.cat([torch.arange(context - query_len, context) for context in contexts])
    req = torch.arange(num_reqs).repeat_interleave(query_len)
    return queries.bfloat16(), keys.float().to(torch.float8_e4m3fn), table, req, positions


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize("max_programs", [1, 200])
@pytest.mark.parametrize(
    ("page_size", "contexts", "query_len"), [(16, (700, 300), 4), (64, (900, 70, 640), 3), (128, (1500,), 4)]
)
def test_scores_do_not_depend_on_how_keys_are_dealt(page_size, contexts, query_len, max_programs, is_early):
    world = paged(page_size, contexts, query_len, seed=page_size)
    wanted = index_score_reference.index_score(*world)
    scores = torch.full_like(wanted, float("-inf"))
    score_visible(*world, scores, max_programs=max_programs, is_early=is_early)
    assert torch.equal(scores, wanted)


@pytest.mark.parametrize("max_pages", [30, 600, 2500])
def test_choice_is_the_reference_s_in_narrow_and_wide_tables(max_pages):
    """Each width has a branch of its own; scores behind the own block are junk that nobody may read."""
    generator = torch.Generator().manual_seed(max_pages)
    positions = torch.tensor([-1, 3, 29 * 4, max_pages * 4 - 1, max_pages * 2])
    scores = torch.randint(-9, 10, (5, 2, max_pages), generator=generator).float()
    wanted = select_blocks_reference.select_blocks(scores, positions, 4, 16, 2, 3)
    scores[1, :, 1:] = float("nan")
    assert torch.equal(choose_from(scores, positions, 4, 16, 2, 3), wanted)


@pytest.mark.parametrize("units", [4, 8])
@pytest.mark.parametrize("is_early", [False, True])
def test_every_split_sums_up_to_the_same_product(units, is_early):
    inputs = inputs_of("linear/matmul_mxfp8", "several_splits")
    parts = launch(*inputs.values(), units, is_early=is_early)
    assert parts.shape[0] == 24 // units
    planned = launch(*inputs.values(), 4)
    assert torch.allclose(parts.sum(0), planned.sum(0), atol=2e-3, rtol=1e-5)
    assert torch.equal(parts[0, :1], launch(inputs["x"][:1], *list(inputs.values())[1:], units)[0])
