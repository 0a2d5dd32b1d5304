"""Lower or raise the logits of tokens that the text holds already, at every row of a ladder.

Row j of a ladder is treated as if its text were the known tokens and the drafts before it: what plain decoding would
have seen there. Counts are made from the history in every call; nothing is counted up, so nothing can be counted twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.sampling.checks import require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64


def penalise_logits(
    logits: Float32[Tensor, "num_reqs query_len vocab_size"],
    history: Int64[Tensor, "num_reqs max_model_len"],
    base_positions: Int64[Tensor, "num_reqs"],
    draft_tokens: Int64[Tensor, "num_reqs draft_len"],
    num_prompt_tokens: Int64[Tensor, "num_reqs"],
    repetition: Float32[Tensor, "num_reqs"],
    presence: Float32[Tensor, "num_reqs"],
    frequency: Float32[Tensor, "num_reqs"],
) -> Float32[Tensor, "num_reqs query_len vocab_size"]:
    """Return the logits after the penalties of each request.

    Order: a token that occurs anywhere in the text has a positive logit divided by `repetition` and any other
    multiplied by it; then `frequency` times its count among the returned tokens is subtracted, and `presence` if it
    is among them at all.

    Args:
        logits: [num_reqs, query_len, vocab_size] float32; -inf = excluded, and stays so.
        history: [num_reqs, max_model_len] int64; token ids at positions 0 .. base; later entries are not read.
        base_positions: [num_reqs] int64; position of ladder row 0; -1 = padding.
        draft_tokens: [num_reqs, query_len - 1] int64; draft j is at base + j; negative = no proposal, counts nowhere.
        num_prompt_tokens: [num_reqs] int64; positions from here on hold returned tokens.
        repetition: [num_reqs] float32; above 0, 1 = off.
        presence: [num_reqs] float32; 0 = off.
        frequency: [num_reqs] float32; 0 = off.

    Returns:
        [num_reqs, query_len, vocab_size] float32. A request whose penalties are off keeps its bits.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host.
    Numerics: float32, in the order above; counts are exact integers.
    Source: definitions and order as in vLLM, so that the same parameters mean the same text.
    """
    require("penalise_logits", "logits", logits, (-1, -1, -1), torch.float32)
    num_reqs, query_len, _ = logits.shape
    require("penalise_logits", "history", history, (num_reqs, -1), torch.int64)
    require("penalise_logits", "draft_tokens", draft_tokens, (num_reqs, query_len - 1), torch.int64)
    for name, values in (("base_positions", base_positions), ("num_prompt_tokens", num_prompt_tokens)):
        require("penalise_logits", name, values, (num_reqs,), torch.int64)
    for name, values in (("repetition", repetition), ("presence", presence), ("frequency", frequency)):
        require("penalise_logits", name, values, (num_reqs,), torch.float32)
    function = select("sampling/penalise_logits", logits.device.type).function
    return function(logits, history, base_positions, draft_tokens, num_prompt_tokens, repetition, presence, frequency)
