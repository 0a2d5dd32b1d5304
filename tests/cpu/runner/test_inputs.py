"""Ladders and chunks from rows: positions, slots, padding."""

import pytest
import torch

from slipstream.cache.physical.tables import PageTables
from slipstream.runner.inputs import chunk_batch, ladder_batch, slots_of
from slipstream.runner.rows import RowState, allocate_rows
from slipstream.wire.ids import NO_TOKEN, SKIP_SLOT
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import PrefillChunk, RowStart

PAGE_SIZE = 4
CPU = torch.device("cpu")


@pytest.fixture
def rows() -> RowState:
    state = allocate_rows(max_rows=3, max_model_len=32, draft_len=3, tap_width=2, dtype=torch.float32, device=CPU)
    for row, length in ((0, 6), (2, 9)):
        state.start(
            RowStart(
                row=row,
                token_ids=tuple(range(10 * row, 10 * row + length)),
                num_computed_tokens=0,
                max_seq_len=12 if row else 32,
                sampling=SamplingParams(temperature=0.5, top_k=3),
                seed=row,
            )
        )
        state.num_computed_tokens[row] = length
        state.last_token[row] = 70 + row
        state.draft_tokens[row] = torch.tensor([1, 2, NO_TOKEN])
    return state


@pytest.fixture
def tables() -> PageTables:
    state = PageTables(("target", "index"), 3, 8, CPU)
    state.write("target", 0, 0, (5, 6, 7))
    state.write("index", 0, 0, (2, 1, 3))
    state.write("target", 2, 0, (9, 8, 4))
    state.write("index", 2, 0, (4, 6, 5))
    return state


def test_a_ladder_stands_at_the_last_token_and_its_drafts(rows: RowState, tables: PageTables) -> None:
    batch = ladder_batch(rows, tables, torch.tensor([0, 2]), 3, PAGE_SIZE)
    assert batch.step.token_ids.tolist() == [70, 1, 2, 0, 72, 1, 2, 0]
    assert batch.step.attention.positions.tolist() == [6, 7, 8, 9, 9, 10, 11, -1]
    assert batch.base_positions.tolist() == [6, 9]
    assert batch.draft_tokens.tolist() == [[1, 2, NO_TOKEN]] * 2


def test_slots_follow_each_groups_own_table(rows: RowState, tables: PageTables) -> None:
    attention = ladder_batch(rows, tables, torch.tensor([0]), 3, PAGE_SIZE).step.attention
    assert attention.slot_mapping.tolist() == [26, 27, 28, 29]
    assert attention.index_slot_mapping.tolist() == [6, 7, 12, 13]


def test_a_ladder_past_the_limit_of_its_row_writes_nothing(rows: RowState, tables: PageTables) -> None:
    attention = ladder_batch(rows, tables, torch.tensor([2]), 3, PAGE_SIZE).step.attention
    assert attention.slot_mapping.tolist()[-1] == SKIP_SLOT


def test_padding_rows_see_and_write_nothing(rows: RowState, tables: PageTables) -> None:
    batch = ladder_batch(rows, tables, torch.tensor([rows.scratch_row, 0]), 3, PAGE_SIZE)
    assert batch.step.attention.positions.tolist()[:4] == [-1] * 4
    assert batch.step.attention.slot_mapping.tolist()[:4] == [SKIP_SLOT] * 4
    assert batch.base_positions.tolist() == [-1, 6]


def test_a_shorter_rung_takes_the_first_drafts(rows: RowState, tables: PageTables) -> None:
    batch = ladder_batch(rows, tables, torch.tensor([0]), 1, PAGE_SIZE)
    assert batch.step.token_ids.tolist() == [70, 1]
    assert batch.query_len == 2


def test_a_slot_of_the_null_page_is_never_written() -> None:
    table = torch.tensor([[3, 0]], dtype=torch.int32)
    slots = slots_of(torch.tensor([0, 5, -1]), table, torch.zeros(3, dtype=torch.int64), PAGE_SIZE)
    assert slots.tolist() == [12, SKIP_SLOT, SKIP_SLOT]


def test_slots_are_sixty_four_bit() -> None:
    table = torch.tensor([[2**31 - 1]], dtype=torch.int32)
    slots = slots_of(torch.tensor([127]), table, torch.zeros(1, dtype=torch.int64), 128)
    assert slots.tolist() == [(2**31 - 1) * 128 + 127]


def test_chunks_lie_end_to_end(rows: RowState, tables: PageTables) -> None:
    chunks = (
        PrefillChunk(row=2, start=3, end=6, is_last=False),
        PrefillChunk(row=0, start=4, end=6, is_last=True),
    )
    batch = chunk_batch(rows, tables, chunks, PAGE_SIZE, CPU)
    assert batch.step.token_ids.tolist() == [23, 24, 25, 4, 5]
    assert batch.step.attention.positions.tolist() == [3, 4, 5, 4, 5]
    assert batch.step.attention.req_of_token.tolist() == [0, 0, 0, 1, 1]
    assert batch.step.attention.slot_mapping.tolist() == [39, 32, 33, 24, 25]
    assert batch.first_token.tolist() == [0, 3]
    assert batch.last_token.tolist() == [2, 4]
    assert batch.num_computed_tokens.tolist() == [6, 6]
