"""Put one engine together: runner, cache, scheduler, loop. Both the inline engine and the engine process start here."""

from __future__ import annotations

import time
from collections.abc import Callable

from slipstream.cache.logical.manager import CacheManager, GroupSpec
from slipstream.config.schema import EngineConfig
from slipstream.engine.core import EngineCore
from slipstream.engine.facts import facts_of
from slipstream.engine.grammars import GrammarIntake
from slipstream.engine.late_compiles import LateCompiles
from slipstream.engine.ranks import RankChoices, start_ranks
from slipstream.kernels.compile_watch import CompileWatch
from slipstream.parallel.group import one_rank
from slipstream.scheduler.budget import SchedulerConfig
from slipstream.scheduler.scheduler import Scheduler
from slipstream.text.grammar.lazy_compiler import LazyCompiler, load_parts
from slipstream.wire.messages import EngineFacts, Progress


def assemble(
    config: EngineConfig,
    on_progress: Callable[[Progress], None],
    ranks: RankChoices = RankChoices(),  # noqa: B008
) -> tuple[EngineCore, EngineFacts]:
    """Build, load and warm up an engine; with more than one rank, start the others.

    Args:
        config: what to run on.
        on_progress: told of loading and warm-up.
        ranks: how ranks are made.

    Returns:
        The loop and what a front end must know of it. Close the loop to end the other ranks.

    Raises:
        CheckpointError: the checkpoint or the drafter cannot be loaded.
        CapacityError: the pools do not fit.
        ConfigError: a rank runs on something else than this process.
        EngineError: a rank was lost.
    """
    if config.parallel.tp_size > 1:
        ranked = start_ranks(config, on_progress, ranks)
        runner, geometry, on_close, registry = ranked, ranked.geometry, ranked.close, ranked.grammars
    else:
        built = ranks.build(config, on_progress, one_rank())
        runner, geometry, on_close, registry = built.runner, built.geometry, None, built.grammars
    try:
        scheduler = _make_scheduler(config, geometry.groups)
        on_progress(Progress(stage="warm-up", done=0, total=1))
        runner.warm_up(lambda done, total: on_progress(Progress(stage="graphs", done=done, total=total)))
        on_progress(Progress(stage="warm-up", done=1, total=1))
    except BaseException:
        if on_close is not None:
            on_close()
        raise
    core = EngineCore(
        scheduler,
        runner,
        overlap=config.scheduler.overlap,
        on_close=on_close,
        grammars=GrammarIntake(make_compiler(config), registry),
        compiles=_watch_compiles(config),
    )
    return core, facts_of(config)


def _watch_compiles(config: EngineConfig) -> LateCompiles | None:
    """Begin to watch for kernels that the warm-up missed; on a CPU none are compiled."""
    if config.model.device != "cuda":
        return None
    watch = CompileWatch()
    watch.arm()
    return LateCompiles(watch, is_fatal=config.late_compile_ends)


def make_compiler(config: EngineConfig) -> LazyCompiler:
    """Return what compiles constraints for an engine; nothing is loaded before its first use."""
    target = config.model.target
    return LazyCompiler(lambda: load_parts(config.model.path, target.vocab_size, target.eos_token_ids))


def _make_scheduler(config: EngineConfig, group_names: tuple[str, ...]) -> Scheduler:
    cache = CacheManager(
        groups=tuple(GroupSpec(name=name, num_pages=config.cache.num_pages) for name in group_names),
        page_size=config.cache.page_size,
        salt=cache_salt(config),
        enable_prefix=config.cache.enable_prefix,
    )
    limits = SchedulerConfig(
        max_num_seqs=config.scheduler.max_num_seqs,
        prefill_chunk_tokens=config.scheduler.prefill_chunk_tokens,
        page_size=config.cache.page_size,
        max_model_len=config.scheduler.max_model_len,
        draft_len=config.speculation.draft_len,
        max_steps_in_flight=2 if config.scheduler.overlap else 1,
    )
    return Scheduler(limits, cache, time.monotonic)


def cache_salt(config: EngineConfig) -> bytes:
    """Return what makes cached pages of two engines different though their tokens are equal."""
    parts = (
        config.model.path,
        config.model.dtype,
        config.cache.kv_dtype,
        config.speculation.drafter,
        str(config.speculation.drafter_path),
    )
    return "\0".join(parts).encode()
