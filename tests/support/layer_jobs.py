"""One small instance of every layer that is cut over ranks, with its input: built alike on one rank and on many."""

from __future__ import annotations

import torch

from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.kernels.attention.paged_batch import make_batch
from slipstream.kernels.case import EXACT, Case
from slipstream.layers.attention_dense import AttentionGeometry, DenseAttention
from slipstream.layers.attention_sparse import IndexGeometry, SparseAttention
from slipstream.layers.embedding import Embedding
from slipstream.layers.lm_head import LmHead
from slipstream.layers.mlp import DenseMlp, SwigluOai
from slipstream.layers.moe import Moe, MoeGeometry
from slipstream.layers.rope import build_rope_table
from slipstream.parallel.group import one_rank
from support.layer_parts import fill, make_full

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, ROTARY_DIM, VOCAB = 24, 8, 2, 16, 8, 40
PAGE_SIZE, MAX_PAGES = 4, 12
GEOMETRY = AttentionGeometry(HIDDEN, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, ROTARY_DIM)
INDEX = IndexGeometry(KV_HEADS, HEAD_DIM, 3, 0, 1)
MOE = MoeGeometry(HIDDEN, 6, 2, 16, 8, 2.0, True, 1.702, 7.0)
PLACE = {"dtype": torch.float32, "device": "cpu"}
ROPE_TABLE = build_rope_table(64, ROTARY_DIM, 1e4, "cpu")


def build(name, group):
    """Return an unfilled layer of a rank."""
    if name == "embedding":
        return Embedding(VOCAB, HIDDEN, group=group, **PLACE)
    if name == "lm_head":
        return LmHead(VOCAB, HIDDEN, group=group, **PLACE)
    if name == "mlp":
        return DenseMlp(HIDDEN, 16, SwigluOai(1.702, 7.0), group=group, **PLACE)
    if name == "moe":
        return Moe(MOE, group=group, **PLACE)
    if name == "attention_dense":
        return DenseAttention(GEOMETRY, 1e-6, group=group, **PLACE)
    assert name == "attention_sparse"
    return SparseAttention(GEOMETRY, INDEX, 1e-6, group=group, **PLACE)


LAYERS = ("embedding", "lm_head", "mlp", "moe", "attention_dense", "attention_sparse")


def make_hidden(num_tokens, seed=1):
    return torch.randn(num_tokens, HIDDEN, generator=torch.Generator().manual_seed(seed))


def make_addressing(seq_lens, query_lens, num_padding=0, seed=2):
    """Return the addressing of a step, its slots, and how many pages there are; both groups have their own pages."""
    sizes = {"seq_lens": tuple(seq_lens), "query_lens": tuple(query_lens), "page_size": PAGE_SIZE}
    sizes |= {"max_pages": MAX_PAGES, "num_padding": num_padding}
    case = Case("layers", "", seed, torch.float32, EXACT, sizes)
    batch = make_batch(case, case.generator())
    index_batch = make_batch(case, torch.Generator().manual_seed(seed + 100))
    slots = [slots_for(b.page_table, b.req_of_token, b.positions) for b in (batch, index_batch)]
    inputs = AttentionInputs(
        batch.positions, batch.req_of_token, batch.page_table, slots[0], index_batch.page_table, slots[1]
    )
    return inputs, batch.num_pages


def slots_for(page_table, req_of_token, positions):
    """Return the slot of every token; -1 for padding."""
    pages = page_table[req_of_token, positions.clamp_min(0) // PAGE_SIZE].long()
    return torch.where(positions < 0, -1, pages * PAGE_SIZE + positions % PAGE_SIZE)


def make_pools(num_pages, num_kv_heads=KV_HEADS):
    """Return K, V and index-K pages that hold NaN everywhere."""
    nan = float("nan")
    k, v = (torch.full((num_pages, PAGE_SIZE, num_kv_heads, HEAD_DIM), nan) for _ in range(2))
    return k, v, torch.full((num_pages, PAGE_SIZE, HEAD_DIM), nan)


def run_layer(name, group):
    """Fill a rank's layer from the full weights of a seed, run it, and return what every rank must agree on."""
    layer = fill(build(name, group), make_full(build(name, one_rank()), seed=len(name)))
    if name == "embedding":
        return layer(torch.tensor([0, 39, 20, 19, 7, 7]))
    if name.startswith("attention"):
        inputs, num_pages = make_addressing((38, 1, 9), (38, 1, 9), num_padding=2)
        pools = make_pools(num_pages, len(group.mesh.kv_heads(KV_HEADS)))
        pools = pools[:2] if name == "attention_dense" else pools
        return layer(make_hidden(len(inputs.positions)), inputs, *pools, ROPE_TABLE)
    if name == "moe":
        return layer(make_hidden(6), torch.tensor([0, 1, 2, 3, -1, 9]))
    return layer(make_hidden(6))


def run_all(group):
    """Return the result of every layer by name."""
    with torch.inference_mode():
        return {name: run_layer(name, group) for name in LAYERS}
