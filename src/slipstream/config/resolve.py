"""From open options to a closed configuration: every rule about defaults and combinations is here, once.

Reads the checkpoint's and the drafter's configuration files, never their weights. Not here: finding out about the
machine (`hardware`) and showing the result (`explain`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from slipstream.base.errors import CapacityError, ConfigError
from slipstream.base.switches import API_KEY, Switches
from slipstream.config.bytes import FixedBytes, cache_geometry, fixed_bytes, step_bytes, target_weight_bytes
from slipstream.config.capacity import plan_pages
from slipstream.config.checkpoint import read_checkpoint
from slipstream.config.choices import Choices
from slipstream.config.find_drafter import DrafterChoice, choose_drafter
from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.quantization.spec import Quantization
from slipstream.config.ranks import check_width
from slipstream.config.schema import (
    CacheDType,
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
CUDA_MEMORY_FRACTION = 0.9
"""How much of a device's free memory is planned with; the rest is for what other libraries take."""

CUDA_RESERVE_BYTES = 2 << 30
"""Left for the CUDA context and graphs; the largest values of a step are counted apart (`step_bytes`)."""
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
    parallel = _parallel(choices, switches, model.target, model.device)
    hardware = _memory_of(model.device, hardware)
    _check_weights(model, hardware, parallel.tp_size)
    scheduler = _scheduler(choices, model.target, model.device)
    drafter, speculation = _speculation(choices, Path(model.path), model.target)
    check_width(model.target, speculation.eagle3, parallel.tp_size)
    cache = _cache(choices, hardware, switches, model, scheduler, speculation, parallel.tp_size)
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
        server=_server(choices, switches, model),
        cuda_graphs=_cuda_graphs(choices, model.device),
        late_compile_ends=choices.take("late_compile", "late_compile_ends") == "error",
        num_threads=choices.take(
            "threads",
            "num_threads",
            auto=max(1, (hardware.num_cpus - 1) // parallel.tp_size),
            origin="hardware",
            note="cores of this process, one left to the server: a thread that waits for a busy core stalls every step"
            + ("; shared out among the ranks" if parallel.tp_size > 1 else ""),
        ),
        origins=choices.origins,
        notes=choices.notes,
    )


def config_digest(config: EngineConfig) -> str:
    """Return a digest of everything the engine runs on; two engines that agree on it take the same decisions.

    The server's section is left out: it decides nothing in an engine, and its key must not be guessable from a digest.
    """
    bare = msgspec.to_builtins(msgspec.structs.replace(config, origins=(), notes=()))
    del bare["server"]
    return hashlib.sha256(msgspec.json.encode(bare, order="deterministic")).hexdigest()


def _model(choices: Choices, hardware: Hardware) -> ModelSection:
    asked = choices.given("model") or DEMO
    folder = demo_path() if asked == DEMO else Path(asked).expanduser()
    choices.take("model", "model.path")
    facts = read_checkpoint(folder)
    unread = f"; fields that are not read: {', '.join(facts.unknown_fields)}" if facts.unknown_fields else ""
    choices.record("model.target", facts.target, "checkpoint", f"{facts.dialect} dialect{unread}")
    device: Device = _device(choices, hardware)
    auto_dtype = "bfloat16" if device == "cuda" else "float32"
    dtype: DType = choices.take("dtype", "model.dtype", auto=auto_dtype, note=f"{auto_dtype} on {device}")
    name = DEMO if asked == DEMO else folder.resolve().name
    return ModelSection(
        path=str(folder),
        name=choices.record("model.name", name, "derived"),
        target=facts.target,
        dtype=dtype,
        device=device,
        seed=choices.take("seed", "model.seed"),
        weight_formats=_weight_formats(choices, facts.quantization, dtype),
    )


def _weight_formats(choices: Choices, quantization: Quantization, dtype: DType) -> tuple[str, ...]:
    formats = quantization.formats
    note = "weights stored in the checkpoint's own dtype"
    if formats:
        held = f"weights stored as {' and '.join(formats)}, held as {dtype}"
        note = "; ".join((held, f"quant_method {quantization.method}", *quantization.notes))
    return choices.record("model.weight_formats", formats, "checkpoint", note)


def _device(choices: Choices, hardware: Hardware) -> Device:
    missing = "no CUDA device was found"
    if hardware.cuda_devices:
        missing = "" if hardware.has_cuda_torch else "the installed torch is built for CPUs only"
    if hardware.cuda_devices and not missing and not hardware.cuda_total_bytes:
        missing = "the driver's tool nvidia-smi did not say how much memory there is"
    if choices.given("device") == "cuda" and missing:
        raise ConfigError(f"device=cuda: {missing}; give device=cpu (or auto), or mend that")
    found = f"{hardware.cuda_devices[0]}" if hardware.cuda_devices else ""
    return choices.take("device", "model.device", auto="cpu" if missing else "cuda", note=missing or found)


def _memory_of(device: Device, hardware: Hardware) -> Hardware:
    """Return the hardware with the memory that weights, rows and cache are taken from."""
    if device == "cpu":
        return hardware
    usable = int(hardware.cuda_free_bytes * CUDA_MEMORY_FRACTION) - CUDA_RESERVE_BYTES
    return msgspec.structs.replace(
        hardware, total_memory_bytes=hardware.cuda_total_bytes, available_memory_bytes=max(usable, 0)
    )


def _cuda_graphs(choices: Choices, device: Device) -> bool:
    if choices.given("cuda_graphs") == "on" and device != "cuda":
        raise ConfigError("cuda_graphs=on: graphs are of CUDA devices, and this engine runs on cpu; give off, or auto")
    auto = "on" if device == "cuda" else "off"
    return choices.take("cuda_graphs", "cuda_graphs", auto=auto, note=f"{auto} on {device}") == "on"


def _parallel(choices: Choices, switches: Switches, target: TargetSpec, device: Device) -> ParallelSection:
    tp_size = choices.take("tp", "parallel.tp_size")
    if tp_size > 1 and device == "cuda":
        raise ConfigError(f"tp={tp_size}: ranks over NCCL are not part of this release; give tp=1, or device=cpu")
    check_width(target, None, tp_size)
    origin = "switch" if "check_ranks" in switches.given else "default"
    return ParallelSection(
        tp_size=tp_size, check_ranks=choices.record("parallel.check_ranks", switches.check_ranks, origin)
    )


def _check_weights(model: ModelSection, hardware: Hardware, tp_size: int) -> None:
    """Refuse weights that do not fit; the ranks of a CPU share its memory, and hold some weights once each."""
    needed = tp_size * target_weight_bytes(model.target, model.dtype, tp_size)
    if needed > hardware.available_memory_bytes:
        ranks = f" on {tp_size} ranks" if tp_size > 1 else ""
        raise CapacityError(
            f"the weights of {model.path} need {needed} bytes as {model.dtype}{ranks}, but "
            f"{hardware.available_memory_bytes} bytes of {hardware.total_memory_bytes} are free; use a smaller "
            "checkpoint or a larger machine"
        )


def _scheduler(choices: Choices, target: TargetSpec, device: Device) -> SchedulerSection:
    longest = target.max_position_embeddings
    max_model_len = choices.take(
        "max_model_len", "scheduler.max_model_len", auto=longest, origin="checkpoint", note="max_position_embeddings"
    )
    if max_model_len > longest:
        raise ConfigError(f"max_model_len={max_model_len}: the checkpoint was made for {longest} positions; give fewer")
    is_cuda = device == "cuda"
    auto, note = (
        "on" if is_cuda else "off",
        "host work hides behind the device" if is_cuda else "the host is the device",
    )
    overlap = choices.take("overlap", "scheduler.overlap", auto=auto, note=note)
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
    section = SpeculationSection(
        drafter=drafter.kind,
        drafter_path=folder,
        eagle3=None if drafter.facts is None else drafter.facts.spec,
        draft_len=draft_len,
        verification=choices.take(
            "verification",
            "speculation.verification",
            auto="auto",
            note="per request: coupled with a seed, rejection without",
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
    tp_size: int,
) -> CacheSection:
    sparse = model.target.sparse
    if sparse is not None:
        page_size = choices.record("cache.page_size", sparse.index_block_size, "checkpoint", "the index block size")
    else:
        page_size = choices.record("cache.page_size", DENSE_PAGE_SIZE, "default", "the checkpoint has no sparse layer")
    asked = choices.take("kv_cache_dtype", "cache.kv_dtype", auto=model.dtype, note="the model's own")
    kv_dtype: CacheDType = "float8_e4m3" if asked == "fp8" else model.dtype
    geometry = cache_geometry(
        model.target,
        speculation.eagle3,
        dtype=model.dtype,
        kv_dtype=kv_dtype,
        page_size=page_size,
        num_pages=1,
        tp_size=tp_size,
    )
    fixed = fixed_bytes(
        model.target,
        speculation.eagle3,
        geometry,
        dtype=model.dtype,
        max_num_seqs=scheduler.max_num_seqs,
        max_model_len=scheduler.max_model_len,
        draft_len=speculation.draft_len,
        tp_size=tp_size,
        keeps_draft_probs=speculation.keeps_draft_probs,
    )
    num_step_bytes = 0
    if model.device == "cuda":
        num_step_bytes = step_bytes(
            model.target,
            max_num_seqs=scheduler.max_num_seqs,
            draft_len=speculation.draft_len,
            prefill_chunk_tokens=min(scheduler.prefill_chunk_tokens, scheduler.max_model_len),
            max_model_len=scheduler.max_model_len,
        )
    available_bytes = hardware.available_memory_bytes // tp_size - fixed.total - num_step_bytes
    if available_bytes < 0:
        raise CapacityError(_describe_shortage(fixed, num_step_bytes, hardware, tp_size))
    plan = plan_pages(
        geometry,
        max_model_len=scheduler.max_model_len,
        max_num_seqs=scheduler.max_num_seqs,
        kv_cache_bytes=choices.given("kv_cache_bytes"),
        available_bytes=available_bytes,
        is_shared=model.device == "cpu",
    )
    origin = "option" if choices.is_given("kv_cache_bytes") else "hardware"
    poison = choices.take("poison_freed_pages", "cache.poison_freed_pages")
    if "poison_freed_pages" in switches.given and not choices.is_given("poison_freed_pages"):
        poison = choices.record("cache.poison_freed_pages", switches.poison_freed_pages, "switch")
    return CacheSection(
        kv_dtype=kv_dtype,
        page_size=page_size,
        num_pages=choices.record("cache.num_pages", plan.num_pages, origin, plan.note),
        enable_prefix=choices.take("prefix_cache", "cache.enable_prefix"),
        poison_freed_pages=poison,
    )


def _describe_shortage(fixed: FixedBytes, num_step_bytes: int, hardware: Hardware, tp_size: int) -> str:
    amounts = fixed._asdict() | ({"values_of_a_step": num_step_bytes} if num_step_bytes else {})
    parts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in amounts.items())
    each = f" on each of {tp_size} ranks that share them" if tp_size > 1 else ""
    return (
        f"{fixed.total + num_step_bytes} bytes are needed before the cache gets any ({parts}){each}, but "
        f"{hardware.available_memory_bytes} bytes of {hardware.total_memory_bytes} are free; lower max_num_seqs or "
        "max_model_len, or give drafter=none"
    )


def _server(choices: Choices, switches: Switches, model: ModelSection) -> ServerSection:
    level_origin = "switch" if "log_level" in switches.given else "default"
    return ServerSection(
        host=choices.take("host", "server.host"),
        port=choices.take("port", "server.port"),
        served_model_name=choices.take("served_model_name", "server.served_model_name", auto=model.name),
        api_keys=collect_keys(choices, switches),
        max_queue=choices.take("max_queue", "server.max_queue"),
        drain_s=choices.take("drain_s", "server.drain_s"),
        engine_timeout_s=choices.take("engine_timeout_s", "server.engine_timeout_s"),
        log_format=choices.take("log_format", "server.log_format"),
        log_level=choices.take("log_level", "server.log_level", auto=switches.log_level, origin=level_origin),
    )


def collect_keys(choices: Choices, switches: Switches) -> tuple[str, ...]:
    """Return every key, each once; none when no place names one.

    Args:
        choices: the options.
        switches: the environment.

    Raises:
        ConfigError: the environment's key is empty, or the file cannot be read or holds no key.
    """
    typed: tuple[str, ...] = choices.given("api_key") or ()
    file: str | None = choices.given("api_key_file")
    keys = list(typed)
    if switches.api_key is not None:
        if not switches.api_key.strip():
            raise ConfigError(f"{API_KEY} is empty: give a key, or unset it")
        keys.append(switches.api_key)
    if file is not None:
        keys += read_key_file(Path(file).expanduser())
    origin = "option" if typed or file is not None else "switch" if keys else "default"
    places = (("--api-key", typed), (API_KEY, switches.api_key), (f"the file {file}", file))
    note = "from " + ", ".join(name for name, value in places if value) if keys else ""
    return choices.record("server.api_keys", tuple(dict.fromkeys(key.strip() for key in keys)), origin, note)


def read_key_file(path: Path) -> list[str]:
    """Return the keys of a file: one per line, without empty lines and comments.

    Args:
        path: the file, in UTF-8.

    Raises:
        ConfigError: it cannot be read, or holds no key; the message shows none of its text.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ConfigError(f"api_key_file={str(path)!r} cannot be read: {error.strerror} (--api-key-file)") from error
    except UnicodeDecodeError:
        raise ConfigError(f"api_key_file={str(path)!r} is not a text in UTF-8 (--api-key-file)") from None
    keys = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    if not keys:
        raise ConfigError(
            f"api_key_file={str(path)!r} holds no key, and would let everybody in: write one per line, or leave "
            "--api-key-file out"
        )
    return keys
