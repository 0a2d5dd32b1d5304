"""No drafts: every step is plain decoding."""

from __future__ import annotations

from slipstream.speculation.interface import DraftCache, DrafterSpec, ObserveInputs, Proposal, ProposeInputs


class NoDrafter:
    """The drafter of an engine without speculation."""

    def __init__(self) -> None:
        self.spec = DrafterSpec(name="none", draft_len=0)

    def observe(self, inputs: ObserveInputs, cache: DraftCache) -> None:
        """Store nothing."""

    def propose(self, inputs: ProposeInputs, cache: DraftCache) -> Proposal:
        """Return [num_reqs, 0] drafts."""
        return Proposal(inputs.base_positions.new_empty((inputs.base_positions.shape[0], 0)))
