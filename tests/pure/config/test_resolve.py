import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipstream.base.errors import CapacityError, CheckpointError, ConfigError
from slipstream.base.switches import Switches
from slipstream.config.bytes import step_bytes, target_weight_bytes
from slipstream.config.checkpoint import read_target
from slipstream.config.explain import fixed_bytes_of, geometry_of
from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.resolve import CUDA_MEMORY_FRACTION, CUDA_RESERVE_BYTES, config_digest, resolve
from slipstream.config.schema import EngineConfig
from support.tiny_checkpoints import tiny_eagle3_config, write_tiny_config

HARDWARE = Hardware(num_cpus=6, total_memory_bytes=2**34, available_memory_bytes=2**33)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_tiny_config(tmp_path / "tiny-model")


@pytest.fixture
def with_head(checkpoint: Path) -> Path:
    head = checkpoint / "eagle3"
    head.mkdir()
    (head / "config.json").write_text(json.dumps(tiny_eagle3_config(read_target(checkpoint))))
    return checkpoint


def settle(checkpoint: Path, hardware: Hardware = HARDWARE, **options: Any) -> EngineConfig:
    return resolve(Options(model=str(checkpoint), **options), hardware)


def test_defaults_on_a_machine_without_options(with_head: Path) -> None:
    config = settle(with_head)
    assert (config.model.path, config.model.name) == (str(with_head), "tiny-model")
    assert (config.model.device, config.model.dtype, config.model.seed) == ("cpu", "float32", 0)
    assert config.parallel.tp_size == 1
    assert (config.cache.page_size, config.cache.num_pages) == (8, 16 * 64 + 1)
    assert config.cache.enable_prefix
    assert not config.cache.poison_freed_pages
    scheduler = config.scheduler
    assert (scheduler.max_model_len, scheduler.max_num_seqs, scheduler.prefill_chunk_tokens) == (512, 16, 512)
    assert not scheduler.overlap
    assert (config.speculation.drafter, config.speculation.draft_len) == ("eagle3", 3)
    assert config.speculation.verification == "auto"
    assert config.speculation.keeps_draft_probs
    assert config.speculation.eagle3 is not None
    server = config.server
    assert (server.host, server.port, server.served_model_name) == ("127.0.0.1", 8000, "tiny-model")
    assert (server.api_keys, server.max_queue, server.drain_s) == ((), 256, 30.0)
    assert (server.engine_timeout_s, server.log_format, server.log_level) == (120.0, "text", "info")
    assert config.num_threads == 5


@pytest.mark.parametrize("verification", ["auto", "coupled", "rejection"])
def test_rows_have_room_for_the_distributions_of_drafts_only_if_they_can_be_needed(
    with_head: Path, verification: str
) -> None:
    config = settle(with_head, verification=verification)
    assert config.speculation.verification == verification
    assert config.speculation.keeps_draft_probs == (verification != "coupled")
    plain = settle(with_head, verification="coupled")
    extra = fixed_bytes_of(config).rows - fixed_bytes_of(plain).rows
    assert extra == (17 * 3 * 160 * 4 if verification != "coupled" else 0)
    assert not settle(with_head, verification=verification, drafter="ngram").speculation.keeps_draft_probs


def test_every_settled_value_has_an_origin(with_head: Path) -> None:
    origins = dict(settle(with_head, draft_len=2, threads=1).origins)
    assert origins["speculation.draft_len"] == origins["num_threads"] == "option"
    assert origins["cache.page_size"] == origins["scheduler.max_model_len"] == "checkpoint"
    assert origins["cache.num_pages"] == "hardware"
    assert origins["model.dtype"] == "derived"
    assert origins["server.port"] == "default"
    sections = ("model", "parallel", "cache", "scheduler", "speculation", "server")
    config = settle(with_head)
    fields = {f"{part}.{name}" for part in sections for name in getattr(config, part).__struct_fields__}
    assert fields - set(dict(config.origins)) == set()


@pytest.mark.parametrize(("drafter", "draft_len"), [("none", 0), ("ngram", 4), ("eagle3", 3)])
def test_the_draft_length_follows_the_drafter(with_head: Path, drafter: str, draft_len: int) -> None:
    speculation = settle(with_head, drafter=drafter).speculation
    assert (speculation.drafter, speculation.draft_len) == (drafter, draft_len)
    assert (speculation.eagle3 is not None) == (drafter == "eagle3")


@pytest.mark.parametrize("drafter", ["auto", "eagle3", "ngram", "none"])
def test_a_draft_length_of_zero_is_plain_decoding_with_any_drafter(with_head: Path, drafter: str) -> None:
    config = settle(with_head, draft_len=0, drafter=drafter)
    assert (config.speculation.drafter, config.speculation.draft_len) == ("none", 0)
    assert config.speculation.eagle3 is None
    assert drafter == "none" or "draft_len=0 is plain decoding" in dict(config.notes)["speculation.drafter"]


def test_the_longest_draft_is_allowed(with_head: Path) -> None:
    assert settle(with_head, draft_len=16).speculation.draft_len == 16


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"draft_len": 2, "drafter": "none"}, ("draft_len=2", "none is asked for", "ngram or eagle3")),
        ({"draft_len": 2}, ("draft_len=2", "brings no supported drafter")),
        ({"draft_len": 17}, ("draft_len=17", "0 to 16")),
        ({"device": "cuda"}, ("device=cuda", "no CUDA device was found", "cpu")),
        ({"cuda_graphs": "on"}, ("cuda_graphs=on", "runs on cpu", "off")),
        ({"tp": 3}, ("tp=3", "vocab_size=160 does not divide among 3 ranks", "allows tp of 1, 2, 4, 8")),
        ({"max_model_len": 513}, ("max_model_len=513", "512 positions")),
        ({"ngram_min": 5}, ("ngram_min=5", "ngram_max=4")),
        ({"drafter": "dspark"}, ("drafter=dspark", "not supported yet")),
        ({"drafter": "eagle3"}, ("drafter=eagle3", "no head at")),
        ({"port": -1}, ("port=-1", "0 to 65535")),
        ({"dtype": "fp8"}, ("dtype='fp8'", "bfloat16")),
    ],
)
def test_refused_options_say_why_and_what_to_do(
    checkpoint: Path, options: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        settle(checkpoint, **options)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("drafter", ["none", "eagle3"])
def test_ranks_share_cores_and_memory_and_split_the_heads(with_head: Path, drafter: str) -> None:
    one, two = settle(with_head, drafter=drafter), settle(with_head, drafter=drafter, tp=2)
    assert (one.parallel.tp_size, two.parallel.tp_size) == (1, 2)
    assert (one.num_threads, two.num_threads) == (5, 2)
    fields = {"kv_cache_bytes": 1_000_000, "drafter": drafter}
    assert settle(with_head, tp=2, **fields).cache.num_pages > settle(with_head, **fields).cache.num_pages
    scarce = msgspec.structs.replace(HARDWARE, available_memory_bytes=8_000_000)
    with pytest.raises(CapacityError, match="only"):
        settle(with_head, scarce, tp=2, kv_cache_bytes=4_000_000)
    assert settle(with_head, scarce, tp=1, kv_cache_bytes=4_000_000).cache.num_pages > 0


def test_weights_that_only_fit_once_are_refused_on_several_ranks(checkpoint: Path) -> None:
    target = read_target(checkpoint)
    once, twice = target_weight_bytes(target, "float32"), 2 * target_weight_bytes(target, "float32", 2)
    assert once < twice, "norms, routers and index keys are on both ranks"
    tight = msgspec.structs.replace(HARDWARE, available_memory_bytes=twice - 1)
    with pytest.raises(CapacityError, match=f"need {twice} bytes as float32 on 2 ranks"):
        settle(checkpoint, tight, tp=2)


def test_the_check_of_ranks_is_a_switch(checkpoint: Path) -> None:
    assert not settle(checkpoint).parallel.check_ranks
    switches = Switches(check_ranks=True, given=frozenset({"check_ranks"}))
    config = resolve(Options(model=str(checkpoint)), HARDWARE, switches)
    assert config.parallel.check_ranks
    assert dict(config.origins)["parallel.check_ranks"] == "switch"


GPU = {
    "cuda_devices": ("A", "B"),
    "cuda_total_bytes": 140 << 30,
    "cuda_free_bytes": 100 << 30,
    "has_cuda_torch": True,
}


def on_gpu(**changes: object) -> Hardware:
    return msgspec.structs.replace(HARDWARE, **(GPU | changes))


def test_a_cuda_device_is_taken_when_there_is_one(checkpoint: Path) -> None:
    config = settle(checkpoint, on_gpu())
    assert (config.model.device, config.model.dtype) == ("cuda", "bfloat16")
    assert config.cuda_graphs
    assert config.scheduler.overlap
    assert dict(config.notes)["model.device"] == "A"
    given = settle(checkpoint, on_gpu(), device="cpu")
    assert (given.model.device, given.cuda_graphs, given.scheduler.overlap) == ("cpu", False, False)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"has_cuda_torch": False}, "the installed torch is built for CPUs only"),
        ({"cuda_total_bytes": 0}, "nvidia-smi did not say how much memory"),
        ({"cuda_devices": ()}, "no CUDA device was found"),
    ],
)
def test_a_cuda_device_that_cannot_be_used_is_left_with_the_reason(
    checkpoint: Path, changes: dict[str, object], reason: str
) -> None:
    config = settle(checkpoint, on_gpu(**changes))
    assert config.model.device == "cpu"
    assert reason in dict(config.notes)["model.device"]
    with pytest.raises(ConfigError, match=reason):
        settle(checkpoint, on_gpu(**changes), device="cuda")


def test_a_gpu_s_own_memory_is_planned_with(checkpoint: Path) -> None:
    """What the host has does not matter; a device without room refuses with its own numbers."""
    tiny = msgspec.structs.replace(on_gpu(), available_memory_bytes=0)
    assert settle(checkpoint, tiny).cache.num_pages > 1
    with pytest.raises(CapacityError, match=str(140 << 30)):
        settle(checkpoint, on_gpu(cuda_free_bytes=2 << 30))


def test_ranks_on_gpus_are_refused(checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match="NCCL"):
        settle(checkpoint, on_gpu(), tp=2)


def test_weights_and_cache_that_do_not_fit_are_refused_with_numbers(checkpoint: Path) -> None:
    small = msgspec.structs.replace(HARDWARE, available_memory_bytes=1_000_000)
    with pytest.raises(CapacityError, match=r"need \d+ bytes as float32, but 1000000 bytes of 17179869184"):
        settle(checkpoint, small)
    with pytest.raises(CapacityError, match="one request of max_model_len=512 tokens needs"):
        settle(checkpoint, kv_cache_bytes=100_000)
    fitting = settle(checkpoint, kv_cache_bytes=100_000, max_model_len=32)
    assert fitting.cache.num_pages == 100_000 // (8 * (4 * 2 * 2 * 16 + 3 * 16) * 4)


def test_rows_and_the_head_are_taken_off_before_the_cache_gets_its_bytes(with_head: Path) -> None:
    fixed = fixed_bytes_of(settle(with_head))
    assert fixed.rows > 17 * 512 * 8, "each row and the scratch row hold a history of the longest length"
    exact = msgspec.structs.replace(HARDWARE, available_memory_bytes=fixed.total + 4_000_000)
    assert settle(with_head, exact, kv_cache_bytes=4_000_000).cache.num_pages > 1
    tight = msgspec.structs.replace(exact, available_memory_bytes=exact.available_memory_bytes - 1)
    with pytest.raises(CapacityError, match="only 3999999 bytes of memory are free after weights and rows"):
        settle(with_head, tight, kv_cache_bytes=4_000_000)
    for options in ({"drafter": "none"}, {"max_num_seqs": 1}):
        assert settle(with_head, tight, kv_cache_bytes=4_000_000, **options).cache.num_pages > 1


def test_rows_that_do_not_fit_are_refused_with_the_whole_account(with_head: Path) -> None:
    fixed = fixed_bytes_of(settle(with_head))
    small = msgspec.structs.replace(HARDWARE, available_memory_bytes=fixed.total - 1)
    with pytest.raises(CapacityError) as caught:
        settle(with_head, small)
    for word in (f"{fixed.total} bytes are needed", f"rows {fixed.rows}", "page tables", "lower max_num_seqs"):
        assert word in str(caught.value)


def test_a_gpu_that_is_too_small_is_refused_with_the_values_of_a_step(checkpoint: Path) -> None:
    fixed = fixed_bytes_of(settle(checkpoint, on_gpu(), max_num_seqs=64))
    gpu = on_gpu(cuda_free_bytes=int((fixed.total + 1000 + CUDA_RESERVE_BYTES) / CUDA_MEMORY_FRACTION))
    with pytest.raises(CapacityError, match="bytes are needed before the cache gets any") as caught:
        settle(checkpoint, gpu, max_num_seqs=64)
    total, *parts = [int(word) for word in re.findall(r"\d+", str(caught.value).split(")")[0])]
    assert "values of a step" in str(caught.value)
    assert total == sum(parts)


def test_bfloat16_halves_the_bytes(checkpoint: Path) -> None:
    wide = settle(checkpoint, kv_cache_bytes=1_000_000).cache.num_pages
    assert settle(checkpoint, kv_cache_bytes=1_000_000, dtype="bfloat16").cache.num_pages // 2 == wide


def test_overlap_can_be_asked_for(checkpoint: Path) -> None:
    assert settle(checkpoint, overlap="on").scheduler.overlap
    assert not settle(checkpoint, overlap="off").scheduler.overlap


def test_a_switch_turns_poison_on_and_an_option_wins(checkpoint: Path) -> None:
    options = Options(model=str(checkpoint))
    switches = Switches(poison_freed_pages=True, given=frozenset({"poison_freed_pages"}))
    config = resolve(options, HARDWARE, switches)
    assert config.cache.poison_freed_pages
    assert dict(config.origins)["cache.poison_freed_pages"] == "switch"
    off = resolve(msgspec.structs.replace(options, poison_freed_pages=False), HARDWARE, switches)
    assert not off.cache.poison_freed_pages


def test_a_model_without_sparse_layers_gets_a_default_page(tmp_path: Path) -> None:
    assert settle(write_tiny_config(tmp_path, sparse=(0, 0, 0, 0))).cache.page_size == 16


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(CheckpointError, match="MiniMaxAI/MiniMax-M3: no such folder"):
        settle(Path("MiniMaxAI/MiniMax-M3"))


@pytest.mark.parametrize(
    ("given", "switch", "level", "origin"),
    [
        ({}, None, "info", "default"),
        ({}, "error", "error", "switch"),
        ({"log_level": "debug"}, "error", "debug", "option"),
        ({"log_level": "auto"}, "error", "error", "switch"),
    ],
)
def test_the_log_level_is_the_options_before_the_switchs(
    checkpoint: Path, given: dict[str, str], switch: str | None, level: str, origin: str
) -> None:
    switches = Switches() if switch is None else Switches(log_level=switch, given=frozenset({"log_level"}))
    config = resolve(Options(model=str(checkpoint), **given), HARDWARE, switches)  # type: ignore[arg-type]
    assert config.server.log_level == level
    assert dict(config.origins)["server.log_level"] == origin


def test_the_digest_is_about_decisions_not_about_origins(checkpoint: Path) -> None:
    config = settle(checkpoint)
    assert config_digest(config) == config_digest(settle(checkpoint, seed=0, max_queue=256))
    assert config_digest(config) != config_digest(settle(checkpoint, seed=1))
    served = settle(checkpoint, api_key="secret", port=1, host="0.0.0.0", served_model_name="other", max_queue=7)
    assert config_digest(config) == config_digest(served), (
        "the server decides nothing, and its key is no one's business"
    )
    assert msgspec.json.decode(msgspec.json.encode(config), type=EngineConfig) == config


def test_on_a_gpu_the_largest_values_of_a_step_are_kept_free(checkpoint: Path) -> None:
    """To the byte: what fraction, reserve, fixed account and a step's own values leave."""
    free = 2_390_000_000
    config = settle(checkpoint, on_gpu(cuda_free_bytes=free), max_num_seqs=64)
    step = step_bytes(
        config.model.target,
        max_num_seqs=64,
        draft_len=config.speculation.draft_len,
        prefill_chunk_tokens=min(config.scheduler.prefill_chunk_tokens, config.scheduler.max_model_len),
        max_model_len=config.scheduler.max_model_len,
    )
    usable = int(free * CUDA_MEMORY_FRACTION) - CUDA_RESERVE_BYTES - fixed_bytes_of(config).total - step
    assert config.cache.num_pages == usable // geometry_of(config).page_bytes
