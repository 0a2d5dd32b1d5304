"""Device tensors of one target forward pass."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from slipstream.batch.attention_inputs import AttentionInputs


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Input of `TargetModel.forward`."""

    token_ids: Tensor  # [num_tokens] int64; 0 for padding and for draft placeholders
    attention: AttentionInputs


@dataclass(frozen=True, slots=True)
class SamplingInputs:
    """Sampling parameters gathered from the rows of a batch."""

    temperature: Tensor  # [num_reqs] float32; 0 = greedy
    top_k: Tensor  # [num_reqs] int32; 0 = off
    top_p: Tensor  # [num_reqs] float32; 1 = off
    min_p: Tensor  # [num_reqs] float32; 0 = off
    seed: Tensor  # [num_reqs] int64
    is_rejection: Tensor | None = None  # [num_reqs] bool; None when no request of the batch verifies by rejection


@dataclass(frozen=True, slots=True)
class TokenBiases:
    """Values added to logits, and end tokens that may not come yet."""

    bias: Tensor  # [num_reqs, vocab_size] float32; -inf = forbidden
    is_end_token: Tensor  # [num_reqs, vocab_size] bool
    first_end_position: Tensor  # [num_reqs] int64; 0 = anywhere


@dataclass(frozen=True, slots=True)
class Penalties:
    """Penalties of tokens that the text holds already."""

    repetition: Tensor  # [num_reqs] float32; 1 = off
    presence: Tensor  # [num_reqs] float32; 0 = off
    frequency: Tensor  # [num_reqs] float32; 0 = off


@dataclass(frozen=True, slots=True)
class LogitEdits:
    """What requests change in their logits before the filters; a part that no request of the batch needs is None."""

    num_prompt_tokens: Tensor  # [num_reqs] int64
    history: Tensor  # [num_reqs, max_model_len] int64; by position; empty unless sequences or penalties are there
    biases: TokenBiases | None
    sequences: Tensor | None  # [num_reqs, num_sequences, sequence_len] int64; aligned to the right, -1 in front
    penalties: Penalties | None
