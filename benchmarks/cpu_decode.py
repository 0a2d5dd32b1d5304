"""Measure the bundled model on this machine's CPU and write the two result files of a release.

    .venv/bin/python benchmarks/cpu_decode.py [FOLDER]

1. `peer.toml`: the transformers package, this engine without a drafter, and with its EAGLE-3 head; 128 prompt and 128
   output tokens.
2. `domains.toml`: with and without drafters by domain; prompts as they are, answers that end by themselves.

Everything is one run of `slipstream bench decode` each: the same process, threads and prompts for all contenders.
"""

from __future__ import annotations

import sys
from pathlib import Path

from slipstream.cli.main import main

DEFAULT_FOLDER = Path(__file__).resolve().parent / "results" / "cpu"
RUNS = {
    "peer.toml": "--peer transformers --prompt-tokens 128 --max-tokens 128 --per-domain 1",
    "domains.toml": "--also ngram --prompt-tokens 0 --max-tokens 192 --stop-at-end --per-domain 4",
}


def run(words: list[str]) -> None:
    """Run one command of the program; it always ends by SystemExit."""
    sys.argv = ["slipstream", *words]  # what the result file names as its command
    try:
        main(words)
    except SystemExit as stopped:
        if stopped.code not in (0, None):
            raise


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER
    for name, arguments in RUNS.items():
        run(["bench", "decode", "demo", *arguments.split(), "--repetitions", "5", "--out", str(folder / name)])
