"""One rank's slice of a tensor-parallel engine on one device: random weights, a full cache, and real decode steps.

A slice is an engine of its own whose network is as narrow as a rank's share. What it leaves out are the collectives,
and nothing else: every kernel sees the shapes that it would see among all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import torch

from slipstream.base.errors import ConfigError
from slipstream.config.schema import (
    CacheDType,
    CacheSection,
    EngineConfig,
    ModelSection,
    ParallelSection,
    SchedulerSection,
    ServerSection,
    SpeculationSection,
    TargetSpec,
)
from slipstream.decode_targets.m3.sm90_nvfp4.forward import Sm90Nvfp4Model
from slipstream.decode_targets.m3.sm90_nvfp4.random_weights import RandomWeights
from slipstream.models.m3.geometry import RankSizes, rank_sizes
from slipstream.parallel.mesh import Mesh
from slipstream.runner.build import make_runner
from slipstream.runner.handoff import PendingRuns
from slipstream.runner.inputs import ladder_batch
from slipstream.runner.step import BatchChoice, StepParts, run_ladders
from slipstream.sampling.classes import SamplingClass
from slipstream.speculation.interface import (
    DraftCache,
    DrafterSpec,
    ObserveInputs,
    Proposal,
    ProposeInputs,
)

_RESERVE_TOKENS = 2048
"""Room behind the context: every measured step moves a request on."""


@dataclass(frozen=True, slots=True)
class SliceSettings:
    """What to build.

    Args:
        tp_size: ranks of the engine of which this is one.
        batch: requests.
        draft_len: drafts per ladder.
        context: tokens that every request holds.
        kv_dtype: of the cache.
    """

    tp_size: int
    batch: int
    draft_len: int
    context: int
    kv_dtype: CacheDType = "float8_e4m3"

    def check_steps(self, num_steps: int) -> None:
        """Refuse more steps than requests have room for: those behind it would write nothing and look fast.

        Args:
            num_steps: steps between two rewinds.

        Raises:
            ConfigError: if every draft is accepted, the last of them lies behind the longest length.
        """
        most = _RESERVE_TOKENS // (self.draft_len + 1) - 1
        if num_steps > most:
            raise ConfigError(
                f"{num_steps} steps of {self.draft_len + 1} rows, warm-up included, are more than a request has room "
                f"for behind its context ({_RESERVE_TOKENS} tokens); at most {most} fit: give fewer repetitions or rows"
            )


class StandInDrafter:
    """Proposes the same tokens always, all different: ladders of full length without a drafter's own work.

    Rows of one token would choose the same experts, and a step would look cheaper than it is.
    """

    def __init__(self, draft_len: int) -> None:
        self.spec = DrafterSpec(name="stand-in", draft_len=draft_len)

    def observe(self, inputs: ObserveInputs, cache: DraftCache) -> None:
        """Store nothing."""
        del inputs, cache

    def propose(self, inputs: ProposeInputs, cache: DraftCache) -> Proposal:
        """Return tokens 1, 2, .. for every row."""
        num_rows, device = len(inputs.num_accepted), inputs.num_accepted.device
        return Proposal(draft_tokens(self.spec.draft_len, device).repeat(num_rows, 1))


def draft_tokens(draft_len: int, device: torch.device) -> torch.Tensor:
    """Return [draft_len] int64: what the stand-in proposes."""
    return torch.arange(1, draft_len + 1, device=device)


def slice_spec(spec: TargetSpec, tp_size: int) -> tuple[TargetSpec, RankSizes]:
    """Return the network that one rank's share looks like, and its sizes."""
    sizes = rank_sizes(spec, Mesh(tp_size, 0))
    sparse = spec.sparse
    narrow = msgspec.structs.replace(
        spec,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        dense_intermediate_size=sizes.dense_columns,
        expert_intermediate_size=sizes.expert_columns,
        shared_intermediate_size=sizes.shared_columns,
        vocab_size=sizes.vocab_rows,
        eos_token_ids=(0,),
        sparse=None if sparse is None else msgspec.structs.replace(sparse, num_index_heads=sizes.num_index_heads),
    )
    return narrow, rank_sizes(narrow, Mesh())


def slice_config(spec: TargetSpec, settings: SliceSettings, device: torch.device) -> EngineConfig:
    """Return the configuration of a slice: just enough pages for its requests.

    Args:
        spec: of the slice.
        settings: what to build.
        device: where.
    """
    page_size = spec.sparse.index_block_size if spec.sparse is not None else 128
    max_model_len = settings.context + _RESERVE_TOKENS
    num_pages = settings.batch * -(-max_model_len // page_size) + 1
    return EngineConfig(
        model=ModelSection(
            path="",
            name="slice",
            target=spec,
            dtype="bfloat16",
            device="cuda" if device.type == "cuda" else "cpu",
            seed=0,
            weight_formats=("mxfp8", "nvfp4"),
        ),
        parallel=ParallelSection(tp_size=1, check_ranks=False),
        cache=CacheSection(
            kv_dtype=settings.kv_dtype,
            page_size=page_size,
            num_pages=num_pages,
            enable_prefix=False,
            poison_freed_pages=False,
        ),
        scheduler=SchedulerSection(
            max_model_len=max_model_len, max_num_seqs=settings.batch, prefill_chunk_tokens=page_size, overlap=False
        ),
        speculation=SpeculationSection(
            drafter="none",
            drafter_path=None,
            eagle3=None,
            draft_len=settings.draft_len,
            verification="coupled",
            ngram_max=1,
            ngram_min=1,
        ),
        server=ServerSection(
            host="",
            port=0,
            served_model_name="slice",
            api_keys=(),
            max_queue=1,
            drain_s=0.0,
            engine_timeout_s=0.0,
            log_format="text",
            log_level="info",
        ),
        cuda_graphs=False,
        late_compile_ends=False,
        num_threads=torch.get_num_threads(),
    )


class RankSlice:
    """One rank, ready to run decode steps.

    Args:
        spec: the whole network.
        settings: what to build.
        device: where.
        seed: of weights and cache.
    """

    def __init__(self, spec: TargetSpec, settings: SliceSettings, device: torch.device, seed: int = 0) -> None:
        self.settings = settings
        self.spec, self.sizes = slice_spec(spec, settings.tp_size)
        self.config = slice_config(self.spec, settings, device)
        self.weights = RandomWeights(self.spec, self.sizes, device, seed).make(self.config.scheduler.max_model_len)
        self.model = Sm90Nvfp4Model(self.spec, self.sizes, self.weights)
        self.parts: StepParts = make_runner(self.config, self.model, StandInDrafter(settings.draft_len)).parts
        self._row_numbers = torch.arange(settings.batch, device=device)
        self._fill(device, seed)

    def _fill(self, device: torch.device, seed: int) -> None:
        """Give every row its pages, full of noise, and put it at the end of its context."""
        parts, settings = self.parts, self.settings
        generator = torch.Generator(device).manual_seed(seed + 1)
        for pool in parts.pools.geometry.pools:
            for layer in range(pool.num_layers):
                plane = parts.pools.layer(pool.name, layer)
                for first in range(0, len(plane), 4096):
                    part = plane[first : first + 4096]
                    part.copy_(torch.randn(part.shape, generator=generator, device=device))
        per_row = (self.config.cache.num_pages - 1) // settings.batch
        order = torch.randperm(per_row * settings.batch, generator=generator, device=device) + 1
        for group in parts.tables.groups:
            parts.tables.table(group)[: settings.batch, :per_row] = order.view(settings.batch, per_row).int()
        self.rewind()

    def rewind(self) -> None:
        """Put every row back to the end of its context."""
        rows, settings, batch = self.parts.rows, self.settings, self.settings.batch
        rows.num_computed_tokens[:batch] = settings.context
        rows.max_seq_len[:batch] = self.config.scheduler.max_model_len
        # Requests differ from each other and from their drafts.
        rows.last_token[:batch] = torch.arange(batch, device=rows.last_token.device) + settings.draft_len + 1
        rows.draft_tokens[:batch] = draft_tokens(settings.draft_len, rows.last_token.device)

    def step(self) -> PendingRuns:
        """Launch one decode step of all rows: verify, accept, commit."""
        parts = self.parts
        rows = self._row_numbers
        batch = ladder_batch(parts.rows, parts.tables, rows, self.settings.draft_len, parts.page_size)
        return run_ladders(parts, batch, BatchChoice((), SamplingClass.GREEDY, ()))

    def count_experts(self) -> float:
        """Run a step and return the distinct experts that a layer read, on average."""
        counts: list[int] = []
        self.model.on_routed = lambda ids: counts.append(ids.unique().numel() - int((ids < 0).any()))
        try:
            self.step()
        finally:
            self.model.on_routed = None
        return sum(counts) / max(len(counts), 1)
