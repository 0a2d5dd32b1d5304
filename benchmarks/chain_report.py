"""What the chain benchmarks share: timing a chain of kernels, and a report of what was timed."""

from __future__ import annotations

import datetime
import platform
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton

Variant = dict[str, Any]
COLD_BYTES = 180e6
"""What a chain reads before it comes back to the same bytes: three times the cache of an H200."""
NUM_REPLAYS = 15


class Report:
    """Prints records as they come, keeps them, and writes them as TOML."""

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = bandwidth
        self.records: list[dict[str, Any]] = []

    def add(self, setting: str, what: str, variant: Variant, us: float, num_bytes: float) -> None:
        """Note one time."""
        floor = num_bytes / self.bandwidth * 1e6
        record = {"setting": setting, "operation": what, "us": round(us, 2), "floor_us": round(floor, 2), **variant}
        self.records.append(record)
        words = " ".join(f"{name}={value}" for name, value in variant.items())
        print(f"{setting:24} {what:24} {us:8.2f} us  floor {floor:6.2f}  {floor / us:5.0%}  {words}", flush=True)

    def fail(self, setting: str, what: str, variant: Variant, error: Exception) -> None:
        """Print a variant that does not run, or is wrong."""
        print(f"{setting:24} {what:24} LEFT OUT {variant}: {type(error).__name__}: {str(error)[:160]}", flush=True)

    def write(self, path: Path) -> None:
        """Write everything with its provenance."""
        provenance = {
            "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
            "gpu": torch.cuda.get_device_name(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "command": " ".join(["python", "benchmarks/chain.py", *sys.argv[1:]]),
            "note": f"medians of {NUM_REPLAYS} replays; floor = bytes over {self.bandwidth:.3g} bytes per second",
        }
        lines = ['kind = "kernels"', "", "[provenance]", *_toml(provenance)]
        for record in self.records:
            lines += ["", "[[records]]", *_toml(record)]
        path.write_text("\n".join(lines) + "\n")


def _toml(table: dict[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        if value is not None:
            quoted = f'"{value}"' if isinstance(value, str) else str(value).lower()
            yield f"{name} = {quoted}"


def chain_us(calls: Callable[[], Any], num_steps: int) -> float:
    """Return microseconds of one step of a chain: the median over replays of a graph of it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        calls()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    times = []
    for number in range(NUM_REPLAYS + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if number >= 3:
            times.append(begin.elapsed_time(end) * 1e3 / num_steps)
    return statistics.median(times)


def require(is_right: bool, what: str) -> None:
    """Raise unless a check held."""
    if not is_right:
        raise ValueError(f"wrong result: {what}")
