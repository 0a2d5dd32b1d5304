"""Count how many drafts of a chain the target's own draws confirm.

Not here: drawing. Greedy and coupled verification are the same comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from slipstream.kernels.sampling.checks import INTEGERS, require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Int, Int64


def verify_chain(
    draws: Int[Tensor, "num_reqs query_len"],
    draft_tokens: Int[Tensor, "num_reqs draft_len"],
) -> Int64[Tensor, "num_reqs"]:
    """Return the length of the longest prefix of drafts that equals the draws.

    Args:
        draws: [num_reqs, query_len] int64; the target's draw of each ladder row. A negative
            value is no draw and confirms nothing.
        draft_tokens: [num_reqs, query_len - 1] int64 or int32; draft j+1 is compared with draw j. A negative
            value is a position without a proposal and is never accepted.

    Returns:
        [num_reqs] int64; 0 <= num_accepted <= query_len - 1.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host.
    """
    require("verify_chain", "draws", draws, (-1, -1), *INTEGERS)
    num_reqs, query_len = draws.shape
    require("verify_chain", "draft_tokens", draft_tokens, (num_reqs, query_len - 1), *INTEGERS)
    return select("sampling/verify_chain", draws.device.type).function(draws, draft_tokens)
