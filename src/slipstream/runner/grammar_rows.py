"""Constrained rows: the host follows their texts, and says which tokens every ladder row may hold.

A step with such rows has two parts. Before the target's forward is launched, what the host has not seen of these rows
(their new tokens, their drafts) begins its way to the host; while the forward runs, the host follows the grammars and
fills the masks; then the second part, from the verdict on, is launched with them. So the host plans no differently
than without, and nothing of the step before has to be collected first.

With several ranks rank 0 decides, and the others receive its masks. Not here: grammars themselves (`text.grammar`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.base.errors import EngineError
from slipstream.parallel.group import TensorParallelGroup
from slipstream.runner import handoff
from slipstream.runner.grammar_registry import GrammarRegistry
from slipstream.runner.handoff import HostCopy
from slipstream.text.grammar.bitmask import Mask, num_words
from slipstream.text.grammar.matcher import GrammarFault
from slipstream.wire.step import RowStart


@dataclass(slots=True)
class _Followed:
    """A constrained row. The host knows the tokens at positions below `num_known`; the grammar has seen them."""

    grammar_id: str
    num_known: int
    max_seq_len: int


@dataclass(frozen=True, slots=True)
class LadderMasks:
    """What a batch's rows may hold, on the device."""

    allowed: Tensor  # [num_reqs, query_len, num_words] int32
    max_accepted: Tensor  # [num_reqs] int64; most drafts that may be accepted
    is_constrained: tuple[bool, ...]  # per real row
    faults: tuple[str | None, ...]  # per real row; why it allows nothing


@dataclass(frozen=True, slots=True)
class _Request:
    """One constrained entry of a batch."""

    place: int
    row: _Followed
    tokens: Sequence[int]
    drafts: Sequence[int]


class PendingMasks:
    """The masks of one batch, asked for before its forward; `fill` waits for the host's part.

    Args:
        rows: the engine's constrained rows.
        constrained: per real row of the batch, its row if it is constrained.
        shape: num_reqs and draft_len of the batch.
        news: base position, drafts and new tokens of the constrained rows; None where the host knows all.
    """

    def __init__(
        self,
        rows: GrammarRows,
        constrained: tuple[_Followed | None, ...],
        shape: tuple[int, int],
        news: HostCopy | None,
    ) -> None:
        self._rows = rows
        self._constrained = constrained
        self._shape = shape
        self._news = news

    def fill(self) -> LadderMasks:
        """Return the masks. The host waits for what was asked for, and works; call it once the forward is launched."""
        num_reqs, draft_len = self._shape
        rows = self._rows
        # One more row than the ladder has carries, in its first word, how many drafts may be accepted: one transfer.
        words, words_host = handoff.words_for_device((num_reqs, draft_len + 2, rows.num_words), rows.device)
        faults: list[str | None] = [None] * len(self._constrained)
        words_host[:, -1, 0] = draft_len
        if rows.decides:
            for request in self._requests(draft_len):
                mask = words_host[request.place, :-1]
                words_host[request.place, -1, 0], faults[request.place] = rows.follow(request, mask)
        buffer = rows.share(words.to(rows.device, non_blocking=True))
        return LadderMasks(
            allowed=buffer[:, :-1],
            max_accepted=buffer[:, -1, 0].long(),
            is_constrained=tuple(row is not None for row in self._constrained),
            faults=tuple(faults),
        )

    def _requests(self, draft_len: int) -> list[_Request]:
        places = [(place, row) for place, row in enumerate(self._constrained) if row is not None]
        if self._news is None:
            return [_Request(place, row, (), ()) for place, row in places]
        requests: list[_Request] = []
        for (place, row), news in zip(places, handoff.end_copy(self._news), strict=True):
            base, drafts, recent = news[0], news[1 : 1 + draft_len], news[1 + draft_len :]
            # A step that was planned before the end was known may lie past the limit; nobody reads what it emits.
            end = max(min(base + 1, row.max_seq_len), row.num_known)
            num_new = end - row.num_known
            if num_new > len(recent):
                raise EngineError(f"a constrained row is at position {base}, the host has followed {row.num_known}")
            requests.append(_Request(place, row, recent[:num_new], drafts))
        return requests


class GrammarRows:
    """Which rows of an engine are constrained, and by what.

    Args:
        registry: the grammars of live requests; only rank 0 reads it.
        vocab_size: of the target.
        draft_len: K of the longest rung.
        device: where the rows are.
        group: the ranks.
    """

    def __init__(
        self,
        registry: GrammarRegistry,
        *,
        vocab_size: int,
        draft_len: int,
        device: torch.device,
        group: TensorParallelGroup,
    ) -> None:
        self.num_words = num_words(vocab_size)
        self.device = device
        self.decides = group.mesh.tp_rank == 0
        self._registry = registry
        self._group = group
        self._recent = torch.arange(draft_len + 1, device=device)
        self._rows: dict[int, _Followed] = {}

    def start(self, start: RowStart) -> None:
        """Begin a request's life in its row; after a preemption its grammar takes the returned tokens at once."""
        self._rows.pop(start.row, None)
        if start.grammar_id is None:
            return
        self._rows[start.row] = _Followed(start.grammar_id, len(start.token_ids), start.max_seq_len)
        if self.decides:
            self._registry.restart(start.grammar_id, start.token_ids[start.num_prompt_tokens :])

    def has_any(self, rows: tuple[int, ...]) -> bool:
        """Return whether one of some rows is constrained."""
        return any(row in self._rows for row in rows)

    def before_ladders(
        self, rows: tuple[int, ...], base_positions: Tensor, draft_tokens: Tensor, history: Tensor
    ) -> PendingMasks | None:
        """Ask for the masks of a ladder batch, before its forward is launched.

        Args:
            rows: real rows of the batch, in order; padding comes behind them.
            base_positions: [num_reqs] int64.
            draft_tokens: [num_reqs, draft_len] int64.
            history: [max_rows + 1, max_model_len] int64; of all rows.

        Returns:
            None when no row is constrained.
        """
        constrained = self._find(rows)
        if constrained is None:
            return None
        num_reqs, draft_len = draft_tokens.shape
        if not self.decides:
            return PendingMasks(self, constrained, (num_reqs, draft_len), None)
        places = [place for place, row in enumerate(constrained) if row is not None]
        known = [row.num_known for row in constrained if row is not None]
        index = torch.tensor([places, [rows[place] for place in places], known], device=self.device)
        recent = (index[2, :, None] + self._recent).clamp(max=history.shape[1] - 1)
        news = torch.cat(
            [base_positions[index[0], None], draft_tokens[index[0]], history[index[1, :, None], recent]], dim=1
        )
        return PendingMasks(self, constrained, (num_reqs, draft_len), handoff.begin_copy(news))

    def before_first_tokens(self, rows: tuple[int, ...]) -> PendingMasks | None:
        """Ask for the masks of rows whose last prompt chunk is computed; None when no row is constrained."""
        constrained = self._find(rows)
        return None if constrained is None else PendingMasks(self, constrained, (len(rows), 0), None)

    def free_masks(self, num_reqs: int, draft_len: int) -> PendingMasks:
        """Return masks that allow everything, made as real ones are: what a warm-up needs."""
        return PendingMasks(self, (), (num_reqs, draft_len), None)

    def follow(self, request: _Request, mask: Mask) -> tuple[int, str | None]:
        """Follow one row and write its mask; return the most drafts to accept, and why it cannot go on or None."""
        row = request.row
        row.num_known += len(request.tokens)
        try:
            return self._registry.follow(row.grammar_id, request.tokens, request.drafts, mask), None
        except GrammarFault as fault:
            return 0, str(fault)

    def share(self, words: Tensor) -> Tensor:
        """Return rank 0's words on every rank."""
        return self._group.broadcast(words)

    def _find(self, rows: tuple[int, ...]) -> tuple[_Followed | None, ...] | None:
        constrained = tuple(self._rows.get(row) for row in rows)
        return constrained if any(constrained) else None
