"""The row table against a scalar table written from the formulas."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slipstream.base.errors import ShapeError
from slipstream.kernels.draft.place_rows.cases import CASES, PlaceCase, make_inputs, place_case
from slipstream.kernels.draft.place_rows.contract import DraftRows, place_rows


def run(case: PlaceCase) -> tuple[dict, DraftRows]:
    given = make_inputs(case)
    return given, place_rows(**given)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_a_scalar_table(case: PlaceCase):
    given, rows = run(case)
    page_size = case.size("page_size")
    table = given["page_table"].tolist()
    for request, first in enumerate(case.first_positions):
        for row in range(case.size("query_len")):
            position = first + row
            index = position // page_size
            is_live = row < case.num_live[request] and position < case.max_seq_lens[request]
            is_live = is_live and index < case.num_pages_held[request]
            slot = table[request][index] * page_size + position % page_size if is_live else -1
            assert rows.slot_mapping[request, row] == slot
            assert rows.positions[request, row] == (position if is_live else -1)
            assert rows.rope_positions[request, row] == (position - 1 if is_live else 0)
            assert rows.token_ids[request, row] == (given["token_ids"][request, row] if is_live else 0)


def test_ladder_and_chain_tile_the_cache():
    """Ladder rows 0..a and chain rows 1..K-1 fill slots n+1 .. n+a+K once each, each rotated for its slot - 1."""
    for base in range(6):
        for draft_len in range(1, 6):
            for accepted in range(draft_len + 1):
                slots, ropes = [], []
                table = torch.arange(1, 9, dtype=torch.int32)[None]
                args = {"max_seq_lens": torch.tensor([99]), "page_table": table, "page_size": 4}
                ladder = place_rows(
                    torch.zeros(1, draft_len + 1).long(), torch.tensor([base + 1]), torch.tensor([accepted + 1]), **args
                )
                slots += [slot for slot in ladder.slot_mapping[0].tolist() if slot >= 0]
                ropes += ladder.rope_positions[0, : accepted + 1].tolist()
                for step in range(1, draft_len):
                    first = torch.tensor([base + accepted + 1 + step])
                    chain = place_rows(torch.zeros(1, 1).long(), first, torch.tensor([1]), **args)
                    slots += chain.slot_mapping[0].tolist()
                    ropes += chain.rope_positions[0].tolist()
                last = base + accepted + draft_len
                assert slots == [4 + position for position in range(base + 1, last + 1)]
                assert ropes == list(range(base, last))


@given(
    first=st.integers(-20, 60),
    num_live=st.integers(0, 8),
    limit=st.integers(0, 60),
    held=st.integers(0, 4),
)
def test_any_input_is_safe(first: int, num_live: int, limit: int, held: int):
    case = place_case("any", "", (first,), (num_live,), (limit,), (held,), 6)
    _, rows = run(case)
    live = rows.slot_mapping >= 0
    assert torch.equal(live, rows.positions >= 1)
    assert (rows.slot_mapping[live] >= 4).all(), "the null page is never written"
    assert (rows.positions < limit).all() or not live.any()
    assert int(live.sum()) <= num_live


def test_wrong_shapes_are_named():
    one = torch.zeros(1).long()
    with pytest.raises(ShapeError, match=r"page_table is \[1, 3\] float32"):
        place_rows(torch.zeros(1, 2).long(), one, one, one, torch.zeros(1, 3), page_size=4)
