"""Train target and head in one time-boxed run and write everything to an output folder.

    python run_all.py DATA_FOLDER CHECKPOINT_FOLDER OUTPUT_FOLDER --total-s 550
    python run_all.py DATA_FOLDER CHECKPOINT_FOLDER OUTPUT_FOLDER --trial          (small sizes, for a CPU)

CHECKPOINT_FOLDER holds tokenizer.json. The run has stages: mix, base, texts, head, figures. Each leaves its result in
the work folder, and the long ones a state every 45 s; after a cut, or when the time was short, the same command with
`--resume` goes on from there. What is ready is copied to OUTPUT_FOLDER at the end of each stage.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import quick_figures
import torch
from chat_format import THINK_CLOSE, THINK_OPEN
from checkpoint import load_draft, load_target, save_draft, save_target
from dataset import Mix, PartsInProgress, heldout_part
from geometry import FULL, TINY, draft_geometry
from network import Network
from prompts import held_out_tasks
from simulate_acceptance import by_domain, prompt_ids, report, simulate
from tokenizer import load_tokenizer, special_ids
from train_base import FULL_PHASES, TINY_PHASES, BaseTrainer, MixedRows, Rows, TrainOptions, tail, to_device
from train_eagle3 import DraftOptions, DraftTrainer, frequent_ids, load_texts, save_texts, write_texts

SEED = 20
ACCEPTANCE_TIMES = 2
BETWEEN_S = 20.0  # loss of the target, saving, and the target reading its own texts
CSV_FILES = {"base": "base_loss.csv", "head": "head_loss.csv"}
PUBLISHED = (
    "checkpoint/config.json",
    "checkpoint/model.safetensors",
    "eagle3/config.json",
    "eagle3/model.safetensors",
    *CSV_FILES.values(),
    "results.json",
    "samples.txt",
)
PROMPTS_FILE, TEXTS_FILE = "prompts.npz", "texts.pt"


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_folder", type=Path)
    parser.add_argument("checkpoint_folder", type=Path)
    parser.add_argument("output_folder", type=Path)
    parser.add_argument("--total-s", type=float, default=550.0, help="seconds after which this call ends")
    parser.add_argument("--base-s", type=float, help="for the target; default: what the other stages leave")
    parser.add_argument("--sample-s", type=float, default=36.0, help="for the text that the target writes")
    parser.add_argument("--head-s", type=float, default=105.0, help="for the head")
    parser.add_argument("--closing-s", type=float, default=42.0, help="kept for figures and writing")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 4))
    parser.add_argument("--limit", type=int, help="most teacher chats for each worker")
    parser.add_argument("--num-prompts", type=int, default=160_000)
    parser.add_argument("--work-folder", type=Path, default=Path("build/demo"))
    parser.add_argument("--save-every-s", type=float, default=45.0, help="a killed call loses at most so much")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--trial", action="store_true")
    return parser.parse_args()


class Run:
    """One call: its clock, its folders and the results so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.began = options, time.monotonic()
        self.work: Path = options.work_folder
        if not options.resume:
            shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True, exist_ok=True)
        path = self.work / "results.json"
        self.results: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
        self.results["torch"] = torch.__version__

    def left(self) -> float:
        """Return the seconds that are left of this call."""
        return self.options.total_s - (time.monotonic() - self.began)

    def until(self, reserve_s: float) -> float:
        """Return the clock time at which reserve_s seconds are left."""
        return self.began + self.options.total_s - reserve_s

    def note(self, name: str, value: Any) -> None:
        """Keep a result."""
        self.results[name] = value
        part = self.work / "results.part"
        part.write_text(json.dumps(self.results, indent=1) + "\n")
        part.replace(self.work / "results.json")
        self.publish()
        print(f"[{time.monotonic() - self.began:.0f} s] {name}: {json.dumps(value)}", flush=True)

    def write_log(self, stage: str, log: list[dict[str, Any]]) -> None:
        """Write the loss curve of a stage."""
        lines = [",".join(log[0])] + [",".join(map(str, row.values())) for row in log]
        (self.work / CSV_FILES[stage]).write_text("\n".join(lines) + "\n")

    def publish(self) -> None:
        """Copy what is ready to the output folder."""
        for name in PUBLISHED:
            source, target = self.work / name, self.options.output_folder / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)


def save_prompts(prompts: list[list[int]], path: Path) -> None:
    """Write prompts as two arrays: ids one after the other, and lengths."""
    ids = np.concatenate([np.array(prompt, dtype=np.uint16) for prompt in prompts])
    np.savez(path, ids=ids, lengths=np.array([len(prompt) for prompt in prompts]))


def load_prompts(path: Path) -> list[list[int]]:
    """Read prompts back."""
    with np.load(path) as arrays:
        ids, ends = arrays["ids"].tolist(), np.cumsum(arrays["lengths"]).tolist()
    return [ids[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


class Ingredients:
    """The mix and the training prompts: read back, or in the making while the caller compiles."""

    def __init__(self, run: Run, max_prompt: int) -> None:
        self.run, self.in_progress = run, None
        options = run.options
        self.mix = Mix.load(run.work / "mix") if options.resume else None
        self.prompts: list[list[int]] = []
        if self.mix is not None:
            self.prompts = load_prompts(run.work / PROMPTS_FILE)
        else:
            self.in_progress = PartsInProgress(
                options.data_folder,
                options.checkpoint_folder,
                SEED,
                options.workers,
                options.limit,
                options.num_prompts,
                max_prompt,
            )

    def get(self) -> tuple[Mix, list[list[int]]]:
        """Wait for the workers; the files for a later call are written beside what follows."""
        if self.in_progress is not None:
            self.mix, self.prompts = self.in_progress.collect()
            self.in_progress = None
            threading.Thread(target=self.keep).start()
        assert self.mix is not None
        return self.mix, self.prompts

    def keep(self) -> None:
        """Write prompts and mix; the mix last, since a whole one says that both are there."""
        assert self.mix is not None
        save_prompts(self.prompts, self.run.work / PROMPTS_FILE)
        self.mix.save(self.run.work / "mix")


def train_base(run: Run, trainer: BaseTrainer, mix: Mix) -> bool:
    """Train the target, look at its loss and save it; return whether it is done."""
    options, shape = run.options, trainer.network.shape
    reserve = options.sample_s + options.head_s + options.closing_s + BETWEEN_S * (not options.trial)
    sources = trainer.sources(mix)
    if not (options.resume and trainer.resume()):
        trainer.budget_s = options.base_s or max(5.0, run.left() - reserve)
    is_done = trainer.train(sources, run.until(8.0))
    del sources
    run.write_log("base", trainer.log)
    if not is_done:
        return False
    ids = special_ids(load_tokenizer(options.checkpoint_folder))
    held_out = heldout_part(options.data_folder, options.checkpoint_folder, 400 if options.trial else 4000)
    length = trainer.options.phases[-1].length
    save_target(trainer.network, run.work / "checkpoint", ids, is_mxfp8=True)
    biases = [block.mlp.bias for block in trainer.network.blocks if block.mlp.sparse]
    run.note(
        "base",
        {
            "parameters": sum(parameter.numel() for parameter in trainer.network.parameters()),
            "steps": trainer.step,
            "tokens": trainer.num_tokens,
            "seconds": round(trainer.elapsed_s, 1),
            "unique_tokens": [len(mix.short.stream), len(mix.long.stream)],
            "documents": [len(mix.short.starts), len(mix.long.starts)],
            "layers": shape.num_layers,
            "unseen_mix": trainer.evaluate(tail(mix.short), length, 4 if options.trial else 16, 2),
            "held_out_chat": trainer.evaluate(held_out, length // 4, 4 if options.trial else 32, 4),
            "bias_spread": [round(bias.std().item(), 4) for bias in biases],
        },
    )
    return True


def train_head(run: Run, network: Network, ingredients: Ingredients, draft_options: DraftOptions) -> bool:
    """Let the target write, train the head on that, and save it; return whether it is done."""
    options, device = run.options, network.embed.device
    tokenizer = load_tokenizer(options.checkpoint_folder)
    ids = special_ids(tokenizer)
    shape = draft_geometry(network.shape)
    mix, prompts = ingredients.get()
    if not (run.work / TEXTS_FILE).is_file():
        written = write_texts(network, prompts, ids["eos"], draft_options)
        save_texts(written, run.work / TEXTS_FILE)
    written = load_texts(run.work / TEXTS_FILE, device)
    always = [ids["eos"], *(tokenizer.token_to_id(marker) for marker in (THINK_OPEN, THINK_CLOSE))]
    kept = frequent_ids(written, shape, always)
    trainer = DraftTrainer(network, shape, kept, draft_options)
    length = draft_options.long_length - 1
    rows = [Rows(part, to_device(part, device), length, 9) for part in (mix.short, mix.long)]
    own, long = trainer.lessons(written, MixedRows(*rows, needle_share=0.5).next)
    del rows
    if not (options.resume and trainer.resume(run.work)):
        trainer.budget_s = max(5.0, min(options.head_s, run.left() - options.closing_s))
    is_done = trainer.train(own, long, run.work, run.until(6.0))
    run.write_log("head", trainer.log)
    if is_done:
        save_draft(trainer.draft, run.work / "eagle3", ids)
        values = {"steps": trainer.num_steps, "seconds": round(trainer.elapsed_s, 1), "texts": len(written.tokens)}
        values |= {"written_tokens": int((written.last - written.first).sum()), "last": trainer.log[-1]}
        run.note("head", values)
    return is_done


def measure(run: Run, network: Network, dtype: torch.dtype) -> None:
    """Measure acceptance on held-out prompts, print samples, then take the other quick figures."""
    options = run.options
    tokenizer = load_tokenizer(options.checkpoint_folder)
    eos = special_ids(tokenizer)["eos"]
    draft = load_draft(run.work / "eagle3", network).to(network.embed.device)
    rows = [task.prompt_row() for task in held_out_tasks(options.data_folder, 11, ACCEPTANCE_TIMES)]
    rows = rows[::12] if options.trial else rows
    new = 16 if options.trial else 96
    tallies, texts = simulate(network, draft, prompt_ids(tokenizer, rows), eos, max_new=new, dtype=dtype, batch=64)
    sums = by_domain(rows, tallies)
    print(report(sums), flush=True)
    run.note("acceptance", {name: round(tally.acceptance_length, 3) for name, tally in sums.items()})
    samples = [
        f"[{row['domain']}, {row['thinking_mode']}]\n{row['messages'][-1]['content'][-400:]}\n-> "
        + tokenizer.decode(text, skip_special_tokens=True)
        for row, text in zip(rows, texts, strict=True)
    ]
    (run.work / "samples.txt").write_text("\n\n".join(samples) + "\n", encoding="utf-8")
    run.publish()
    count = 4 if options.trial else 128
    run.note("needles", quick_figures.needles(network, options.data_folder, tokenizer, dtype, count // 2))
    run.note("losses", quick_figures.losses(network, options.data_folder, tokenizer, dtype, count))
    run.note("tasks", quick_figures.right_answers(network, tokenizer, eos, dtype, count))
    run.publish()
    if not options.trial:
        print("\n\n".join(samples[::6]))


def main() -> None:
    """Run the stages that are not done."""
    options = parse()
    run = Run(options)
    draft_options = DraftOptions(options.sample_s, SEED, torch.float32, save_every_s=options.save_every_s)
    if options.trial:
        draft_options = replace(
            draft_options,
            sample_batch=16,
            max_new=16,
            tokens_per_step=512,
            long_batch=2,
            long_length=128,
            num_long=2,
            num_steps=3,
        )
    # HAZARD: the workers are forked here, before anything touches a device.
    ingredients = Ingredients(run, draft_options.max_prompt)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    dtype = torch.bfloat16 if on_gpu else torch.float32
    draft_options = replace(draft_options, dtype=dtype)
    if not (run.work / "checkpoint" / "config.json").is_file():
        phases = TINY_PHASES if options.trial else FULL_PHASES
        is_compiled = on_gpu and not options.no_compile
        train_options = TrainOptions(phases, run.work, SEED, dtype, is_compiled, options.save_every_s)
        trainer = BaseTrainer(TINY if options.trial else FULL, device, train_options)
        trainer.warm_up()
        is_done = train_base(run, trainer, ingredients.get()[0])
        run.publish()
        if not is_done:
            print("the base is not done: go on with --resume", flush=True)
            return
        del trainer
    network = load_target(run.work / "checkpoint").to(device)
    if not (run.work / "eagle3" / "config.json").is_file():
        is_done = train_head(run, network, ingredients, draft_options)
        run.publish()
        if not is_done:
            print("the head is not done: go on with --resume", flush=True)
            return
    elif ingredients.in_progress is not None:
        ingredients.get()
    measure(run, network, dtype)
    if on_gpu:
        print(f"most memory: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    print(f"all done after {time.monotonic() - run.began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
