"""Build the device side of an engine from its configuration: target, drafter, pools, rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from slipstream.base.errors import CapacityError, ConfigError
from slipstream.cache.physical.pools import PagePools
from slipstream.cache.physical.tables import PageTables
from slipstream.config.bytes import CacheGeometry, build_geometry, kv_heads_per_rank, page_table_bytes, row_bytes
from slipstream.config.schema import EngineConfig, TargetSpec
from slipstream.kernels.capability import check_capability
from slipstream.models.interface import LayerCache, TargetModel
from slipstream.models.m3.model import build_m3
from slipstream.models.m3.weights import load_m3
from slipstream.parallel.group import TensorParallelGroup, one_rank
from slipstream.runner.edit_rows import EditRows
from slipstream.runner.grammar_registry import GrammarRegistry
from slipstream.runner.grammar_rows import GrammarRows
from slipstream.runner.graphs import LadderGraphs
from slipstream.runner.rows import RowState, allocate_rows
from slipstream.runner.runner import Runner
from slipstream.runner.step import StepParts
from slipstream.speculation.interface import DraftCache, Drafter, DrafterSpec
from slipstream.speculation.registry import build_drafter, drafter_spec
from slipstream.wire.messages import Progress

_TORCH_DTYPE = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class BuiltRunner:
    """A runner, the geometry of its pools, its rows (which a debug check reads), where it finds grammars, its parts."""

    runner: Runner
    geometry: CacheGeometry
    rows: RowState
    grammars: GrammarRegistry
    parts: StepParts


def build_runner(
    config: EngineConfig, on_progress: Callable[[Progress], None], group: TensorParallelGroup | None = None
) -> BuiltRunner:
    """Load the checkpoint and the drafter, allocate pools and rows.

    Args:
        config: what to run on.
        on_progress: told of loading.
        group: the ranks, `config.parallel.tp_size` of them; None for a single one.

    Returns:
        A runner that has not been warmed up.

    Raises:
        ConfigError: the group is not of the configured width, or the GPU is not one that the kernels are for.
        CheckpointError: a tensor is missing, misshaped or unknown.
        CapacityError: the pools cannot be allocated.
    """
    torch.set_num_threads(config.num_threads)
    dtype, device = _TORCH_DTYPE[config.model.dtype], torch.device(config.model.device)
    check_capability(device)
    group = one_rank() if group is None else group
    if group.mesh.tp_size != config.parallel.tp_size:
        raise ConfigError(f"tp={config.parallel.tp_size}, but the runner was given {group.mesh.tp_size} ranks")
    model = build_m3(
        config.model.target,
        dtype=dtype,
        device=device,
        group=group,
        aux_layer_ids=drafter_spec(config.speculation).aux_layer_ids,
        max_positions=config.scheduler.max_model_len,
    )
    load_m3(model, Path(config.model.path), _stage(on_progress, "target weights"))
    drafter = build_drafter(
        config.speculation,
        model,
        group=group,
        dtype=dtype,
        device=device,
        max_model_len=config.scheduler.max_model_len,
        on_progress=_stage(on_progress, "drafter weights"),
    )
    return make_runner(config, model, drafter, group)


def make_runner(
    config: EngineConfig, model: TargetModel, drafter: Drafter, group: TensorParallelGroup | None = None
) -> BuiltRunner:
    """Put a runner together from a target and a drafter that exist already.

    Args:
        config: sizes, dtype and device.
        model: the target; its taps must be the drafter's `aux_layer_ids`.
        drafter: any drafter whose `draft_len` is at most the configuration's.
        group: the ranks that the target was built for; None for a single one.

    Returns:
        A runner that has not been warmed up.

    Raises:
        CapacityError: pools, rows or page tables cannot be allocated; the message carries the bytes.
    """
    target, spec, tp_size = config.model.target, drafter.spec, config.parallel.tp_size
    device = torch.device(config.model.device)
    tap_width = len(spec.aux_layer_ids) * target.hidden_size
    geometry = build_geometry(
        target=target,
        num_kv_heads=kv_heads_per_rank(target.num_kv_heads, tp_size),
        dtype=config.model.dtype,
        kv_dtype=config.cache.kv_dtype,
        page_size=config.cache.page_size,
        num_pages=config.cache.num_pages,
        num_draft_layers=spec.num_cache_layers,
        num_draft_kv_heads=kv_heads_per_rank(spec.num_kv_heads, tp_size),
        draft_head_dim=spec.head_dim,
        tap_width=tap_width,
    )
    pools = _allocate(geometry, device, poison=config.cache.poison_freed_pages)
    max_pages = -(-config.scheduler.max_model_len // config.cache.page_size)
    keeps_probs = spec.has_probs and config.speculation.verification != "coupled"
    rows, tables = _allocate_rows(
        config,
        geometry,
        tap_width=tap_width,
        max_pages=max_pages,
        device=device,
        probs_vocab_size=target.vocab_size if keeps_probs else 0,
    )
    grammars = GrammarRegistry()
    parts = StepParts(
        model=model,
        drafter=drafter,
        rows=rows,
        tables=tables,
        pools=pools,
        layer_caches=layer_caches(target, pools),
        draft_cache=draft_cache(spec, pools, config.cache.page_size),
        page_size=config.cache.page_size,
        edits=EditRows(config.scheduler.max_num_seqs, target.vocab_size, device),
        grammars=GrammarRows(
            grammars,
            vocab_size=target.vocab_size,
            draft_len=config.speculation.draft_len,
            device=device,
            group=one_rank() if group is None else group,
        ),
    )
    graphs = None
    if config.cuda_graphs:
        max_rows, draft_len = config.scheduler.max_num_seqs, config.speculation.draft_len
        graphs = LadderGraphs(parts, max_rows=max_rows, draft_len=draft_len, device=device)
    runner = Runner(
        parts,
        draft_len=config.speculation.draft_len,
        device=device,
        graphs=graphs,
        prefill_chunk_tokens=min(config.scheduler.prefill_chunk_tokens, config.scheduler.max_model_len),
    )
    return BuiltRunner(runner=runner, geometry=geometry, rows=rows, grammars=grammars, parts=parts)


def layer_caches(target: TargetSpec, pools: PagePools) -> tuple[LayerCache, ...]:
    """Return one view per target layer; sparse layers count their own planes of the index pool."""
    caches: list[LayerCache] = []
    num_sparse = 0
    for layer, is_sparse in enumerate(target.is_sparse_layer):
        index_k = pools.layer("index_k", num_sparse) if is_sparse else None
        num_sparse += is_sparse
        caches.append(LayerCache(pools.layer("target_k", layer), pools.layer("target_v", layer), index_k))
    return tuple(caches)


def draft_cache(spec: DrafterSpec, pools: PagePools, page_size: int) -> DraftCache:
    """Return the drafter's own layer, or an empty view for a drafter without one."""
    if not spec.num_cache_layers:
        return DraftCache(k=None, v=None, page_size=page_size)
    return DraftCache(k=pools.layer("draft_k", 0), v=pools.layer("draft_v", 0), page_size=page_size)


def _stage(on_progress: Callable[[Progress], None], stage: str) -> Callable[[int, int], None]:
    return lambda done, total: on_progress(Progress(stage=stage, done=done, total=total))


def _allocate(geometry: CacheGeometry, device: torch.device, *, poison: bool) -> PagePools:
    try:
        return PagePools(geometry, device, poison=poison)
    except (MemoryError, RuntimeError) as error:
        raise CapacityError(
            f"the cache needs {geometry.total_bytes:,} bytes for {geometry.num_pages} pages, which could not be "
            f"allocated ({error}); lower --kv-cache-bytes, --max-num-seqs or --max-model-len"
        ) from error


def _allocate_rows(
    config: EngineConfig,
    geometry: CacheGeometry,
    *,
    tap_width: int,
    max_pages: int,
    device: torch.device,
    probs_vocab_size: int,
) -> tuple[RowState, PageTables]:
    max_rows, max_model_len = config.scheduler.max_num_seqs, config.scheduler.max_model_len
    draft_len, dtype = config.speculation.draft_len, config.model.dtype
    try:
        rows = allocate_rows(
            max_rows=max_rows,
            max_model_len=max_model_len,
            draft_len=draft_len,
            tap_width=tap_width,
            dtype=_TORCH_DTYPE[dtype],
            device=device,
            probs_vocab_size=probs_vocab_size,
        )
        return rows, PageTables(geometry.groups, max_rows, max_pages, device)
    except (MemoryError, RuntimeError) as error:
        num_bytes = row_bytes(
            max_num_seqs=max_rows,
            max_model_len=max_model_len,
            draft_len=draft_len,
            tap_width=tap_width,
            dtype=dtype,
            probs_vocab_size=probs_vocab_size,
        )
        num_bytes += page_table_bytes(num_groups=len(geometry.groups), max_num_seqs=max_rows, max_pages=max_pages)
        raise CapacityError(
            f"the rows of {max_rows} requests of {max_model_len} tokens need {num_bytes:,} bytes with their page "
            f"tables, which could not be allocated ({error}); lower --max-num-seqs or --max-model-len"
        ) from error
