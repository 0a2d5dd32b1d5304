"""A draft head whose proposals are kept on the device, while other drafts with a known end are handed on.

A random head is hardly ever accepted. Steered by known streams its cache lives through accepted runs of every length;
what it proposed tells whether that cache was right. Nothing is read on the host, so its step can be captured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from slipstream.speculation.interface import DraftCache, Drafter, ObserveInputs, Proposal, ProposeInputs
from slipstream.wire.ids import NO_TOKEN


class SteeredHead:
    """Hands on the recorded continuation, wrong at some positions; requests are told apart by their seeds.

    Args:
        head: observes and proposes as ever.
        streams: prompt and recorded tokens of each request; the i-th has seed `first_seed` + i.
        first_seed: of the first stream; other seeds follow none.
        vocab_size: a wrong token is the right one + 1, within the vocabulary.
        wrong_at: positions at which the draft is wrong.
        device: of the engine.
    """

    def __init__(
        self,
        head: Drafter,
        streams: Sequence[Sequence[int]],
        *,
        first_seed: int,
        vocab_size: int,
        wrong_at: Sequence[int],
        device: str,
    ) -> None:
        self.spec = dataclasses.replace(head.spec, has_probs=False)
        self._head = head
        self._first_seed = first_seed
        draft_len, longest = head.spec.draft_len, max(map(len, streams)) + head.spec.draft_len + 1
        # [num_streams + 1, longest]; the last row is of requests that follow none
        drafts = torch.full((len(streams) + 1, longest), NO_TOKEN, dtype=torch.int64)
        for index, stream in enumerate(streams):
            drafts[index, : len(stream)] = torch.tensor(stream)
        for position in wrong_at:
            known = drafts[:, position] != NO_TOKEN
            drafts[known, position] = (drafts[known, position] + 1) % vocab_size
        self._drafts = drafts.to(device)
        # [num_streams + 1, longest, draft_len]; by position of the first draft
        self._proposals = torch.full((*drafts.shape, draft_len), NO_TOKEN, dtype=torch.int64, device=device)
        self._offsets = torch.arange(draft_len, device=device)

    def observe(self, inputs: ObserveInputs, cache: DraftCache) -> None:
        """Store prompt rows."""
        self._head.observe(inputs, cache)

    def propose(self, inputs: ProposeInputs, cache: DraftCache) -> Proposal:
        """Let the head propose and keep that, then hand on the recorded drafts."""
        proposal = self._head.propose(inputs, cache)
        nobody, longest = self._drafts.shape[0] - 1, self._drafts.shape[1]
        stream = inputs.sampling.seed - self._first_seed
        is_known = (stream >= 0) & (stream < nobody) & (inputs.base_positions >= 0)
        stream = torch.where(is_known, stream, nobody)
        first = (inputs.base_positions + inputs.num_accepted + 2).clamp(0, longest - 1)
        self._proposals[stream, first] = proposal.draft_tokens
        places = (first[:, None] + self._offsets).clamp(max=longest - 1)
        return Proposal(self._drafts[stream[:, None], places])

    def proposals(self, stream: int, first: int, last: int) -> list[list[int]]:
        """Return what the head proposed for one stream, by position of the first draft; NO_TOKEN where it did not."""
        return self._proposals[stream, first:last].tolist()
