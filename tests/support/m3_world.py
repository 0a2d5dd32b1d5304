"""Tiny targets, a paged cache for them, and the transformers oracle: what every test of the network needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.batch.step_inputs import StepInputs
from slipstream.config.checkpoint import read_target
from slipstream.config.schema import TargetSpec
from slipstream.layers import attention_sparse
from slipstream.models.interface import LayerCache, TargetOutput
from slipstream.models.m3.geometry import rank_sizes
from slipstream.models.m3.model import M3Model, build_m3
from slipstream.models.m3.weights import load_m3
from slipstream.parallel.group import TensorParallelGroup, one_rank
from support.tiny_checkpoints import make_tiny_checkpoint


def load_target(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    group: TensorParallelGroup | None = None,
    aux_layer_ids: tuple[int, ...] = (),
) -> M3Model:
    """Return the network of a checkpoint folder on the CPU."""
    model = build_m3(
        read_target(folder), dtype=dtype, device="cpu", group=group or one_rank(), aux_layer_ids=aux_layer_ids
    )
    load_m3(model, folder)
    return model


def tiny_target(folder: Path, **geometry: Any) -> M3Model:
    """Write a tiny checkpoint and return its network."""
    return load_target(make_tiny_checkpoint(folder, **geometry))


class PagedCache:
    """Pools full of NaN, shuffled pages, and steps over ragged chunks of several requests.

    Args:
        model: the network.
        num_reqs: requests.
        max_tokens: longest of them.
        page_size: tokens per page.
        seed: of the page permutation; the two groups get different ones.
    """

    def __init__(
        self, model: M3Model, *, num_reqs: int = 1, max_tokens: int, page_size: int = 8, seed: int = 0
    ) -> None:
        self.model = model
        self.page_size = page_size
        self.lengths = [0] * num_reqs
        max_pages = -(-max_tokens // page_size)
        num_pages = num_reqs * max_pages + 1
        generator = torch.Generator().manual_seed(seed)
        # [num_reqs, max_pages] each; page 0 is nobody's
        self.tables = [
            (torch.randperm(num_pages - 1, generator=generator) + 1).view(num_reqs, max_pages).int() for _ in range(2)
        ]
        self.caches = layer_caches(model, num_pages, page_size)

    def step(self, chunks: Sequence[tuple[int, Sequence[int]]], num_padding: int = 0) -> TargetOutput:
        """Run one forward pass over (request, tokens) chunks, appended to what each request holds."""
        positions: list[int] = []
        owners: list[int] = []
        tokens: list[int] = []
        for request, chunk in chunks:
            start = self.lengths[request]
            positions += range(start, start + len(chunk))
            owners += [request] * len(chunk)
            tokens += chunk
            self.lengths[request] = start + len(chunk)
        positions += [-1] * num_padding
        owners += [0] * num_padding
        tokens += [0] * num_padding
        where, owner = torch.tensor(positions, dtype=torch.int64), torch.tensor(owners, dtype=torch.int64)
        slots = [self._slots(table, where, owner) for table in self.tables]
        addressing = AttentionInputs(
            positions=where,
            req_of_token=owner,
            page_table=self.tables[0],
            slot_mapping=slots[0],
            index_page_table=self.tables[1],
            index_slot_mapping=slots[1],
        )
        inputs = StepInputs(token_ids=torch.tensor(tokens, dtype=torch.int64), attention=addressing)
        with torch.inference_mode():
            return self.model.forward(inputs, self.caches)

    def logits(self, chunks: Sequence[tuple[int, Sequence[int]]], num_padding: int = 0) -> Tensor:
        """Return [num_tokens, vocab_size] logits of a step."""
        output = self.step(chunks, num_padding)
        with torch.inference_mode():
            return self.model.compute_logits(output.hidden)

    def rewind(self, request: int, length: int) -> None:
        """Forget tokens past `length`; their slots keep what was written."""
        self.lengths[request] = length

    def _slots(self, table: Tensor, positions: Tensor, owners: Tensor) -> Tensor:
        safe = positions.clamp_min(0)
        slots = table[owners, safe // self.page_size].long() * self.page_size + safe % self.page_size
        return slots.masked_fill(positions < 0, -1)


def layer_caches(model: M3Model, num_pages: int, page_size: int) -> tuple[LayerCache, ...]:
    """Return pools of one rank, every value NaN."""
    spec, embedding = model.spec, model.embed_tokens
    num_kv_heads = rank_sizes(spec, embedding._group.mesh).num_kv_heads
    dtype = embedding.weight.dtype
    caches: list[LayerCache] = []
    for is_sparse in spec.is_sparse_layer:
        shape = (num_pages, page_size, num_kv_heads, spec.head_dim)
        index_k = None
        if is_sparse and spec.sparse is not None:
            index_k = torch.full((num_pages, page_size, spec.sparse.index_head_dim), torch.nan, dtype=dtype)
        pools = [torch.full(shape, torch.nan, dtype=dtype) for _ in range(2)]
        caches.append(LayerCache(pools[0], pools[1], index_k))
    return tuple(caches)


def prompt(spec: TargetSpec, num_tokens: int, seed: int = 0) -> list[int]:
    """Return random token ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, spec.vocab_size, (num_tokens,), generator=generator).tolist()


@contextmanager
def recorded_blocks() -> Iterator[list[Tensor]]:
    """Collect what every block choice of our network returns: [num_tokens, num_kv_heads, topk], ascending, then -1."""
    seen: list[Tensor] = []
    real = attention_sparse.choose_blocks

    def spy(*arguments: Any) -> Tensor:
        seen.append(real(*arguments))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_sparse, "choose_blocks", spy)
        yield seen


@dataclass
class Oracle:
    """transformers' own network of a checkpoint, run on whole prompts."""

    model: Any

    def run(self, tokens: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
        """Return [num_tokens, vocab_size] logits and, per sparse layer, sorted choices like ours."""
        choices: list[Tensor] = []

        def keep(_module: Any, _inputs: Any, output: Tensor) -> None:
            # [1, num_heads, num_tokens, n] unsorted -> [num_tokens, num_heads, n] ascending, then -1
            chosen = output[0].transpose(0, 1)
            largest = torch.iinfo(chosen.dtype).max
            ordered = chosen.masked_fill(chosen < 0, largest).sort(dim=-1).values
            choices.append(ordered.masked_fill(ordered == largest, -1))

        layers = self.model.model.language_model.layers
        hooks = [
            layer.self_attn.indexer.register_forward_hook(keep)
            for layer in layers
            if layer.self_attn.indexer is not None
        ]
        try:
            with torch.inference_mode():
                logits = self.model(input_ids=torch.tensor([list(tokens)])).logits[0].float()
        finally:
            for hook in hooks:
                hook.remove()
        return logits, choices


def load_oracle(folder: Path) -> Oracle:
    """Return transformers' network of a released-layout folder in float32."""
    from transformers import AutoModelForImageTextToText
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model, report = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not any(report.values()), report
    return Oracle(model.eval())


def same_blocks(ours: Tensor, theirs: Tensor) -> bool:
    """Return whether two choices agree for every token and head; the oracle's may be narrower."""
    width = theirs.shape[-1]
    return torch.equal(ours[..., :width].long(), theirs.long()) and bool((ours[..., width:] == -1).all())
