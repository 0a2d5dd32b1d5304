import json
from pathlib import Path

import pytest

from slipstream.config.checkpoint import read_target
from slipstream.config.explain import byte_rows, explain_rows, explain_text, fixed_bytes_of, geometry_of
from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.resolve import config_digest, resolve
from slipstream.config.schema import EngineConfig
from support.tiny_checkpoints import tiny_config, tiny_eagle3_config, write_tiny_config

HARDWARE = Hardware(num_cpus=2, total_memory_bytes=2**34, available_memory_bytes=2**33)


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    folder = write_tiny_config(tmp_path / "model")
    (folder / "eagle3").mkdir()
    (folder / "eagle3" / "config.json").write_text(json.dumps(tiny_eagle3_config(read_target(folder))))
    return resolve(Options(model=str(folder), api_key="secret-key", draft_len=5), HARDWARE)


def test_every_value_is_shown_with_its_origin(config: EngineConfig) -> None:
    rows = {(row.section, row.name): row for row in explain_rows(config)}
    assert rows["speculation", "draft_len"][2:4] == ("5", "option")
    assert rows["model", "target.is_sparse_layer"][2:4] == ("0111", "checkpoint")
    assert rows["model", "dtype"][2:] == ("float32", "derived", "float32 on cpu")
    assert rows["engine", "num_threads"].value == "1"
    assert rows["cache", "enable_prefix"].value == "on"
    assert "outputs of layers [0, 1, 3]" in rows["speculation", "eagle3.hidden_size"].note
    assert rows["digest", "config"].value == config_digest(config)
    for section in ("model", "parallel", "cache", "scheduler", "speculation", "server"):
        for name in getattr(config, section).__struct_fields__:
            assert any(key[0] == section and key[1].split(".")[0] == name for key in rows)


def test_secrets_are_not_shown(config: EngineConfig) -> None:
    assert "secret-key" not in explain_text(config)
    assert "***" in explain_text(config)


def test_the_byte_account_adds_up(config: EngineConfig) -> None:
    rows = {row.name: int(row.value) for row in byte_rows(config)}
    pools = sum(value for name, value in rows.items() if name.startswith("pool "))
    groups = sum(value for name, value in rows.items() if name.startswith("group "))
    assert pools == groups == geometry_of(config).page_bytes
    assert rows["cache"] == config.cache.num_pages * pools == geometry_of(config).total_bytes
    assert rows["cache per full request"] == 64 * pools
    fixed = fixed_bytes_of(config)
    names = ("weights", "drafter weights", "rotary tables", "rows", "page tables", "edit rows")
    assert tuple(rows[name] for name in names) == fixed
    assert min(fixed) > 0


def test_the_text_has_one_line_per_row(config: EngineConfig) -> None:
    lines = [line for line in explain_text(config).splitlines() if line.startswith("  ")]
    assert len(lines) == len(explain_rows(config))


def test_quantised_weights_are_named_with_the_dtype_that_holds_them(tmp_path: Path) -> None:
    declared = {"quant_method": "mxfp8", "moe_quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}
    folder = write_tiny_config(tmp_path / "model", {**tiny_config(), "quantization_config": declared})
    config = resolve(Options(model=str(folder), dtype="bfloat16"), HARDWARE)
    rows = {(row.section, row.name): row for row in explain_rows(config)}
    shown = rows["model", "weight_formats"]
    assert shown[2:4] == ("mxfp8,nvfp4-m31", "checkpoint")
    assert "weights stored as mxfp8 and nvfp4-m31, held as bfloat16; quant_method mxfp8" in shown.note
    assert "kv_cache_quant_algo FP8" in shown.note
    assert "stored as mxfp8 and nvfp4-m31, held as bfloat16" in rows["bytes", "weights"].note
    # Held dequantised, they take what plain ones take; and the digest tells the two apart.
    plain = resolve(Options(model=str(write_tiny_config(tmp_path / "plain")), dtype="bfloat16"), HARDWARE)
    assert rows["bytes", "weights"].value == str(fixed_bytes_of(plain).weights)
    assert config.model.weight_formats == ("mxfp8", "nvfp4-m31")
    assert plain.model.weight_formats == ()
    assert {row.name: row for row in explain_rows(plain)}["weight_formats"].value == "none"
