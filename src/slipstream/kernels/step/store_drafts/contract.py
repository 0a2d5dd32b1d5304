"""Leave the drafts of a step in the rows, for the next step's ladder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.sampling.checks import require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Int64


def store_drafts(
    row_of_batch: Int64[Tensor, "num_reqs"],
    drafts: Int64[Tensor, "num_reqs draft_len"],
    draft_tokens: Int64[Tensor, "max_rows draft_len"],
) -> None:
    """Write the drafts of every batch entry into its row, in place.

    Args:
        row_of_batch: [num_reqs] int64; each row at most once; -1 = padding, nothing written.
        drafts: [num_reqs, draft_len] int64; negative = no proposal.
        draft_tokens: [max_rows, draft_len] int64; in place.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host.
    """
    require("store_drafts", "row_of_batch", row_of_batch, (-1,), torch.int64)
    require("store_drafts", "draft_tokens", draft_tokens, (-1, -1), torch.int64)
    shape = (row_of_batch.shape[0], draft_tokens.shape[1])
    require("store_drafts", "drafts", drafts, shape, torch.int64)
    select("step/store_drafts", row_of_batch.device.type).function(row_of_batch, drafts, draft_tokens)
