"""Write text with the target in plain tensors: batched, with a cache and block selection."""

from __future__ import annotations

import torch
from network import LayerCache, Network
from torch import Tensor


def draw(logits: Tensor, temperature: float, source: torch.Generator | None) -> Tensor:
    """Draw one id per row; temperature 0 takes the largest."""
    if temperature == 0:
        return logits.argmax(-1)
    noise = torch.rand(logits.shape, device=logits.device, generator=source).clamp_min(1e-20)
    return (logits.float() / temperature - (-noise.log()).log()).argmax(-1)


@torch.no_grad()
def write(
    network: Network,
    prompts: list[list[int]],
    max_new: int,
    eos: int,
    temperature: float = 0.0,
    source: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
) -> list[list[int]]:
    """Continue every prompt until the end token or max_new tokens.

    Args:
        network: target.
        prompts: token ids; lengths may differ.
        max_new: most tokens to add to each.
        eos: id of the end token, which is kept in the result.
        temperature: 0 is greedy.
        source: random numbers.
        dtype: of activations and cache.

    Returns:
        The added tokens of each prompt.
    """
    device = network.embed.device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    longest = int(lengths.max())
    padded = torch.tensor([prompt + [0] * (longest - len(prompt)) for prompt in prompts], device=device)
    cache = network.new_cache(len(prompts), longest + max_new, dtype)
    hidden, _ = network.forward_cached(padded, torch.zeros_like(lengths), cache)
    row = torch.arange(len(prompts), device=device)
    tokens = draw(network.logits(hidden[row, lengths - 1]), temperature, source)
    written = [tokens]
    done = tokens == eos
    for step in range(max_new - 1):
        if step % 16 == 0 and bool(done.all()):
            break
        hidden, _ = network.forward_cached(tokens[:, None], lengths + step, cache)
        tokens = torch.where(done, eos, draw(network.logits(hidden[:, 0]), temperature, source))
        written.append(tokens)
        done |= tokens == eos
    table = torch.stack(written, dim=1).tolist()
    return [ids[: ids.index(eos) + 1] if eos in ids else ids for ids in table]


@torch.no_grad()
def read(network: Network, tokens: Tensor, taps: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    """Run whole sequences from position 0 with block selection; return residual stream and taps."""
    batch, length = tokens.shape
    cache: list[LayerCache] = network.new_cache(batch, length, dtype)
    return network.forward_cached(tokens, torch.zeros(batch, dtype=torch.int64, device=tokens.device), cache, taps)
