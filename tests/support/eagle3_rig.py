"""A drafter over a paged cache, driven like the engine drives it, but with a text and taps that are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from slipstream.config.schema import Eagle3Spec
from slipstream.models.eagle3.weights import load_eagle3
from slipstream.parallel.group import one_rank
from slipstream.speculation.eagle3 import Eagle3Drafter
from slipstream.speculation.interface import DraftCache, ObserveInputs, Proposal, ProposeInputs
from slipstream.wire.sampling_params import SamplingParams
from support.eagle3_oracle import Eagle3Oracle
from support.tiny_checkpoints import Eagle3Geometry, make_eagle3
from support.toy_target import sampling_inputs

VOCAB = 64
MAX_POSITIONS = 256


@dataclass
class Tables:
    """The target's embedding and output head; nothing else of a target is needed."""

    embedding: Tensor
    lm_head: Tensor

    def embed(self, token_ids: Tensor) -> Tensor:
        return self.embedding[token_ids]

    def compute_logits(self, hidden: Tensor) -> Tensor:
        return (hidden @ self.lm_head.T).float()


def make_tables(hidden_size: int = 32, vocab_size: int = VOCAB, seed: int = 9) -> Tables:
    generator = torch.Generator().manual_seed(seed)
    return Tables(
        torch.randn(vocab_size, hidden_size, generator=generator),
        torch.randn(vocab_size, hidden_size, generator=generator) * 0.5,
    )


def make_head(folder: Path, *, seed: int = 1, **flags: object) -> Eagle3Spec:
    """Write a random head and return its spec; `flags` are fields of Eagle3Geometry."""
    sizes: dict = {
        "hidden_size": 32,
        "target_hidden_size": 32,
        "vocab_size": VOCAB,
        "aux_layer_ids": (0, 1, 3),
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "intermediate_size": 48,
    } | flags
    sizes["num_taps"] = len(sizes["aux_layer_ids"])
    g = Eagle3Geometry(**sizes)
    make_eagle3.write_eagle3(folder, g, seed=seed, dtype="float32")
    return Eagle3Spec(
        hidden_size=g.hidden_size,
        target_hidden_size=g.target_hidden_size,
        num_heads=g.num_heads,
        num_kv_heads=g.num_kv_heads,
        head_dim=g.head_dim,
        rotary_dim=g.head_dim,
        rope_theta=g.rope_theta,
        rms_norm_eps=g.rms_norm_eps,
        intermediate_size=g.intermediate_size,
        vocab_size=g.vocab_size,
        draft_vocab_size=g.draft_vocab_size or g.vocab_size,
        max_position_embeddings=g.max_position_embeddings,
        aux_layer_ids=sizes["aux_layer_ids"],
        hidden_act="silu",
        norm_before_fc=g.norm_before_fc,
        fc_norm=g.fc_norm,
        norm_output=g.norm_output,
        norm_before_residual=g.norm_before_residual,
    )


def load(
    folder: Path, spec: Eagle3Spec, tables: Tables, draft_len: int, dtype: torch.dtype = torch.float32
) -> tuple[Eagle3Drafter, Eagle3Oracle]:
    """Return the drafter of a head, and the oracle of the same head."""
    model, _ = load_eagle3(
        folder, spec, tables, group=one_rank(), dtype=dtype, device="cpu", max_positions=MAX_POSITIONS
    )
    oracle = Eagle3Oracle(
        folder,
        spec,
        None if model.embedding is not None else tables.embedding,
        None if model.lm_head is not None else tables.lm_head,
    )
    return Eagle3Drafter(model, tables, draft_len), oracle


@dataclass
class Text:
    """A text that is known in advance, with the tap of each of its tokens."""

    tokens: list[int]
    taps: Tensor

    @classmethod
    def random(cls, spec: Eagle3Spec, length: int, seed: int) -> Text:
        generator = torch.Generator().manual_seed(seed)
        width = len(spec.aux_layer_ids) * spec.target_hidden_size
        return cls(
            torch.randint(0, spec.vocab_size, (length,), generator=generator).tolist(),
            torch.randn(length, width, generator=generator) * 2,
        )


class Rig:
    """Requests over one paged cache whose every unwritten slot is NaN.

    Args:
        drafter: under test.
        texts: one per request.
        params: one per request.
        page_size: tokens per page.
        max_seq_lens: limits; None = no limit.
        page_seed: of the permutation of physical pages; None = in order.
        seeds: of the noise; None = 0, 1, ..
        dtype: of taps and cache.

    Two pages at the end of the pool are spare, so that a wrong index shows as NaN and not as an error.
    """

    def __init__(
        self,
        drafter: Eagle3Drafter,
        texts: Sequence[Text],
        params: Sequence[SamplingParams],
        *,
        page_size: int = 4,
        max_seq_lens: Sequence[int] | None = None,
        page_seed: int | None = None,
        seeds: Sequence[int] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        spec = drafter.spec
        self.drafter, self.texts, self.params = drafter, list(texts), list(params)
        self.page_size = page_size
        self.max_pages = -(-(max(len(text.tokens) for text in texts) + spec.draft_len + 1) // page_size)
        num_reqs = len(texts)
        order = torch.arange(num_reqs * self.max_pages)
        if page_seed is not None:
            order = torch.randperm(order.numel(), generator=torch.Generator().manual_seed(page_seed))
        self.page_table = (order + 1).reshape(num_reqs, self.max_pages).int()
        shape = (num_reqs * self.max_pages + 2, page_size, spec.num_kv_heads, spec.head_dim)
        self.cache = DraftCache(
            torch.full(shape, torch.nan, dtype=dtype), torch.full(shape, torch.nan, dtype=dtype), page_size
        )
        self.dtype = dtype
        self.max_seq_lens = torch.tensor(max_seq_lens or [self.max_pages * page_size] * num_reqs)
        self.seeds = list(seeds) if seeds is not None else list(range(num_reqs))

    def slots(self, request: int, positions: Tensor) -> Tensor:
        pages = self.page_table[request].long()[positions // self.page_size]
        return pages * self.page_size + positions % self.page_size

    def rows(self, request: int, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Return what the cache holds at positions [start, end) of a request: keys and values."""
        slots = self.slots(request, torch.arange(start, end))
        assert self.cache.k is not None
        assert self.cache.v is not None
        return self.cache.k.flatten(0, 1)[slots], self.cache.v.flatten(0, 1)[slots]

    def observe(self, request: int, start: int, end: int, num_padding: int = 0) -> None:
        """Store the rows of one prefill chunk; the tap before the request's first token is NaN."""
        text = self.texts[request]
        positions = torch.cat([torch.arange(start, end), torch.full((num_padding,), -1)])
        taps = torch.full((len(positions), text.taps.shape[1]), torch.nan)
        has_tap = positions >= 1
        taps[has_tap] = text.taps[positions[has_tap] - 1]
        slots = torch.where(has_tap, self.slots(request, positions.clamp(min=0)), -1)
        tokens = torch.tensor(text.tokens)[positions.clamp(min=0)]
        self.drafter.observe(ObserveInputs(tokens, positions, taps.to(self.dtype), slots), self.cache)

    def propose(self, requests: Sequence[int], bases: Sequence[int], accepted: Sequence[int], query_len: int) -> Tensor:
        """Return drafts after a verify step of some requests; request -1 is a padding entry.

        Stale entries of the ladder hold impossible tokens and NaN taps; but for its base position a padding entry
        repeats request 0, so that anything it writes does harm.
        """
        return self.proposal(requests, bases, accepted, query_len).draft_tokens

    def proposal(
        self,
        requests: Sequence[int],
        bases: Sequence[int],
        accepted: Sequence[int],
        query_len: int,
        *,
        rejection: Sequence[bool] | None = None,
    ) -> Proposal:
        """Return the whole proposal; `rejection` says which entries are verified by rejection, None = nobody is."""
        count, width = len(requests), self.texts[0].taps.shape[1]
        emitted = torch.full((count, query_len), -(10**9))
        taps = torch.full((count, query_len, width), torch.nan)
        history = torch.full((count, self.max_pages * self.page_size), -5)
        for entry, (request, base, a) in enumerate(zip(requests, bases, accepted, strict=True)):
            if request >= 0:
                text = self.texts[request]
                emitted[entry, : a + 1] = torch.tensor(text.tokens[base + 1 : base + a + 2])
                taps[entry, : a + 1] = text.taps[base : base + a + 1]
                history[entry, : base + a + 2] = torch.tensor(text.tokens[: base + a + 2])
        index = torch.tensor([max(request, 0) for request in requests])
        is_padding = torch.tensor(requests) < 0
        params = [self.params[max(request, 0)] for request in requests]
        sampling = sampling_inputs(params, [self.seeds[max(request, 0)] for request in requests])
        if rejection is not None:
            sampling = replace(sampling, is_rejection=torch.tensor(rejection))
        inputs = ProposeInputs(
            emitted=emitted,
            num_accepted=torch.tensor(accepted),
            base_positions=torch.tensor(bases).masked_fill(is_padding, -1),
            max_seq_lens=self.max_seq_lens[index],
            taps=taps.to(self.dtype),
            page_table=self.page_table[index],
            sampling=sampling,
            history=history,
            is_greedy=all(one.is_greedy for one in params),
        )
        return self.drafter.propose(inputs, self.cache)
