"""Compile every Triton kernel for sm_90 without a GPU, through the launches that the engine makes.

A stub driver says that it is an H200 and never launches, so the operations run their own code on tensors without
storage: true grids, true specialisation, true limits of shared memory. Prints one line of JSON per compiled kernel:
operation, shape set, kernel, registers, stack bytes (spills), shared bytes, whether it uses the warp-group product, and
whether it fuses float64 products into sums.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

H200 = {
    "max_shared_mem": 232_448,
    "multiprocessor_count": 132,
    "max_num_regs": 65_536,
    "warpSize": 32,
    "sm_clock_rate": 1_980_000,
    "mem_clock_rate": 3_201_000,
    "mem_bus_width": 6_144,
}


def read_resources(binary: bytes) -> dict[str, int]:
    """Return REG, STACK, LOCAL and SHARED of a compiled kernel."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL|SHARED):(\d+)", text)}


class _Utilities:
    def get_device_properties(self, device: int) -> dict[str, int]:
        return H200

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        found = read_resources(binary)
        return 1, 1, found.get("REG", 0), found.get("STACK", 0), 1024

    def unload_module(self, *arguments: object) -> None:
        pass


class _Launcher:
    def __init__(self, source: object, metadata: object) -> None:
        pass

    def __call__(self, *arguments: object, **options: object) -> None:
        pass


class StubDriver:
    """An H200 that compiles and never launches."""

    launcher_cls = _Launcher

    def __init__(self) -> None:
        self.utils = _Utilities()

    def get_current_target(self) -> GPUTarget:
        """Return Hopper."""
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        """Return the one device."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """Return the default stream."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Do nothing: there is one device."""

    def get_active_torch_device(self) -> torch.device:
        """Return where tensors live."""
        return torch.device("meta")

    def map_python_to_cpp_type(self, kind: str) -> str:
        """Return any type: no launcher is built."""
        return "int"


@dataclass(frozen=True)
class Shape:
    """One rank's sizes of a model, and a batch."""

    name: str
    num_tokens: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    num_index_heads: int
    page_size: int
    max_pages: int
    topk: int
    num_experts: int
    topk_experts: int
    width: int
    vocab_size: int
    dtype: torch.dtype


def shapes() -> list[Shape]:
    """Return the real model's slices for two and eight ranks and the bundled model, decoding and prefilling."""
    real = {"hidden_size": 6144, "head_dim": 128, "rotary_dim": 64, "page_size": 128, "topk": 16, "num_experts": 128}
    real |= {"topk_experts": 4, "max_pages": 2400, "vocab_size": 200_064, "dtype": torch.bfloat16}
    eighth = {"num_heads": 8, "num_kv_heads": 1, "num_index_heads": 1, "width": 384}
    half = {"num_heads": 32, "num_kv_heads": 2, "num_index_heads": 2, "width": 1536}
    bundled = {"hidden_size": 256, "num_heads": 8, "num_kv_heads": 2, "head_dim": 32, "rotary_dim": 16}
    bundled |= {"num_index_heads": 2, "page_size": 16, "max_pages": 128, "topk": 8, "num_experts": 8}
    bundled |= {"topk_experts": 2, "width": 128, "vocab_size": 4096}
    return [
        Shape(name="m3_tp8_decode", num_tokens=4, **real, **eighth),
        Shape(name="m3_tp2_decode", num_tokens=64, **real, **half),
        Shape(name="m3_tp2_prefill", num_tokens=2048, **real, **half),
        Shape(name="bundled_bf16", num_tokens=4, dtype=torch.bfloat16, **bundled),
        Shape(name="bundled_fp32", num_tokens=4, dtype=torch.float32, **bundled),
    ]


def calls(shape: Shape) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield (operation, arguments) of every operation that has a Triton implementation, in this shape."""

    def real(*size: int) -> Tensor:
        return torch.empty(size, dtype=shape.dtype, device="meta")

    def single(*size: int) -> Tensor:
        return torch.empty(size, dtype=torch.float32, device="meta")

    def integer(*size: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.empty(size, dtype=dtype, device="meta")

    tokens, hidden = shape.num_tokens, shape.hidden_size
    num_pages = 4096
    x, weight = real(tokens, hidden), real(hidden)
    half_x = torch.empty_like(x, dtype=torch.bfloat16)
    pages = real(num_pages, shape.page_size, shape.num_kv_heads, shape.head_dim)
    index_pages = real(num_pages, shape.page_size, shape.head_dim)
    table = integer(8, shape.max_pages, dtype=torch.int32)
    positions = integer(tokens)
    q = real(tokens, shape.num_heads, shape.head_dim)
    index_q = real(tokens, shape.num_index_heads, shape.head_dim)
    k = real(tokens, shape.num_kv_heads, shape.head_dim)
    chosen = integer(tokens, shape.num_kv_heads, shape.topk, dtype=torch.int32)
    rope = single(4096, shape.rotary_dim)
    kinds = integer(shape.num_heads)
    yield "norm/rms_norm", (x, weight, 1e-6, True)
    yield "norm/add_rms_norm", (x, x, weight, 1e-6, True)
    for extra in (None, x):
        yield "norm/sum_add_rms_norm", (single(2, tokens, hidden), extra, x, weight, 1e-6, True)
    yield "norm/qk_norm_rope", (q, real(3, shape.head_dim), kinds, 1e-6, True, rope, positions)
    yield "norm/qk_norm_rope", (q, None, None, 0.0, False, rope, positions)
    yield "cache/write_kv", (k, k, pages, pages, positions, real(tokens, shape.head_dim), index_pages, positions)
    yield "cache/write_kv", (k, k, pages, pages, positions, None, None, None)
    counts = importlib.import_module("slipstream.kernels.cache.place_heads.contract").HeadCounts
    sparse = counts(shape.num_heads, shape.num_kv_heads, shape.num_index_heads)
    for heads in (sparse, counts(shape.num_heads, shape.num_kv_heads, 0)):
        index = (index_pages, positions) if heads.num_index_heads else (None, None)
        parts, norms = (
            single(2, tokens, heads.total * shape.head_dim),
            real(4 if index[0] is not None else 2, shape.head_dim),
        )
        placed = (parts, heads, norms, 1e-6, True, rope, positions, pages, pages, positions, *index)
        yield "cache/place_heads", placed
    if shape.dtype == torch.bfloat16:
        small_pages, small_index = (torch.empty_like(one, dtype=torch.float8_e4m3fn) for one in (pages, index_pages))
        small_row = real(tokens, shape.head_dim)
        yield (
            "cache/write_kv",
            (k, k, small_pages, small_pages, positions, small_row, small_index, positions, 0.5, 0.5),
        )
        yield "attention/choose_blocks", (index_q, small_index, table, positions, positions, shape.topk, 0, 1)
        yield "attention/sparse_attend", (q, small_pages, small_pages, table, positions, positions, chosen, 0.5, 0.5)
        yield "attention/dense_attend", (q, small_pages, small_pages, table, positions, positions, 1, 0.5, 0.5)
    yield "attention/choose_blocks", (index_q, index_pages, table, positions, positions, shape.topk, 0, 1)
    yield "attention/sparse_attend", (q, pages, pages, table, positions, positions, chosen)
    yield "attention/dense_attend", (q, pages, pages, table, positions, positions, 1)
    router = single(shape.num_experts, hidden)
    yield "moe/route", (x, router, single(shape.num_experts), positions, shape.topk_experts, 2.0)
    yield "moe/sum_swiglu_oai", (single(2, tokens, 2 * shape.width), 1.702, 7.0)
    yield "moe/swiglu_oai", (real(tokens, 2 * shape.width), 1.702, 7.0)
    w13 = real(shape.num_experts, 2 * shape.width, hidden)
    w2 = real(shape.num_experts, hidden, shape.width)
    ids = integer(tokens, shape.topk_experts)
    yield "moe/experts", (x, ids, single(tokens, shape.topk_experts), w13, w2, 1.702, 7.0)
    tiles = (hidden // 128, shape.width // 128, 2304)
    packed = [integer(shape.num_experts, *size, dtype=torch.int32) for size in ((2 * tiles[1], tiles[0], 2304), tiles)]
    factor, weights = single(shape.num_experts), single(tokens, shape.topk_experts)
    yield "moe/experts_nvfp4", (half_x, ids, weights, packed[0], factor, packed[1], factor, 1.702, 7.0)
    units = (-(-2 * shape.width // 64), hidden // 64)
    words, scale_words = integer(*units, 2048, dtype=torch.int16), integer(units[0], -(-units[1] // 4), 64)
    yield "linear/matmul_mxfp8", (half_x, words, scale_words, 2 * shape.width)
    yield "linear/sum_parts", (single(6, tokens, hidden), torch.bfloat16)
    # A ladder of four rows per request, whatever the batch above holds.
    num_reqs, query_len, vocab_size = max(tokens // 4, 1), 4, shape.vocab_size
    requests, drafts = integer(num_reqs), integer(num_reqs, query_len - 1)
    ladder, history = integer(num_reqs, query_len), integer(num_reqs, shape.max_pages * shape.page_size)
    logits, temperature = single(num_reqs * query_len, vocab_size), single(num_reqs * query_len)
    flat = integer(num_reqs * query_len)
    yield "sampling/gumbel_noise", (flat, flat, integer(vocab_size))
    yield "sampling/draw_tokens", (logits, temperature, flat, flat, None, True)
    yield "sampling/draw_tokens", (logits, temperature, flat, flat, None, False)
    yield "sampling/verify_chain", (ladder, drafts)
    wide = single(num_reqs, query_len, vocab_size)
    limits = integer(num_reqs * query_len, dtype=torch.int32)
    yield "sampling/filter_logits", (logits, temperature, limits, temperature, temperature)
    for probs in (single(num_reqs, query_len - 1, vocab_size), None):
        yield "sampling/verify_rejection", (wide, single(num_reqs), ladder, drafts, probs, requests, requests)
    words = integer(num_reqs, query_len, (vocab_size + 31) // 32, dtype=torch.int32)
    yield "sampling/mask_logits", (wide, words)
    is_end = torch.empty((num_reqs, vocab_size), dtype=torch.bool, device="meta")
    yield "sampling/bias_logits", (wide, single(num_reqs, vocab_size), is_end, requests, requests)
    shares = single(num_reqs)
    yield "sampling/penalise_logits", (wide, history, requests, drafts, requests, shares, shares, shares)
    yield "sampling/forbid_sequences", (wide, integer(num_reqs, 64, 16), history, requests, drafts, requests)
    yield "step/commit_rows", (requests, requests, requests, ladder, requests, requests, history)
    yield "step/store_drafts", (requests, drafts, drafts)
    yield (
        "draft/place_rows",
        (ladder, requests, requests, requests, integer(num_reqs, shape.max_pages), shape.page_size),
    )
    yield "draft/ngram_match", (history, requests, 4, 2, query_len - 1)


def implementation_of(operation: str) -> Callable[..., Any]:
    """Return the Triton implementation of an operation."""
    module = importlib.import_module(f"slipstream.kernels.{operation.replace('/', '.')}.triton_impl")
    return getattr(module, operation.rsplit("/", 1)[-1])


def compile_all(report: Callable[[dict[str, Any]], None]) -> None:
    """Run every call of every shape and report each kernel that was compiled for it.

    Args:
        report: gets one record per operation, shape and kernel.
    """
    compiled: list[Any] = []
    run = JITFunction.run

    def noting(self: JITFunction[Any], *arguments: Any, **options: Any) -> Any:
        kernel = run(self, *arguments, **options)
        compiled.append(kernel)
        return kernel

    JITFunction.run = noting
    for shape in shapes():
        for operation, arguments in calls(shape):
            compiled.clear()
            implementation_of(operation)(*arguments)
            for kernel in compiled:
                report(
                    {
                        "operation": operation,
                        "shape": shape.name,
                        "kernel": kernel.name,
                        "registers": kernel.n_regs,
                        "stack_bytes": kernel.n_spills,
                        "shared_bytes": kernel.metadata.shared,
                        "num_warps": kernel.metadata.num_warps,
                        "has_wgmma": "wgmma" in kernel.asm["ptx"],
                        "has_wide_fma": "fma.rn.f64" in kernel.asm["ptx"],
                    }
                )


def main() -> int:
    """Compile and print."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        sys.exit("TRITON_INTERPRET=1 would interpret instead of compiling: unset it")
    driver.set_active(StubDriver())
    compile_all(lambda record: print(json.dumps(record), flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
