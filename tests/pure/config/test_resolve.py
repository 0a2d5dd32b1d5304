import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipstream.base.errors import CapacityError, CheckpointError, ConfigError
from slipstream.base.switches import Switches
from slipstream.config.checkpoint import read_target
from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.resolve import config_digest, resolve
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
    assert config.speculation.verification == "coupled"
    assert config.speculation.eagle3 is not None
    server = config.server
    assert (server.host, server.port, server.served_model_name) == ("127.0.0.1", 8000, "tiny-model")
    assert (server.api_key, server.max_queue, server.drain_s) == (None, 256, 30.0)
    assert config.num_threads == 5


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
        ({"device": "cuda"}, ("device=cuda", "kernels for CUDA are not part of this release yet", "cpu")),
        ({"tp": 2}, ("tp=2", "does not supervise more than one rank yet", "allowed: 1")),
        ({"verification": "rejection"}, ("verification=rejection", "not supported yet", "use coupled")),
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


def test_idle_gpus_are_mentioned(checkpoint: Path) -> None:
    hardware = msgspec.structs.replace(HARDWARE, cuda_devices=("A", "B"))
    assert "2 CUDA devices stay idle" in dict(settle(checkpoint, hardware).notes)["model.device"]


def test_weights_and_cache_that_do_not_fit_are_refused_with_numbers(checkpoint: Path) -> None:
    small = msgspec.structs.replace(HARDWARE, available_memory_bytes=1_000_000)
    with pytest.raises(CapacityError, match=r"need \d+ bytes as float32, but 1000000 bytes of 17179869184"):
        settle(checkpoint, small)
    with pytest.raises(CapacityError, match="one request of max_model_len=512 tokens needs"):
        settle(checkpoint, kv_cache_bytes=100_000)
    fitting = settle(checkpoint, kv_cache_bytes=100_000, max_model_len=32)
    assert fitting.cache.num_pages == 100_000 // (8 * (4 * 2 * 2 * 16 + 3 * 16) * 4)


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


def test_the_digest_is_about_decisions_not_about_origins(checkpoint: Path) -> None:
    config = settle(checkpoint)
    assert config_digest(config) == config_digest(settle(checkpoint, seed=0, max_queue=256))
    assert config_digest(config) != config_digest(settle(checkpoint, seed=1))
    assert msgspec.json.decode(msgspec.json.encode(config), type=EngineConfig) == config
