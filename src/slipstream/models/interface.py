"""What the step needs of a target network. Drafters have their own door, `speculation.interface`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from slipstream.batch.step_inputs import StepInputs


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's views into the pools; `index_k` is None for a layer without an index branch."""

    k: Tensor  # [num_pages, page_size, num_kv_heads, head_dim]
    v: Tensor  # [num_pages, page_size, num_kv_heads, head_dim]
    index_k: Tensor | None = None  # [num_pages, page_size, index_head_dim]


@dataclass(frozen=True, slots=True)
class TargetOutput:
    """Result of a target forward pass."""

    hidden: Tensor  # [num_tokens, hidden_size]; after the final norm, ready for compute_logits
    aux_hidden_states: (
        Tensor  # [num_tokens, num_aux_layers * hidden_size]; post(x) taps, ascending layer; width 0 if none
    )


class TargetModel(Protocol):
    """The accelerated network."""

    def forward(self, inputs: StepInputs, caches: tuple[LayerCache, ...]) -> TargetOutput:
        """Write K, V and index-K of the step's tokens, then attend; one cache per layer."""
        ...

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Return [n, vocab_size] float32 logits of [n, hidden_size] states; full vocabulary on every rank."""
        ...

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return [n, hidden_size] embeddings of [n] int64 token ids (shared with drafters)."""
        ...
