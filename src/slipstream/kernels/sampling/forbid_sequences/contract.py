"""Exclude the last token of a forbidden sequence where the rest of it has just been returned, at every ladder row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.sampling.checks import require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64


def forbid_sequences(
    logits: Float32[Tensor, "num_reqs query_len vocab_size"],
    sequences: Int64[Tensor, "num_reqs num_sequences sequence_len"],
    history: Int64[Tensor, "num_reqs max_model_len"],
    base_positions: Int64[Tensor, "num_reqs"],
    draft_tokens: Int64[Tensor, "num_reqs draft_len"],
    num_prompt_tokens: Int64[Tensor, "num_reqs"],
) -> Float32[Tensor, "num_reqs query_len vocab_size"]:
    """Return the logits with every token at -inf that would complete a sequence.

    The text of row j is the known tokens and the drafts before it. All but the last token of a sequence must stand at
    its end, and all of them among the returned tokens: the prompt takes no part.

    Args:
        logits: [num_reqs, query_len, vocab_size] float32; -inf = excluded, and stays so.
        sequences: [num_reqs, num_sequences, sequence_len] int64; aligned to the right, -1 in front of a shorter one;
            all -1 = none. At least 2 wide.
        history: [num_reqs, max_model_len] int64; token ids at positions 0 .. base; later entries are not read.
        base_positions: [num_reqs] int64; position of ladder row 0; -1 = padding.
        draft_tokens: [num_reqs, query_len - 1] int64; draft j is at base + j; negative = no proposal.
        num_prompt_tokens: [num_reqs] int64; positions from here on hold returned tokens.

    Returns:
        [num_reqs, query_len, vocab_size] float32. NaN stays NaN.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host.
    Source: as vLLM treats `bad_words`.
    """
    require("forbid_sequences", "logits", logits, (-1, -1, -1), torch.float32)
    num_reqs, query_len, _ = logits.shape
    require("forbid_sequences", "sequences", sequences, (num_reqs, -1, -1), torch.int64)
    require("forbid_sequences", "history", history, (num_reqs, -1), torch.int64)
    require("forbid_sequences", "base_positions", base_positions, (num_reqs,), torch.int64)
    require("forbid_sequences", "draft_tokens", draft_tokens, (num_reqs, query_len - 1), torch.int64)
    require("forbid_sequences", "num_prompt_tokens", num_prompt_tokens, (num_reqs,), torch.int64)
    function = select("sampling/forbid_sequences", logits.device.type).function
    return function(logits, sequences, history, base_positions, draft_tokens, num_prompt_tokens)
