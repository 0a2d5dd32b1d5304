"""From rows to the tensors of one forward pass: pure functions, static shapes, no host read.

Two shapes exist: a ladder batch (num_reqs rows of draft_len + 1 queries each) and a batch of prompt chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.batch.step_inputs import StepInputs
from slipstream.cache.physical.tables import PageTables
from slipstream.config.bytes import INDEX_GROUP, TARGET_GROUP
from slipstream.runner.rows import RowState
from slipstream.wire.ids import NULL_PAGE, SKIP_SLOT
from slipstream.wire.step import PrefillChunk


@dataclass(frozen=True, slots=True)
class LadderBatch:
    """A ladder batch: the queries y0, d1..dK of every decoding row, row after row."""

    step: StepInputs  # num_tokens = num_reqs * query_len
    row_of_batch: Tensor  # [num_reqs] int64; the scratch row for padding
    base_positions: Tensor  # [num_reqs] int64; n, position of y0; -1 = padding
    draft_tokens: Tensor  # [num_reqs, query_len - 1] int64; NO_TOKEN where there is no proposal
    query_len: int


@dataclass(frozen=True, slots=True)
class ChunkBatch:
    """Prompt chunks laid end to end; the host knows every length."""

    step: StepInputs
    row_of_batch: Tensor  # [num_chunks] int64
    first_token: Tensor  # [num_chunks] int64; index of each chunk's first token in the batch
    last_token: Tensor  # [num_chunks] int64; index of each chunk's last token in the batch
    num_computed_tokens: Tensor  # [num_chunks] int64; tokens computed once the chunk is done (its end)


def slots_of(positions: Tensor, page_table: Tensor, req_of_token: Tensor, page_size: int) -> Tensor:
    """Return the flat write place of each position.

    Args:
        positions: [num_tokens] int64; -1 = padding.
        page_table: [num_reqs, max_pages] int32.
        req_of_token: [num_tokens] int64; row of page_table.
        page_size: tokens per page.

    Returns:
        [num_tokens] int64: page * page_size + offset, SKIP_SLOT for padding and where the row owns no page.
    """
    safe = positions.clamp(min=0)
    columns = safe // page_size
    pages = page_table[req_of_token, columns].to(torch.int64)
    # page * page_size + offset, in two calls
    slots = torch.add(safe, pages - columns, alpha=page_size)
    return torch.where((positions < 0) | (pages == NULL_PAGE), SKIP_SLOT, slots)


def ladder_batch(rows: RowState, tables: PageTables, batch_rows: Tensor, draft_len: int, page_size: int) -> LadderBatch:
    """Gather a ladder batch.

    Args:
        rows: request rows.
        tables: device page tables.
        batch_rows: [num_reqs] int64; the scratch row stands for padding.
        draft_len: K of this rung, at most the rows' draft width.
        page_size: tokens per page.

    Returns:
        The batch; a ladder position at or past a row's max_seq_len is padding (-1).
    """
    query_len = draft_len + 1
    is_padding = batch_rows == rows.scratch_row
    base = rows.num_computed_tokens[batch_rows].masked_fill(is_padding, -1)
    drafts = rows.draft_tokens[batch_rows, :draft_len]
    tokens = torch.cat([rows.last_token[batch_rows].unsqueeze(1), drafts], dim=1).clamp(min=0)
    steps = torch.arange(query_len, device=base.device)
    positions = base.unsqueeze(1) + steps
    is_outside = is_padding.unsqueeze(1) | (positions >= rows.max_seq_len[batch_rows].unsqueeze(1))
    positions = positions.masked_fill(is_outside, -1).flatten()
    requests = torch.arange(batch_rows.shape[0], device=base.device)
    req_of_token = requests if query_len == 1 else requests.repeat_interleave(query_len)
    attention = _attention_inputs(tables, batch_rows, positions, req_of_token, page_size)
    return LadderBatch(
        step=StepInputs(token_ids=tokens.flatten(), attention=attention),
        row_of_batch=batch_rows,
        base_positions=base,
        draft_tokens=drafts,
        query_len=query_len,
    )


def chunk_batch(
    rows: RowState, tables: PageTables, chunks: tuple[PrefillChunk, ...], page_size: int, device: torch.device
) -> ChunkBatch:
    """Lay prompt chunks end to end.

    Args:
        rows: request rows; tokens are read from their history.
        tables: device page tables.
        chunks: at least one chunk, each of at least one token.
        page_size: tokens per page.
        device: where.

    Returns:
        The batch; `req_of_token` counts chunks.
    """
    lengths = [chunk.end - chunk.start for chunk in chunks]
    positions_host = [position for chunk in chunks for position in range(chunk.start, chunk.end)]
    index_host = [index for index, length in enumerate(lengths) for _ in range(length)]
    ends_host = torch.tensor(lengths).cumsum(0)

    def on_device(values: list[int] | Tensor) -> Tensor:
        return torch.as_tensor(values, dtype=torch.int64).to(device, non_blocking=True)

    batch_rows = on_device([chunk.row for chunk in chunks])
    positions, req_of_token = on_device(positions_host), on_device(index_host)
    tokens = rows.history[batch_rows[req_of_token], positions]
    attention = _attention_inputs(tables, batch_rows, positions, req_of_token, page_size)
    return ChunkBatch(
        step=StepInputs(token_ids=tokens, attention=attention),
        row_of_batch=batch_rows,
        first_token=on_device(ends_host - torch.tensor(lengths)),
        last_token=on_device(ends_host - 1),
        num_computed_tokens=on_device([chunk.end for chunk in chunks]),
    )


def _attention_inputs(
    tables: PageTables, batch_rows: Tensor, positions: Tensor, req_of_token: Tensor, page_size: int
) -> AttentionInputs:
    target_table = tables.table(TARGET_GROUP)[batch_rows]
    slot_mapping = slots_of(positions, target_table, req_of_token, page_size)
    if INDEX_GROUP in tables.groups:
        index_table = tables.table(INDEX_GROUP)[batch_rows]
        index_slots = slots_of(positions, index_table, req_of_token, page_size)
    else:
        index_table, index_slots = target_table, slot_mapping
    return AttentionInputs(
        positions=positions,
        req_of_token=req_of_token,
        page_table=target_table,
        slot_mapping=slot_mapping,
        index_page_table=index_table,
        index_slot_mapping=index_slots,
    )
