"""Tokens per second of the bundled model on a GPU: drafter on and off, graphs on and off, several batches.

Usage: python benchmarks/engine.py [--only speed|launches|host] [--output FILE.json]. One engine per line, in this
process; every request writes the same number of tokens past its end token, so that all rows stay busy. The clock starts
after a warm-up round, and covers prefill too.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from slipstream import LLM, SamplingParams
from slipstream.config.hardware import probe_hardware
from slipstream.config.options import Options
from slipstream.config.resolve import resolve
from slipstream.demo import demo_path
from slipstream.engine.assemble import assemble
from slipstream.wire.request import Request

NUM_TOKENS = 256
HOST_PARTS = frozenset({"plan", "submit", "commit", "collect"})


def conversations(count: int) -> list[list[dict[str, str]]]:
    """Return prompts of every domain in turn, but no needles: they leave too little room for the answer."""
    lines = (demo_path().parent / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["domain"] != "needle"]
    step = 17  # shares no factor with the number of prompts, whose domains lie one behind the other
    return [rows[place * step % len(rows)]["messages"] for place in range(count)]


def measure(batch: int, **options: Any) -> dict[str, Any]:
    """Return the figures of one engine."""
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    with LLM("demo", device="cuda", max_num_seqs=batch, prefix_cache=False, **options) as llm:
        llm.chat(conversations(batch), SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True))
        torch.cuda.synchronize()
        start = time.perf_counter()
        answers = llm.chat(conversations(batch), params)
        torch.cuda.synchronize()
        duration_s = time.perf_counter() - start
    num_tokens = sum(len(answer.token_ids) for answer in answers)
    num_steps = max(answer.num_verify_steps for answer in answers) or NUM_TOKENS - 1
    emitted = sum(answer.num_emitted for answer in answers)
    steps = sum(answer.num_verify_steps for answer in answers)
    return {
        "batch": batch,
        **options,
        "tokens_per_s_per_user": num_tokens / duration_s / batch,
        "tokens_per_s": num_tokens / duration_s,
        "ms_per_step": duration_s / num_steps * 1e3,
        "acceptance_length": emitted / steps if steps else 1.0,
    }


def profile(drafter: str) -> dict[str, Any]:
    """Return kernels and device time of one decode step at batch 1, as the driver's own trace counts them."""
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    with LLM("demo", device="cuda", max_num_seqs=1, prefix_cache=False, drafter=drafter) as llm:
        llm.chat(conversations(1), params)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
            answer = llm.chat(conversations(1), params)[0]
            torch.cuda.synchronize()
    kernels = [event for event in trace.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    num_steps = answer.num_verify_steps or NUM_TOKENS - 1
    busy_us = sum(event.device_time_total for event in kernels)
    return {
        "drafter": drafter,
        "kernels_per_step": len(kernels) / num_steps,
        "device_ms_per_step": busy_us / num_steps / 1e3,
    }


class Clock:
    """Wraps a scheduler or a runner, and notes how long each call took on the host."""

    def __init__(self, wrapped: Any, times_s: dict[str, list[float]]) -> None:
        self._wrapped = wrapped
        self._times_s = times_s

    def __getattr__(self, name: str) -> Any:
        """Return the attribute; methods that belong to a step are timed."""
        attribute = getattr(self._wrapped, name)
        if name not in HOST_PARTS:
            return attribute

        def timed(*arguments: Any) -> Any:
            # What the host reads must be there: waiting for the device is not its work.
            torch.cuda.synchronize()
            start = time.perf_counter()
            result = attribute(*arguments)
            self._times_s.setdefault(name, []).append(time.perf_counter() - start)
            return result

        return timed


def host_time(batch: int, drafter: str) -> dict[str, Any]:
    """Return the host's own time of a decode step, by part, without any front end and without waiting."""
    config = resolve(
        Options(model="demo", device="cuda", max_num_seqs=batch, prefix_cache=False, drafter=drafter), probe_hardware()
    )
    core, facts = assemble(config, lambda _: None)
    times_s: dict[str, list[float]] = {}
    core._scheduler, core._runner = Clock(core._scheduler, times_s), Clock(core._runner, times_s)
    for place in range(batch):
        core.submit(
            Request(
                request_id=str(place),
                prompt_token_ids=tuple(range(100 + place, 140 + place)),
                sampling=SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True),
                seed=place,
                max_seq_len=40 + NUM_TOKENS,
                stop_token_ids=(),
                eos_token_ids=facts.eos_token_ids,
                arrival_s=0.0,
            )
        )
    while core.has_work:
        core.turn()
    core.close()
    # The middle of the run: every row decodes, and no prompt is computed.
    parts = {name: statistics.median(values[16:-16]) * 1e6 for name, values in times_s.items()}
    return {"batch": batch, "drafter": drafter, "host_us": {**parts, "sum": sum(parts.values())}}


def speeds() -> Iterator[dict[str, Any]]:
    """Measure and print tokens per second."""
    for batch in (1, 8, 64):
        for drafter in ("none", "eagle3"):
            for graphs in ("on", "off") if batch == 1 else ("on",):
                record = measure(batch, drafter=drafter, cuda_graphs=graphs)
                print(
                    f"batch {batch:3} drafter {drafter:7} graphs {graphs:3} "
                    f"{record['tokens_per_s_per_user']:8.1f} tok/s per user {record['tokens_per_s']:9.1f} tok/s "
                    f"{record['ms_per_step']:7.3f} ms a step, acceptance length {record['acceptance_length']:.2f}"
                )
                yield record


def launches() -> Iterator[dict[str, Any]]:
    """Measure and print kernels and device time of a step."""
    for drafter in ("none", "eagle3"):
        record = profile(drafter)
        print(
            f"drafter {drafter:7} {record['kernels_per_step']:6.0f} kernels and copies a step, prefill included; "
            f"{record['device_ms_per_step']:.3f} ms of device time"
        )
        yield record


def host_times() -> Iterator[dict[str, Any]]:
    """Measure and print the host's own time of a step."""
    for batch in (1, 64):
        for drafter in ("none", "eagle3"):
            record = host_time(batch, drafter)
            shown = ", ".join(f"{name} {value:.0f}" for name, value in record["host_us"].items())
            print(f"batch {batch:3} drafter {drafter:7} host time of a decode step in us: {shown}")
            yield record


PARTS = {"speed": speeds, "launches": launches, "host": host_times}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", choices=list(PARTS), action="append", help="parts to measure; all without it")
    options = parser.parse_args()
    records = [record for name in options.only or PARTS for record in PARTS[name]()]
    if options.output is not None:
        machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
        machine["python"] = platform.python_version()
        options.output.write_text(json.dumps({"machine": machine, "records": records}, indent=1))


if __name__ == "__main__":
    main()
