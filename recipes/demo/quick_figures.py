"""Quick figures of a target for the log of a training run: loss by domain, right answers, needles by selection.

The engine's own evaluation is the one to quote; this one needs no engine and takes seconds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from chat_format import THINK_CLOSE, render
from corpus import read_chats, split_sentences
from decoding import write
from generators import json_extraction, needle, recall, small_talk, stories, word_problems
from generators.task import Task, assistant, user
from network import Network
from torch import Tensor
from torch.nn import functional

NEEDLE_TOKENS = (256, 512, 1024, 1800)
SELECTIONS = ("full", "learned", "random", "local")
BATCH = 32
SEED = 77


def padded(rows: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return [batch, length] ids filled up with zeros to whole blocks of 16, and where they are real."""
    length = -(-max(map(len, rows)) // 16) * 16
    tokens = torch.tensor([row + [0] * (length - len(row)) for row in rows], device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return tokens, torch.arange(length, device=device) < lengths[:, None]


@torch.no_grad()
def text_loss(network: Network, texts: list[list[int]], dtype: torch.dtype, select: bool = True) -> float:
    """Return the mean loss in nats a token over whole texts."""
    total, count = 0.0, 0
    texts = sorted(texts, key=len)
    for start in range(0, len(texts), BATCH):
        tokens, is_real = padded(texts[start : start + BATCH], network.embed.device)
        rows = torch.zeros(1, dtype=torch.int64, device=tokens.device)
        logits = network.logits(network(tokens, rows, select, dtype)[0])[:, :-1]
        losses = functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="none")
        total += losses[is_real[:, 1:].flatten()].sum().item()
        count += int(is_real[:, 1:].sum())
    return round(total / count, 4)


def domain_texts(data_folder: Path, tokenizer: Any, count: int) -> tuple[dict[str, list[list[int]]], list[str]]:
    """Return the token ids of fresh texts by domain, and held-out sentences."""
    rng = random.Random(SEED)
    chats: list[tuple[str, str]] = []
    for chat in read_chats(data_folder, "heldout", 0, 3):
        chats.append(chat)
        if len(chats) >= 2000:
            break
    fillers = [sentence for _, reply in chats for sentence in split_sentences(reply)]
    makers: dict[str, Callable[[], Task]] = {
        "word_problems": lambda: word_problems.make(rng),
        "small_talk": lambda: small_talk.make(rng),
        "json": lambda: json_extraction.make(rng),
        "recall": lambda: recall.make(rng, fillers),
        "stories": lambda: stories.make(rng),
        "needle": lambda: needle.make(rng, fillers),
    }
    texts = {name: [make().document() for _ in range(count)] for name, make in makers.items()}
    texts["chat"] = [render([user(question), assistant(reply)]) for question, reply in rng.sample(chats, count)]
    ids = {
        name: [encoding.ids for encoding in tokenizer.encode_batch_fast(group, add_special_tokens=False)]
        for name, group in texts.items()
    }
    return ids, fillers


@contextmanager
def without_bias(network: Network) -> Iterator[None]:
    """Leave the experts' selection bias out."""
    layers = [block.mlp for block in network.blocks if block.mlp.sparse]
    kept = [mlp.bias.clone() for mlp in layers]
    for mlp in layers:
        mlp.bias.zero_()
    yield
    for mlp, bias in zip(layers, kept, strict=True):
        mlp.bias.copy_(bias)


def losses(
    network: Network, data_folder: Path, tokenizer: Any, dtype: torch.dtype, count: int
) -> dict[str, dict[str, float]]:
    """Return the loss by domain: as the engine runs it, with full attention, and without the selection bias."""
    texts, _ = domain_texts(data_folder, tokenizer, count)
    found: dict[str, dict[str, float]] = {}
    for name, group in texts.items():
        found[name] = {
            "selected": text_loss(network, group, dtype),
            "full": text_loss(network, group, dtype, select=False),
        }
        with without_bias(network):
            found[name]["no_bias"] = text_loss(network, group, dtype)
    return found


@torch.no_grad()
def needle_share(
    network: Network, tokenizer: Any, tasks: list[Task], selection: str, dtype: torch.dtype, batch: int = 32
) -> float:
    """Return the share of needles whose whole value is the model's first choice, token by token."""
    network.set_selection("learned" if selection == "full" else selection)
    right = 0
    for start in range(0, len(tasks), batch):
        whole, heads = [], []
        for task in tasks[start : start + batch]:
            reply = task.messages[-1]["content"]
            whole.append(task.prompt_text() + reply)
            heads.append((task.prompt_text() + reply.rpartition(task.expected)[0]).rstrip())
        rows, prompts = (
            [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
            for texts in (whole, heads)
        )
        tokens, is_real = padded(rows, network.embed.device)
        at = torch.zeros(1, dtype=torch.int64, device=tokens.device)
        hidden = network(tokens, at, selection != "full", dtype)[0]
        same = network.logits(hidden).argmax(-1)[:, :-1] == tokens[:, 1:]
        begins = torch.tensor([len(prompt) for prompt in prompts], device=tokens.device)
        positions = torch.arange(1, tokens.shape[1], device=tokens.device)
        right += int((same | (positions < begins[:, None]) | ~is_real[:, 1:]).all(-1).sum())
    network.set_selection("learned")
    return round(right / len(tasks), 3)


def needles(
    network: Network,
    data_folder: Path,
    tokenizer: Any,
    dtype: torch.dtype,
    count: int,
    selections: tuple[str, ...] = SELECTIONS,
) -> dict[str, dict[str, float]]:
    """Return the share of right needles by length, under each way to choose blocks, from `count` needles a length."""
    rng = random.Random(SEED)
    _, fillers = domain_texts(data_folder, tokenizer, 1)
    found = {}
    for length in NEEDLE_TOKENS:
        tasks = [needle.make(rng, fillers, length, index / count, 4) for index in range(count)]
        found[str(length)] = {name: needle_share(network, tokenizer, tasks, name, dtype) for name in selections}
    return found


def right_answers(network: Network, tokenizer: Any, eos: int, dtype: torch.dtype, count: int) -> dict[str, float]:
    """Return the share of right greedy answers by kind of task, for seen and for held-out templates."""
    rng = random.Random(SEED)
    sets: dict[str, list[Task]] = {
        "word_problems thinking": [word_problems.make(rng, thinking=True) for _ in range(count)],
        "word_problems direct": [word_problems.make(rng, thinking=False) for _ in range(count)],
        "word_problems held-out templates, thinking": [word_problems.make(rng, True, True) for _ in range(count)],
        "word_problems held-out templates, direct": [word_problems.make(rng, True, False) for _ in range(count)],
        "json": [json_extraction.make(rng) for _ in range(count)],
        "json held-out templates": [json_extraction.make(rng, held_out=True) for _ in range(count)],
        "recall short": [recall.find_fact(rng, ["The sun is warm."], 2) for _ in range(count)],
        "small_talk name": [small_talk.remember_name(rng) for _ in range(count)],
        "stories read": [stories.read(rng) for _ in range(count)],
        "stories read, held-out things": [stories.read(rng, held_out=True) for _ in range(count)],
    }
    scores = {}
    for name, tasks in sets.items():
        prompts = [tokenizer.encode(task.prompt_text(), add_special_tokens=False).ids for task in tasks]
        texts = write(network, prompts, 72, eos, dtype=dtype)
        right = 0
        for task, text in zip(tasks, texts, strict=True):
            reply = tokenizer.decode(text, skip_special_tokens=True).rpartition(THINK_CLOSE)[2]
            if task.domain == "word_problems":
                right += re.findall(r"\d+", reply)[-1:] == [task.expected]
            else:
                right += task.expected in reply
        scores[name] = round(right / count, 3)
    return scores
