"""Place draft rows by token: the row of the token at position p is stored at slot p and rotated for position p - 1.

Both passes of a chain drafter are this one table. After a verify step with base position n and num_accepted a:

    pass          rows          token            stored at   rotated for
    ladder        0 .. a        d1 .. da, y      n + 1 + j   n + j         first_positions n + 1, num_live a + 1
                  a+1 .. K      stale            nowhere                   not live
    chain step i  one           draft i          n + a + 1 + i  n + a + i  first_positions n + a + 1 + i, num_live 1

Not here: which state goes with a row, attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.sampling.checks import INTEGERS, require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Int, Int64


@dataclass(frozen=True, slots=True)
class DraftRows:
    """Draft rows, request by request. A row that is not live is stored nowhere and sees nothing."""

    token_ids: Tensor  # [num_reqs, query_len] int64; 0 when not live
    positions: (
        Tensor  # [num_reqs, query_len] int64; position whose slot holds the row, the last one it sees; -1 = not live
    )
    rope_positions: Tensor  # [num_reqs, query_len] int64; positions - 1; 0 when not live
    slot_mapping: Tensor  # [num_reqs, query_len] int64; -1 = not live


def place_rows(
    token_ids: Int64[Tensor, "num_reqs query_len"],
    first_positions: Int64[Tensor, "num_reqs"],
    num_live: Int64[Tensor, "num_reqs"],
    max_seq_lens: Int64[Tensor, "num_reqs"],
    page_table: Int[Tensor, "num_reqs max_pages"],
    *,
    page_size: int,
) -> DraftRows:
    """Return where the rows of every request go.

    A row is live when it is among its request's first `num_live`, its position is below max_seq_lens, and the page
    table holds a page for it that is not the null page.

    Args:
        token_ids: [num_reqs, query_len] int64; entries of rows that are not live may be anything.
        first_positions: [num_reqs] int64; position of row 0's token; at least 1 where num_live > 0.
        num_live: [num_reqs] int64; 0 = a padding entry.
        max_seq_lens: [num_reqs] int64; nothing is stored at or past it.
        page_table: [num_reqs, max_pages] int32 or int64; 0 = null page.
        page_size: tokens per page.

    Returns:
        The rows.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host; every index stays inside the page table.
    """
    require("place_rows", "token_ids", token_ids, (-1, -1), torch.int64)
    num_reqs = (token_ids.shape[0],)
    require("place_rows", "first_positions", first_positions, num_reqs, torch.int64)
    require("place_rows", "num_live", num_live, num_reqs, torch.int64)
    require("place_rows", "max_seq_lens", max_seq_lens, num_reqs, torch.int64)
    require("place_rows", "page_table", page_table, (token_ids.shape[0], -1), *INTEGERS)
    function = select("draft/place_rows", token_ids.device.type).function
    return DraftRows(*function(token_ids, first_positions, num_live, max_seq_lens, page_table, page_size))
