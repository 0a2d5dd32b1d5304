"""What the training of a drafter consists of, whatever the drafter is. Everything else in this room knows only this."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class FeatureBatch:
    """Texts, and what the target says about them. Behind a text's end all values are 0."""

    token_ids: Tensor  # [batch, length] int64
    is_written: Tensor  # [batch, length] bool; the target wrote the token
    taps: Tensor  # [batch, length, num_taps * hidden_size]; ascending layers
    embeddings: Tensor  # [batch, length, hidden_size]; of token_ids
    kept_probs: Tensor  # [batch, length, draft_vocab_size]; the target's next token, over the kept ones
    favourites: Tensor  # [batch, length] int64; the target's likeliest next token


@dataclass(frozen=True, slots=True)
class BatchLoss:
    """The loss of one batch, and how far drafts would have been right.

    Args:
        loss: to be minimised.
        num_reached: draft i and all drafts before it are the target's likeliest tokens.
        num_starts: places that drafts started from.
    """

    loss: Tensor  # [] float32
    num_reached: Tensor  # [num_drafts] int64
    num_starts: Tensor  # [] int64


class DraftTrainer(Protocol):
    """One kind of drafter, as the training loop sees it."""

    @property
    def module(self) -> nn.Module:
        """Return what is trained; its state dict is what a checkpoint keeps."""
        ...

    @property
    def tap_layers(self) -> tuple[int, ...]:
        """Return the target layers whose output it reads, ascending."""
        ...

    @property
    def kept_ids(self) -> Tensor:
        """Return [draft_vocab_size] int64: the target's tokens that it can draft, ascending."""
        ...

    def loss(self, batch: FeatureBatch) -> BatchLoss:
        """Return the loss of a batch, differentiable by the module's parameters."""
        ...

    def export(self, folder: Path) -> None:
        """Write the drafter as engines load it."""
        ...


class TargetTables(Protocol):
    """What a new drafter may take over from its target."""

    def head_rows(self, token_ids: Tensor) -> Tensor:
        """Return [n, hidden_size] float32 rows of the output head."""
        ...
