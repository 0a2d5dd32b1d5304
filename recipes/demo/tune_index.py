"""Train only the index branch of a finished target, so that block selection misses less of what attention reads.

    python tune_index.py DATA_FOLDER CHECKPOINT_FOLDER OUTPUT_FOLDER --seconds 120

The main attention, the experts and everything else stay as they are, to the bit: losses with full attention do not
change. What the index is taught is in `index_lesson.block_loss`; why there is a second stage at all is in README.md.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import quick_figures
import torch
from chat_format import TURN_END, TURN_START
from checkpoint import SCALE_SUFFIX, WEIGHTS_FILE, load_target, target_views
from corpus import ordinary_sentences, read_chats, training_documents
from dataset import Part, encode, join_parts
from generators import needle, recall
from index_lesson import TuneOptions, draw_queries, lesson_step
from network import Network
from rounding import quantise
from safetensors.torch import load_file, save_file
from tokenizer import load_tokenizer
from torch import Tensor, nn
from train_base import MixedRows, Rows, to_device

SEED = 31
RECALL_SHARE = 0.15  # of the facts; the rest are needles
WARM_UP_STEPS = 20
LAST_RATE = 0.02
LOG_EVERY_S = 2.0
INDEX = "index_"


@dataclass(frozen=True)
class TextOrder:
    """What a worker is asked for."""

    data_folder: Path
    tokenizer_folder: Path
    part: int
    num_parts: int
    num_chats: int
    num_facts: int


def make_texts(order: TextOrder) -> tuple[Part, Part]:
    """Return one part of the rows' text: the general mix, and texts that ask for facts; runs in a worker process."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rng = random.Random(f"tune-{SEED}-{order.part}")
    chats = []
    for chat in read_chats(order.data_folder, "train", order.part, order.num_parts):
        chats.append(chat)
        if len(chats) >= order.num_chats:
            break
    fillers = ordinary_sentences(rng, chats, [])
    facts = [
        (recall.make(rng, fillers) if rng.random() < RECALL_SHARE else needle.make(rng, fillers)).document()
        for _ in range(order.num_facts)
    ]
    general, _ = training_documents(order.data_folder, order.part, order.num_parts, SEED, order.num_chats)
    return encode(order.tokenizer_folder, general), encode(order.tokenizer_folder, facts)


def gather_texts(orders: list[TextOrder]) -> tuple[Part, Part]:
    """Let worker processes make the text, and join it."""
    # HAZARD: forked workers share the parent's state, so this must run before the parent touches a device.
    with multiprocessing.get_context("fork").Pool(len(orders)) as pool:
        parts = pool.map(make_texts, orders, chunksize=1)
    return join_parts([general for general, _ in parts]), join_parts([facts for _, facts in parts])


def index_parameters(network: Network) -> dict[str, nn.Parameter]:
    """Return the parameters of the index branch."""
    return {name: parameter for name, parameter in network.named_parameters() if INDEX in name}


def rate_factor(step: int, progress: float) -> float:
    """Return the learning rate as a share of its peak: short warm-up, then half a cosine."""
    return min(1.0, (step + 1) / WARM_UP_STEPS) * max(LAST_RATE, 0.5 + 0.5 * math.cos(math.pi * min(1.0, progress)))


def tune(
    network: Network,
    next_rows: Callable[[int], Tensor],
    markers: tuple[int, int],
    options: TuneOptions,
) -> list[dict[str, float]]:
    """Train the index branch in place until the time is over; return the log.

    Args:
        network: target, on its device.
        next_rows: gives [batch, length + 1] ids.
        markers: ids that begin and end a turn.
        options: settings.
    """
    chosen = index_parameters(network)
    network.requires_grad_(False)
    for parameter in chosen.values():
        parameter.requires_grad_(True)
    for block in network.blocks:
        block.attention.is_rounded = True
    matrices = [parameter for parameter in chosen.values() if parameter.ndim > 1]
    vectors = [parameter for parameter in chosen.values() if parameter.ndim == 1]
    rates = (options.matrix_rate, options.norm_rate)
    groups = [{"params": part, "full": rate} for part, rate in zip((matrices, vectors), rates, strict=True)]
    adam = torch.optim.AdamW(groups, lr=options.matrix_rate, betas=(0.9, 0.98), weight_decay=0.0)
    device = network.embed.device
    source = torch.Generator(device=device).manual_seed(SEED)
    log: list[dict[str, float]] = []
    began, last, step = time.monotonic(), -1e9, 0
    while (elapsed := time.monotonic() - began) < options.seconds and step < options.most_steps:
        tokens = next_rows(options.batch)[:, :-1]
        queries = draw_queries(tokens, *markers, options.num_queries, source)
        values = lesson_step(network, tokens, queries, options)
        nn.utils.clip_grad_norm_(list(chosen.values()), 1.0)
        for group in adam.param_groups:
            group["lr"] = group["full"] * rate_factor(step, max(elapsed / options.seconds, step / options.most_steps))
        adam.step()
        adam.zero_grad()
        step += 1
        if elapsed - last > LOG_EVERY_S or step == options.most_steps:
            names = ("index_loss", "missed", "needlessly_missed")
            row = {"step": step, "seconds": round(elapsed, 1)}
            row |= {name: round(float(value), 5) for name, value in zip(names, values, strict=True)}
            log.append(row)
            last = elapsed
            if len(log) % 5 == 1:
                print(row, flush=True)
        elif step % 4 == 0 and device.type == "cuda":
            torch.cuda.synchronize()  # the clock must not run ahead of the work
    network.requires_grad_(False)
    for block in network.blocks:
        block.attention.is_rounded = False
    return log


def save_index(network: Network, source: Path, target: Path) -> None:
    """Write the files of `source` to `target` with the index branch of the network; other tensors keep their bytes."""
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.is_file() and path.name != WEIGHTS_FILE:
            shutil.copyfile(path, target / path.name)
    stored = load_file(source / WEIGHTS_FILE)
    for name, view in target_views(network).items():
        if INDEX not in name:
            continue
        if name + SCALE_SUFFIX in stored:
            values, codes = quantise(view.detach())
            stored[name], stored[name + SCALE_SUFFIX] = values.cpu().contiguous(), codes.cpu().contiguous()
        else:
            stored[name] = view.detach().to("cpu", stored[name].dtype).contiguous()
    save_file(stored, target / WEIGHTS_FILE, metadata={"format": "pt"})


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_folder", type=Path)
    parser.add_argument("checkpoint_folder", type=Path)
    parser.add_argument("output_folder", type=Path)
    parser.add_argument("--tokenizer-folder", type=Path, default=Path("src/slipstream/demo/checkpoint"))
    parser.add_argument("--seconds", type=float, default=120.0, help="for training alone")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--num-queries", type=int, default=256, help="positions of a row that teach")
    parser.add_argument("--fact-share", type=float, default=0.75, help="of the rows; the rest is the general mix")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--margin-weight", type=float, default=3.0, help="see block_loss")
    parser.add_argument("--samples", type=int, default=256, help="needles of each length")
    parser.add_argument("--selections", nargs="+", default=list(quick_figures.SELECTIONS))
    parser.add_argument("--skip-before", action="store_true", help="measure needles after training only")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--num-chats", type=int, default=1500, help="teacher chats of each worker")
    parser.add_argument("--num-facts", type=int, default=1500, help="texts with facts of each worker")
    return parser.parse_args()


def main() -> None:
    """Make text, measure, train, write, measure."""
    args = parse()
    began = time.monotonic()
    orders = [
        TextOrder(args.data_folder, args.tokenizer_folder, part, args.workers, args.num_chats, args.num_facts)
        for part in range(args.workers)
    ]
    general, facts = gather_texts(orders)
    print(f"[{time.monotonic() - began:.0f} s] {len(general.stream):,} + {len(facts.stream):,} tokens", flush=True)
    on_gpu = torch.cuda.is_available()
    device, dtype = torch.device("cuda" if on_gpu else "cpu"), torch.bfloat16 if on_gpu else torch.float32
    options = TuneOptions(
        args.seconds,
        batch=args.batch,
        num_queries=args.num_queries,
        fact_share=args.fact_share,
        matrix_rate=args.rate,
        norm_rate=2 * args.rate,
        margin_weight=args.margin_weight,
        dtype=dtype,
    )
    tokenizer = load_tokenizer(args.tokenizer_folder)
    network = load_target(args.checkpoint_folder).to(device)
    rows = [Rows(part, to_device(part, device), options.length, SEED, is_whole=True) for part in (general, facts)]
    results: dict[str, Any] = {"torch": torch.__version__, "samples": args.samples}

    def note(name: str, value: Any) -> None:
        results[name] = value
        args.output_folder.mkdir(parents=True, exist_ok=True)
        (args.output_folder / "tune_results.json").write_text(json.dumps(results, indent=1) + "\n")
        print(f"[{time.monotonic() - began:.0f} s] {name}: {json.dumps(value)}", flush=True)

    def measure(name: str, measured: Network) -> None:
        if args.samples:
            found = quick_figures.needles(
                measured, args.data_folder, tokenizer, dtype, args.samples, tuple(args.selections)
            )
            note(name, found)

    if not args.skip_before:
        measure("needles_before", network)
    markers = (tokenizer.token_to_id(TURN_START), tokenizer.token_to_id(TURN_END))
    log = tune(network, MixedRows(*rows, needle_share=options.fact_share).next, markers, options)
    note("training", {"steps": log[-1]["step"], "rows": options.batch, "first": log[0], "last": log[-1]})
    save_index(network, args.checkpoint_folder, args.output_folder / "checkpoint")
    lines = [",".join(log[0])] + [",".join(map(str, row.values())) for row in log]
    (args.output_folder / "tune_loss.csv").write_text("\n".join(lines) + "\n")
    measure("needles_after", load_target(args.output_folder / "checkpoint").to(device))
    print(f"all done after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
