"""Noise over the whole vocabulary."""

from __future__ import annotations

import torch

from slipstream.kernels.sampling.gumbel_noise.contract import gumbel_noise as noise_of_tokens
from slipstream.sampling.noise import gumbel_noise


def test_is_the_kernel_over_all_token_ids():
    seed, position = torch.tensor([3, -4]), torch.tensor([10, 0])
    noise = gumbel_noise(seed, position, 23)
    assert noise.shape == (2, 23)
    assert torch.equal(noise, noise_of_tokens(seed, position, torch.arange(23)))
    assert torch.equal(noise, gumbel_noise(seed, position, 23, "cpu"))


def test_a_larger_vocabulary_begins_with_the_smaller_one():
    seed, position = torch.tensor([8]), torch.tensor([5])
    assert torch.equal(gumbel_noise(seed, position, 9), gumbel_noise(seed, position, 1000)[:, :9])
