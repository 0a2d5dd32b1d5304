"""Propose what followed the last occurrence of a history's ending.

Not here: anything learnt. The drafts are point masses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.sampling.checks import require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Int64


def ngram_match(
    history: Int64[Tensor, "num_reqs max_model_len"],
    last_positions: Int64[Tensor, "num_reqs"],
    *,
    ngram_max: int,
    ngram_min: int,
    draft_len: int,
) -> Int64[Tensor, "num_reqs draft_len"]:
    """Return drafts that continue each history as it continued before.

    With s the last position, the longest ending of ngram_max down to ngram_min tokens that also occurs ending at
    some e < s is looked for; of its occurrences the most recent counts. The drafts are the tokens at e + 1 ..
    e + draft_len, as far as they lie at or before s.

    Args:
        history: [num_reqs, max_model_len] int64; tokens at 0 .. s are valid, the rest may be anything.
        last_positions: [num_reqs] int64; s. Below 0, or at or past max_model_len: nothing is proposed.
        ngram_max: longest ending that is matched; at least ngram_min.
        ngram_min: shortest ending that is matched; at least 1.
        draft_len: K.

    Returns:
        [num_reqs, draft_len] int64; -1 = no proposal.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host; work is ngram_max * max_model_len per request.
    """
    require("ngram_match", "history", history, (-1, -1), torch.int64)
    require("ngram_match", "last_positions", last_positions, (history.shape[0],), torch.int64)
    function = select("draft/ngram_match", history.device.type).function
    return function(history, last_positions, ngram_max, ngram_min, draft_len)
