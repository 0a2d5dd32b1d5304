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
