"""Which of the target's tokens a drafter can draft."""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.base.errors import ConfigError

MAX_AUTO_SIZE = 32_768


def draft_vocab_size(asked: int, vocab_size: int) -> int:
    """Return the size of the draft vocabulary.

    Args:
        asked: 0 takes half of the target's, at most 32,768.
        vocab_size: of the target.

    Raises:
        ConfigError: more than the target has.
    """
    if asked > vocab_size:
        raise ConfigError(f"--draft-vocab-size {asked}: the target has {vocab_size} tokens; give no more")
    return asked or max(1, min(MAX_AUTO_SIZE, vocab_size // 2))


def frequent_ids(counts: Tensor, size: int, always: tuple[int, ...] = ()) -> Tensor:
    """Return the tokens that are written most often, the lower one where two are even.

    Args:
        counts: [vocab_size] int64.
        size: how many.
        always: kept whatever their count: without its end token a drafter could never end a text.

    Returns:
        [size] int64, ascending.
    """
    ranked = counts.clone()
    ranked[torch.tensor(always, dtype=torch.int64)] = counts.sum() + 1
    return ranked.argsort(descending=True, stable=True)[:size].sort()[0]
