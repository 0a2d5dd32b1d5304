"""A short engine session, small enough for a tool that watches every access of a GPU kernel.

    compute-sanitizer --tool memcheck  python3 tools/sanitize.py --device cuda
    compute-sanitizer --tool racecheck python3 tools/sanitize.py --device cuda
    compute-sanitizer --tool memcheck  python3 tools/sanitize.py --device cuda --what kernels

`session` starts engines on the bundled model without graphs, so that every launch is a launch of its own, and answers a
few requests of every kind: greedy, coupled and rejected draws, filters, penalties, forbidden words, log-probabilities,
structured output, a prompt in chunks and one whose beginning is in the cache. `kernels` runs the named cases of every
operation that has a Triton kernel. Tokens are not compared here; tests do that. The exit status is the tool's business:
this script fails only when a request or a case does.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from slipstream import LLM, SamplingParams  # noqa: E402
from slipstream.wire.grammar import GrammarSpec  # noqa: E402

DRAFTERS = ("none", "ngram", "eagle3")
NUM_TOKENS = 6


def wishes(num_tokens: int) -> dict[str, SamplingParams]:
    """Return one request of every kind, by what it is for."""
    one: dict[str, Any] = {"max_tokens": num_tokens, "ignore_eos": True}
    return {
        "greedy": SamplingParams(temperature=0.0, **one),
        "coupled": SamplingParams(temperature=0.8, seed=1, **one),
        "rejected": SamplingParams(temperature=1.0, **one),
        "filtered": SamplingParams(temperature=1.0, seed=2, top_p=0.9, top_k=20, min_p=0.01, **one),
        "penalised": SamplingParams(temperature=0.0, repetition_penalty=1.3, frequency_penalty=0.5, **one),
        "forbidden": SamplingParams(bad_words=("the sea",), logit_bias=((7, -3.0),), min_tokens=2, seed=3, **one),
        "log-probabilities": SamplingParams(temperature=0.0, logprobs=3, prompt_logprobs=1, **one),
        "constrained": SamplingParams(temperature=0.0, max_tokens=num_tokens, grammar=GrammarSpec.regex("(yes|no)")),
    }


def run_session(device: str, drafter: str, num_tokens: int) -> int:
    """Answer the requests with one drafter, twice; return the number of tokens.

    Args:
        device: cuda, or cpu to try the script out.
        drafter: of the engine.
        num_tokens: most tokens of an answer.
    """
    params = wishes(num_tokens)
    # One prompt fills more than the eight blocks of 16 tokens that are chosen, and arrives in chunks.
    prompts = [[5 + place * 3 + at for at in range(9)] for place in range(len(params))]
    prompts[0] = [5 + at % 7 for at in range(170)]
    settings: dict[str, Any] = {"max_num_seqs": 3, "max_model_len": 256, "prefill_chunk_tokens": 64}
    with LLM("demo", device=device, drafter=drafter, cuda_graphs="off", poison_freed_pages=True, **settings) as llm:
        answers = [one for _ in range(2) for one in llm.generate(prompts, list(params.values()))]
    for name, answer in zip([*params, *params], answers, strict=True):
        if answer.finish_reason not in ("stop", "length"):
            raise SystemExit(f"{name} with drafter {drafter} ended with {answer.finish_reason}: {answer.error}")
    return sum(len(answer.token_ids) for answer in answers)


def run_kernels(device: str) -> int:
    """Run every named case of every operation with a Triton kernel; return their number."""
    from support.triton_cases import PAIRS, check_triton_case

    for operation, case_name in PAIRS:
        check_triton_case(operation, case_name, device)
        print(f"{operation}: {case_name}", flush=True)
    return len(PAIRS)


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for, and say what that was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="where to run; default cuda")
    parser.add_argument("--what", choices=("session", "kernels"), default="session", help="default session")
    parser.add_argument("--drafter", choices=DRAFTERS, action="append", help="of a session; default all, one by one")
    parser.add_argument("--num-tokens", type=int, default=NUM_TOKENS, help=f"of an answer; default {NUM_TOKENS}")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    if options.what == "kernels":
        if options.device == "cpu":
            parser.error("--what kernels needs --device cuda: tests/interpret runs the cases without a GPU")
        print(f"{run_kernels(options.device)} cases in {time.monotonic() - start:.0f} s")
        return 0
    for drafter in options.drafter or DRAFTERS:
        num_tokens = run_session(options.device, drafter, options.num_tokens)
        kinds = ", ".join(wishes(options.num_tokens))
        print(f"{drafter} on {options.device}: {num_tokens} tokens of requests that were {kinds}; twice", flush=True)
    print(f"done in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
