"""Time the Triton kernels of one rank's decode step on a GPU, each beside the bytes that it must move.

Usage: python benchmarks/kernels.py [--output FILE.json]. Every call is captured in a graph and replayed over rotating
inputs, so that neither launches nor the cache are measured. The floor is bytes over the read bandwidth given.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from slipstream.kernels.select import load

READ_BYTES_PER_S = 4.5e12
NUM_COPIES = 4
PAGE_SIZE, TOPK, HEAD_DIM = 128, 16, 128


def time_us(call: Callable[[int], Any]) -> float:
    """Return microseconds of one call, from a graph that holds one call per copy of the inputs."""
    for copy in range(NUM_COPIES):
        call(copy)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for copy in range(NUM_COPIES):
            call(copy)
    return triton.testing.do_bench(graph.replay, warmup=20, rep=80, return_mode="median") * 1e3 / NUM_COPIES


def half(*shape: int) -> Tensor:
    """Return random bfloat16 values."""
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16) * 0.05


def attention_times(num_reqs: int, query_len: int, context: int, num_heads: int, num_kv_heads: int) -> dict[str, Any]:
    """Time index scoring with the choice, sparse and dense attention of one layer."""
    num_pages = -(-context // PAGE_SIZE)
    copies = []
    for _ in range(NUM_COPIES):
        pool = 1 + num_reqs * num_pages
        table = 1 + torch.randperm(pool - 1, device="cuda").view(num_reqs, num_pages).int()
        copies.append((half(pool, PAGE_SIZE, num_kv_heads, HEAD_DIM), half(pool, PAGE_SIZE, HEAD_DIM), table))
    num_tokens = num_reqs * query_len
    req = torch.arange(num_reqs, device="cuda").repeat_interleave(query_len)
    position = (context - query_len + torch.arange(query_len, device="cuda")).repeat(num_reqs)
    q, index_q = half(num_tokens, num_heads, HEAD_DIM), half(num_tokens, num_kv_heads, HEAD_DIM)
    choose, sparse = load("attention/choose_blocks", "triton_impl"), load("attention/sparse_attend", "triton_impl")
    dense = load("attention/dense_attend", "triton_impl")
    chosen = choose.function(index_q, copies[0][1], copies[0][2], req, position, TOPK, 0, 1)
    row_bytes = HEAD_DIM * 2
    return {
        "choose_blocks": (
            time_us(lambda i: choose.function(index_q, copies[i][1], copies[i][2], req, position, TOPK, 0, 1)),
            num_reqs * context * row_bytes,
        ),
        "sparse_attend": (
            time_us(lambda i: sparse.function(q, copies[i][0], copies[i][0], copies[i][2], req, position, chosen)),
            num_reqs * min(context, TOPK * PAGE_SIZE) * 2 * num_kv_heads * row_bytes,
        ),
        "dense_attend": (
            time_us(lambda i: dense.function(q, copies[i][0], copies[i][0], copies[i][2], req, position, 0)),
            num_reqs * context * 2 * num_kv_heads * row_bytes,
        ),
    }


def mixture_times(num_tokens: int, width: int) -> dict[str, Any]:
    """Time router and routed experts of one layer, bfloat16 weights."""
    hidden, num_experts, topk = 6144, 128, 4
    weights = [(half(num_experts, 2 * width, hidden), half(num_experts, hidden, width)) for _ in range(2)]
    routers = [torch.randn(num_experts, hidden, device="cuda") * 0.02 for _ in range(NUM_COPIES)]
    bias = torch.zeros(num_experts, device="cuda")
    x, position = half(num_tokens, hidden) * 20, torch.arange(num_tokens, device="cuda")
    route, experts = load("moe/route", "triton_impl").function, load("moe/experts", "triton_impl").function
    ids, shares = route(x, routers[0], bias, position, topk, 2.0)
    num_distinct = len(ids.unique())
    return {
        "route": (time_us(lambda i: route(x, routers[i], bias, position, topk, 2.0)), num_experts * hidden * 4),
        "experts": (
            time_us(lambda i: experts(x, ids, shares, *weights[i % 2], 1.702, 7.0)),
            num_distinct * 3 * width * hidden * 2,
        ),
    }


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    records: list[dict[str, Any]] = []

    def note(setting: str, times: dict[str, Any]) -> None:
        for operation, (time, num_bytes) in times.items():
            floor = num_bytes / READ_BYTES_PER_S * 1e6
            records.append({"setting": setting, "operation": operation, "us": time, "floor_us": floor})
            print(f"{setting:28} {operation:16} {time:9.1f} us   floor {floor:8.1f} us   {floor / time:6.1%}")

    with torch.inference_mode():
        for num_reqs, context in ((1, 8192), (1, 65536), (1, 262144), (8, 65536)):
            setting = f"tp4 b{num_reqs} k3 ctx{context // 1024}K"
            note(setting, attention_times(num_reqs, 4, context, 16, 1))
        for num_tokens in (4, 32):
            note(f"tp8 rows{num_tokens}", mixture_times(num_tokens, 384))
    if options.output is not None:
        machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
        machine["python"] = platform.python_version()
        options.output.write_text(json.dumps({"machine": machine, "records": records}, indent=1))


if __name__ == "__main__":
    main()
