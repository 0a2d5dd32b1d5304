"""Measure the shipped files and write the figures and samples that documents quote about them.

    python describe.py recipes/demo/runs/second

Run it in the root of the project after anything in src/slipstream/demo was replaced; it takes about a minute. Writes
RUN/samples.txt and the sums of [shipped] and [acceptance] in RUN/provenance.toml, and replaces what stands between the
markers in the model cards, the project's README and the log. It changes no other word.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from chat_format import CALL_OPEN, NAMESPACE, THINK_CLOSE, THINK_OPEN
from checkpoint import load_draft, load_target
from show_samples import Sample, as_text, draw_samples
from simulate_acceptance import Tally, by_domain, prompt_ids, read_prompts, simulate
from tokenizer import load_tokenizer, special_ids

DEMO = Path("src/slipstream/demo")
SHIPPED = ("checkpoint/model.safetensors", "checkpoint/tokenizer.json", "eagle3/model.safetensors", "prompts.jsonl")
CARD, HEAD_CARD = DEMO / "checkpoint/README.md", DEMO / "eagle3/README.md"
README, LOG = Path("README.md"), Path("docs/log.md")
SHOWN = 330
LABELS = {"word_problems": "word problems", "small_talk": "small talk", "json": "JSON", "needle": "needles"}
TASKS = {
    "word problems, seen templates, with thinking / without": ("word_problems thinking", "word_problems direct"),
    "word problems, held-out templates, last number right, with thinking / without": (
        "word_problems held-out templates, thinking",
        "word_problems held-out templates, direct",
    ),
    "JSON, seen / held-out templates, every field right": ("json", "json held-out templates"),
    "recall of one fact in two sentences": ("recall short",),
    "a question about a story, seen / held-out things": ("stories read", "stories read, held-out things"),
    "a name given earlier in the chat": ("small_talk name",),
}


def replace_block(text: str, name: str, body: str) -> str:
    """Return the text with another body between the markers of a block.

    Raises:
        ValueError: the text does not have that block once.
    """
    pattern = re.compile(rf"(<!-- {re.escape(name)}: [^\n]*-->\n).*?(\n<!-- end of {re.escape(name)} -->)", re.S)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"block {name!r} must stand once between '<!-- {name}: ... -->' and '<!-- end of {name} -->'")
    return pattern.sub(lambda found: f"{found[1]}\n{body}\n{found[2]}", text)


def fill(path: Path, **blocks: str) -> None:
    """Replace blocks of a file."""
    text = path.read_text(encoding="utf-8")
    for name, body in blocks.items():
        text = replace_block(text, name, body)
    path.write_text(text, encoding="utf-8")


def acceptance_table(sums: Mapping[str, Tally]) -> str:
    """Return a table with a row per domain."""
    rows = [
        "| domain | prompts | verify steps | accepted | emitted | acceptance length |",
        "| --- " + "| --: " * 5 + "|",
    ]
    for domain, tally in [*((name, one) for name, one in sums.items() if name != "all"), ("all", sums["all"])]:
        counts = f"{tally.num_prompts} | {tally.num_steps} | {tally.num_accepted} | {tally.num_emitted}"
        rows.append(f"| {LABELS.get(domain, domain)} | {counts} | {tally.acceptance_length:.2f} |")
    return "\n".join(rows)


def percent(share: float) -> str:
    """Return a share as whole percent."""
    return f"{100 * share:.0f} %"


def task_table(results: Mapping[str, Any], sums: Mapping[str, Tally]) -> str:
    """Return the card's table of figures from the run's results."""
    unseen, chat = results["base"]["unseen_mix"], results["base"]["held_out_chat"]
    rows = [
        "| measured on | result |",
        "| --- | --- |",
        f"| loss on unseen rows of the mix, full attention / block selection | {unseen['full']:.3f} / "
        f"{unseen['selected']:.3f} nats a token |",
        f"| loss on held-out chats (nouns never seen) | {chat['full']:.3f} / {chat['selected']:.3f} nats a token |",
    ]
    rows += [
        f"| {label} | {' / '.join(percent(results['tasks'][key]) for key in keys)} |" for label, keys in TASKS.items()
    ]
    rows.append(
        "| acceptance length of its EAGLE-3 head, 3 drafts, greedy, "
        f"{sums['all'].num_prompts} held-out prompts, 96 tokens, float32 | {sums['all'].acceptance_length:.2f} |"
    )
    return "\n".join(rows)


def needle_block(run: Path) -> str:
    """Return the share of found facts by length and selection of blocks, after tuning if the run has that."""
    found = json.loads((run / "results.json").read_text(encoding="utf-8"))["needles"]
    said = "64 needles of each length, in bfloat16 at the end of the run:"
    if (run / "tune_results.json").is_file():
        tuned = json.loads((run / "tune_results.json").read_text(encoding="utf-8"))
        found = tuned["needles_after"]
        said = (
            f"{tuned['samples']} needles of each length, after `recipes/demo/tune_index.py` taught the\n"
            "index branch further. Losses and tasks above are from before that; up to 128 tokens it changes nothing:"
        )
    names = list(next(iter(found.values())))
    rows = [f"| tokens | {' | '.join(names)} |", "| --: " * (len(names) + 1) + "|"]
    rows += [f"| {length} | {' | '.join(percent(row[name]) for name in names)} |" for length, row in found.items()]
    return said + "\n\n" + "\n".join(rows)


def cell(text: str) -> str:
    """Return text for one cell of a table: its end if it is long, on one line."""
    flat = re.sub(r"\s*\n\s*", " ⏎ ", text.strip())
    shown = flat if len(flat) <= SHOWN else f"… {flat[-SHOWN:].partition(' ')[2]}"
    return re.sub(r"([|*<])", r"\\\1", shown)


def asked_cell(sample: Sample) -> str:
    """Return what was asked: the last question alone of a long text, every turn otherwise."""
    if sample.num_tokens > SHOWN:
        return f"*{sample.num_tokens} tokens of stories and facts, then:* " + cell(
            sample.messages[-1]["content"].rpartition("\n")[2]
        )
    if len(sample.messages) == 1:
        return cell(sample.messages[0]["content"])
    return cell(" / ".join(turn["content"] for turn in sample.messages))


def answered_cell(sample: Sample) -> str:
    """Return the answer, with thinking in italics and a call in its own syntax."""
    thinking, closed, answer = sample.answer.rpartition(THINK_CLOSE)
    if CALL_OPEN in answer:
        return f"`{answer.replace(NAMESPACE, '')}` (markers left out)"
    thinking = thinking.removeprefix(THINK_OPEN)
    return f"*{cell(thinking)}* {cell(answer)}" if closed and thinking else cell(answer)


def sample_table(samples: list[Sample]) -> str:
    """Return a row for each of the fixed prompts."""
    rows = ["| asked | answered |", "| --- | --- |"]
    return "\n".join(rows + [f"| {asked_cell(one)} | {answered_cell(one)} |" for one in samples])


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the run that is shipped")
    run = parser.parse_args().run
    torch.set_num_threads(1)
    network = load_target(DEMO / "checkpoint")
    draft = load_draft(DEMO / "eagle3", network)
    tokenizer = load_tokenizer(DEMO / "checkpoint")
    eos = special_ids(tokenizer)["eos"]
    samples = draw_samples(network, tokenizer)
    rows = read_prompts(DEMO / "prompts.jsonl")
    sums = by_domain(rows, simulate(network, draft, prompt_ids(tokenizer, rows), eos)[0])
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))

    (run / "samples.txt").write_text(as_text(samples), encoding="utf-8")
    hashes = {name: hashlib.sha256((DEMO / name).read_bytes()).hexdigest() for name in SHIPPED}
    fill_provenance(run / "provenance.toml", hashes, sums)
    table = acceptance_table(sums)
    text = f"```text\n{as_text(samples).rstrip()}\n```"
    fill(CARD, figures=task_table(results, sums), needles=needle_block(run), samples=text)
    fill(HEAD_CARD, acceptance=table)
    fill(LOG, acceptance=table)
    fill(README, samples=sample_table(samples))
    print(table)


def fill_provenance(path: Path, hashes: Mapping[str, str], sums: Mapping[str, Tally]) -> None:
    """Write the sums of the shipped files and the acceptance lengths into the run's provenance."""
    shipped = "\n".join(f'"{name}" = "{value}"' for name, value in hashes.items())
    lengths = "\n".join(f"{domain} = {tally.acceptance_length:.3f}" for domain, tally in sums.items())
    text = path.read_text(encoding="utf-8")
    for name, body in (("acceptance", lengths), ("shipped", shipped)):
        pattern = re.compile(rf"(^\[{name}\]\n(?:#[^\n]*\n)*).*?(?=\n\n\[|\Z)", re.S | re.M)
        if not pattern.search(text):
            raise ValueError(f"{path} has no table [{name}]")
        text = pattern.sub(lambda found, body=body: f"{found[1]}{body}", text)
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
