"""The state that a request keeps on the device from admission to its end, one row each.

A step gathers what it needs by row; only `runner.step` writes here. One extra scratch row serves padding entries of
a batch: it is read, never written.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.batch.step_inputs import SamplingInputs
from slipstream.wire.ids import NO_TOKEN
from slipstream.wire.step import RowStart


@dataclass(frozen=True, slots=True)
class RowState:
    """Device tensors by row; axis 0 is max_rows + 1, the last row is scratch."""

    num_computed_tokens: Tensor  # [max_rows + 1] int64; tokens whose target KV exists = position of last_token
    last_token: Tensor  # [max_rows + 1] int64
    max_seq_len: Tensor  # [max_rows + 1] int64; positions at or past this are never written
    draft_tokens: Tensor  # [max_rows + 1, draft_len] int64; NO_TOKEN where there is none
    history: Tensor  # [max_rows + 1, max_model_len] int64; every token of the request by position
    carry_taps: Tensor  # [max_rows + 1, tap_width]; tap of the last computed prompt position
    temperature: Tensor  # [max_rows + 1] float32
    top_k: Tensor  # [max_rows + 1] int32
    top_p: Tensor  # [max_rows + 1] float32
    min_p: Tensor  # [max_rows + 1] float32
    seed: Tensor  # [max_rows + 1] int64
    is_rejection: Tensor  # [max_rows + 1] bool; False for greedy requests, whatever they asked for
    draft_probs: Tensor  # [max_rows + 1, draft_len, vocab_size] float32; width 0 when no request can need them

    @property
    def scratch_row(self) -> int:
        """Index that stands for a padding entry."""
        return self.num_computed_tokens.shape[0] - 1

    @property
    def keeps_draft_probs(self) -> bool:
        """Whether drafts keep the distributions they were drawn from."""
        return self.draft_probs.shape[2] > 0

    def sampling(self, rows: Tensor, *, has_rejection: bool = False) -> SamplingInputs:
        """Gather the sampling parameters of [num_reqs] int64 rows; with `has_rejection`, who is verified how, too."""
        return SamplingInputs(
            temperature=self.temperature.index_select(0, rows),
            top_k=self.top_k.index_select(0, rows),
            top_p=self.top_p.index_select(0, rows),
            min_p=self.min_p.index_select(0, rows),
            seed=self.seed.index_select(0, rows),
            is_rejection=self.is_rejection.index_select(0, rows) if has_rejection else None,
        )

    def start(self, start: RowStart) -> None:
        """Begin a request's life in its row; nothing of the row's former tenant remains readable."""
        row = start.row
        num_known = len(start.token_ids)
        self.num_computed_tokens[row] = start.num_computed_tokens
        self.last_token[row] = 0
        self.max_seq_len[row] = start.max_seq_len
        self.draft_tokens[row].fill_(NO_TOKEN)
        self.history[row].fill_(0)
        self.history[row, :num_known] = torch.tensor(start.token_ids, dtype=torch.int64, device=self.history.device)
        self.carry_taps[row].fill_(0)
        self.temperature[row] = start.sampling.temperature
        self.top_k[row] = start.sampling.top_k
        self.top_p[row] = start.sampling.top_p
        self.min_p[row] = start.sampling.min_p
        self.seed[row] = start.seed
        self.is_rejection[row] = start.verification == "rejection" and not start.sampling.is_greedy

    def store_draft_probs(self, rows: Tensor, probs: Tensor, is_padding: Tensor) -> None:
        """Keep what the drafts of a batch were drawn from; padding entries leave the scratch row as it is.

        Args:
            rows: [num_reqs] int64; the scratch row for padding.
            probs: [num_reqs, draft_len, vocab_size] float32.
            is_padding: [num_reqs] bool.
        """
        if self.keeps_draft_probs:
            self.draft_probs[rows] = torch.where(is_padding[:, None, None], self.draft_probs[rows], probs)


def allocate_rows(
    *,
    max_rows: int,
    max_model_len: int,
    draft_len: int,
    tap_width: int,
    dtype: torch.dtype,
    device: torch.device,
    probs_vocab_size: int = 0,
) -> RowState:
    """Allocate the rows of an engine, all idle.

    Args:
        max_rows: requests that can run at once.
        max_model_len: tokens a request can hold.
        draft_len: K of the longest rung.
        tap_width: num_aux_layers * hidden_size, 0 without a drafter that taps.
        dtype: element type of the taps.
        device: where.
        probs_vocab_size: the target's vocabulary when drafts keep the distributions they were drawn from, else 0.

    Returns:
        Rows whose scratch row is greedy, empty and at length 0.
    """
    num_rows = max_rows + 1

    def integers(*shape: int, dtype: torch.dtype = torch.int64, fill: int = 0) -> Tensor:
        return torch.full((num_rows, *shape), fill, dtype=dtype, device=device)

    return RowState(
        num_computed_tokens=integers(),
        last_token=integers(),
        max_seq_len=integers(),
        draft_tokens=integers(draft_len, fill=NO_TOKEN),
        history=integers(max_model_len),
        carry_taps=torch.zeros((num_rows, tap_width), dtype=dtype, device=device),
        temperature=torch.zeros(num_rows, dtype=torch.float32, device=device),
        top_k=integers(dtype=torch.int32),
        top_p=torch.ones(num_rows, dtype=torch.float32, device=device),
        min_p=torch.zeros(num_rows, dtype=torch.float32, device=device),
        seed=integers(),
        is_rejection=torch.zeros(num_rows, dtype=torch.bool, device=device),
        draft_probs=torch.zeros((num_rows, draft_len, probs_vocab_size), dtype=torch.float32, device=device),
    )
