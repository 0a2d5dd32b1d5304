"""Train the EAGLE-3 head on text that the target writes itself.

The target answers training prompts, half of them greedily. The head is then unrolled for several steps on those texts,
with the target's own next-token distributions as the goal. A share of the steps uses long rows of the training mix, so
that the head also sees long contexts. The target reads every text once: its states are kept on the device.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from decoding import read, write
from draft_network import DraftNetwork
from geometry import DraftGeometry
from network import Network
from torch import Tensor

STEP_WEIGHT = 0.8
PEAK_RATE = 2e-3
LEAST_RATE = 0.01
WARM_UP_STEPS = 50
LONG_SHARE = 0.2
LOG_EVERY = 20
TEMPERATURES = (0.0, 0.7, 0.0, 1.0)
STATE_FILE = "head_state.pt"


@dataclass(frozen=True)
class DraftOptions:
    """Settings of the head's training; lengths in tokens, batches in sequences."""

    sample_budget_s: float
    seed: int
    dtype: torch.dtype
    sample_batch: int = 12_288
    max_prompt: int = 96
    max_new: int = 128
    tokens_per_step: int = 57_344
    long_batch: int = 32
    long_length: int = 1024
    num_long: int = 24
    num_steps: int = 4
    save_every_s: float = 45.0


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


def save_texts(written: SelfText, path: Path) -> None:
    """Write the texts, so that a resumed run need not let the target write again."""
    torch.save({name: value.cpu() for name, value in vars(written).items()}, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def load_texts(path: Path, device: torch.device) -> SelfText:
    """Read written texts."""
    return SelfText(**torch.load(path, map_location=device, weights_only=True))


def cut_batches(written: SelfText, tokens_per_step: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Cut the texts into batches of about one length, so that little is padding.

    Returns:
        Per batch [num_texts, length] ids, and bool where a token was written by the target.
    """
    noise = torch.rand(written.last.shape, generator=torch.Generator().manual_seed(seed)).to(written.last.device)
    order = (written.last + 4 * noise).argsort()
    tokens, first, last = (x[order] for x in (written.tokens, written.first, written.last))
    lengths = last.tolist()
    batches = []
    end = len(lengths)
    while end > 0:
        length = max(lengths[max(0, end - 8) : end])
        start = max(0, end - max(1, tokens_per_step // length))
        length = max(lengths[start:end])
        ids = tokens[start:end, :length].long()
        positions = torch.arange(length, device=ids.device)
        batches.append((ids, (positions >= first[start:end, None]) & (positions < last[start:end, None])))
        end = start
    return batches


def frequent_ids(written: SelfText, shape: DraftGeometry, always: list[int]) -> Tensor:
    """Return the ids that the target writes most often, ascending; `always` are kept in any case."""
    positions = torch.arange(written.tokens.shape[1], device=written.tokens.device)
    inside = (positions >= written.first[:, None]) & (positions < written.last[:, None])
    counts = torch.bincount(written.tokens[inside].long(), minlength=shape.target.vocab_size)
    counts[torch.tensor(always, device=counts.device)] = counts.sum() + 1
    return counts.argsort(descending=True, stable=True)[: shape.draft_vocab_size].sort()[0]


@dataclass(frozen=True)
class Lesson:
    """One batch as the target has read it.

    Args:
        tokens: [batch, length] ids.
        taps: states of the target, each [batch, length - 1, hidden].
        hidden: [num_goals, hidden] residual stream before the final norm where a prediction is wanted.
        places: [num_goals] those positions, counted in the flattened [batch, length - 1]; none of the first rows, so
            that the step that many rows earlier lies in the same text.
    """

    tokens: Tensor
    taps: list[Tensor]
    hidden: Tensor
    places: Tensor


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
        self.num_steps, self.elapsed_s, self.budget_s = 0, 0.0, 0.0

    @torch.no_grad()
    def read_lesson(self, tokens: Tensor, wanted: Tensor) -> Lesson:
        """Let the target read a batch; a goal is where the next token is wanted and its favourite can be drafted."""
        hidden, taps = read(self.network, tokens, self.draft.shape.taps, self.options.dtype)
        usable = self.draft.t2d[self.network.logits(hidden).argmax(-1)][:, :-1] & wanted[:, 1:]
        usable[:, : self.options.num_steps] = False
        places = usable.flatten().nonzero().squeeze(1)
        hidden = hidden[:, :-1].flatten(0, 1)[places]
        return Lesson(tokens, [tap[:, :-1].contiguous() for tap in taps], hidden, places)

    def loss(self, lesson: Lesson) -> tuple[Tensor, list[Tensor]]:
        """Unroll the head over a batch.

        Returns:
            The weighted loss, and per step the share of goals whose favourite agrees with the target's.
        """
        draft, tokens = self.draft, lesson.tokens
        with torch.no_grad():
            goal = self.network.logits(lesson.hidden)[:, draft.kept_ids()].float().softmax(-1)
            favourite = goal.argmax(-1)
        rows = tokens.shape[1] - 1

        def entering(step: int, state: Tensor | None) -> Tensor:
            del state
            moved = tokens[:, step + 1 :][:, :rows]
            return torch.nn.functional.pad(moved, (0, rows - moved.shape[1]))

        total = torch.zeros((), device=tokens.device)
        agreement = []
        for step, state in enumerate(draft.unroll(self.network.embed, lesson.taps, self.options.num_steps, entering)):
            logits = draft.lm_head(state.flatten(0, 1)[lesson.places - 1 - step]).float()
            total = total - STEP_WEIGHT**step * (goal * logits.log_softmax(-1)).sum(-1).mean()
            with torch.no_grad():
                agreement.append((logits.argmax(-1) == favourite).float().mean())
        return total, agreement

    def rate(self, step: int, progress: float) -> float:
        """Return the learning rate: warm-up, then a cosine to nearly zero."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
        return PEAK_RATE * min(1.0, (step + 1) / WARM_UP_STEPS) * max(LEAST_RATE, cosine)

    def lessons(
        self, written: SelfText, long_rows: Callable[[int], Tensor] | None
    ) -> tuple[list[Lesson], list[Lesson]]:
        """Let the target read everything: its own texts, and long rows of the mix."""
        options, began = self.options, time.monotonic()
        own = [self.read_lesson(*batch) for batch in cut_batches(written, options.tokens_per_step, options.seed)]
        long = []
        for _ in range(options.num_long if long_rows is not None else 0):
            tokens = long_rows(options.long_batch)
            long.append(self.read_lesson(tokens, torch.ones_like(tokens, dtype=torch.bool)))
        usable = [[lesson for lesson in lessons if lesson.places.numel()] for lessons in (own, long)]
        print(f"target has read {len(own)} + {len(long)} batches, {time.monotonic() - began:.1f} s", flush=True)
        return usable[0], usable[1]

    def train(self, own: list[Lesson], long: list[Lesson], folder: Path, until_s: float) -> bool:
        """Train until the budget is spent, or until the clock (`time.monotonic`) says until_s.

        Args:
            own: texts of the target, as it read them.
            long: long rows, which a share of the steps uses.
            folder: where the state is kept.
            until_s: reading of the clock at which the caller has to stop.

        Returns:
            Whether the whole budget is spent; if not, the state is saved in the folder.
        """
        rng = random.Random(self.options.seed + self.num_steps)
        began = time.monotonic() - self.elapsed_s
        last_save, order = self.elapsed_s, []
        while self.elapsed_s < self.budget_s:
            if long and rng.random() < LONG_SHARE:
                lesson = rng.choice(long)
            else:
                order = order or rng.sample(range(len(own)), len(own))
                lesson = own[order.pop()]
            loss, agreement = self.loss(lesson)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.draft.parameters(), 1.0)
            for group in self.optimiser.param_groups:
                group["lr"] = self.rate(self.num_steps, self.elapsed_s / self.budget_s)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            self.num_steps += 1
            if self.num_steps % LOG_EVERY == 0 or self.network.embed.device.type == "cpu":
                values = [round(value.item(), 4) for value in agreement]
                self.elapsed_s = time.monotonic() - began
                self.record(loss.item(), values)
                is_late = time.monotonic() > until_s
                if is_late or self.elapsed_s - last_save > self.options.save_every_s:
                    last_save = self.elapsed_s
                    self.save_state(folder)
                if is_late:
                    return False
        print(f"head: {self.num_steps} steps, {self.elapsed_s:.0f} s", flush=True)
        return True

    def record(self, loss: float, agreement: list[float]) -> None:
        """Append one line to the log."""
        row = {"step": self.num_steps, "seconds": round(self.elapsed_s, 1), "loss": round(loss, 4)}
        row |= {f"agreement_{step + 1}": value for step, value in enumerate(agreement)}
        self.log.append(row)
        if self.num_steps % (LOG_EVERY * 10) == 0:
            print(row, flush=True)

    def save_state(self, folder: Path) -> None:
        """Write what a resumed run needs."""
        state = {
            "draft": self.draft.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "progress": (self.num_steps, self.elapsed_s, self.budget_s),
            "log": self.log,
        }
        path = folder / STATE_FILE
        torch.save(state, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)

    def resume(self, folder: Path) -> bool:
        """Go on from the last saved state, if there is one."""
        path = folder / STATE_FILE
        if not path.is_file():
            return False
        state = torch.load(path, map_location=self.network.embed.device, weights_only=True)
        self.draft.load_state_dict(state["draft"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.num_steps, self.elapsed_s, self.budget_s = state["progress"]
        self.log = state["log"]
        return True
