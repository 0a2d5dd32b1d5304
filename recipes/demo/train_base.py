"""Train the target within a time budget.

Three phases: short rows with full attention, long rows with full attention, long rows with block selection. The index
branch learns beside them from the attention it has to predict. Progress is measured in seconds, so that a run ends on
time on any machine; the number of steps is recorded.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from dataset import Part, cut_rows
from geometry import Geometry
from network import Network
from optimiser import Optimiser
from torch import Tensor

WARM_UP_STEPS = 100
DECAY_FROM = 0.5
LAST_RATE = 0.02
BIAS_RATE = 1e-3
BIAS_FROZEN_FROM = 0.9
LOG_EVERY = 25
SAVE_EVERY_S = 120.0
EVAL_SHARE = 0.005
STATE_FILE = "training_state.pt"


@dataclass(frozen=True)
class Phase:
    """One part of training; `until` is a share of the time budget."""

    name: str
    until: float
    length: int
    batch: int
    num_rows: int
    select: bool


FULL_PHASES = (
    Phase("short", 0.60, 512, 256, 32, False),
    Phase("long", 0.78, 2048, 64, 64, False),
    Phase("selected", 1.0, 2048, 32, 64, True),
)
TINY_PHASES = (
    Phase("short", 0.5, 64, 16, 16, False),
    Phase("long", 0.7, 128, 8, 16, False),
    Phase("selected", 1.0, 128, 8, 16, True),
)


@dataclass(frozen=True)
class TrainOptions:
    """Settings of a run."""

    budget_s: float
    phases: tuple[Phase, ...]
    work_folder: Path
    seed: int
    dtype: torch.dtype
    is_compiled: bool


def head_loss(x: Tensor, network: Network, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return cross-entropy and the squared log-normaliser of the residual stream."""
    logits = network.logits(x).flatten(0, 1).float()
    normaliser = logits.logsumexp(-1)
    picked = logits.gather(1, targets.reshape(-1, 1)).squeeze(1)
    return (normaliser - picked).mean(), normaliser.square().mean()


class Rows:
    """Endless shuffled rows of one length, kept on the device."""

    def __init__(self, part: Part, stream: Tensor, length: int, seed: int, evaluation: bool) -> None:
        starts = cut_rows(part, length)
        border = int(len(part.stream) * (1 - EVAL_SHARE))
        starts = starts[starts >= border] if evaluation else starts[starts < border - length]
        self.stream, self.length = stream, length
        self.starts = torch.from_numpy(starts).to(stream.device)
        self.source = torch.Generator(device=stream.device).manual_seed(seed)
        self.order = torch.empty(0, dtype=torch.int64, device=stream.device)

    def next(self, batch: int) -> Tensor:
        """Return [batch, length + 1] token ids."""
        while self.order.numel() < batch:
            fresh = torch.randperm(self.starts.numel(), generator=self.source, device=self.stream.device)
            self.order = torch.cat([self.order, fresh])
        picked, self.order = self.order[:batch], self.order[batch:]
        offsets = torch.arange(self.length + 1, device=self.stream.device)
        return self.stream[self.starts[picked][:, None] + offsets].long()


def rate_factor(step: int, progress: float) -> float:
    """Return the learning rate as a share of its peak: warm-up, constant, linear to nearly zero."""
    if step < WARM_UP_STEPS:
        return (step + 1) / WARM_UP_STEPS
    left = min(1.0, (1.0 - progress) / (1.0 - DECAY_FROM))
    return max(LAST_RATE, left)


class BaseTrainer:
    """Trains one network."""

    def __init__(self, shape: Geometry, device: torch.device, options: TrainOptions) -> None:
        self.options, self.device = options, device
        network = Network(shape)
        network.initialise(options.seed)
        self.network = network.to(device)
        self.optimiser = Optimiser(self.network)
        self.head_loss: Callable[..., tuple[Tensor, Tensor]] = head_loss
        if options.is_compiled:
            torch._dynamo.config.recompile_limit = 64
            for block in self.network.blocks:
                block.compile(dynamic=False)
            self.head_loss = torch.compile(head_loss, dynamic=False)
        self.source = torch.Generator(device=device).manual_seed(options.seed)
        self.step, self.num_tokens, self.elapsed_s = 0, 0, 0.0
        self.log: list[dict[str, float | str]] = []

    def losses(self, tokens: Tensor, phase: Phase) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """Return cross-entropy, squared normaliser, index loss and expert loads."""
        rows = torch.randperm(phase.length, generator=self.source, device=self.device)[: phase.num_rows].sort()[0]
        x, index_loss, loads = self.network(tokens[:, :-1], rows, phase.select, self.options.dtype)
        loss, square = self.head_loss(x, self.network, tokens[:, 1:])
        return loss, square, index_loss, loads

    def warm_up(self) -> None:
        """Run every phase once on noise, so that compilation is over before time counts."""
        for phase in self.options.phases:
            began = time.monotonic()
            size = (phase.batch, phase.length + 1)
            tokens = torch.randint(self.network.shape.vocab_size, size, device=self.device)
            loss, square, index_loss, _ = self.losses(tokens, phase)
            (loss + square + index_loss).backward()
            print(f"warm-up {phase.name}: {loss.item():.3f}, {time.monotonic() - began:.1f} s", flush=True)
        for parameter in self.network.parameters():
            parameter.grad = None

    @torch.no_grad()
    def balance(self, loads: list[Tensor]) -> None:
        """Move each expert's selection bias towards equal load."""
        sparse = [block.mlp for block in self.network.blocks if block.mlp.sparse]
        for mlp, load in zip(sparse, loads, strict=True):
            mean = load.float().mean()
            mlp.bias += BIAS_RATE * torch.sign(mean - load.float())

    def train(self, part: Part) -> None:
        """Train until the budget is spent."""
        stream = torch.from_numpy(part.stream.astype(np.int16)).to(self.device)
        rows = {phase.length: Rows(part, stream, phase.length, phase.length, False) for phase in self.options.phases}
        began = time.monotonic() - self.elapsed_s
        last_save = self.elapsed_s
        while self.elapsed_s < self.options.budget_s:
            progress = self.elapsed_s / self.options.budget_s
            phase = next(phase for phase in self.options.phases if progress < phase.until)
            loss, square, index_loss, loads = self.losses(rows[phase.length].next(phase.batch), phase)
            (loss + 1e-4 * square + index_loss).backward()
            self.optimiser.step(rate_factor(self.step, progress))
            if progress < BIAS_FROZEN_FROM:
                self.balance(loads)
            self.step += 1
            self.num_tokens += phase.batch * phase.length
            if self.step % LOG_EVERY == 0 or self.device.type == "cpu":
                if self.device.type == "cuda":
                    torch.cuda.synchronize()
                self.elapsed_s = time.monotonic() - began
                self.record(phase, loss, index_loss, loads)
                if self.elapsed_s - last_save > SAVE_EVERY_S:
                    last_save = self.elapsed_s
                    self.save_state()
        print(f"base: {self.step} steps, {self.num_tokens:,} tokens, {self.elapsed_s:.0f} s", flush=True)

    def record(self, phase: Phase, loss: Tensor, index_loss: Tensor, loads: list[Tensor]) -> None:
        """Append one line to the log."""
        busiest = max((load.max() / load.sum()).item() for load in loads)
        row = {
            "step": self.step,
            "seconds": round(self.elapsed_s, 1),
            "phase": phase.name,
            "tokens": self.num_tokens,
            "loss": round(loss.item(), 4),
            "index_loss": round(index_loss.item(), 4),
            "busiest_expert": round(busiest, 3),
        }
        self.log.append(row)
        if self.step % (LOG_EVERY * 8) == 0:
            print(row, flush=True)

    @torch.no_grad()
    def evaluate(self, part: Part, length: int, batch: int, num_batches: int, whole: bool) -> dict[str, float]:
        """Return the loss on unseen rows with full attention and with block selection.

        Args:
            part: the training mix, of which the last rows were kept back, or another set.
            length: row length.
            batch: rows at a time.
            num_batches: how many batches.
            whole: use every row of the part instead of the kept ones.
        """
        stream = torch.from_numpy(part.stream.astype(np.int16)).to(self.device)
        sums = {"full": 0.0, "selected": 0.0}
        with torch.compiler.set_stance("force_eager"):
            for name in sums:
                phase = Phase(name, 1.0, length, batch, 8, name == "selected")
                rows = Rows(part, stream, length, 5, evaluation=not whole)
                for _ in range(num_batches):
                    sums[name] += self.losses(rows.next(batch), phase)[0].item() / num_batches
        return {name: round(value, 4) for name, value in sums.items()}

    def save_state(self) -> None:
        """Write what a resumed run needs."""
        self.options.work_folder.mkdir(parents=True, exist_ok=True)
        state = {
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "progress": (self.step, self.num_tokens, self.elapsed_s),
            "log": self.log,
        }
        path = self.options.work_folder / STATE_FILE
        torch.save(state, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)

    def resume(self) -> None:
        """Go on from the last saved state."""
        state = torch.load(self.options.work_folder / STATE_FILE, map_location=self.device, weights_only=True)
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.num_tokens, self.elapsed_s = state["progress"]
        self.log = state["log"]

    def write_log(self, path: Path) -> None:
        """Write the loss curve as CSV."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.log[0]))
            writer.writeheader()
            writer.writerows(self.log)
