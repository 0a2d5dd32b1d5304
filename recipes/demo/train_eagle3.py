"""Train the EAGLE-3 head on text that the target writes itself.

The target answers training prompts (greedy, and drawn at two temperatures). The head is then unrolled for several
steps on those texts, with the target's own next-token distributions as the goal. A share of the steps uses long rows
of the training mix, so that the head also sees long contexts.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from decoding import read, write
from draft_network import DraftNetwork
from geometry import DraftGeometry
from network import Network
from torch import Tensor

STEP_WEIGHT = 0.8
PEAK_RATE = 2e-3
WARM_UP_STEPS = 50
LONG_SHARE = 0.2
LOG_EVERY = 20
TEMPERATURES = (0.0, 0.7, 1.0)


@dataclass(frozen=True)
class DraftOptions:
    """Settings of the head's training; lengths in tokens, batches in sequences."""

    sample_budget_s: float
    train_budget_s: float
    seed: int
    dtype: torch.dtype
    sample_batch: int = 12_288
    max_prompt: int = 96
    max_new: int = 128
    tokens_per_step: int = 57_344
    long_batch: int = 32
    long_length: int = 1024
    num_steps: int = 5


@dataclass(frozen=True)
class SelfText:
    """Texts that the target wrote.

    Args:
        tokens: [num_texts, length] int16, padded with 0.
        first: [num_texts] position of the first written token.
        last: [num_texts] position after the last written token.
    """

    tokens: Tensor
    first: Tensor
    last: Tensor


def write_texts(network: Network, prompts: list[list[int]], eos: int, options: DraftOptions) -> SelfText:
    """Let the target answer prompts until the time budget is spent; temperatures take turns."""
    began = time.monotonic()
    length = options.max_prompt + options.max_new
    source = torch.Generator(device=network.embed.device).manual_seed(options.seed)
    whole: list[list[int]] = []
    first: list[int] = []
    for turn, start in enumerate(range(0, len(prompts), options.sample_batch)):
        if turn and time.monotonic() - began > options.sample_budget_s:
            break
        batch = prompts[start : start + options.sample_batch]
        temperature = TEMPERATURES[turn % len(TEMPERATURES)]
        texts = write(network, batch, options.max_new, eos, temperature, source, options.dtype)
        first += [len(prompt) for prompt in batch]
        whole += [prompt + text for prompt, text in zip(batch, texts, strict=True)]
    table = np.zeros((len(whole), length), dtype=np.int16)
    for row, ids in enumerate(whole):
        table[row, : len(ids)] = ids
    device = network.embed.device
    last = torch.tensor([len(ids) for ids in whole], device=device)
    written = SelfText(torch.from_numpy(table).to(device), torch.tensor(first, device=device), last)
    num_new = int((written.last - written.first).sum())
    print(f"self-written: {len(whole):,} texts, {num_new:,} tokens, {time.monotonic() - began:.1f} s", flush=True)
    return written


class SimilarLengths:
    """Batches of texts of about one length, so that little is padding."""

    def __init__(self, written: SelfText, tokens_per_step: int, seed: int) -> None:
        order = written.last.argsort()
        self.tokens, self.first, self.last = (x[order] for x in (written.tokens, written.first, written.last))
        self.lengths = self.last.tolist()
        self.tokens_per_step = tokens_per_step
        self.rng = random.Random(seed)
        self.reach = list(itertools.accumulate(self.lengths))

    def next(self) -> tuple[Tensor, Tensor]:
        """Return [batch, length] ids, and bool where a token was written by the target."""
        longest = self.rng.choices(range(len(self.lengths)), cum_weights=self.reach)[0]
        length = self.lengths[longest]
        chosen = slice(max(0, longest + 1 - self.tokens_per_step // length), longest + 1)
        tokens = self.tokens[chosen, :length].long()
        positions = torch.arange(length, device=tokens.device)
        wanted = (positions >= self.first[chosen, None]) & (positions < self.last[chosen, None])
        return tokens, wanted


def frequent_ids(written: SelfText, shape: DraftGeometry, always: list[int]) -> Tensor:
    """Return the ids that the target writes most often, ascending; `always` are kept in any case."""
    positions = torch.arange(written.tokens.shape[1], device=written.tokens.device)
    inside = (positions >= written.first[:, None]) & (positions < written.last[:, None])
    counts = torch.bincount(written.tokens[inside].long(), minlength=shape.target.vocab_size)
    counts[torch.tensor(always, device=counts.device)] = counts.sum() + 1
    return counts.argsort(descending=True, stable=True)[: shape.draft_vocab_size].sort()[0]


def step_loss(logits: Tensor, goal: Tensor, weight: Tensor) -> Tensor:
    """Return the cross-entropy to a distribution, averaged with weights.

    Args:
        logits: [batch, rows, draft_vocab].
        goal: [batch, rows, draft_vocab] probabilities.
        weight: [batch, rows] float.
    """
    loss = -(goal.float() * logits.float().log_softmax(-1)).sum(-1)
    return (loss * weight).sum() / weight.sum().clamp_min(1.0)


def shift(x: Tensor, by: int) -> Tensor:
    """Move axis 1 towards the front by `by`, filling with zeros."""
    if by == 0:
        return x
    return torch.cat([x[:, by:], torch.zeros_like(x[:, :by])], dim=1)


class DraftTrainer:
    """Trains one head beside a frozen target."""

    def __init__(self, network: Network, shape: DraftGeometry, kept: Tensor, options: DraftOptions) -> None:
        torch.manual_seed(options.seed)
        self.network, self.options = network, options
        self.draft = DraftNetwork(shape).to(network.embed.device)
        self.draft.set_vocabulary(kept)
        fused = network.embed.device.type == "cuda"
        self.optimiser = torch.optim.AdamW(
            self.draft.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.01, fused=fused
        )
        self.log: list[dict[str, float]] = []
        self.num_steps = 0

    @torch.no_grad()
    def goals(self, tokens: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """Return taps, the target's distributions over the kept ids, and where its favourite is kept."""
        hidden, taps = read(self.network, tokens, self.draft.shape.taps, self.options.dtype)
        logits = self.network.logits(hidden)
        is_kept = self.draft.t2d[logits.argmax(-1)]
        goal = logits[..., self.draft.kept_ids()].float().softmax(-1).to(self.options.dtype)
        return taps, goal, is_kept

    def loss(self, tokens: Tensor, wanted: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Unroll the head over sequences.

        Args:
            tokens: [batch, length] ids.
            wanted: [batch, length] bool; true where a token is worth predicting.

        Returns:
            The weighted loss, and per step the share of positions whose favourite agrees with the target's.
        """
        taps, goal, is_kept = self.goals(tokens)
        usable = (is_kept[:, :-1] & wanted[:, 1:]).float()  # position p: is its prediction of p + 1 wanted
        rows = tokens.shape[1] - 1
        total = torch.zeros((), device=tokens.device)
        agreement = []
        steps = self.draft.unroll(
            self.network.embed,
            [tap[:, :-1] for tap in taps],
            self.options.num_steps,
            lambda step, _: shift(tokens, step + 1)[:, :rows],
        )
        for step, logits in enumerate(steps):
            step_goal = shift(goal, step + 1)[:, :rows]
            weight = shift(torch.nn.functional.pad(usable, (0, 1)), step + 1)[:, :rows]
            total = total + STEP_WEIGHT**step * step_loss(logits, step_goal, weight)
            with torch.no_grad():
                same = (logits.argmax(-1) == step_goal.argmax(-1)).float()
                agreement.append((same * weight).sum() / weight.sum().clamp_min(1.0))
        return total, agreement

    def rate(self, step: int, progress: float) -> float:
        """Return the learning rate: warm-up, then a cosine to zero."""
        return PEAK_RATE * min(1.0, (step + 1) / WARM_UP_STEPS) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))

    def train(self, written: SelfText, long_rows: Callable[[int], Tensor] | None) -> None:
        """Train until the budget is spent."""
        options, device = self.options, written.tokens.device
        batches = SimilarLengths(written, options.tokens_per_step, options.seed)
        rng = random.Random(options.seed)
        began = time.monotonic()
        progress = 0.0
        while progress < 1.0:
            if long_rows is not None and rng.random() < LONG_SHARE:
                tokens = long_rows(options.long_batch)
                wanted = torch.ones_like(tokens, dtype=torch.bool)
            else:
                tokens, wanted = batches.next()
            loss, agreement = self.loss(tokens, wanted)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.draft.parameters(), 1.0)
            for group in self.optimiser.param_groups:
                group["lr"] = self.rate(self.num_steps, progress)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            self.num_steps += 1
            if self.num_steps % LOG_EVERY == 0 or device.type == "cpu":
                values = [round(value.item(), 4) for value in agreement]
                progress = (time.monotonic() - began) / options.train_budget_s
                row = {"step": self.num_steps, "seconds": round(time.monotonic() - began, 1)}
                row |= {"loss": round(loss.item(), 4)}
                row |= {f"agreement_{step + 1}": value for step, value in enumerate(values)}
                self.log.append(row)
                if self.num_steps % (LOG_EVERY * 5) == 0:
                    print(row, flush=True)
        print(f"head: {self.num_steps} steps, {time.monotonic() - began:.0f} s", flush=True)
