"""Advance rows by what a step emitted: tokens computed, last token, token history.

Not here: drafts (`store_drafts`), pages, limits of a request. The call takes base positions and writes absolute
values, so that running it twice is running it once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.sampling.checks import require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Int64


def commit_rows(
    row_of_batch: Int64[Tensor, "num_reqs"],
    base_positions: Int64[Tensor, "num_reqs"],
    num_accepted: Int64[Tensor, "num_reqs"],
    emitted: Int64[Tensor, "num_reqs query_len"],
    *,
    num_computed_tokens: Int64[Tensor, "max_rows"],
    last_token: Int64[Tensor, "max_rows"],
    token_history: Int64[Tensor, "max_rows max_model_len"],
) -> None:
    """Write the row state after a step, in place.

    With n = base position and a = num_accepted of a row: num_computed_tokens = n + a + 1, last_token = emitted[a],
    token_history[n + 1 .. n + a + 1] = emitted[0 .. a].

    Args:
        row_of_batch: [num_reqs] int64; the row of each batch entry, each at most once; -1 = padding, nothing written.
        base_positions: [num_reqs] int64; position of ladder row 0; at least 0 unless padding.
        num_accepted: [num_reqs] int64; 0 <= a < query_len.
        emitted: [num_reqs, query_len] int64; entries past a are not read.
        num_computed_tokens: [max_rows] int64; in place.
        last_token: [max_rows] int64; in place.
        token_history: [max_rows, max_model_len] int64; in place. Positions at or past max_model_len are skipped.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host.
    """
    require("commit_rows", "row_of_batch", row_of_batch, (-1,), torch.int64)
    num_reqs = row_of_batch.shape[0]
    require("commit_rows", "base_positions", base_positions, (num_reqs,), torch.int64)
    require("commit_rows", "num_accepted", num_accepted, (num_reqs,), torch.int64)
    require("commit_rows", "emitted", emitted, (num_reqs, -1), torch.int64)
    require("commit_rows", "num_computed_tokens", num_computed_tokens, (-1,), torch.int64)
    max_rows = num_computed_tokens.shape[0]
    require("commit_rows", "last_token", last_token, (max_rows,), torch.int64)
    require("commit_rows", "token_history", token_history, (max_rows, -1), torch.int64)
    function = select("step/commit_rows", row_of_batch.device.type).function
    function(row_of_batch, base_positions, num_accepted, emitted, num_computed_tokens, last_token, token_history)
