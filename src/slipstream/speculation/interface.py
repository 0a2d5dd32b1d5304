"""One door for every drafter: what it needs (a value) and what it does (two calls inside the step).

Not here: acceptance. `sampling.verify` decides it, drafters never see the target's probabilities.

Notation of one verify step of a row: y0 is the last emitted token, at position n, whose target KV is written in
this step; d1..dK are the drafts at n+1..n+K; `num_accepted` = a; emitted are d1..da and the target's own token y at
position s = n+a+1. The next step's ladder starts with y at s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from slipstream.batch.step_inputs import SamplingInputs


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """What a drafter needs of the engine.

    Args:
        name: none, ngram or eagle3.
        draft_len: K, drafts per step.
        aux_layer_ids: target layers to tap, post(x), ascending; empty for none.
        num_cache_layers: layers of its own in the cache group `target` (EAGLE-3: 1).
        num_kv_heads, head_dim: geometry of those layers; 0 when there are none.
        needs_history: reads the row's token history (n-gram).
        has_probs: proposals carry the distributions they were drawn from, for requests verified by rejection.
    """

    name: str
    draft_len: int
    aux_layer_ids: tuple[int, ...] = ()
    num_cache_layers: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    needs_history: bool = False
    has_probs: bool = False


@dataclass(frozen=True, slots=True)
class DraftCache:
    """The drafter's own layer in the pool of group `target`; None fields when it has none."""

    k: Tensor | None  # [num_pages, page_size, num_kv_heads, head_dim]
    v: Tensor | None  # same shape
    page_size: int


@dataclass(frozen=True, slots=True)
class ObserveInputs:
    """Prompt tokens whose draft rows must be stored: one entry per token of the step's prefill chunks.

    Draft rows are stored BY TOKEN: the row of slot p is made of the tap at position p-1 and token p, with RoPE
    position p-1. Position 0 has no row. `slot_mapping` is -1 where nothing must be written (position 0, padding).
    """

    token_ids: Tensor  # [num_tokens] int64; token at `positions`
    positions: Tensor  # [num_tokens] int64; -1 = padding
    previous_taps: Tensor  # [num_tokens, num_aux_layers * hidden_size]; tap at positions - 1
    slot_mapping: Tensor  # [num_tokens] int64; group target


@dataclass(frozen=True, slots=True)
class ProposeInputs:
    """The ladders that were just verified. `query_len` is 1 after a prompt's last chunk (a = 0), else K+1.

    Entries j > num_accepted of `emitted` and `taps` are stale: they must not influence any result.
    A padding row has base_positions -1; its proposal is ignored and nothing is written for it.
    """

    emitted: Tensor  # [num_reqs, query_len] int64; d1..da, y, then anything
    num_accepted: Tensor  # [num_reqs] int64
    base_positions: Tensor  # [num_reqs] int64; n, position of ladder row 0; -1 = padding
    max_seq_lens: Tensor  # [num_reqs] int64; slots at or past this are never written
    taps: Tensor  # [num_reqs, query_len, num_aux_layers * hidden_size]; tap of ladder row j, position n + j
    page_table: Tensor  # [num_reqs, max_pages] int32; group target
    sampling: SamplingInputs
    history: Tensor  # [num_reqs, max_model_len] int64; tokens 0..s valid (y included), the rest anything
    is_greedy: bool  # True when every real row is greedy: no noise need be drawn


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafts, and what they were drawn from."""

    draft_tokens: Tensor  # [num_reqs, draft_len] int64; NO_TOKEN (-1) where there is no proposal
    draft_probs: Tensor | None = None  # [num_reqs, draft_len, vocab_size] float32; None = every draft was certain


class Drafter(Protocol):
    """A drafter. All tensors live on the device; no call reads one on the host."""

    spec: DrafterSpec

    def observe(self, inputs: ObserveInputs, cache: DraftCache) -> None:
        """Store the draft rows of prompt tokens; nothing is proposed."""
        ...

    def propose(self, inputs: ProposeInputs, cache: DraftCache) -> Proposal:
        """Return drafts for positions s+1 .. s+K.

        A draft for position p at temperature T > 0 is argmax(draft_logits / T + gumbel_noise(seed, p)); at T = 0 it
        is the argmax. A coupled request uses the noise of the target's own draw at p (purpose TARGET). A request that
        is verified by rejection uses noise of purpose DRAFT, and the proposal then holds the softmax that it was drawn
        from, over the target's vocabulary. A drafter without `has_probs` must not draw with a request's noise.
        """
        ...
