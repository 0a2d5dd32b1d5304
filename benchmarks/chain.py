"""Time the short kernels of a decode step as they run: in chains, each waiting for the one before.

Usage: python benchmarks/chain.py [--quick] [--output FILE.toml]. Projections with MXFP8 weights, and index scoring with
the choice of blocks and sparse attention on float8 caches, in the geometry of one rank of the real model. A chain walks
over distinct weights or caches that together exceed the cache several times, is captured in a graph, and is replayed.
Every variant of the tuning is checked against float64 before it is timed, and printed; one that fails is printed with
its error and left out. Floors are bytes over the measured read bandwidth given by --bandwidth.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from chain_attention import make_caches, time_attention, tune_attention
from chain_projections import PROJECTION_VARIANTS, time_layer_chain, time_projections
from chain_report import Report


def main() -> None:
    """Check, time, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="TOML file for the records")
    parser.add_argument("--bandwidth", type=float, default=4.52e12, help="bytes per second that the device reads")
    parser.add_argument("--only", choices=("projections", "attention"), help="one half of it")
    parser.add_argument("--quick", action="store_true", help="eight ranks, four rows, 64K tokens only")
    options = parser.parse_args()
    report = Report(options.bandwidth)
    began = time.monotonic()
    torch.manual_seed(0)
    with torch.inference_mode():
        if options.only != "attention":
            time_projections(report, "tp8", PROJECTION_VARIANTS, is_quick=options.quick)
            time_layer_chain(report, "tp8")
            if not options.quick:
                time_projections(report, "tp4", PROJECTION_VARIANTS[:5], is_quick=True)
        print(f"-- {time.monotonic() - began:.0f} s", flush=True)
        if options.only != "projections":
            settings = [(1, 4, 65536), (1, 8, 65536), (1, 4, 8192), (1, 4, 262144), (8, 4, 65536), (32, 4, 65536)]
            for number, (num_reqs, query_len, context) in enumerate(settings[:1] if options.quick else settings):
                setting = f"b{num_reqs} rows{query_len} {context // 1024}K float8"
                caches = make_caches(num_reqs, query_len, context, torch.float8_e4m3fn)
                best = tune_attention(report, setting, caches) if number == 0 else None
                time_attention(report, setting, caches, best)
                del caches
            if not options.quick:
                half = make_caches(1, 4, 65536, torch.bfloat16)
                time_attention(report, "b1 rows4 64K bfloat16", half, None)
        if options.output is not None:
            report.write(options.output)
    print(f"-- {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
