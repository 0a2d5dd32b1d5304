"""Drafts copied from the request's own text: what followed the last tokens the last time they occurred.

Not here: the search (`kernels.draft.ngram_match`). It runs on the device over the row's history, so it never lags.
"""

from __future__ import annotations

from slipstream.base.errors import ConfigError
from slipstream.kernels.draft.ngram_match.contract import ngram_match
from slipstream.speculation.interface import DraftCache, DrafterSpec, ObserveInputs, Proposal, ProposeInputs


class NgramDrafter:
    """Prompt-lookup drafting. Drafts are point masses: a draw equals one with the probability the target gives it.

    Args:
        draft_len: K, drafts per step; at least 1.
        ngram_max: longest ending that is looked up.
        ngram_min: shortest ending that is looked up; at least 1.

    Raises:
        ConfigError: lengths that do not fit together.
    """

    def __init__(self, draft_len: int, ngram_max: int, ngram_min: int) -> None:
        if draft_len < 1:
            raise ConfigError(f"draft_len={draft_len} with the ngram drafter: give at least 1, or drafter=none")
        if not 1 <= ngram_min <= ngram_max:
            raise ConfigError(
                f"ngram_min={ngram_min} and ngram_max={ngram_max}: allowed is 1 <= ngram_min <= ngram_max; "
                "change one of them"
            )
        self.spec = DrafterSpec(name="ngram", draft_len=draft_len, needs_history=True)
        self._ngram_max = ngram_max
        self._ngram_min = ngram_min

    def observe(self, inputs: ObserveInputs, cache: DraftCache) -> None:
        """Store nothing: the history holds the prompt."""

    def propose(self, inputs: ProposeInputs, cache: DraftCache) -> Proposal:
        """Return drafts, NO_TOKEN where the text gives none."""
        last_positions = inputs.base_positions + inputs.num_accepted + 1
        is_padding = inputs.base_positions < 0
        drafts = ngram_match(
            inputs.history,
            last_positions.masked_fill(is_padding, -1),
            ngram_max=self._ngram_max,
            ngram_min=self._ngram_min,
            draft_len=self.spec.draft_len,
        )
        return Proposal(drafts)
