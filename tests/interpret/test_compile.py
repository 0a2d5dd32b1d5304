"""Every Triton kernel compiles for Hopper, in the shapes that the engine launches, within the chip's limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from slipstream.kernels.moe.experts_nvfp4.triton_impl import plan_for
from support.project import ROOT
from support.triton_cases import OPERATIONS

MAX_SHARED_BYTES = 232_448
MAX_REGISTERS = 255
SIZES = {
    "m3_tp8_decode": (4, 6144, 384),
    "m3_tp2_decode": (64, 6144, 1536),
    "m3_tp2_prefill": (2048, 6144, 1536),
    "bundled_bf16": (4, 256, 128),
    "bundled_fp32": (4, 256, 128),
}
"""Tokens, hidden_size and width of the shapes that are compiled."""
PREFILL_PRODUCTS = {"gate_up_kernel", "down_kernel", "dense_attend_kernel"}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Records of tools/compile_kernels.py, from a process of its own: this one interprets."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    command = [sys.executable, str(ROOT / "tools" / "compile_kernels.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.xdist_group("compile")
def test_every_operation_is_compiled_in_every_shape(compiled):
    shapes = {record["shape"] for record in compiled}
    assert len(shapes) >= 5
    # The choice of blocks runs the kernels of both operations that it joins.
    joined = {"attention/index_score", "attention/select_blocks"}
    for shape in shapes:
        assert {record["operation"] for record in compiled if record["shape"] == shape} | joined == set(OPERATIONS)


@pytest.mark.xdist_group("compile")
def test_kernels_fit_the_chip_and_spill_nothing(compiled):
    for record in compiled:
        assert record["registers"] <= MAX_REGISTERS, record
        assert record["stack_bytes"] == 0, record
        assert record["shared_bytes"] <= MAX_SHARED_BYTES, record


@pytest.mark.xdist_group("compile")
def test_weights_are_rounded_as_on_the_host(compiled):
    """A float64 product fused into its sum is not rounded; of the noise's logarithm alone it is how it is written."""
    judged = [r for r in compiled if r["operation"] in ("sampling/filter_logits", "sampling/verify_rejection")]
    assert {r["kernel"] for r in judged if r["has_wide_fma"]} == {"residual_kernel"}
    assert {"count_kernel", "tie_kernel", "choose_top_p_kernel", "judge_kernel"} <= {r["kernel"] for r in judged}


@pytest.mark.xdist_group("compile")
def test_prefill_products_use_the_warp_group_instruction(compiled):
    found = {r["kernel"] for r in compiled if r["shape"] == "m3_tp2_prefill" and r["has_wgmma"]}
    assert found >= PREFILL_PRODUCTS


@pytest.mark.xdist_group("compile")
def test_packed_experts_use_it_with_weights_in_registers_and_all_blocks_fit_at_once(compiled):
    """Blocks of the persistent kernel wait for each other: registers and shared memory must hold all of them."""
    found = [r for r in compiled if r["kernel"] == "feed_forward_kernel"]
    assert {r["shape"] for r in found} == {r["shape"] for r in compiled} == set(SIZES)
    for record in found:
        plan = plan_for(*SIZES[record["shape"]])
        assert record["has_wgmma"]
        assert record["registers"] <= plan.max_registers
        assert plan.blocks_per_processor * (record["shared_bytes"] + 1024) <= 233_472, record
        plan.check(16 if record["shape"] != "m3_tp2_prefill" else 64)
