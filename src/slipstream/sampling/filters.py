"""The filters of a batch of rows, each with parameters of its own.

Not here: order and tie rules, which are the contract of `kernels.sampling.filter_logits`.
"""

from __future__ import annotations

from torch import Tensor

from slipstream.batch.step_inputs import SamplingInputs
from slipstream.kernels.sampling.filter_logits.contract import filter_logits


def filter_rows(logits: Tensor, sampling: SamplingInputs) -> Tensor:
    """Return the logits with the tokens that a row's min-p, top-k or top-p excludes at -inf.

    Args:
        logits: [num_rows, vocab_size] float32.
        sampling: parameters of the same rows.

    Returns:
        [num_rows, vocab_size] float32; kept tokens unchanged, not divided by the temperature.
    """
    return filter_logits(logits, sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
