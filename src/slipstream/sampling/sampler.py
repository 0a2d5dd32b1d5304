"""Draw one token per row from a matrix of logits.

Not here: acceptance (`verify`), the choice of the sampling class (`classes`).
"""

from __future__ import annotations

from torch import Tensor

from slipstream.batch.step_inputs import SamplingInputs
from slipstream.kernels.sampling.draw_tokens.contract import draw_tokens
from slipstream.sampling.classes import SamplingClass
from slipstream.sampling.filters import filter_rows


def expand_sampling(sampling: SamplingInputs, query_len: int) -> SamplingInputs:
    """Return the parameters of every ladder row: each request's, repeated `query_len` times.

    Args:
        sampling: one entry per request.
        query_len: ladder rows per request.
    """
    if query_len == 1:
        return sampling

    def repeat(values: Tensor) -> Tensor:
        return values[:, None].expand(-1, query_len).reshape(-1)

    return SamplingInputs(
        temperature=repeat(sampling.temperature),
        top_k=repeat(sampling.top_k),
        top_p=repeat(sampling.top_p),
        min_p=repeat(sampling.min_p),
        seed=repeat(sampling.seed),
    )


def filter_for_draw(logits: Tensor, sampling: SamplingInputs, sampling_class: SamplingClass) -> Tensor:
    """Return what `draw_filtered` draws from: the logits, filtered when some row has filters.

    Args:
        logits: [num_rows, vocab_size] float32; -inf = a token that may not be drawn.
        sampling: parameters of the same rows.
        sampling_class: at least the class of every row.

    Returns:
        [num_rows, vocab_size] float32.
    """
    return filter_rows(logits, sampling) if sampling_class is SamplingClass.FULL else logits


def draw(logits: Tensor, positions: Tensor, sampling: SamplingInputs, sampling_class: SamplingClass) -> Tensor:
    """Return the token of every row: arg-max of filtered logits / temperature + noise, or of the logits if greedy.

    Args:
        logits: [num_rows, vocab_size] float32; -inf = a token that may not be drawn.
        positions: [num_rows] int64; position of the token that is drawn: one past the token that made the logits.
        sampling: parameters of the same rows.
        sampling_class: at least the class of every row; a larger one gives the same tokens.

    Returns:
        [num_rows] int64. A row that holds NaN gives some valid token id and does not touch other rows.
    """
    return draw_filtered(filter_for_draw(logits, sampling, sampling_class), positions, sampling, sampling_class)


def draw_filtered(logits: Tensor, positions: Tensor, sampling: SamplingInputs, sampling_class: SamplingClass) -> Tensor:
    """Return the token of every row of logits that are filtered already; see `draw`."""
    return draw_tokens(
        logits,
        sampling.temperature,
        sampling.seed,
        positions,
        has_noise=sampling_class is not SamplingClass.GREEDY,
    )
