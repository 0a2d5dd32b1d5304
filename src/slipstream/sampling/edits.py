"""Change a ladder's logits before filters and draws: biases and bans, forbidden sequences, penalties.

Every row of a ladder is treated as plain decoding would have treated it: with the text it would have seen. Not here:
filters, which depend on the temperature; grammar masks.
"""

from __future__ import annotations

from torch import Tensor

from slipstream.batch.step_inputs import LogitEdits
from slipstream.kernels.sampling.bias_logits.contract import bias_logits
from slipstream.kernels.sampling.forbid_sequences.contract import forbid_sequences
from slipstream.kernels.sampling.penalise_logits.contract import penalise_logits


def edit_logits(logits: Tensor, edits: LogitEdits, base_positions: Tensor, draft_tokens: Tensor) -> Tensor:
    """Return the logits after everything that the requests ask for, in vLLM's order.

    Args:
        logits: [num_reqs, query_len, vocab_size] float32, as the model gives them.
        edits: of the same requests; a part that no request needs is None, and a request that needs none of a part
            that is there has neutral values in it.
        base_positions: [num_reqs] int64; position of ladder row 0; -1 = padding.
        draft_tokens: [num_reqs, query_len - 1] int64; draft j is part of the text of rows j and later.

    Returns:
        [num_reqs, query_len, vocab_size] float32; -inf = may not be drawn. A row that held NaN or +inf is still
        recognisable by its maximum, and a request without edits keeps its values.
    """
    if edits.biases is not None:
        biases = edits.biases
        logits = bias_logits(logits, biases.bias, biases.is_end_token, biases.first_end_position, base_positions)
    if edits.sequences is not None:
        logits = forbid_sequences(
            logits, edits.sequences, edits.history, base_positions, draft_tokens, edits.num_prompt_tokens
        )
    if edits.penalties is not None:
        penalties = edits.penalties
        logits = penalise_logits(
            logits,
            edits.history,
            base_positions,
            draft_tokens,
            edits.num_prompt_tokens,
            penalties.repetition,
            penalties.presence,
            penalties.frequency,
        )
    return logits
