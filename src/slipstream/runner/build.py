"""Build the device side of an engine from its configuration: target, drafter, pools, rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from slipstream.base.errors import CapacityError
from slipstream.cache.physical.pools import PagePools
from slipstream.cache.physical.tables import PageTables
from slipstream.config.bytes import CacheGeometry, build_geometry
from slipstream.config.schema import EngineConfig, TargetSpec
from slipstream.models.interface import LayerCache, TargetModel
from slipstream.models.m3.model import build_m3
from slipstream.models.m3.weights import load_m3
from slipstream.parallel.group import one_rank
from slipstream.runner.rows import allocate_rows
from slipstream.runner.runner import Runner
from slipstream.runner.step import StepParts
from slipstream.speculation.interface import DraftCache, Drafter, DrafterSpec
from slipstream.speculation.registry import build_drafter, drafter_spec
from slipstream.wire.messages import Progress

_TORCH_DTYPE = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class BuiltRunner:
    """A runner and the geometry of its pools."""

    runner: Runner
    geometry: CacheGeometry


def build_runner(config: EngineConfig, on_progress: Callable[[Progress], None]) -> BuiltRunner:
    """Load the checkpoint and the drafter, allocate pools and rows.

    Args:
        config: what to run on.
        on_progress: told of loading.

    Returns:
        A runner that has not been warmed up.

    Raises:
        CheckpointError: a tensor is missing, misshaped or unknown.
        CapacityError: the pools cannot be allocated.
    """
    torch.set_num_threads(config.num_threads)
    dtype, device, group = _TORCH_DTYPE[config.model.dtype], torch.device(config.model.device), one_rank()
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
    return make_runner(config, model, drafter)


def make_runner(config: EngineConfig, model: TargetModel, drafter: Drafter) -> BuiltRunner:
    """Put a runner together from a target and a drafter that exist already.

    Args:
        config: sizes, dtype and device.
        model: the target; its taps must be the drafter's `aux_layer_ids`.
        drafter: any drafter whose `draft_len` is at most the configuration's.

    Returns:
        A runner that has not been warmed up.

    Raises:
        CapacityError: the pools cannot be allocated; the message carries the bytes.
    """
    target, spec = config.model.target, drafter.spec
    dtype, device = _TORCH_DTYPE[config.model.dtype], torch.device(config.model.device)
    tap_width = len(spec.aux_layer_ids) * target.hidden_size
    geometry = build_geometry(
        target=target,
        num_kv_heads=target.num_kv_heads,
        dtype=config.model.dtype,
        page_size=config.cache.page_size,
        num_pages=config.cache.num_pages,
        num_draft_layers=spec.num_cache_layers,
        num_draft_kv_heads=spec.num_kv_heads,
        draft_head_dim=spec.head_dim,
        tap_width=tap_width,
    )
    pools = _allocate(geometry, device, poison=config.cache.poison_freed_pages)
    max_model_len, max_rows = config.scheduler.max_model_len, config.scheduler.max_num_seqs
    max_pages = -(-max_model_len // config.cache.page_size)
    parts = StepParts(
        model=model,
        drafter=drafter,
        rows=allocate_rows(
            max_rows=max_rows,
            max_model_len=max_model_len,
            draft_len=config.speculation.draft_len,
            tap_width=tap_width,
            dtype=dtype,
            device=device,
        ),
        tables=PageTables(geometry.groups, max_rows, max_pages, device),
        pools=pools,
        layer_caches=layer_caches(target, pools),
        draft_cache=draft_cache(spec, pools, config.cache.page_size),
        page_size=config.cache.page_size,
    )
    return BuiltRunner(runner=Runner(parts, draft_len=config.speculation.draft_len, device=device), geometry=geometry)


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
