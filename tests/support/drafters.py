"""Scripted drafters: each obeys the Drafter protocol, reads nothing on the host, and knows requests by their tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from slipstream.kernels.sampling.purposes import Purpose, seed_for
from slipstream.sampling.noise import gumbel_noise
from slipstream.speculation.interface import DraftCache, DrafterSpec, ObserveInputs, Proposal, ProposeInputs
from slipstream.wire.ids import NO_TOKEN


class ScriptedDrafter(ABC):
    """Base of the doubles: nothing is stored, drafts come from `drafts_at`."""

    def __init__(self, draft_len: int, name: str = "scripted") -> None:
        self.spec = DrafterSpec(name=name, draft_len=draft_len, needs_history=True)

    def observe(self, inputs: ObserveInputs, cache: DraftCache) -> None:
        """Store nothing."""
        del inputs, cache

    def propose(self, inputs: ProposeInputs, cache: DraftCache) -> Proposal:
        """Return the scripted drafts for positions s + 1 .. s + K, as certain ones."""
        last = inputs.base_positions + inputs.num_accepted + 1
        offsets = torch.arange(1, self.spec.draft_len + 1, device=last.device)
        return Proposal(self.drafts_at(inputs, last[:, None] + offsets))

    @abstractmethod
    def drafts_at(self, inputs: ProposeInputs, positions: Tensor) -> Tensor:
        """Return [num_reqs, draft_len] int64 drafts for absolute positions of the same shape."""


class NoTokenDrafter(ScriptedDrafter):
    """Proposes nothing, in a ladder of full length."""

    def drafts_at(self, inputs: ProposeInputs, positions: Tensor) -> Tensor:
        return torch.full_like(positions, NO_TOKEN)


class ConstantDrafter(ScriptedDrafter):
    """Always the same token."""

    def __init__(self, draft_len: int, token: int) -> None:
        super().__init__(draft_len)
        self._token = token

    def drafts_at(self, inputs: ProposeInputs, positions: Tensor) -> Tensor:
        return torch.full_like(positions, self._token)


class RandomDrafter(ScriptedDrafter):
    """Tokens that depend on the position only."""

    def __init__(self, draft_len: int, vocab_size: int, seed: int = 0) -> None:
        super().__init__(draft_len)
        self._vocab_size = vocab_size
        self._seed = seed

    def drafts_at(self, inputs: ProposeInputs, positions: Tensor) -> Tensor:
        flat = positions.reshape(-1)
        noise = gumbel_noise(torch.full_like(flat, self._seed), flat, self._vocab_size)
        return noise.argmax(-1).view_as(positions)


class OracleDrafter(ScriptedDrafter):
    """Replays recorded streams: the exact continuation, but for the positions that are to be wrong.

    Args:
        draft_len: K.
        streams: prompt + recorded tokens of each request; a request is found by its tokens so far.
        vocab_size: a wrong token is the right one + 1, within the vocabulary.
        wrong_at: absolute positions at which the draft is wrong.

    Past the end of a stream, and for a request that follows none, there is no proposal.
    """

    def __init__(
        self, draft_len: int, streams: Sequence[Sequence[int]], vocab_size: int, wrong_at: Sequence[int] = ()
    ) -> None:
        super().__init__(draft_len)
        self._lens = torch.tensor([len(stream) for stream in streams])
        self._streams = torch.full((len(streams), max(map(len, streams))), NO_TOKEN, dtype=torch.int64)
        for index, stream in enumerate(streams):
            self._streams[index, : len(stream)] = torch.tensor(stream)
        self._vocab_size = vocab_size
        self._wrong_at = torch.tensor(list(wrong_at), dtype=torch.int64)

    def is_wrong(self, positions: Tensor) -> Tensor:
        """Return which drafts to corrupt."""
        return torch.isin(positions, self._wrong_at)

    def drafts_at(self, inputs: ProposeInputs, positions: Tensor) -> Tensor:
        stream, is_known = self.find(inputs, positions)
        right = self._streams[stream, torch.where(is_known, positions, 0)]
        tokens = torch.where(self.is_wrong(positions), (right + 1) % self._vocab_size, right)
        return torch.where(is_known, tokens, NO_TOKEN)

    def find(self, inputs: ProposeInputs, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the stream that each request follows, [num_reqs, 1], and which positions it tells."""
        width = min(self._streams.shape[1], inputs.history.shape[1])
        last = positions[:, :1] - 1
        is_past = torch.arange(width) > last
        agrees = (inputs.history[:, None, :width] == self._streams[None, :, :width]) | is_past[:, None]
        follows = agrees.all(-1) & (self._lens[None, :] > last)
        stream = follows.int().argmax(-1)[:, None]
        return stream, follows.any(-1, keepdim=True) & (positions < self._lens[stream])


class InsteadDrafter(OracleDrafter):
    """The right continuation, but for one place of the ladder, where another text has its say and says something else.
    A ladder where it does not has no drafts, so that every place of a text comes to stand at that place.

    Args:
        draft_len: K.
        streams: see OracleDrafter.
        vocab_size: of the target.
        place: 0 .. K - 1.
        others: one per stream, of its length: what is proposed at each position instead.
    """

    def __init__(
        self,
        draft_len: int,
        streams: Sequence[Sequence[int]],
        vocab_size: int,
        place: int,
        others: Sequence[Sequence[int]],
    ) -> None:
        super().__init__(draft_len, streams, vocab_size)
        self._place = place
        self._others = torch.full_like(self._streams, NO_TOKEN)
        for index, other in enumerate(others):
            self._others[index, : len(other)] = torch.tensor(other)

    def drafts_at(self, inputs: ProposeInputs, positions: Tensor) -> Tensor:
        drafts = super().drafts_at(inputs, positions)
        stream, is_known = self.find(inputs, positions)
        here = torch.where(is_known, positions, 0)[:, self._place]
        instead, right = self._others[stream[:, 0], here], drafts[:, self._place]
        is_telling = is_known[:, self._place] & (instead != right)
        drafts[:, self._place] = instead
        return torch.where(is_telling[:, None], drafts, NO_TOKEN)


class AlwaysWrongDrafter(OracleDrafter):
    """No draft is ever right."""

    def is_wrong(self, positions: Tensor) -> Tensor:
        return torch.ones_like(positions, dtype=torch.bool)


class RightThenWrongDrafter(OracleDrafter):
    """The first `num_right` drafts of every ladder are right, the rest wrong."""

    def __init__(self, draft_len: int, streams: Sequence[Sequence[int]], vocab_size: int, num_right: int) -> None:
        super().__init__(draft_len, streams, vocab_size)
        self._num_right = num_right

    def is_wrong(self, positions: Tensor) -> Tensor:
        return torch.arange(positions.shape[1]).expand_as(positions) >= self._num_right


class ListDrafter(ScriptedDrafter):
    """The same drafts in every ladder: what a feature forbids, insisted on.

    Args:
        draft_len: K.
        tokens: repeated to K places.
    """

    def __init__(self, draft_len: int, tokens: Sequence[int]) -> None:
        super().__init__(draft_len)
        self._tokens = torch.tensor([tokens[place % len(tokens)] for place in range(draft_len)])

    def drafts_at(self, inputs: ProposeInputs, positions: Tensor) -> Tensor:
        return self._tokens.expand_as(positions)


class SoftDrafter:
    """Draws from a table of distributions, by the token before, and says what it drew from.

    Args:
        draft_len: K.
        table: [vocab_size, vocab_size] logits.
    """

    def __init__(self, draft_len: int, table: Tensor) -> None:
        self.spec = DrafterSpec(name="soft", draft_len=draft_len, needs_history=True, has_probs=True)
        self._table = table

    def observe(self, inputs: ObserveInputs, cache: DraftCache) -> None:
        """Store nothing."""
        del inputs, cache

    def propose(self, inputs: ProposeInputs, cache: DraftCache) -> Proposal:
        sampling = inputs.sampling
        last = inputs.base_positions + inputs.num_accepted + 1
        token = inputs.emitted.gather(1, inputs.num_accepted[:, None])[:, 0]
        is_rejection = (
            torch.zeros_like(last, dtype=torch.bool) if sampling.is_rejection is None else sampling.is_rejection
        )
        seed = torch.where(is_rejection, seed_for(sampling.seed, Purpose.DRAFT), sampling.seed)
        drafts, probs = [], []
        for place in range(1, self.spec.draft_len + 1):
            scores = self._table[token] / torch.where(sampling.temperature > 0, sampling.temperature, 1.0)[:, None]
            noise = gumbel_noise(seed, last + place, scores.shape[1])
            token = torch.where(sampling.temperature[:, None] > 0, scores + noise, scores).argmax(-1)
            drafts.append(token)
            probs.append(torch.softmax(scores, -1))
        return Proposal(torch.stack(drafts, 1), torch.stack(probs, 1))
