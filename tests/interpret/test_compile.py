"""Every Triton kernel compiles for Hopper, in the shapes that the engine launches, within the chip's limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from support.project import ROOT
from support.triton_cases import OPERATIONS

MAX_SHARED_BYTES = 232_448
MAX_REGISTERS = 255
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
def test_prefill_products_use_the_warp_group_instruction(compiled):
    found = {r["kernel"] for r in compiled if r["shape"] == "m3_tp2_prefill" and r["has_wgmma"]}
    assert found >= PREFILL_PRODUCTS
