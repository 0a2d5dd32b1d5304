"""One step on the device: verify, accept, commit, draft for the ladders; then the prompt chunks.

The order is fixed: K, V and index-K are written before attention reads them, the verdict advances the rows, and the
drafter proposes for the next step from the taps of the accepted rows. Nothing here reads the device; `handoff` does.

With constrained rows the step has two parts: A, the target's forward, and B, everything from the verdict on. The host
fills the masks that B needs while A runs (`grammar_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from slipstream.batch.step_inputs import SamplingInputs, StepInputs
from slipstream.cache.physical.pools import PagePools
from slipstream.cache.physical.tables import PageTables
from slipstream.config.bytes import TARGET_GROUP
from slipstream.kernels.sampling.mask_logits.contract import mask_logits
from slipstream.kernels.step.commit_rows.contract import commit_rows
from slipstream.kernels.step.store_drafts.contract import store_drafts
from slipstream.models.interface import LayerCache, TargetModel
from slipstream.runner.edit_rows import NO_NEEDS, EditNeeds, EditRows
from slipstream.runner.grammar_rows import GrammarRows, LadderMasks, PendingMasks
from slipstream.runner.handoff import ConstraintNews, PendingRuns
from slipstream.runner.inputs import ChunkBatch, LadderBatch
from slipstream.runner.prompts import PendingPrompt, PromptAsk, describe_prompt
from slipstream.runner.rows import RowState
from slipstream.sampling.classes import SamplingClass
from slipstream.sampling.edits import edit_logits
from slipstream.sampling.logprobs import chosen_logprobs, top_logprobs
from slipstream.sampling.verify import Verdict, verify
from slipstream.speculation.interface import DraftCache, Drafter, ObserveInputs, Proposal, ProposeInputs
from slipstream.wire.ids import NO_ROW, SKIP_SLOT


@dataclass(frozen=True, slots=True)
class StepParts:
    """What a step works on; built once, by `runner.build`."""

    model: TargetModel
    drafter: Drafter
    rows: RowState
    tables: PageTables
    pools: PagePools
    layer_caches: tuple[LayerCache, ...]
    draft_cache: DraftCache
    page_size: int
    edits: EditRows
    grammars: GrammarRows

    @property
    def can_reject(self) -> bool:
        """Whether drafts may be judged by rejection: without room for their distributions it would be wrong."""
        return self.rows.keeps_draft_probs or not self.drafter.spec.has_probs


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """What the host knows of a batch's rows and chooses the rung by."""

    rows: tuple[int, ...]  # real rows, padding left out
    sampling_class: SamplingClass
    wants_logprobs: tuple[bool, ...]
    num_top: tuple[int, ...] = ()  # alternatives wanted per real row
    has_rejection: bool = False
    needs: EditNeeds = NO_NEEDS


@dataclass(frozen=True, slots=True)
class Ladders:
    """What the second part of a step works on: ladders whose forward is done, or is being done."""

    logits: Tensor  # [num_reqs, query_len, vocab_size] float32
    taps: Tensor  # [num_reqs, query_len, tap_width]
    draft_tokens: Tensor  # [num_reqs, query_len - 1] int64
    row_of_batch: Tensor  # [num_reqs] int64
    base_positions: Tensor  # [num_reqs] int64
    num_drafts: Tensor  # [num_reqs] int64


def run_ladders(
    parts: StepParts, batch: LadderBatch, choice: BatchChoice, pending_masks: PendingMasks | None = None
) -> PendingRuns:
    """Verify every row's drafts, commit what was accepted, draft again.

    Args:
        parts: the engine's device side.
        batch: from `inputs.ladder_batch`.
        choice: what the host chose for the batch.
        pending_masks: asked for before this call, when a row is constrained; the host fills them behind the forward.

    Returns:
        Unread results, one entry per real row.
    """
    ladders = forward_ladders(parts, batch)
    return finish_ladders(parts, ladders, choice, None if pending_masks is None else pending_masks.fill())


def forward_ladders(parts: StepParts, batch: LadderBatch) -> Ladders:
    """Run the first part of a step: the target's forward over every ladder.

    Args:
        parts: the engine's device side.
        batch: from `inputs.ladder_batch`.
    """
    output = parts.model.forward(batch.step, parts.layer_caches)
    _keep_boundary_taps(parts, batch.step, output.aux_hidden_states)
    num_reqs, query_len = batch.base_positions.shape[0], batch.query_len
    logits = parts.model.compute_logits(output.hidden).view(num_reqs, query_len, -1)
    # The width is written out: without taps it is 0, which -1 could not mean.
    taps = output.aux_hidden_states.view(num_reqs, query_len, output.aux_hidden_states.shape[1])
    num_drafts = (batch.draft_tokens >= 0).sum(dim=1)
    return Ladders(logits, taps, batch.draft_tokens, batch.row_of_batch, batch.base_positions, num_drafts)


def run_chunks(
    parts: StepParts,
    batch: ChunkBatch,
    is_last: tuple[bool, ...],
    choice: BatchChoice,
    asks: tuple[PromptAsk, ...] = (),
    pending_masks: PendingMasks | None = None,
) -> tuple[PendingRuns | None, tuple[PendingPrompt, ...]]:
    """Compute prompt chunks; the rows whose prompt is complete draw their first token and draft.

    Args:
        parts: the engine's device side.
        batch: from `inputs.chunk_batch`.
        is_last: per chunk, whether it completes its row's known tokens.
        choice: rows and sampling of the last chunks only, in chunk order.
        asks: which chunks are asked for log-probabilities of the prompt.
        pending_masks: of the last chunks, when one of them is of a constrained row.

    Returns:
        Unread results of the last chunks, or None when there is none; and of the asks.
    """
    output = parts.model.forward(batch.step, parts.layer_caches)
    taps = output.aux_hidden_states
    _keep_boundary_taps(parts, batch.step, taps)
    _observe(parts, batch, taps)
    rows = parts.rows
    rows.carry_taps[batch.row_of_batch] = taps[batch.last_token]
    rows.num_computed_tokens[batch.row_of_batch] = batch.num_computed_tokens
    prompts = tuple(describe_prompt(parts.model, output.hidden, rows.history, ask) for ask in asks)
    if not any(is_last):
        return None, prompts
    done = torch.tensor([index for index, last in enumerate(is_last) if last], device=taps.device)
    ends = batch.last_token[done]
    logits = parts.model.compute_logits(output.hidden[ends]).unsqueeze(1)
    no_drafts = torch.empty((len(done), 0), dtype=torch.int64, device=taps.device)
    ladders = Ladders(
        logits,
        taps[ends].unsqueeze(1),
        no_drafts,
        batch.row_of_batch[done],
        batch.num_computed_tokens[done] - 1,
        torch.zeros(len(done), dtype=torch.int64, device=taps.device),
    )
    masks = None if pending_masks is None else pending_masks.fill()
    return finish_ladders(parts, ladders, choice, masks), prompts


def finish_ladders(parts: StepParts, ladders: Ladders, choice: BatchChoice, masks: LadderMasks | None) -> PendingRuns:
    """Run the second part of a step: verify, commit, draft again.

    Args:
        parts: the engine's device side.
        ladders: of the first part.
        choice: what the host chose for the batch.
        masks: what constrained rows may hold; None when there is none.

    Returns:
        Unread results, one entry per real row.
    """
    rows, logits, draft_tokens = parts.rows, ladders.logits, ladders.draft_tokens
    row_of_batch, base_positions = ladders.row_of_batch, ladders.base_positions
    sampling = rows.sampling(row_of_batch, has_rejection=choice.has_rejection)
    edits = parts.edits.gather(row_of_batch, choice.needs, rows.history)
    edited = logits if edits is None else edit_logits(logits, edits, base_positions, draft_tokens)
    if masks is not None:
        edited = mask_logits(edited, masks.allowed)
    draft_probs = None
    if choice.has_rejection and rows.keeps_draft_probs:
        draft_probs = rows.draft_probs[row_of_batch, : draft_tokens.shape[1]]
    verdict = verify(edited, draft_tokens, base_positions, sampling, choice.sampling_class, draft_probs)
    if masks is not None:
        verdict = replace(verdict, num_accepted=torch.minimum(verdict.num_accepted, masks.max_accepted))
    written_rows = row_of_batch.masked_fill(base_positions < 0, NO_ROW)
    commit_rows(
        written_rows,
        base_positions,
        verdict.num_accepted,
        verdict.emitted,
        num_computed_tokens=rows.num_computed_tokens,
        last_token=rows.last_token,
        token_history=rows.history,
    )
    if parts.drafter.spec.draft_len:
        proposal = _propose(parts, verdict, ladders, sampling, choice)
        store_drafts(written_rows, proposal.draft_tokens, rows.draft_tokens)
        if proposal.draft_probs is not None:
            rows.store_draft_probs(row_of_batch, proposal.draft_probs, base_positions < 0)
    num_top = min(max(choice.num_top, default=0), logits.shape[-1])
    logprobs = chosen_logprobs(logits, verdict.emitted) if any(choice.wants_logprobs) else None
    return PendingRuns(
        rows=choice.rows,
        emitted=verdict.emitted,
        num_accepted=verdict.num_accepted,
        num_draft_tokens=ladders.num_drafts,
        is_finite=verdict.is_finite,
        logprobs=logprobs,
        wants_logprobs=choice.wants_logprobs,
        top=top_logprobs(logits, num_top) if num_top else None,
        num_top=choice.num_top,
        constraints=None if masks is None else _constraint_news(masks, edited, verdict),
    )


def _constraint_news(masks: LadderMasks, edited: Tensor, verdict: Verdict) -> ConstraintNews:
    """Return what the hand-off says of constrained rows; one that held NaN is not empty."""
    is_emitting = torch.arange(edited.shape[1], device=edited.device) <= verdict.num_accepted[:, None]
    is_empty = ((edited.amax(-1) == -torch.inf) & is_emitting).any(-1)
    return ConstraintNews(is_constrained=masks.is_constrained, faults=masks.faults, is_empty=is_empty)


def _propose(
    parts: StepParts, verdict: Verdict, ladders: Ladders, sampling: SamplingInputs, choice: BatchChoice
) -> Proposal:
    rows, row_of_batch = parts.rows, ladders.row_of_batch
    return parts.drafter.propose(
        ProposeInputs(
            emitted=verdict.emitted,
            num_accepted=verdict.num_accepted,
            base_positions=ladders.base_positions,
            max_seq_lens=rows.max_seq_len[row_of_batch],
            taps=ladders.taps,
            page_table=parts.tables.table(TARGET_GROUP)[row_of_batch],
            sampling=sampling,
            history=rows.history[row_of_batch] if parts.drafter.spec.needs_history else rows.history[:0],
            is_greedy=choice.sampling_class is SamplingClass.GREEDY,
        ),
        parts.draft_cache,
    )


def _observe(parts: StepParts, batch: ChunkBatch, taps: Tensor) -> None:
    if not parts.drafter.spec.aux_layer_ids:
        return
    attention = batch.step.attention
    previous = torch.roll(taps, shifts=1, dims=0)
    previous[batch.first_token] = parts.rows.carry_taps[batch.row_of_batch]
    has_row = attention.positions > 0
    parts.drafter.observe(
        ObserveInputs(
            token_ids=batch.step.token_ids,
            positions=attention.positions,
            previous_taps=previous,
            slot_mapping=attention.slot_mapping.masked_fill(~has_row, SKIP_SLOT),
        ),
        parts.draft_cache,
    )


def _keep_boundary_taps(parts: StepParts, step: StepInputs, taps: Tensor) -> None:
    """Keep the tap of every page's last position: what the first draft row after a prefix hit needs.

    Tokens that close no page rewrite the null page's entry with its own value, so the shape stays static.
    """
    if not taps.shape[1]:
        return
    boundary_taps = parts.pools.layer("boundary_taps", 0)
    slots = step.attention.slot_mapping
    closes_page = (slots >= 0) & ((slots + 1) % parts.page_size == 0)
    pages = torch.where(closes_page, slots // parts.page_size, 0)
    boundary_taps[pages] = torch.where(closes_page.unsqueeze(1), taps.to(boundary_taps.dtype), boundary_taps[pages])


def restore_carry_tap(parts: StepParts, row: int, num_prefix_pages: int, last_page: int) -> None:
    """Give a row that starts after a prefix hit the tap of the hit's last position.

    Args:
        parts: the engine's device side.
        row: the row that starts.
        num_prefix_pages: full pages found by prefix; 0 leaves the carry as it is.
        last_page: page id (group target) of the last of them.
    """
    if num_prefix_pages and parts.pools.has("boundary_taps"):
        parts.rows.carry_taps[row] = parts.pools.layer("boundary_taps", 0)[last_page].to(parts.rows.carry_taps.dtype)
