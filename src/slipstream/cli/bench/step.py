"""`slipstream bench step`: one rank's decode step with random weights, beside the bytes that it must read.

What measures imports torch, and is imported by name when it is asked for.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.base.errors import ConfigError
from slipstream.cli.console import make_error_console
from slipstream.config.hardware import probe_hardware
from slipstream.harness import provenance
from slipstream.harness.report import build_result, check_result_path, format_rows, write_result

SHAPES = ("m3", "m3.1")
KV_DTYPES = {"fp8": "float8_e4m3", "bf16": "bfloat16"}
NUM_LAYERS = 60
READS_OF = {"projections": ("qkv_index", "o", "shared_and_dense")}
"""What a group of kernels reads, where it has another name; kernels of a group may run side by side."""

MODULE = "slipstream.profiling.step_bench"
NO_GPU = "bench step measures a GPU, and none was found; `slipstream doctor` says what is missing"
SLICE_MODULE = "slipstream.profiling.rank_slice"


def step(
    shape: Annotated[str, typer.Option("--shape", metavar="NAME", help="m3 or m3.1.")] = "m3",
    tp: Annotated[int, typer.Option("--tp", metavar="N", min=1, help="Ranks of the engine.")] = 8,
    one_rank: Annotated[
        bool, typer.Option("--one-rank", help="Build and run one of the ranks, without collectives.")
    ] = False,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Requests.")] = 1,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, max=16, help="Ladder rows of a request.")] = 4,
    context: Annotated[int, typer.Option("--context", metavar="N", min=1, help="Tokens of a request.")] = 65_536,
    kv_dtype: Annotated[str, typer.Option("--kv-dtype", metavar="NAME", help="fp8 or bf16.")] = "fp8",
    layers: Annotated[
        int, typer.Option("--layers", metavar="N", min=1, max=NUM_LAYERS, help="Layers, for a quicker look.")
    ] = NUM_LAYERS,
    repetitions: Annotated[int, typer.Option("--repetitions", metavar="N", min=1, help="Timed steps.")] = 30,
    out: Annotated[Path | None, typer.Option("--out", help="Write the result to a .toml or .json file.")] = None,
) -> None:
    """Time one rank's verify, accept and commit with random NVFP4 experts and MXFP8 matrices, on a GPU.

    Without collectives and without a drafter's work; both are left out of the floor, too.
    """
    for name, value, allowed in (("--shape", shape, SHAPES), ("--kv-dtype", kv_dtype, tuple(KV_DTYPES))):
        if value not in allowed:
            raise ConfigError(f"{name} {value}: give {' or '.join(allowed)}")
    if not one_rank:
        raise ConfigError("bench step: several ranks on several GPUs are not part of this release; give --one-rank")
    if out is not None:
        check_result_path(out)
    hardware = probe_hardware()
    if not (hardware.cuda_devices and hardware.has_cuda_torch):
        raise ConfigError(NO_GPU)
    console = make_error_console()
    bench: Any = importlib.import_module(MODULE)
    slices: Any = importlib.import_module(SLICE_MODULE)
    settings = slices.SliceSettings(
        tp_size=tp, batch=batch, draft_len=rows - 1, context=context, kv_dtype=KV_DTYPES[kv_dtype]
    )
    record = bench.measure_step(
        shape,
        settings,
        num_layers=layers,
        repetitions=repetitions,
        on_progress=lambda text: console.print(text, markup=False),
    )
    typer.echo(format_step(record))
    if out is not None:
        result = build_result("step", provenance.collect(0), machine=bench.machine_facts(), records=[as_plain(record)])
        write_result(out, result)
        console.print(f"written to {out}", markup=False)


def as_plain(record: Any) -> dict[str, Any]:
    """Return a record as plain data, kernels as rows."""
    names = tuple(record.__slots__)
    plain = {name: getattr(record, name) for name in names if name != "by_kernel_us"}
    plain["kernels"] = [
        {"name": name, "launches": count, "us": total} for name, (count, total) in record.by_kernel_us.items()
    ]
    return plain


def format_step(record: Any) -> str:
    """Return what a person wants to see of a record."""
    head = (
        f"{record.shape}, one rank of {record.tp_size}, {record.num_layers} layers: {record.batch} requests of "
        f"{record.context} tokens, {record.query_len} rows each, {record.kv_dtype} cache"
    )
    low, high = record.spread_ms
    share = record.floor_ms / record.step_ms
    lines = [
        head,
        f"step {record.step_ms:.3f} ms ({low:.3f} to {high:.3f}), floor {record.floor_ms:.3f} ms: {share:.0%} of it",
        f"{record.num_kernels} launches; host {record.host_us:.0f} us; {record.experts_read:.1f} experts a layer",
        "",
    ]
    total = sum(record.floor_bytes.values())
    floors = [
        (name, f"{value / 1e6:.1f}", f"{value / total * record.floor_ms * 1e3:.0f}")
        for name, value in record.floor_bytes.items()
    ]
    lines += [format_rows(("reads", "MB", "floor us"), floors), ""]
    us_of_byte = record.floor_ms * 1e3 / total
    parts: list[tuple[str, ...]] = []
    for name, us in sorted(record.kernel_us.items(), key=lambda entry: -entry[1]):
        floor_us = us_of_byte * sum(record.floor_bytes.get(part, 0.0) for part in READS_OF.get(name, (name,)))
        parts.append(
            (name, f"{us:.0f}", f"{floor_us:.0f}" if floor_us else "", f"{floor_us / us:.0%}" if floor_us else "")
        )
    lines.append(format_rows(("kernels", "us of device time", "floor us", "floor over time"), parts))
    single = sorted(record.by_kernel_us.items(), key=lambda entry: -entry[1][1])
    rows = [(name[:60], count, f"{total / count:.2f}", f"{total:.0f}") for name, (count, total) in single]
    return "\n".join([*lines, "", format_rows(("kernel", "launches", "us each", "us"), rows)])
