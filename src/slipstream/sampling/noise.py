"""Noise over the whole vocabulary, keyed by (seed, position of the token that is drawn, token id)."""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.kernels.sampling.gumbel_noise.contract import gumbel_noise as noise_of_tokens


def gumbel_noise(seed: Tensor, position: Tensor, vocab_size: int, device: torch.device | str | None = None) -> Tensor:
    """Return Gumbel noise for every token of the vocabulary.

    The draft and the target's draw for the same position use the same noise, on purpose: that is what makes a
    coupled draft agree with the draw.

    Args:
        seed: [num_rows] int64; any value.
        position: [num_rows] int64; position of the token that is drawn.
        vocab_size: number of tokens.
        device: where the noise is wanted; None = where `seed` lives, which saves a copy.

    Returns:
        [num_rows, vocab_size] float32.
    """
    place = seed.device if device is None else torch.device(device)
    token_ids = torch.arange(vocab_size, device=place)
    return noise_of_tokens(seed.to(place), position.to(place), token_ids)
