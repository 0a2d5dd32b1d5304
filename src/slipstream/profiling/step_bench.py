"""Time one rank's decode step: as one graph, by kernel, and beside the bytes that it must read."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import triton

from slipstream.base.errors import ConfigError
from slipstream.kernels.capability import check_capability
from slipstream.profiling.floors import READ_BYTES_PER_S, Load, floor_bytes
from slipstream.profiling.rank_slice import RankSlice, SliceSettings
from slipstream.profiling.shapes import real_spec

_NUM_WARM_UPS = 3
_KV_BYTES = {"float8_e4m3": 1, "bfloat16": 2}
_COMPONENT_OF_KERNEL = (
    ("lists_kernel", "experts"),
    ("feed_forward", "experts"),
    ("sum_slots", "experts"),
    ("index_score", "index_score"),
    ("select_blocks", "index_score"),
    ("attend", "attention"),
    ("merge", "attention"),
    ("place_heads", "heads_and_cache"),
    ("matmul_mxfp8", "projections"),
    ("sum_add_rms_norm", "norms"),
    ("rms_norm", "norms"),
    ("sum_swiglu", "activation"),
    ("gemm", "head"),
    ("gemv", "head"),
    ("cutlass", "head"),
    ("nvjet", "head"),
)
_ROUTER_KERNELS = ("partial_scores", "choose_experts")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What was measured of one slice.

    Args:
        step_ms: median time of a step in a graph.
        spread_ms: smallest and largest of the repetitions.
        floor_ms: bytes of weights and cache over the speed of reading.
        floor_bytes: by component.
        kernel_us: device time of a step by group of kernels; kernels that overlap count twice.
        num_kernels: launches of a step.
        host_us: host time of launching the step's graph.
        experts_read: distinct experts per layer.
    """

    shape: str
    num_layers: int
    tp_size: int
    batch: int
    query_len: int
    context: int
    kv_dtype: str
    step_ms: float
    spread_ms: tuple[float, float]
    floor_ms: float
    host_us: float
    num_kernels: int
    experts_read: float
    weight_bytes: int
    floor_bytes: dict[str, float] = field(default_factory=dict)
    kernel_us: dict[str, float] = field(default_factory=dict)
    by_kernel_us: dict[str, tuple[int, float]] = field(default_factory=dict)


def measure_step(
    shape: str,
    settings: SliceSettings,
    *,
    num_layers: int = 60,
    repetitions: int = 30,
    on_progress: Callable[[str], None] = lambda _: None,
) -> StepRecord:
    """Build one rank's slice on the GPU and time its decode step.

    Args:
        shape: m3 or m3.1.
        settings: width, batch, ladder, context, cache.
        num_layers: fewer make a quicker run, and another figure.
        repetitions: timed replays.
        on_progress: told what is being done.

    Raises:
        ConfigError: no CUDA device, or more repetitions than requests have room for.
    """
    settings.check_steps(_NUM_WARM_UPS + repetitions)
    if not torch.cuda.is_available():
        raise ConfigError("bench step measures a GPU, and none was found; `slipstream doctor` says what is missing")
    device = torch.device("cuda")
    check_capability(device)
    on_progress(f"building one rank of {settings.tp_size}: {num_layers} layers")
    with torch.inference_mode():
        one = RankSlice(real_spec(shape, num_layers), settings, device)
        on_progress("compiling and warming up")
        for _ in range(_NUM_WARM_UPS):
            one.step()
        experts_read = one.count_experts()
        on_progress("capturing")
        graph = _capture(one)
        on_progress("timing")
        times_ms, host_us = _time(one, graph, repetitions)
        by_kernel = _profile(one, graph)
    return make_record(shape, one, times_ms, host_us, by_kernel, experts_read)


def _capture(one: RankSlice) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_NUM_WARM_UPS):
            one.step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        one.step()
    return graph


def _time(one: RankSlice, graph: torch.cuda.CUDAGraph, repetitions: int) -> tuple[list[float], float]:
    """Return the times of single replays in ms, and the host's time of launching one in us."""
    one.rewind()
    for _ in range(_NUM_WARM_UPS):
        graph.replay()
    torch.cuda.synchronize()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repetitions)]
    host_s: list[float] = []
    for start, end in events:
        start.record()
        begin = time.perf_counter()
        graph.replay()
        host_s.append(time.perf_counter() - begin)
        end.record()
        torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events], statistics.median(host_s) * 1e6


def _profile(one: RankSlice, graph: torch.cuda.CUDAGraph) -> dict[str, tuple[int, float]]:
    """Return launches and device time in us of one replay, by kernel."""
    one.rewind()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        graph.replay()
        torch.cuda.synchronize()
    totals: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    events: Any = trace.events()
    for event in events:
        if event.device_type.name == "CUDA":
            entry = totals[event.name]
            entry[0] += 1
            entry[1] += event.device_time_total
    return {name: (int(count), total) for name, (count, total) in totals.items()}


def component_of(kernel: str) -> str:
    """Return the component that a kernel's time is counted in."""
    if any(part in kernel for part in _ROUTER_KERNELS):
        return "router"
    return next((component for part, component in _COMPONENT_OF_KERNEL if part in kernel), "rest")


def make_record(
    shape: str,
    one: RankSlice,
    times_ms: list[float],
    host_us: float,
    by_kernel: dict[str, tuple[int, float]],
    experts_read: float,
) -> StepRecord:
    """Return what was measured as a record, with its floors.

    Args:
        shape: m3 or m3.1.
        one: the slice.
        times_ms: of single steps.
        host_us: of launching one.
        by_kernel: launches and device time in us of a step, by kernel.
        experts_read: distinct experts per layer.
    """
    settings = one.settings
    query_len = settings.draft_len + 1
    load = Load(settings.batch, query_len, settings.context, experts_read, _blocks_read(one, query_len))
    floors = floor_bytes(
        one.spec,
        one.weights,
        load,
        num_kv_heads=one.sizes.num_kv_heads,
        kv_bytes=_KV_BYTES[settings.kv_dtype],
    )
    kernel_us: dict[str, float] = defaultdict(float)
    for name, (_, total) in by_kernel.items():
        kernel_us[component_of(name)] += total
    return StepRecord(
        shape=shape,
        num_layers=one.spec.num_layers,
        tp_size=settings.tp_size,
        batch=settings.batch,
        query_len=query_len,
        context=settings.context,
        kv_dtype=settings.kv_dtype,
        step_ms=statistics.median(times_ms),
        spread_ms=(min(times_ms), max(times_ms)),
        floor_ms=sum(floors.values()) / READ_BYTES_PER_S * 1e3,
        host_us=host_us,
        num_kernels=sum(count for count, _ in by_kernel.values()),
        experts_read=experts_read,
        weight_bytes=torch.cuda.memory_allocated() if torch.cuda.is_available() else 0,
        floor_bytes=floors,
        kernel_us=dict(kernel_us),
        by_kernel_us=by_kernel,
    )


def _blocks_read(one: RankSlice, query_len: int) -> float:
    """Return distinct blocks that the rows of a request read at most: with random keys each row chooses its own."""
    sparse = one.spec.sparse
    if sparse is None:
        return 0.0
    num_blocks = -(-one.settings.context // sparse.index_block_size)
    return min(query_len * (sparse.topk_blocks - 1) + 1, num_blocks)


def machine_facts() -> dict[str, Any]:
    """Return what a figure needs beside it."""
    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
