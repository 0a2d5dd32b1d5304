from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch

from slipstream import kernels
from slipstream.base.errors import ConfigError
from slipstream.decode_targets.m3.sm90_nvfp4 import forward
from slipstream.profiling.rank_slice import RankSlice, SliceSettings
from slipstream.profiling.step_bench import component_of, make_record, measure_step
from support.narrow_shapes import narrow_spec

KERNELS = {"matmul_mxfp8_kernel": (12, 30.0), "sum_add_rms_norm_kernel": (6, 6.0), "somebody_s_kernel": (1, 4.0)}


@pytest.mark.parametrize(
    ("kernel", "component"),
    [
        ("matmul_mxfp8_kernel", "projections"),
        ("partial_scores_kernel", "router"),
        ("feed_forward_kernel", "experts"),
        ("index_score_kernel", "index_score"),
        ("sparse_attend_kernel", "attention"),
        ("place_heads_kernel", "heads_and_cache"),
        ("void cublasLt_gemm_x", "head"),
        ("vectorized_elementwise_kernel", "rest"),
    ],
)
def test_kernels_are_counted_where_they_belong(kernel, component):
    assert component_of(kernel) == component


def test_every_kernel_of_the_target_has_a_component():
    """By the names in the sources: a kernel that is called something else would be lost among the rest."""
    operations = set(re.findall(r"slipstream\.kernels\.(\w+)\.(\w+)\.contract", inspect.getsource(forward)))
    operations |= {("linear", "matmul_mxfp8"), ("attention", "index_score"), ("attention", "select_blocks")}
    folder = Path(kernels.__file__).parent
    files = [file for family, name in operations for file in (folder / family / name).glob("triton*.py")]
    names = {name for file in files for name in re.findall(r"def (\w+_kernel)\(", file.read_text(encoding="utf-8"))}
    assert len(names) >= 13
    assert [name for name in sorted(names) if component_of(name) == "rest"] == []


def test_a_record_holds_what_was_measured():
    settings = SliceSettings(tp_size=8, batch=2, draft_len=3, context=100)
    with torch.inference_mode():
        one = RankSlice(narrow_spec(), settings, torch.device("cpu"))
    record = make_record("m3", one, [2.0, 1.0, 4.0], 7.0, KERNELS, 3.0)
    assert (record.step_ms, record.spread_ms, record.num_kernels, record.query_len) == (2.0, (1.0, 4.0), 19, 4)
    assert record.kernel_us == {"projections": 30.0, "norms": 6.0, "rest": 4.0}
    assert record.floor_ms == pytest.approx(sum(record.floor_bytes.values()) / 4.3e12 * 1e3)


def test_more_steps_than_there_is_room_for_are_refused():
    settings = SliceSettings(tp_size=8, batch=1, draft_len=3, context=1024)
    settings.check_steps(511)
    with pytest.raises(ConfigError, match="512 steps of 4 rows, .* at most 511 fit"):
        settings.check_steps(512)
    with pytest.raises(ConfigError, match="give fewer repetitions or rows"):
        measure_step("m3", settings, repetitions=5000)


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="measures a GPU, and none was found"):
        measure_step("m3", SliceSettings(8, 1, 3, 1024))
