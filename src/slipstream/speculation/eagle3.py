"""EAGLE-3: a chain of drafts from one small layer over the target's taps.

Draft rows are stored by token: the row of the token at position p lives at slot p and is made of that token and the
tap at p - 1. After a verify step every accepted token's row is stored with its fresh tap, which replaces the rows
that earlier chains guessed; the row of the last emitted token y then starts the chain.

Not here: the network (`models.eagle3`), the row table (`kernels.draft.place_rows`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.base.errors import ConfigError
from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.kernels.draft.place_rows.contract import DraftRows, place_rows
from slipstream.kernels.sampling.draw_tokens.contract import draw_tokens
from slipstream.kernels.sampling.purposes import Purpose, seed_for
from slipstream.models.eagle3.model import Eagle3Model
from slipstream.models.eagle3.weights import TokenTables
from slipstream.speculation.interface import DraftCache, DrafterSpec, ObserveInputs, Proposal, ProposeInputs
from slipstream.wire.ids import NO_TOKEN, SKIP_SLOT


class Eagle3Drafter:
    """A linear chain of K drafts per step.

    Args:
        model: the draft network, with weights.
        target: gives the tables that the network does not hold itself.
        draft_len: K, drafts per step; at least 1.

    Raises:
        ConfigError: a draft length below 1.
    """

    def __init__(self, model: Eagle3Model, target: TokenTables, draft_len: int) -> None:
        if draft_len < 1:
            raise ConfigError(f"draft_len={draft_len} with the eagle3 drafter: give at least 1, or drafter=none")
        self.spec = DrafterSpec(
            name="eagle3",
            draft_len=draft_len,
            aux_layer_ids=model.spec.aux_layer_ids,
            num_cache_layers=1,
            num_kv_heads=model.spec.num_kv_heads,
            head_dim=model.spec.head_dim,
            has_probs=True,
        )
        self._model = model
        self._embed = target.embed if model.embedding is None else model.embedding
        self._compute_logits = target.compute_logits if model.lm_head is None else model.lm_head

    def observe(self, inputs: ObserveInputs, cache: DraftCache) -> None:
        """Store the draft rows of prompt tokens; with one layer, keys and values are all that is needed."""
        k_pages, v_pages = _pages(cache)
        positions = inputs.positions
        addressing = _addressing(
            positions,
            torch.zeros_like(positions),
            torch.zeros((1, 1), dtype=torch.int32, device=positions.device),
            inputs.slot_mapping,
        )
        states = self._model.fuse(inputs.previous_taps)
        rope_positions = (positions - 1).clamp(min=0)
        self._model.store(self._embed(inputs.token_ids), states, addressing, rope_positions, k_pages, v_pages)

    def propose(self, inputs: ProposeInputs, cache: DraftCache) -> Proposal:
        """Return drafts for positions s + 1 .. s + K.

        A draft whose row has no slot (at or past the request's limit) is NO_TOKEN, and so are those after it.
        """
        num_reqs, query_len = inputs.emitted.shape
        num_live = torch.where(inputs.base_positions >= 0, inputs.num_accepted + 1, 0)
        ladder = place_rows(
            inputs.emitted,
            inputs.base_positions + 1,
            num_live,
            inputs.max_seq_lens,
            inputs.page_table,
            page_size=cache.page_size,
        )
        states = self._model.fuse(inputs.taps.flatten(0, 1)).unflatten(0, (num_reqs, query_len))
        last = inputs.num_accepted[:, None]  # [num_reqs, 1]; ladder row of y
        if query_len > 1:
            self._store_accepted(ladder, states, last, inputs.page_table, cache)
        # HAZARD: taps of stale rows may be NaN, so y's row is picked by index, never by a masked sum.
        first = DraftRows(
            ladder.token_ids.gather(1, last),
            ladder.positions.gather(1, last),
            ladder.rope_positions.gather(1, last),
            ladder.slot_mapping.gather(1, last),
        )
        state = states[torch.arange(num_reqs, device=last.device), last[:, 0]]
        return self._chain(first, state, inputs, cache)

    def _store_accepted(
        self, ladder: DraftRows, states: Tensor, last: Tensor, page_table: Tensor, cache: DraftCache
    ) -> None:
        """Store the rows of d1 .. da; y's row is stored when it runs, the rows behind it nowhere."""
        k_pages, v_pages = _pages(cache)
        num_reqs, query_len = ladder.token_ids.shape
        offsets = torch.arange(query_len, device=last.device)
        slots = torch.where(offsets < last, ladder.slot_mapping, SKIP_SLOT)
        req_of_token = torch.arange(num_reqs, device=last.device).repeat_interleave(query_len)
        addressing = _addressing(ladder.positions.reshape(-1), req_of_token, page_table, slots.reshape(-1))
        embeddings = self._embed(ladder.token_ids.reshape(-1))
        rope_positions = ladder.rope_positions.reshape(-1)
        self._model.store(embeddings, states.flatten(0, 1), addressing, rope_positions, k_pages, v_pages)

    def _chain(self, rows: DraftRows, state: Tensor, inputs: ProposeInputs, cache: DraftCache) -> Proposal:
        """Return the drafts that follow y, one row per request at a time."""
        k_pages, v_pages = _pages(cache)
        last_positions = inputs.base_positions + inputs.num_accepted + 1  # s, position of y
        requests = torch.arange(last_positions.shape[0], device=last_positions.device)
        drafts: list[Tensor] = []
        probs: list[Tensor] = []
        is_rejection, seed = inputs.sampling.is_rejection, inputs.sampling.seed
        if is_rejection is not None:
            seed = torch.where(is_rejection, seed_for(seed, Purpose.DRAFT), seed)
        for step in range(self.spec.draft_len):
            drawn_positions = last_positions + 1 + step
            hidden, state = self._model(
                self._embed(rows.token_ids[:, 0]),
                state,
                _addressing(rows.positions[:, 0], requests, inputs.page_table, rows.slot_mapping[:, 0]),
                rows.rope_positions[:, 0],
                k_pages,
                v_pages,
            )
            logits = self._compute_logits(hidden)
            if is_rejection is not None:
                probs.append(self._probs(logits, inputs.sampling.temperature))
            token = draw_tokens(
                logits,
                inputs.sampling.temperature,
                seed,
                drawn_positions,
                token_ids=self._model.target_ids,
                has_noise=not inputs.is_greedy,
            )
            # A row without a slot saw nothing: what it would say is not a proposal, nor is what follows from it.
            is_live = rows.positions[:, 0] >= 0
            drafts.append(torch.where(is_live, token, NO_TOKEN))
            rows = place_rows(
                token[:, None],
                drawn_positions,
                is_live.long(),
                inputs.max_seq_lens,
                inputs.page_table,
                page_size=cache.page_size,
            )
        return Proposal(torch.stack(drafts, 1), torch.stack(probs, 1) if probs else None)

    def _probs(self, logits: Tensor, temperature: Tensor) -> Tensor:
        """Return [num_reqs, vocab_size] float32: what a draw from draft logits follows, by token of the target."""
        scale = torch.where(temperature > 0, temperature, 1.0)[:, None]
        probs = ((logits - logits.amax(-1, keepdim=True)) / scale).double().softmax(-1).float()
        if self._model.target_ids is None:
            return probs
        # A token outside a reduced vocabulary is never drafted.
        whole = probs.new_zeros((probs.shape[0], self._model.spec.vocab_size))
        return whole.index_copy(1, self._model.target_ids, probs)


def _pages(cache: DraftCache) -> tuple[Tensor, Tensor]:
    assert cache.k is not None, "the eagle3 drafter has a cache layer"
    assert cache.v is not None, "the eagle3 drafter has a cache layer"
    return cache.k, cache.v


def _addressing(positions: Tensor, req_of_token: Tensor, page_table: Tensor, slot_mapping: Tensor) -> AttentionInputs:
    """Return the addressing of draft rows; the index fields repeat the others, for the draft layer has no index."""
    return AttentionInputs(
        positions=positions,
        req_of_token=req_of_token,
        page_table=page_table,
        slot_mapping=slot_mapping,
        index_page_table=page_table,
        index_slot_mapping=slot_mapping,
    )
