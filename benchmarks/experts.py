"""Time the routed experts with NVFP4 weights on a GPU, beside the bytes that they must read.

Usage: python benchmarks/experts.py [--quick] [--jobs N] [--output FILE.toml]. One rank's slice of the real model,
random weights and inputs. Every figure is the median of replays of one graph that holds all layers, each with weights
and a routing of its own, so that neither launches nor the cache are measured. A result is compared with the reference,
and with itself, before it is timed. A sweep over plans comes first: a plan that fails is printed and left out.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import multiprocessing
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from slipstream.kernels.moe.experts_nvfp4 import reference, triton_impl
from slipstream.kernels.moe.experts_nvfp4.layout import TILE, TILE_WORDS, scale_places
from slipstream.kernels.moe.experts_nvfp4.triton_impl import Plan

READ_BYTES_PER_S = 4.52e12
HIDDEN, NUM_EXPERTS, TOPK, WIDTH = 6144, 128, 4, 3072
ALPHA, LIMIT = 1.702, 7.0
NUM_DISTINCT = {4: 16, 8: 28, 32: 81, 64: 111}
"""Rows -> experts that random routing chooses, about."""
NUM_LAYERS = {8: 16, 4: 10}
MAX_ERROR = 5e-3
"""Of a bfloat16 result against the reference: norm of the difference over the norm."""
PATIENCE_S = 75.0

Layer = dict[str, Tensor]


def plans(is_quick: bool) -> list[Plan]:
    """Return what the sweep tries."""
    rows64 = [Plan(split=split, stages=stages) for split in (2, 4) for stages in (3, 4, 5)]
    rows64 += [Plan(split=split, stages=stages, blocks_per_processor=3) for split in (2, 4) for stages in (4, 6)]
    rows64 += [Plan(split=2, stages=4, blocks_per_processor=5), Plan(split=4, stages=4, blocks_per_processor=5)]
    rows64 += [
        Plan(split=2, preload=0),
        Plan(split=2, chained=False),
        Plan(split=4, chained=False),
        Plan(split=3),
        Plan(split=6),
        Plan(split=8),
    ]
    wide = [Plan(split, 128, stages, preload, 3) for split in (2, 4) for stages in (3, 4) for preload in (0, 2)]
    wide += [Plan(split, 128, 4, 0, 4) for split in (2, 4)] + [Plan(4, 128, 4, 3, 2), Plan(2, 128, 4, 3, 2)]
    wide += [Plan(split, 128, 4, 3, 2, num_warps=8) for split in (2, 4)]
    return rows64[:4] + wide[:2] if is_quick else rows64 + wide


def named(plan: Plan) -> str:
    """Return a plan on one short line."""
    chained = "chained" if plan.chained else "plain"
    return (
        f"split {plan.split} rows {plan.rows:3} stages {plan.stages} preload {plan.preload} "
        f"blocks {plan.blocks_per_processor} warps {plan.num_warps} {chained}"
    )


def random_matrix(rows: int, columns: int, num_experts: int = NUM_EXPERTS) -> Tensor:
    """Return random weights in the run-time layout: any code, scales from 1/4 to 2."""
    shape = (num_experts, rows // TILE, columns // TILE)
    packed = torch.randint(-(2**31), 2**31, (*shape, TILE_WORDS), device="cuda", dtype=torch.int32)
    fields = torch.randint(0x28 + 24, 0x40 + 24, (4, *shape, 2 * TILE), device="cuda", dtype=torch.int32)
    words = torch.zeros(*shape, 2 * TILE, device="cuda", dtype=torch.int32)
    for group, bit, place in scale_places():
        words |= (fields[group] >> bit & 1) << place
    packed[..., -2 * TILE :] = words
    return packed


def make_layer(width: int, num_experts: int = NUM_EXPERTS) -> Layer:
    """Return one layer's weights; products are of about the size of their inputs."""
    factor = torch.rand(num_experts, device="cuda") + 0.5
    return {
        "w13": random_matrix(2 * width, HIDDEN, num_experts),
        "w13_scale": factor / (2.5 * HIDDEN**0.5),
        "w2": random_matrix(HIDDEN, width, num_experts),
        "w2_scale": factor.flip(0) / (2.5 * width**0.5),
    }


def routing(num_rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return ids of exactly the usual number of distinct experts, and weights."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        ids = torch.stack([torch.randperm(NUM_EXPERTS, generator=generator)[:TOPK] for _ in range(num_rows)])
        if len(ids.unique()) == NUM_DISTINCT[num_rows]:
            return ids.cuda(), (torch.rand(num_rows, TOPK, generator=generator) * 0.5 + 0.25).cuda()


def call(plan: Plan, x: Tensor, ids: Tensor, weights: Tensor, layer: Layer, until: str = "sum") -> Tensor:
    """Run one layer, or its first kernels."""
    lists = triton_impl.make_lists(plan, ids, layer["w2"].shape[0], layer["w2"].shape[2] * TILE)
    if until == "lists":
        return lists.order
    first, second = (layer["w13"], layer["w13_scale"]), (layer["w2"], layer["w2_scale"])
    by_pair = triton_impl.multiply(plan, x, lists, first, second, (ALPHA, LIMIT))
    return by_pair if until == "multiply" else triton_impl.sum_slots(plan, by_pair, ids, weights, x.dtype)


def fault_of(
    plan: Plan, x: Tensor, routes: list[tuple[Tensor, Tensor]], layers: list[Layer], expected: list[Tensor]
) -> str:
    """Return what is wrong with a plan's results, or nothing; checks some layers, repetition and a row alone."""
    for (ids, weights), layer, wanted in zip(routes, layers, expected, strict=False):
        result = call(plan, x, ids, weights, layer)
        error = ((result.float() - wanted.float()).norm() / wanted.float().norm()).item()
        if not error < MAX_ERROR:
            return f"error {error:.2e}"
        if not all(torch.equal(result, call(plan, x, ids, weights, layer)) for _ in range(3)):
            return "two runs differ"
        alone = call(plan, x[1:2], ids[1:2].contiguous(), weights[1:2].contiguous(), layer)
        if not torch.equal(alone[0], result[1]):
            return "a row alone differs from the row in its batch"
    return ""


def time_us(run: Callable[[], Any], per_run: int) -> float:
    """Return microseconds of one layer: the median of replays of a graph that holds them all."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for _ in range(3):
        graph.replay()
    times = []
    for _ in range(15):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / per_run)
    return sorted(times)[len(times) // 2]


class Bench:
    """The layers of one rank, and a watch that ends the process when the GPU does not answer."""

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks, self.width = num_ranks, WIDTH // num_ranks
        self.layers = [make_layer(self.width) for _ in range(NUM_LAYERS[num_ranks])]
        self.routes = {rows: [routing(rows, 100 * rows + i) for i in range(len(self.layers))] for rows in NUM_DISTINCT}
        self.inputs = {rows: torch.randn(rows, HIDDEN, device="cuda", dtype=torch.bfloat16) for rows in NUM_DISTINCT}
        self.expected = {rows: self._expected(rows) for rows in NUM_DISTINCT}
        self.checked: set[tuple[Plan, int]] = set()

    def _expected(self, num_rows: int) -> list[Tensor]:
        """Return the reference's results of the first two layers."""
        return [
            reference.experts_nvfp4(
                self.inputs[num_rows],
                *self.routes[num_rows][i],
                layer["w13"],
                layer["w13_scale"],
                layer["w2"],
                layer["w2_scale"],
                ALPHA,
                LIMIT,
            )
            for i, layer in enumerate(self.layers[:2])
        ]

    def floor_us(self, num_rows: int) -> float:
        """Return the time that reading the chosen experts' weights takes."""
        return NUM_DISTINCT[num_rows] * 3 * self.width * HIDDEN * 0.5625 / READ_BYTES_PER_S * 1e6

    def measure(self, plan: Plan, num_rows: int, until: str = "sum") -> float:
        """Return microseconds of a layer; RuntimeError when a result is wrong."""
        x, routes = self.inputs[num_rows], self.routes[num_rows]
        if (plan, num_rows) not in self.checked:
            fault = fault_of(plan, x, routes, self.layers, self.expected[num_rows])
            if fault:
                raise RuntimeError(f"{num_rows} rows: {fault}")
            self.checked.add((plan, num_rows))

        def run() -> None:
            for (ids, weights), layer in zip(routes, self.layers, strict=True):
                call(plan, x, ids, weights, layer, until)

        return time_us(run, len(self.layers))


class Watch:
    """Ends the process when a step takes too long: a kernel that waits for ever cannot be interrupted."""

    def __init__(self) -> None:
        self.step, self.since = "start", time.monotonic()
        threading.Thread(target=self._run, daemon=True).start()

    def enter(self, step: str) -> None:
        """Note that a step begins."""
        self.step, self.since = step, time.monotonic()

    def _run(self) -> None:
        while True:
            time.sleep(1)
            if time.monotonic() - self.since > PATIENCE_S:
                print(f"NO ANSWER for {PATIENCE_S} s in: {self.step}", flush=True)
                os._exit(3)


def sweep(bench: Bench, candidates: list[Plan], row_counts: tuple[int, ...], watch: Watch) -> list[tuple[float, Plan]]:
    """Print every plan's times and return plans by falling speed: the mean of time over floor."""
    found: list[tuple[float, Plan]] = []
    print(f"tp{bench.num_ranks}: us a layer at rows {row_counts}, floors", end=" ")
    print([round(bench.floor_us(rows), 1) for rows in row_counts], flush=True)
    for plan in candidates:
        watch.enter(f"tp{bench.num_ranks} {named(plan)}")
        try:
            times = [bench.measure(plan, rows) for rows in row_counts]
        except Exception as error:  # noqa: BLE001 - one plan that cannot be compiled or is wrong must not end the sweep
            print(f"  {named(plan)}: LEFT OUT {type(error).__name__}: {str(error)[:160]}", flush=True)
            continue
        score = sum(time / bench.floor_us(rows) for time, rows in zip(times, row_counts, strict=True)) / len(times)
        found.append((score, plan))
        print(f"  {named(plan)}: {' '.join(f'{time:7.1f}' for time in times)}   x floor {score:.2f}", flush=True)
    return sorted(found, key=lambda pair: pair[0])


def records_of(bench: Bench, plan: Plan, label: str) -> Iterator[dict[str, Any]]:
    """Print and yield a plan's times for every number of rows, and of its first kernels alone."""
    for rows in NUM_DISTINCT:
        lists, multiply, whole = (bench.measure(plan, rows, until) for until in ("lists", "multiply", "sum"))
        floor = bench.floor_us(rows)
        print(
            f"tp{bench.num_ranks} rows {rows:2} ({NUM_DISTINCT[rows]:3} experts) {label:8} {whole:7.1f} us   "
            f"floor {floor:6.1f}   {floor / whole:5.1%}   [lists {lists:.1f}, with products {multiply:.1f}]",
            flush=True,
        )
        yield {
            "shape": f"m3_tp{bench.num_ranks}",
            "rows": rows,
            "distinct_experts": NUM_DISTINCT[rows],
            "us": round(whole, 2),
            "floor_us": round(floor, 2),
            "lists_us": round(lists, 2),
            "lists_and_products_us": round(multiply, 2),
            "plan": f"{label}: {named(plan)}",
        }


def compile_plans(work: tuple[list[Plan], int]) -> None:
    """Run plans once on small weights, so that their kernels lie in the compiler's cache; a worker of the pool."""
    todo, width = work
    layer = make_layer(width, num_experts=TOPK)
    x, ids = torch.randn(4, HIDDEN, device="cuda", dtype=torch.bfloat16), torch.arange(TOPK, device="cuda").repeat(4, 1)
    for plan in todo:
        try:
            call(plan, x, ids, torch.ones(4, TOPK, device="cuda"), layer)
            torch.cuda.synchronize()
        except Exception:  # noqa: BLE001 - the sweep meets the same fault and says so
            traceback.print_exc(limit=1)


def compile_ahead(candidates: list[Plan], widths: list[int], num_jobs: int, watch: Watch) -> None:
    """Compile all plans in parallel."""
    watch.enter("compiling ahead")
    work = [(candidates[i::num_jobs], width) for width in widths for i in range(num_jobs) if candidates[i::num_jobs]]
    with multiprocessing.get_context("spawn").Pool(num_jobs) as pool:
        pool.map_async(compile_plans, work, chunksize=1).get(timeout=PATIENCE_S - 5)


def write(file: Path, records: list[dict[str, Any]]) -> None:
    """Write records with provenance as TOML."""
    provenance = {
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "read_bytes_per_s": READ_BYTES_PER_S,
    }

    def lines_of(table: dict[str, Any]) -> list[str]:
        return [
            f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}" for name, value in table.items()
        ]

    lines = ['kind = "experts"', "", "[provenance]", *lines_of(provenance)]
    lines += itertools.chain.from_iterable(["", "[[records]]", *lines_of(record)] for record in records)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Sweep, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="write the figures here, as TOML")
    parser.add_argument("--quick", action="store_true", help="few plans")
    parser.add_argument("--jobs", type=int, default=14, help="processes that compile; 0 compiles while measuring")
    options = parser.parse_args()
    began, watch, candidates = time.monotonic(), Watch(), plans(options.quick)
    with torch.inference_mode():
        if options.jobs:
            try:
                compile_ahead(candidates, [WIDTH // ranks for ranks in NUM_LAYERS], options.jobs, watch)
            except Exception as error:  # noqa: BLE001 - compiling while measuring only takes longer
                print(f"compiling ahead failed ({type(error).__name__}: {error}); going on", flush=True)
            print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
        records: list[dict[str, Any]] = []
        for ranks in NUM_LAYERS:
            watch.enter(f"tp{ranks}: making weights")
            bench = Bench(ranks)
            ranking = sweep(bench, candidates, (4, 8, 32) if ranks == 8 else (4, 32), watch)
            default = triton_impl.plan_for(4, HIDDEN, bench.width)
            watch.enter(f"tp{ranks}: final figures")
            for label, plan in [("default", default), *(("best", plan) for _, plan in ranking[:1])]:
                try:
                    records += records_of(bench, plan, label)
                except Exception as error:  # noqa: BLE001 - the other plan's figures are still wanted
                    print(f"{label} plan, {named(plan)}: {type(error).__name__}: {error}", flush=True)
            print(f"tp{ranks} best: " + "; ".join(named(plan) for _, plan in ranking[:3]), flush=True)
            del bench
            torch.cuda.empty_cache()
    if options.output is not None:
        write(options.output, records)
    print(f"took {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
