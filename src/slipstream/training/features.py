"""What the target says about texts: taps, and its distribution of every next token.

The target is the engine's own network over pages of its own, without graph, scheduler or sampling. Texts are laid end
to end and computed in chunks, like prompts. Nothing is kept between calls.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from slipstream.base.errors import CapacityError, UnsupportedFeature
from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.batch.step_inputs import StepInputs
from slipstream.cache.physical.pools import PagePools
from slipstream.config.bytes import build_geometry
from slipstream.config.schema import EngineConfig
from slipstream.models.m3.model import build_m3
from slipstream.models.m3.weights import load_m3
from slipstream.parallel.group import one_rank
from slipstream.runner.build import layer_caches
from slipstream.runner.inputs import slots_of
from slipstream.training.data.batches import TokenBatch
from slipstream.training.interface import FeatureBatch

CHUNK_TOKENS = 2048
"""Tokens of one forward pass."""

LOGIT_ROWS = 512
"""Rows of logits that exist at a time: a vocabulary is wide."""

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class TargetFeatures:
    """The frozen target.

    Args:
        config: resolved; dtype, device and the longest text (`max_model_len`).
        tap_layers: zero-based layers whose output is read, ascending.
        on_progress: called with (bytes done, bytes in all) while weights load.

    Raises:
        UnsupportedFeature: more than one rank.
        CheckpointError: the weights cannot be loaded.
    """

    def __init__(
        self, config: EngineConfig, tap_layers: tuple[int, ...], on_progress: Callable[[int, int], None] | None = None
    ) -> None:
        if config.parallel.tp_size != 1:
            raise UnsupportedFeature(
                f"tp={config.parallel.tp_size}: training reads the target on one device; leave tp out", param="tp"
            )
        torch.set_num_threads(config.num_threads)
        self.spec = config.model.target
        self.device = torch.device(config.model.device)
        self.dtype = _DTYPES[config.model.dtype]
        self._config = config
        self._model = build_m3(
            self.spec,
            dtype=self.dtype,
            device=self.device,
            group=one_rank(),
            aux_layer_ids=tap_layers,
            max_positions=config.scheduler.max_model_len,
        )
        load_m3(self._model, Path(config.model.path), on_progress)
        self._model.requires_grad_(False)
        self._pools: PagePools | None = None

    @torch.no_grad()
    def head_rows(self, token_ids: Tensor) -> Tensor:
        """Return [n, hidden_size] float32 rows of the output head, however it is stored.

        The logits of unit vectors are its columns, exactly.
        """
        hidden_size = self.spec.hidden_size
        chosen = token_ids.to(self.device)
        columns: list[Tensor] = []
        for begin in range(0, hidden_size, LOGIT_ROWS):
            units = torch.zeros(min(LOGIT_ROWS, hidden_size - begin), hidden_size, dtype=self.dtype, device=self.device)
            units[:, begin:].fill_diagonal_(1.0)
            columns.append(self._model.compute_logits(units)[:, chosen])
        return torch.cat(columns).T.float()

    @torch.no_grad()
    def read(self, batch: TokenBatch, kept_ids: Tensor) -> FeatureBatch:
        """Run the target over texts.

        Args:
            batch: texts, each no longer than the configuration's longest.
            kept_ids: [draft_vocab_size] int64; a drafter's vocabulary.

        Numerics: probabilities over the kept tokens are renormalised, in float32, and kept in the target's dtype.
        """
        tokens = batch.token_ids.to(self.device)
        where = torch.arange(tokens.shape[1]) < torch.tensor(batch.lengths).unsqueeze(1)
        where = where.to(self.device)
        taps, hidden = self.forward(tokens[where], batch.lengths)
        probs, favourites = self._distributions(hidden, kept_ids.to(self.device))

        def padded(values: Tensor) -> Tensor:
            whole = values.new_zeros((*where.shape, *values.shape[1:]))
            whole[where] = values
            return whole

        return FeatureBatch(
            token_ids=tokens,
            is_written=batch.is_written.to(self.device),
            taps=padded(taps),
            embeddings=padded(self._model.embed(tokens[where])),
            kept_probs=padded(probs),
            favourites=padded(favourites),
        )

    @torch.no_grad()
    def forward(self, token_ids: Tensor, lengths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return taps and final states of texts that are laid end to end.

        Args:
            token_ids: [num_tokens] int64.
            lengths: tokens of each text.

        Returns:
            taps: [num_tokens, num_taps * hidden_size].
            hidden: [num_tokens, hidden_size]; after the final norm.
        """
        page_size = self._config.cache.page_size
        page_table = _contiguous_pages(lengths, page_size).to(self.device)
        caches = layer_caches(self.spec, self._pages(1 + sum(-(-length // page_size) for length in lengths)))
        positions_host = torch.cat([torch.arange(length) for length in lengths])
        owners_host = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        positions, owners = positions_host.to(self.device), owners_host.to(self.device)
        slots = slots_of(positions, page_table, owners, page_size)
        taps: list[Tensor] = []
        hidden: list[Tensor] = []
        for begin in range(0, token_ids.shape[0], CHUNK_TOKENS):
            part = slice(begin, begin + CHUNK_TOKENS)
            addressing = AttentionInputs(
                positions=positions[part],
                req_of_token=owners[part],
                page_table=page_table,
                slot_mapping=slots[part],
                index_page_table=page_table,
                index_slot_mapping=slots[part],
            )
            out = self._model.forward(StepInputs(token_ids=token_ids[part], attention=addressing), caches)
            taps.append(out.aux_hidden_states)
            hidden.append(out.hidden)
        return torch.cat(taps), torch.cat(hidden)

    def _distributions(self, hidden: Tensor, kept_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities of the kept tokens, and the likeliest of all, for every state."""
        probs: list[Tensor] = []
        favourites: list[Tensor] = []
        for rows in hidden.split(LOGIT_ROWS):
            logits = self._model.compute_logits(rows)
            probs.append(logits[:, kept_ids].softmax(-1).to(self.dtype))
            favourites.append(logits.argmax(-1))
        return torch.cat(probs), torch.cat(favourites)

    def _pages(self, num_pages: int) -> PagePools:
        """Return pools of at least that many pages."""
        if self._pools is None or self._pools.geometry.num_pages < num_pages:
            self._pools = None
            geometry = build_geometry(
                target=self.spec,
                num_kv_heads=self.spec.num_kv_heads,
                dtype=self._config.model.dtype,
                page_size=self._config.cache.page_size,
                num_pages=num_pages,
            )
            try:
                self._pools = PagePools(geometry, self.device)
            except (MemoryError, RuntimeError) as error:
                raise CapacityError(
                    f"keys and values of a batch need {geometry.total_bytes:,} bytes, which could not be allocated "
                    f"({error}); lower --batch-tokens"
                ) from error
        return self._pools


def _contiguous_pages(lengths: tuple[int, ...], page_size: int) -> Tensor:
    """Return [num_texts, max_pages] int32: text after text, page after page, beginning behind the null page."""
    counts = [-(-length // page_size) for length in lengths]
    table = torch.zeros(len(lengths), max(counts), dtype=torch.int32)
    first = 1
    for row, count in enumerate(counts):
        table[row, :count] = torch.arange(first, first + count)
        first += count
    return table
