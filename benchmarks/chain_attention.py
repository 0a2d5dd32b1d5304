"""Index scores, the choice of blocks and sparse attention of a ladder, in a chain over layers; for `chain.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from chain_report import COLD_BYTES, Report, Variant, chain_us, require
from torch import Tensor

from slipstream.kernels.attention.index_score.triton_impl import score_visible
from slipstream.kernels.attention.select_blocks.reference import select_blocks
from slipstream.kernels.attention.select_blocks.triton_impl import choose_from
from slipstream.kernels.attention.sparse_attend.triton_impl import attend_chosen
from slipstream.kernels.select import load

PAGE_SIZE, TOPK, HEAD_DIM, GROUP_HEADS = 128, 16, 128, 16
SCORE_VARIANTS: tuple[Variant, ...] = tuple(
    {"max_programs": programs, "num_stages": stages, "num_warps": 4, "is_early": is_early}
    for programs, stages, is_early in (
        (132, 2, False),
        (264, 1, False),
        (264, 2, False),
        (528, 1, False),
        (528, 2, False),
        (264, 1, True),
        (528, 1, True),
        (528, 2, True),
        (1024, 1, True),
    )
)
SELECT_VARIANTS: tuple[Variant, ...] = ({"num_warps": 1}, {"num_warps": 2}, {"num_warps": 4}, {"num_warps": 8})
ATTEND_VARIANTS: tuple[Variant, ...] = tuple(
    {"max_splits": splits, "max_keys": keys, "num_warps": warps, "num_stages": stages}
    for splits, keys, warps, stages in (
        (8, 128, 4, 2),
        (16, 128, 4, 1),
        (16, 128, 4, 2),
        (16, 128, 8, 1),
        (16, 64, 4, 1),
        (16, 64, 4, 2),
        (32, 64, 4, 1),
        (32, 64, 8, 1),
    )
)


@dataclass(frozen=True)
class Caches:
    """Queries of a ladder and the caches of several layers."""

    q: Tensor
    index_q: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    index_keys: list[Tensor]
    table: Tensor
    req: Tensor
    position: Tensor
    context: int

    @property
    def num_layers(self) -> int:
        """Return how many layers there are."""
        return len(self.keys)


def make_caches(num_reqs: int, query_len: int, context: int, dtype: torch.dtype) -> Caches:
    """Return random caches; the index queries of a ladder are alike, as those of neighbouring tokens are."""
    num_pages = -(-context // PAGE_SIZE)
    pool = 1 + num_reqs * num_pages
    layer_bytes = num_reqs * context * HEAD_DIM * dtype.itemsize
    num_layers = max(2, min(24, int(COLD_BYTES / layer_bytes) + 1))
    table = 1 + torch.randperm(pool - 1, device="cuda").view(num_reqs, num_pages).int()

    def pages(*shape: int) -> Tensor:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(dtype)

    base = torch.randn(num_reqs, 1, 1, HEAD_DIM, device="cuda")
    ladder = base + 0.3 * torch.randn(num_reqs, query_len, 1, HEAD_DIM, device="cuda")
    return Caches(
        q=torch.randn(num_reqs * query_len, GROUP_HEADS, HEAD_DIM, device="cuda").bfloat16(),
        index_q=ladder.flatten(0, 1).bfloat16(),
        keys=[pages(pool, PAGE_SIZE, 1, HEAD_DIM) for _ in range(num_layers)],
        values=[pages(pool, PAGE_SIZE, 1, HEAD_DIM) for _ in range(num_layers)],
        index_keys=[pages(pool, PAGE_SIZE, HEAD_DIM) for _ in range(num_layers)],
        table=table,
        req=torch.arange(num_reqs, device="cuda").repeat_interleave(query_len),
        position=(context - query_len + torch.arange(query_len, device="cuda")).repeat(num_reqs),
        context=context,
    )


def score(caches: Caches, layer: int, variant: Variant) -> Tensor:
    """Return the scores of one layer."""
    scores = torch.empty((*caches.index_q.shape[:2], caches.table.shape[1]), device="cuda")
    index_keys = caches.index_keys[layer]
    score_visible(caches.index_q, index_keys, caches.table, caches.req, caches.position, scores, **variant)
    return scores


def choose(caches: Caches, scores: Tensor, variant: Variant) -> Tensor:
    """Return the choice among scores."""
    return choose_from(scores, caches.position, PAGE_SIZE, TOPK, 0, 1, **variant)


def attend(caches: Caches, layer: int, chosen: Tensor, variant: Variant) -> Tensor:
    """Return one layer's attention."""
    pools = (caches.keys[layer], caches.values[layer])
    return attend_chosen(caches.q, *pools, caches.table, caches.req, caches.position, chosen, 1.0, 1.0, **variant)


def check_scores(caches: Caches, variant: Variant) -> None:
    """Compare the scores of the first layer with float64 products."""
    scores = score(caches, 0, variant)
    blocks = torch.arange(caches.table.shape[1], device="cuda")
    for token in {0, len(caches.q) - 1}:
        keys = caches.index_keys[0][caches.table[caches.req[token]].long()].float()
        products = torch.einsum("bpd,d->bp", keys.double(), caches.index_q[token, 0].double())
        places = blocks[:, None] * PAGE_SIZE + torch.arange(PAGE_SIZE, device="cuda")
        wanted = products.masked_fill(places > caches.position[token], float("-inf")).amax(1)
        require(torch.allclose(scores[token, 0].double(), wanted, atol=1e-4, rtol=1e-5), f"scores of token {token}")


def check_choice(caches: Caches, variant: Variant) -> None:
    """Compare the choice with the reference's on the same scores, to the bit."""
    scores = score(caches, 0, {})
    wanted = select_blocks(scores, caches.position, PAGE_SIZE, TOPK, 0, 1)
    require(torch.equal(choose(caches, scores, variant), wanted), "choice differs from the reference's")


def check_attention(caches: Caches, variant: Variant) -> None:
    """Compare the attention of two tokens with float64."""
    chosen = choose(caches, score(caches, 0, {}), {})
    result = attend(caches, 0, chosen, variant)
    for token in {0, len(caches.q) - 1}:
        blocks = chosen[token, 0][chosen[token, 0] >= 0].long()
        pages = caches.table[caches.req[token]].long()[blocks]
        places = (blocks[:, None] * PAGE_SIZE + torch.arange(PAGE_SIZE, device="cuda")).flatten()
        keys, values = caches.keys[0][pages].flatten(0, 2).double(), caches.values[0][pages].flatten(0, 2).double()
        logits = caches.q[token].double() @ keys.t() * HEAD_DIM**-0.5
        wanted = logits.masked_fill(places > caches.position[token], float("-inf")).softmax(1) @ values
        error = (result[token].double() - wanted).norm() / wanted.norm()
        require(bool(error < 4e-3), f"attention of token {token}: relative error {error.item():.1e}")


def attention_bytes(caches: Caches) -> tuple[float, float]:
    """Return the bytes of the visible index keys, and of the union of the chosen keys and values."""
    num_reqs, size = len(caches.table), caches.keys[0].dtype.itemsize
    chosen = choose(caches, score(caches, 0, {}), {})
    union = sum(len(chosen[caches.req == req].unique()) for req in range(num_reqs))
    return num_reqs * caches.context * HEAD_DIM * size, union * PAGE_SIZE * 2 * HEAD_DIM * size


def tune_attention(report: Report, setting: str, caches: Caches) -> tuple[Variant, Variant, Variant]:
    """Time every variant of each kernel by itself and return the best ones."""
    index_bytes, chosen_bytes = attention_bytes(caches)
    layers = range(caches.num_layers)
    all_scores = [score(caches, layer, {}) for layer in layers]
    choices = [choose(caches, scores, {}) for scores in all_scores]
    jobs: tuple[tuple[str, tuple[Variant, ...], Any, Any, float], ...] = (
        ("score", SCORE_VARIANTS, check_scores, lambda v: [score(caches, i, v) for i in layers], index_bytes),
        ("select", SELECT_VARIANTS, check_choice, lambda v: [choose(caches, one, v) for one in all_scores], 0.0),
        (
            "attend",
            ATTEND_VARIANTS,
            check_attention,
            lambda v: [attend(caches, i, choices[i], v) for i in layers],
            chosen_bytes,
        ),
    )
    best = []
    for name, variants, check, calls, num_bytes in jobs:
        times: list[tuple[float, Variant]] = []
        for variant in variants:
            try:
                check(caches, variant)
                times.append((chain_us(lambda c=calls, v=variant: c(v), caches.num_layers), variant))
            except Exception as error:  # noqa: BLE001 - whatever ails a variant, the others are timed
                report.fail(setting, name, variant, error)
                continue
            report.add(setting, name, variant, times[-1][0], num_bytes)
        best.append(min(times, key=lambda pair: pair[0])[1])
    return best[0], best[1], best[2]


def time_attention(report: Report, setting: str, caches: Caches, best: tuple[Variant, Variant, Variant] | None) -> None:
    """Time scores, choice and attention of a layer in one chain: as the operations do it, and as tuned."""
    index_bytes, chosen_bytes = attention_bytes(caches)
    layers = range(caches.num_layers)
    choose_blocks = load("attention/choose_blocks", "triton_impl").function
    sparse_attend = load("attention/sparse_attend", "triton_impl").function
    addressing = (caches.table, caches.req, caches.position)

    def index_only() -> None:
        for layer in layers:
            choose_blocks(caches.index_q, caches.index_keys[layer], *addressing, TOPK, 0, 1)

    def operations() -> None:
        for layer in layers:
            chosen = choose_blocks(caches.index_q, caches.index_keys[layer], *addressing, TOPK, 0, 1)
            sparse_attend(caches.q, caches.keys[layer], caches.values[layer], *addressing, chosen)

    for check in (check_scores, check_choice):
        check(caches, {})
    num_layers = caches.num_layers
    report.add(setting, "choose_blocks", {}, chain_us(index_only, num_layers), index_bytes)
    both = index_bytes + chosen_bytes
    report.add(setting, "choose + attend", {}, chain_us(operations, num_layers), both)
    if best is not None:

        def tuned() -> None:
            for layer in layers:
                attend(caches, layer, choose(caches, score(caches, layer, best[0]), best[1]), best[2])

        report.add(setting, "choose + attend, tuned", {}, chain_us(tuned, num_layers), both)
