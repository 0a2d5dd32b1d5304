"""A step may hold no token at all, on one rank and on several."""

from __future__ import annotations

import pytest
import torch

from slipstream.parallel.group import one_rank
from support.layer_jobs import (
    HIDDEN,
    KV_HEADS,
    LAYERS,
    ROPE_TABLE,
    VOCAB,
    build,
    make_addressing,
    make_hidden,
    make_pools,
)
from support.layer_parts import fill, make_full, run_ranks


def run_empty(name, group):
    layer = fill(build(name, group), make_full(build(name, one_rank())))
    if name == "embedding":
        return layer(torch.tensor([], dtype=torch.int64))
    if name.startswith("attention"):
        inputs, num_pages = make_addressing((5,), (0,))
        pools = make_pools(num_pages, len(group.mesh.kv_heads(KV_HEADS)))
        pools = pools[:2] if name == "attention_dense" else pools
        return layer(make_hidden(0), inputs, *pools, ROPE_TABLE)
    if name == "moe":
        return layer(make_hidden(0), torch.tensor([], dtype=torch.int64))
    return layer(make_hidden(0))


@pytest.mark.parametrize("name", LAYERS)
def test_no_tokens_give_no_rows(name):
    width = VOCAB if name == "lm_head" else HIDDEN
    assert run_empty(name, one_rank()).shape == (0, width)
    assert [result.shape for result in run_ranks(2, lambda group: run_empty(name, group))] == [(0, width)] * 2
