"""Train target and head in one time-boxed run and write everything to an output folder.

    python run_all.py DATA_FOLDER CHECKPOINT_FOLDER OUTPUT_FOLDER --total-s 555
    python run_all.py DATA_FOLDER CHECKPOINT_FOLDER OUTPUT_FOLDER --trial          (small sizes, for a CPU)

CHECKPOINT_FOLDER holds tokenizer.json. `--only-head FOLDER` trains the head beside the target of FOLDER.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from chat_format import THINK_CLOSE, THINK_OPEN
from checkpoint import load_draft, load_target, save_draft, save_target
from dataset import Part, PartsInProgress, heldout_part
from decoding import write
from generators import json_extraction, recall, small_talk, word_problems
from generators.task import Task
from geometry import FULL, TINY, draft_geometry
from network import Network
from prompts import held_out_tasks
from simulate_acceptance import by_domain, prompt_ids, report, simulate
from tokenizer import load_tokenizer, special_ids
from train_base import FULL_PHASES, TINY_PHASES, BaseTrainer, Rows, TrainOptions
from train_eagle3 import DraftOptions, DraftTrainer, frequent_ids, write_texts

SEED = 20
SAMPLES_FILE = "samples.txt"


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_folder", type=Path)
    parser.add_argument("checkpoint_folder", type=Path)
    parser.add_argument("output_folder", type=Path)
    parser.add_argument("--total-s", type=float, default=560.0, help="seconds after which everything is written")
    parser.add_argument("--sample-s", type=float, default=30.0, help="of them for the text the target writes")
    parser.add_argument("--head-s", type=float, default=115.0, help="of them for the head")
    parser.add_argument("--closing-s", type=float, default=32.0, help="of them for evaluation and writing")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--limit", type=int, help="most teacher chats for each worker")
    parser.add_argument("--num-prompts", type=int, default=160_000)
    parser.add_argument("--work-folder", type=Path, default=Path("build/demo"))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--only-head", type=Path)
    parser.add_argument("--trial", action="store_true")
    return parser.parse_args()


def left(options: argparse.Namespace, began: float) -> float:
    """Return the seconds of the whole budget that are left."""
    return options.total_s - (time.monotonic() - began)


def train_base(options: argparse.Namespace, part: Part, trainer: BaseTrainer, budget_s: float) -> dict[str, Any]:
    """Train the target, evaluate and save it."""
    trainer.options = replace(trainer.options, budget_s=budget_s)
    if options.resume:
        trainer.resume()
    trainer.train(part)
    trainer.write_log(options.output_folder / "base_loss.csv")
    ids = special_ids(load_tokenizer(options.checkpoint_folder))
    save_target(trainer.network, options.output_folder / "checkpoint", ids)
    held_out = heldout_part(options.data_folder, options.checkpoint_folder, 400 if options.trial else 4000)
    length = trainer.options.phases[-1].length
    result = {
        "steps": trainer.step,
        "tokens": trainer.num_tokens,
        "seconds": round(trainer.elapsed_s, 1),
        "unseen_mix": trainer.evaluate(part, length, 4 if options.trial else 16, 2, whole=False),
        "held_out_chat": trainer.evaluate(held_out, length // 4, 4 if options.trial else 32, 4, whole=True),
        "bias_spread": [round(block.mlp.bias.std().item(), 4) for block in trainer.network.blocks if block.mlp.sparse],
    }
    print("base result:", result, flush=True)
    return result


def train_head(
    options: argparse.Namespace,
    draft_options: DraftOptions,
    network: Network,
    prompts: list[list[int]],
    part: Part | None,
    began: float,
) -> dict[str, Any]:
    """Let the target write, train the head on that, and save it."""
    device = network.embed.device
    tokenizer = load_tokenizer(options.checkpoint_folder)
    ids = special_ids(tokenizer)
    shape = draft_geometry(network.shape)
    written = write_texts(network, prompts, ids["eos"], draft_options)
    always = [ids["eos"], *(tokenizer.token_to_id(marker) for marker in (THINK_OPEN, THINK_CLOSE))]
    kept = frequent_ids(written, shape, always)
    budget = min(draft_options.train_budget_s, left(options, began) - options.closing_s)
    trainer = DraftTrainer(network, shape, kept, replace(draft_options, train_budget_s=max(5.0, budget)))
    long_rows = None
    if part is not None:
        stream = torch.from_numpy(part.stream.astype("int16")).to(device)
        long_rows = Rows(part, stream, draft_options.long_length - 1, 9, evaluation=False).next
    trainer.train(written, long_rows)
    save_draft(trainer.draft, options.output_folder / "eagle3", ids)
    lines = [",".join(trainer.log[0])] + [",".join(map(str, row.values())) for row in trainer.log]
    (options.output_folder / "head_loss.csv").write_text("\n".join(lines) + "\n")
    return {"steps": trainer.num_steps, "texts": len(written.tokens), "last": trainer.log[-1]}


def score_tasks(network: Network, tokenizer: Any, eos: int, dtype: torch.dtype, count: int) -> dict[str, float]:
    """Return the share of right greedy answers by kind of task, for seen and for held-out templates."""
    rng = random.Random(77)
    sets: dict[str, list[Task]] = {
        "word_problems thinking": [word_problems.make(rng, thinking=True) for _ in range(count)],
        "word_problems direct": [word_problems.make(rng, thinking=False) for _ in range(count)],
        "word_problems held-out templates": [word_problems.make(rng, held_out=True) for _ in range(count)],
        "json": [json_extraction.make(rng) for _ in range(count)],
        "json held-out templates": [json_extraction.make(rng, held_out=True) for _ in range(count)],
        "recall short": [recall.find_fact(rng, ["The sun is warm."], 2) for _ in range(count)],
        "small_talk name": [small_talk.remember_name(rng) for _ in range(count)],
    }
    scores = {}
    for name, tasks in sets.items():
        prompts = [tokenizer.encode(task.prompt_text(), add_special_tokens=False).ids for task in tasks]
        texts = write(network, prompts, 64, eos, dtype=dtype)
        right = 0
        for task, text in zip(tasks, texts, strict=True):
            reply = tokenizer.decode(text, skip_special_tokens=True).rpartition(THINK_CLOSE)[2]
            if task.domain == "word_problems":
                right += re.findall(r"\d+", reply)[-1:] == [task.expected]
            else:
                right += task.expected in reply
        scores[name] = round(right / count, 3)
    return scores


def closing(
    options: argparse.Namespace, network: Network, dtype: torch.dtype, results: dict[str, Any], began: float
) -> None:
    """Score tasks, measure acceptance on held-out prompts, and print samples."""
    folder = options.output_folder
    tokenizer = load_tokenizer(options.checkpoint_folder)
    eos = special_ids(tokenizer)["eos"]
    results["tasks"] = score_tasks(network, tokenizer, eos, dtype, 8 if options.trial else 200)
    print("tasks:", results["tasks"], flush=True)
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    draft = load_draft(folder / "eagle3", network).to(network.embed.device)
    rows = [task.prompt_row() for task in held_out_tasks(options.data_folder, 11)]
    if options.trial:
        rows = rows[::6]
    tallies, texts = simulate(network, draft, prompt_ids(tokenizer, rows), eos, max_new=64, dtype=dtype, batch=64)
    sums = by_domain(rows, tallies)
    print(report(sums), flush=True)
    results["acceptance"] = {name: round(tally.acceptance_length, 3) for name, tally in sums.items()}
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    samples = [
        f"[{row['domain']}, {row['thinking_mode']}]\n{row['messages'][-1]['content']}\n-> "
        + tokenizer.decode(text, skip_special_tokens=True)
        for row, text in zip(rows, texts, strict=True)
    ]
    (folder / SAMPLES_FILE).write_text("\n\n".join(samples) + "\n", encoding="utf-8")
    print("\n\n".join(samples[::4]))


def main() -> None:
    """Run everything."""
    began = time.monotonic()
    options = parse()
    options.output_folder.mkdir(parents=True, exist_ok=True)
    draft_options = DraftOptions(options.sample_s, options.head_s, SEED, torch.float32)
    if options.trial:
        draft_options = replace(
            draft_options, sample_batch=32, max_new=24, tokens_per_step=1024, long_batch=4, long_length=128, num_steps=3
        )
    in_progress = PartsInProgress(
        options.data_folder,
        options.checkpoint_folder,
        SEED,
        options.workers,
        options.limit,
        options.num_prompts,
        draft_options.max_prompt,
    )
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    dtype = torch.bfloat16 if on_gpu else torch.float32
    is_compiled = on_gpu and not options.no_compile
    draft_options = replace(draft_options, dtype=dtype)
    phases = TINY_PHASES if options.trial else FULL_PHASES
    train_options = TrainOptions(1.0, phases, options.work_folder, SEED, dtype, is_compiled)
    results: dict[str, Any] = {"torch": torch.__version__}
    checkpoint = options.only_head or options.output_folder / "checkpoint"
    if options.only_head is None:
        trainer = BaseTrainer(TINY if options.trial else FULL, device, train_options)
        num_parameters = sum(parameter.numel() for parameter in trainer.network.parameters())
        print(f"parameters: {num_parameters:,}", flush=True)
        trainer.warm_up()
        part, prompts = in_progress.collect()
        budget = left(options, began) - options.sample_s - options.head_s - options.closing_s
        results["base"] = train_base(options, part, trainer, budget)
        del trainer
    else:
        part, prompts = in_progress.collect()
    network = load_target(checkpoint).to(device)
    results["head"] = train_head(options, draft_options, network, prompts, part, began)
    print("head result:", results["head"], flush=True)
    closing(options, network, dtype, results, began)
    if on_gpu:
        print(f"most memory: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    print(f"all done after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
