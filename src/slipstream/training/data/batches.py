"""Batches of texts of about one length, so that little is padding. Batch n follows from (seed, n) alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.base.errors import ConfigError
from slipstream.training.data.texts import Text, as_tensor

MIN_TEXT_TOKENS = 3


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Texts of one optimiser step, on the host."""

    token_ids: Tensor  # [batch, length] int64; 0 behind a text's end
    is_written: Tensor  # [batch, length] bool; the target wrote the token
    lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Return the tokens that are no padding."""
        return sum(self.lengths)


class SimilarLengths:
    """Draws a text with a chance that grows with its length, and takes the ones next shorter with it.

    Args:
        texts: to draw from; those too short to train on are left out.
        batch_tokens: tokens of a batch, padding included; no less than the longest text.
        seed: of the draws.

    Raises:
        ConfigError: no text is long enough.
    """

    def __init__(self, texts: Sequence[Text], batch_tokens: int, seed: int) -> None:
        long_enough = [text for text in texts if len(text.token_ids) >= MIN_TEXT_TOKENS and text.num_written]
        if not long_enough:
            raise ConfigError("no text is long enough to train on: raise --answer-tokens or give other prompts")
        self._texts = sorted(long_enough, key=lambda text: len(text.token_ids))
        self._reach = list(itertools.accumulate(len(text.token_ids) for text in self._texts))
        self._batch_tokens, self._seed = batch_tokens, seed

    def batch(self, number: int) -> TokenBatch:
        """Return batch `number`."""
        draw = random.Random(f"batch {self._seed} {number}")
        longest = draw.choices(range(len(self._texts)), cum_weights=self._reach)[0]
        length = len(self._texts[longest].token_ids)
        count = max(1, self._batch_tokens // length)
        return pad_texts(self._texts[max(0, longest + 1 - count) : longest + 1])


def pad_texts(texts: Sequence[Text]) -> TokenBatch:
    """Return texts as one batch."""
    lengths = tuple(len(text.token_ids) for text in texts)
    token_ids = torch.zeros(len(texts), max(lengths), dtype=torch.int64)
    is_written = torch.zeros(len(texts), max(lengths), dtype=torch.bool)
    for row, text in enumerate(texts):
        token_ids[row, : lengths[row]] = as_tensor(text.token_ids)
        is_written[row, text.num_prompt_tokens : lengths[row]] = True
    return TokenBatch(token_ids, is_written, lengths)
