from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from slipstream.base.errors import ConfigError
from slipstream.cli.bench import step as bench_step
from slipstream.profiling.step_bench import StepRecord

ON_GPU = SimpleNamespace(cuda_devices=("A",), has_cuda_torch=True)
RECORD = StepRecord(
    shape="m3",
    num_layers=60,
    tp_size=8,
    batch=1,
    query_len=4,
    context=65_536,
    kv_dtype="float8_e4m3",
    step_ms=2.0,
    spread_ms=(1.9, 2.2),
    floor_ms=1.4,
    host_us=12.0,
    num_kernels=700,
    experts_read=15.3,
    weight_bytes=31 << 30,
    floor_bytes={"qkv_index": 3e6, "experts": 1e6},
    kernel_us={"projections": 900.0, "experts": 1000.0, "activation": 5.0},
    by_kernel_us={"matmul_mxfp8_kernel": (240, 900.0), "experts_kernel": (114, 1000.0)},
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": "m2", "one_rank": True}, "--shape m2: give m3 or m3.1"),
        ({"kv_dtype": "int8", "one_rank": True}, "--kv-dtype int8: give fp8 or bf16"),
        ({}, "give --one-rank"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        bench_step.step(**options)


@pytest.mark.parametrize("facts", [((), True), (("A",), False)])
def test_without_a_gpu_nothing_is_imported(monkeypatch, facts):
    """An installation for a CPU has no Triton: what measures must not be imported to find that out."""
    devices, has_cuda_torch = facts
    hardware = SimpleNamespace(cuda_devices=devices, has_cuda_torch=has_cuda_torch)
    monkeypatch.setattr(bench_step, "probe_hardware", lambda: hardware)
    monkeypatch.setattr(bench_step.importlib, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    with pytest.raises(ConfigError, match="measures a GPU, and none was found"):
        bench_step.step(one_rank=True)


def test_the_text_says_the_step_its_floor_and_where_the_time_goes():
    text = bench_step.format_step(RECORD)
    assert "step 2.000 ms (1.900 to 2.200), floor 1.400 ms: 70% of it" in text
    assert "700 launches; host 12 us; 15.3 experts a layer" in text
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
    assert rows["projections"] == ["900", "1050", "117%"], "three quarters of the bytes, of a floor of 1,400 us"
    assert rows["activation"] == ["5"], "what reads neither weights nor cache has no floor"
    assert text.index("experts_kernel") < text.index("matmul_mxfp8_kernel"), "the slowest first"


def test_the_result_can_be_written(tmp_path, monkeypatch, capsys):
    asked = []
    fake = SimpleNamespace(
        measure_step=lambda shape, settings, **more: asked.append((shape, settings)) or RECORD,
        machine_facts=lambda: {"gpu": "none"},
    )
    monkeypatch.setattr(bench_step, "probe_hardware", lambda: ON_GPU)
    monkeypatch.setitem(sys.modules, bench_step.MODULE, fake)
    bench_step.step(one_rank=True, rows=8, batch=2, out=tmp_path / "step.toml")
    shape, settings = asked[0]
    assert (shape, settings.batch, settings.draft_len, settings.tp_size) == ("m3", 2, 7, 8)
    written = (tmp_path / "step.toml").read_text()
    assert 'kind = "step"' in written
    assert "matmul_mxfp8_kernel" in written
    assert "70% of it" in capsys.readouterr().out
