"""From open options to a closed configuration: every rule about defaults and combinations is here, once.

Reads the checkpoint's and the drafter's configuration files, never their weights. Not here: finding out about the
machine (`hardware`) and showing the result (`explain`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from slipstream.base.errors import CapacityError, ConfigError
from slipstream.base.switches import Switches
from slipstream.config.bytes import cache_geometry, target_weight_bytes
from slipstream.config.capacity import plan_pages
from slipstream.config.checkpoint import read_checkpoint
from slipstream.config.choices import Choices
from slipstream.config.find_drafter import DrafterChoice, choose_drafter
from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.schema import (
    CacheSection,
    Device,
    DrafterKind,
    DType,
    EngineConfig,
    ModelSection,
    ParallelSection,
    SchedulerSection,
    ServerSection,
    SpeculationSection,
    TargetSpec,
)
from slipstream.demo import demo_path

DEMO = "demo"
DENSE_PAGE_SIZE = 16
DEFAULT_DRAFT_LEN: dict[DrafterKind, int] = {"none": 0, "ngram": 4, "eagle3": 3}


def resolve(options: Options, hardware: Hardware, switches: Switches = Switches()) -> EngineConfig:  # noqa: B008
    """Settle every choice.

    Args:
        options: what the user chose.
        hardware: what the machine offers.
        switches: what the environment sets.

    Returns:
        The configuration, with the origin of each value.

    Raises:
        ConfigError: an option or a combination that is not allowed or not supported yet.
        CheckpointError: the checkpoint or the drafter cannot be read, or they do not fit.
        CapacityError: the weights, or one request of full length, do not fit the memory.
    """
    choices = Choices(options)
    model = _model(choices, hardware)
    parallel = ParallelSection(tp_size=_tp_size(choices))
    scheduler = _scheduler(choices, model.target, model.device)
    drafter, speculation = _speculation(choices, Path(model.path), model.target)
    cache = _cache(choices, hardware, switches, model, scheduler, speculation)
    if drafter.facts is not None:
        origin = f"outputs of layers {list(drafter.facts.spec.aux_layer_ids)}: {drafter.facts.tap_origin}"
        choices.record(
            "speculation.eagle3", drafter.facts.spec, "checkpoint", "; ".join((origin, *drafter.facts.notes))
        )
    return EngineConfig(
        model=model,
        parallel=parallel,
        cache=cache,
        scheduler=scheduler,
        speculation=speculation,
        server=_server(choices, model),
        num_threads=choices.take(
            "threads",
            "num_threads",
            auto=max(1, hardware.num_cpus - 1),
            origin="hardware",
            note="cores of this process, one left to the server: a thread that waits for a busy core stalls every step",
        ),
        origins=choices.origins,
        notes=choices.notes,
    )


def config_digest(config: EngineConfig) -> str:
    """Return a digest of everything the engine runs on; two engines that agree on it take the same decisions."""
    bare = msgspec.structs.replace(config, origins=(), notes=())
    return hashlib.sha256(msgspec.json.encode(bare, order="deterministic")).hexdigest()


def _model(choices: Choices, hardware: Hardware) -> ModelSection:
    asked = choices.given("model") or DEMO
    folder = demo_path() if asked == DEMO else Path(asked).expanduser()
    choices.take("model", "model.path")
    facts = read_checkpoint(folder)
    unread = f"; fields that are not read: {', '.join(facts.unknown_fields)}" if facts.unknown_fields else ""
    choices.record("model.target", facts.target, "checkpoint", f"{facts.dialect} dialect{unread}")
    device: Device = _device(choices, hardware)
    dtype: DType = choices.take("dtype", "model.dtype", auto="float32", note="float32 on cpu")
    needed = target_weight_bytes(facts.target, dtype)
    if needed > hardware.available_memory_bytes:
        raise CapacityError(
            f"the weights of {folder} need {needed} bytes as {dtype}, but {hardware.available_memory_bytes} bytes of "
            f"{hardware.total_memory_bytes} are free; use a smaller checkpoint or a larger machine"
        )
    name = DEMO if asked == DEMO else folder.resolve().name
    return ModelSection(
        path=str(folder),
        name=choices.record("model.name", name, "derived"),
        target=facts.target,
        dtype=dtype,
        device=device,
        seed=choices.take("seed", "model.seed"),
    )


def _device(choices: Choices, hardware: Hardware) -> Device:
    reason = "kernels for CUDA are not part of this release yet"
    if choices.given("device") == "cuda":
        raise ConfigError(f"device=cuda: {reason}; allowed: cpu (or auto)")
    idle = f"; {len(hardware.cuda_devices)} CUDA devices stay idle" if hardware.cuda_devices else ""
    return choices.take("device", "model.device", auto="cpu", note=f"{reason}{idle}")


def _tp_size(choices: Choices) -> int:
    tp_size = choices.take("tp", "parallel.tp_size")
    if tp_size > 1:
        raise ConfigError(
            f"tp={tp_size}: the engine does not supervise more than one rank yet (the layers are written and tested "
            "for it); allowed: 1"
        )
    return tp_size


def _scheduler(choices: Choices, target: TargetSpec, device: Device) -> SchedulerSection:
    longest = target.max_position_embeddings
    max_model_len = choices.take(
        "max_model_len", "scheduler.max_model_len", auto=longest, origin="checkpoint", note="max_position_embeddings"
    )
    if max_model_len > longest:
        raise ConfigError(f"max_model_len={max_model_len}: the checkpoint was made for {longest} positions; give fewer")
    overlap = choices.take("overlap", "scheduler.overlap", auto="off", note="the reference kernels are the device")
    return SchedulerSection(
        max_model_len=max_model_len,
        max_num_seqs=choices.take("max_num_seqs", "scheduler.max_num_seqs"),
        prefill_chunk_tokens=choices.take("prefill_chunk_tokens", "scheduler.prefill_chunk_tokens"),
        overlap=overlap == "on",
    )


def _speculation(choices: Choices, checkpoint: Path, target: TargetSpec) -> tuple[DrafterChoice, SpeculationSection]:
    drafter = choose_drafter(choices.given("drafter"), checkpoint, target)
    if choices.given("draft_len") == 0 and drafter.kind != "none":
        drafter = DrafterChoice("none", None, None, f"draft_len=0 is plain decoding; {drafter.kind} would never draft")
        origin = "derived"
    else:
        origin = "option" if choices.is_given("drafter") else "checkpoint"
    choices.record("speculation.drafter", drafter.kind, origin, drafter.note)
    folder = None if drafter.folder is None else str(drafter.folder)
    choices.record("speculation.drafter_path", folder, origin)
    default = DEFAULT_DRAFT_LEN[drafter.kind]
    draft_len = choices.take(
        "draft_len", "speculation.draft_len", auto=default, note=f"default of drafter {drafter.kind}"
    )
    if draft_len > 0 and drafter.kind == "none":
        how = "asked for" if choices.is_given("drafter") else f"the default here ({drafter.note})"
        raise ConfigError(
            f"draft_len={draft_len}: there is no drafter (none is {how}); give draft_len=0, or drafter ngram or eagle3"
        )
    ngram_max = choices.take("ngram_max", "speculation.ngram_max")
    ngram_min = choices.take("ngram_min", "speculation.ngram_min")
    if ngram_min > ngram_max:
        raise ConfigError(f"ngram_min={ngram_min} is above ngram_max={ngram_max}; give at most {ngram_max}")
    if choices.given("verification") == "rejection":
        raise ConfigError(
            "verification=rejection: not supported yet; use coupled, where drafts never change the sampled text"
        )
    section = SpeculationSection(
        drafter=drafter.kind,
        drafter_path=folder,
        eagle3=None if drafter.facts is None else drafter.facts.spec,
        draft_len=draft_len,
        verification=choices.take(
            "verification", "speculation.verification", auto="coupled", note="the only one of this release"
        ),
        ngram_max=ngram_max,
        ngram_min=ngram_min,
    )
    return drafter, section


def _cache(
    choices: Choices,
    hardware: Hardware,
    switches: Switches,
    model: ModelSection,
    scheduler: SchedulerSection,
    speculation: SpeculationSection,
) -> CacheSection:
    sparse = model.target.sparse
    if sparse is not None:
        page_size = choices.record("cache.page_size", sparse.index_block_size, "checkpoint", "the index block size")
    else:
        page_size = choices.record("cache.page_size", DENSE_PAGE_SIZE, "default", "the checkpoint has no sparse layer")
    geometry = cache_geometry(model.target, speculation.eagle3, dtype=model.dtype, page_size=page_size, num_pages=1)
    plan = plan_pages(
        geometry,
        max_model_len=scheduler.max_model_len,
        max_num_seqs=scheduler.max_num_seqs,
        kv_cache_bytes=choices.given("kv_cache_bytes"),
        available_bytes=hardware.available_memory_bytes - target_weight_bytes(model.target, model.dtype),
    )
    origin = "option" if choices.is_given("kv_cache_bytes") else "hardware"
    poison = choices.take("poison_freed_pages", "cache.poison_freed_pages")
    if "poison_freed_pages" in switches.given and not choices.is_given("poison_freed_pages"):
        poison = choices.record("cache.poison_freed_pages", switches.poison_freed_pages, "switch")
    return CacheSection(
        page_size=page_size,
        num_pages=choices.record("cache.num_pages", plan.num_pages, origin, plan.note),
        enable_prefix=choices.take("prefix_cache", "cache.enable_prefix"),
        poison_freed_pages=poison,
    )


def _server(choices: Choices, model: ModelSection) -> ServerSection:
    return ServerSection(
        host=choices.take("host", "server.host"),
        port=choices.take("port", "server.port"),
        served_model_name=choices.take("served_model_name", "server.served_model_name", auto=model.name),
        api_key=choices.take("api_key", "server.api_key"),
        max_queue=choices.take("max_queue", "server.max_queue"),
        drain_s=choices.take("drain_s", "server.drain_s"),
    )
