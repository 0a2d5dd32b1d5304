"""What requests change in their logits, one row each: dense biases, end tokens, forbidden sequences, penalties.

Nothing is allocated before the first request that asks for something, and nothing is gathered for a batch in which
nobody does. Counts of tokens are not kept: the penalties make them from the row's history.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from slipstream.batch.step_inputs import LogitEdits, Penalties, TokenBiases
from slipstream.wire.request import MAX_BAD_SEQUENCE_LEN, MAX_BAD_SEQUENCES
from slipstream.wire.step import RowStart

_NO_SEQUENCE = -1


@dataclass(frozen=True, slots=True)
class EditNeeds:
    """Which parts a request or a batch of them needs; known on the host."""

    has_biases: bool = False
    has_sequences: bool = False
    has_penalties: bool = False

    def __or__(self, other: EditNeeds) -> EditNeeds:
        return EditNeeds(
            self.has_biases or other.has_biases,
            self.has_sequences or other.has_sequences,
            self.has_penalties or other.has_penalties,
        )

    def __bool__(self) -> bool:
        return self.has_biases or self.has_sequences or self.has_penalties


NO_NEEDS = EditNeeds()
ALL_NEEDS = EditNeeds(has_biases=True, has_sequences=True, has_penalties=True)


def edit_needs_of(start: RowStart) -> EditNeeds:
    """Return what the request that starts in a row needs."""
    sampling = start.sampling
    has_bans = sampling.allowed_token_ids is not None or any(len(tokens) == 1 for tokens in start.bad_token_ids)
    return EditNeeds(
        has_biases=has_bans or bool(sampling.logit_bias) or (sampling.min_tokens > 0 and bool(start.stop_token_ids)),
        has_sequences=any(len(tokens) > 1 for tokens in start.bad_token_ids),
        has_penalties=sampling.has_penalties,
    )


@dataclass(frozen=True, slots=True)
class _EditState:
    """Device tensors by row; axis 0 is max_rows + 1, the last row is scratch and neutral."""

    num_prompt_tokens: Tensor  # [max_rows + 1] int64
    bias: Tensor  # [max_rows + 1, vocab_size] float32
    is_end_token: Tensor  # [max_rows + 1, vocab_size] bool
    first_end_position: Tensor  # [max_rows + 1] int64
    sequences: Tensor  # [max_rows + 1, MAX_BAD_SEQUENCES, MAX_BAD_SEQUENCE_LEN] int64; -1 in front
    penalties: Tensor  # [max_rows + 1, 3] float32; repetition, presence, frequency

    def reset(self, row: int) -> None:
        """Make a row neutral."""
        self.num_prompt_tokens[row] = 0
        self.bias[row].fill_(0.0)
        self.is_end_token[row].fill_(False)
        self.first_end_position[row] = 0
        self.sequences[row].fill_(_NO_SEQUENCE)
        self.penalties[row] = self.penalties[-1]


class EditRows:
    """The rows of an engine.

    Args:
        max_rows: requests that can run at once.
        vocab_size: tokens of the target.
        device: where.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self._num_rows = max_rows + 1
        self._vocab_size = vocab_size
        self._device = device
        self._state: _EditState | None = None

    @property
    def is_allocated(self) -> bool:
        """Whether a request has asked for anything yet."""
        return self._state is not None

    @property
    def num_bytes(self) -> int:
        """Bytes that are allocated."""
        return 0 if self._state is None else sum(getattr(self._state, one.name).nbytes for one in fields(self._state))

    def allocate(self) -> None:
        """Allocate the rows now, so that a graph can read them; all neutral."""
        self._state = self._state or self._allocate()

    def start(self, start: RowStart) -> EditNeeds:
        """Begin a request's life in its row; return what it needs."""
        needs = edit_needs_of(start)
        if self._state is None and not needs:
            return needs
        state = self._state or self._allocate()
        self._state = state
        row, sampling = start.row, start.sampling
        state.reset(row)
        state.num_prompt_tokens[row] = start.num_prompt_tokens
        if needs.has_biases:
            self._write_biases(state, start)
        if needs.has_sequences:
            long = [tokens for tokens in start.bad_token_ids if len(tokens) > 1]
            for index, tokens in enumerate(long):
                place = state.sequences[row, index, MAX_BAD_SEQUENCE_LEN - len(tokens) :]
                place.copy_(torch.tensor(tokens))
        penalties = (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty)
        state.penalties[row] = torch.tensor(penalties, device=self._device)
        return needs

    def gather(self, rows: Tensor, needs: EditNeeds, history: Tensor) -> LogitEdits | None:
        """Gather what a batch needs.

        Args:
            rows: [num_reqs] int64; the scratch row for padding.
            needs: the union over the batch's requests.
            history: [max_rows + 1, max_model_len] int64; of all rows.

        Returns:
            None when nobody needs anything.
        """
        state = self._state
        if not needs or state is None:
            return None
        repetition, presence, frequency = state.penalties[rows].unbind(1)
        reads_text = needs.has_sequences or needs.has_penalties
        return LogitEdits(
            num_prompt_tokens=state.num_prompt_tokens[rows],
            history=history[rows] if reads_text else history[:0],
            biases=TokenBiases(state.bias[rows], state.is_end_token[rows], state.first_end_position[rows])
            if needs.has_biases
            else None,
            sequences=state.sequences[rows] if needs.has_sequences else None,
            penalties=Penalties(repetition, presence, frequency) if needs.has_penalties else None,
        )

    def _write_biases(self, state: _EditState, start: RowStart) -> None:
        row, sampling = start.row, start.sampling

        def ids(values: tuple[int, ...]) -> Tensor:
            return torch.tensor(values, dtype=torch.int64, device=self._device)

        bias = state.bias[row]
        if sampling.allowed_token_ids is not None:
            bias.fill_(-torch.inf)
            bias[ids(sampling.allowed_token_ids)] = 0.0
        if sampling.logit_bias:
            tokens, values = zip(*sampling.logit_bias, strict=True)
            bias[ids(tokens)] += torch.tensor(values, dtype=torch.float32, device=self._device)
        bias[ids(tuple(tokens[0] for tokens in start.bad_token_ids if len(tokens) == 1))] = -torch.inf
        if sampling.min_tokens:
            state.is_end_token[row, ids(start.stop_token_ids)] = True
            state.first_end_position[row] = start.num_prompt_tokens + sampling.min_tokens

    def _allocate(self) -> _EditState:
        num_rows, vocab_size, device = self._num_rows, self._vocab_size, self._device
        shape = (num_rows, MAX_BAD_SEQUENCES, MAX_BAD_SEQUENCE_LEN)
        return _EditState(
            num_prompt_tokens=torch.zeros(num_rows, dtype=torch.int64, device=device),
            bias=torch.zeros((num_rows, vocab_size), dtype=torch.float32, device=device),
            is_end_token=torch.zeros((num_rows, vocab_size), dtype=torch.bool, device=device),
            first_end_position=torch.zeros(num_rows, dtype=torch.int64, device=device),
            sequences=torch.full(shape, _NO_SEQUENCE, dtype=torch.int64, device=device),
            penalties=torch.tensor([[1.0, 0.0, 0.0]], device=device).repeat(num_rows, 1),
        )
