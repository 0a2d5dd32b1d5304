"""Train the target within a time budget.

Three phases: short rows with full attention, long rows with full attention, long rows with block selection. The index
branch learns beside them from the attention it has to predict. Weights that ship in MXFP8 are rounded so in every
forward pass. Progress is measured in seconds, so that a run ends on time on any machine; the number of steps is
recorded. A run that is cut off goes on from its last saved state with the same schedule.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from dataset import Mix, Part, cut_rows
from geometry import Geometry
from network import Network
from optimiser import Optimiser
from torch import Tensor

WARM_UP_STEPS = 100
DECAY_FROM = 0.5
LAST_RATE = 0.02
BIAS_RATE = 2e-3
LEAST_BIAS_FACTOR = 0.1
BIAS_FROZEN_FROM = 0.95
SPREAD_WEIGHT = 1.0
LOG_EVERY = 25
EVAL_SHARE = 0.005
LEAST_TAIL = 3000
STATE_FILE = "training_state.pt"


@dataclass(frozen=True)
class Phase:
    """One part of training; `until` is a share of the time budget, `needle_share` one of the rows."""

    name: str
    until: float
    length: int
    batch: int
    num_rows: int
    select: bool
    needle_share: float = 0.0


# Batches of one size in tokens, and of one shape from the second phase on: fewer shapes to compile. With 64 long rows
# the attention scores of a layer would be more than 32-bit indices reach.
FULL_PHASES = (
    Phase("short", 0.46, 512, 192, 32, False),
    Phase("long", 0.66, 2048, 48, 64, False, needle_share=0.5),
    Phase("selected", 1.0, 2048, 48, 64, True, needle_share=0.375),
)
TINY_PHASES = (
    Phase("short", 0.5, 128, 16, 16, False),
    Phase("long", 0.7, 512, 4, 16, False, needle_share=0.5),
    Phase("selected", 1.0, 512, 4, 16, True, needle_share=0.5),
)


@dataclass(frozen=True)
class TrainOptions:
    """Settings of a run."""

    phases: tuple[Phase, ...]
    work_folder: Path
    seed: int
    dtype: torch.dtype
    is_compiled: bool
    save_every_s: float = 45.0


def head_loss(x: Tensor, network: Network, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return cross-entropy and the squared log-normaliser of the residual stream.

    Args:
        x: [num_tokens, hidden]; flat, so that rows of every length need one compilation.
        network: owner of the head.
        targets: [num_tokens] ids.
    """
    logits = network.logits(x).float()
    normaliser = logits.logsumexp(-1)
    picked = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    return (normaliser - picked).mean(), normaliser.square().mean()


def tail_border(part: Part) -> int:
    """Return where the tokens begin that training never sees."""
    return max(0, min(int(len(part.stream) * (1 - EVAL_SHARE)), len(part.stream) - LEAST_TAIL))


def tail(part: Part) -> Part:
    """Return the documents that begin behind the border."""
    starts = part.starts[part.starts >= tail_border(part)]
    return Part(part.stream[starts[0] :], starts - starts[0])


class Rows:
    """Endless shuffled rows of one length, kept on the device."""

    def __init__(self, part: Part, stream: Tensor, length: int, seed: int, is_whole: bool = False) -> None:
        starts = cut_rows(part, length)
        if not is_whole:  # the tail is kept for evaluation
            starts = starts[starts < tail_border(part) - length]
        if not starts.size:
            raise ValueError(f"no rows of {length} tokens in {len(part.stream)} tokens; raise --limit")
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


class MixedRows:
    """Rows of a phase: of the mix, and a share from the needles."""

    def __init__(self, short: Rows, needles: Rows, needle_share: float) -> None:
        self.short, self.needles, self.needle_share = short, needles, needle_share

    def next(self, batch: int) -> Tensor:
        """Return [batch, length + 1] token ids."""
        num_needles = round(batch * self.needle_share)
        if num_needles == 0:
            return self.short.next(batch)
        return torch.cat([self.needles.next(num_needles), self.short.next(batch - num_needles)])


def to_device(part: Part, device: torch.device) -> Tensor:
    """Return a part's ids on the device."""
    return torch.from_numpy(part.stream.astype(np.int16)).to(device)


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
        network.set_rounding(True)
        self.network = network.to(device)
        self.optimiser = Optimiser(self.network)
        self.head_loss: Callable[..., tuple[Tensor, Tensor]] = head_loss
        if options.is_compiled:
            torch._dynamo.config.recompile_limit = 64
            for block in self.network.blocks:
                block.compile(dynamic=False)
            self.head_loss = torch.compile(head_loss, dynamic=False)
        self.source = torch.Generator(device=device).manual_seed(options.seed)
        self.step, self.num_tokens, self.elapsed_s, self.budget_s = 0, 0, 0.0, 0.0
        self.log: list[dict[str, float | str]] = []

    def losses(self, tokens: Tensor, phase: Phase) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """Return cross-entropy, the loss to minimise, the index loss and expert loads."""
        rows = torch.randperm(phase.length, generator=self.source, device=self.device)[: phase.num_rows].sort()[0]
        x, index_loss, spread, loads = self.network(tokens[:, :-1], rows, phase.select, self.options.dtype)
        loss, square = self.head_loss(x.flatten(0, 1), self.network, tokens[:, 1:].reshape(-1))
        return loss, loss + 1e-4 * square + index_loss + SPREAD_WEIGHT * spread, index_loss, loads

    def warm_up(self) -> None:
        """Run every phase once on noise, so that compilation is over before time counts."""
        for phase in self.options.phases:
            began = time.monotonic()
            size = (phase.batch, phase.length + 1)
            tokens = torch.randint(self.network.shape.vocab_size, size, device=self.device)
            loss, total, _, _ = self.losses(tokens, phase)
            total.backward()
            print(f"warm-up {phase.name}: {loss.item():.3f}, {time.monotonic() - began:.1f} s", flush=True)
        for parameter in self.network.parameters():
            parameter.grad = None

    @torch.no_grad()
    def balance(self, loads: list[Tensor], rate: float) -> None:
        """Move each expert's selection bias towards equal load."""
        sparse = [block.mlp for block in self.network.blocks if block.mlp.sparse]
        for mlp, load in zip(sparse, loads, strict=True):
            mean = load.float().mean()
            mlp.bias += rate * torch.sign(mean - load.float())

    def sources(self, mix: Mix) -> dict[str, MixedRows]:
        """Return where each phase takes its rows from."""
        short, long = to_device(mix.short, self.device), to_device(mix.long, self.device)
        rows: dict[int, tuple[Rows, Rows]] = {}
        sources = {}
        for phase in self.options.phases:
            if phase.length not in rows:
                seed = self.options.seed + phase.length + self.step
                needles = mix.long if phase.needle_share else mix.short
                rows[phase.length] = (
                    Rows(mix.short, short, phase.length, seed),
                    Rows(needles, long if phase.needle_share else short, phase.length, seed),
                )
            sources[phase.name] = MixedRows(*rows[phase.length], phase.needle_share)
        return sources

    def train(self, sources: dict[str, MixedRows], until_s: float) -> bool:
        """Train until the budget is spent, or until the clock (`time.monotonic`) says until_s.

        Args:
            sources: result of `sources`.
            until_s: reading of the clock at which the caller has to stop.

        Returns:
            Whether the whole budget is spent; if not, the state is saved.
        """
        began = time.monotonic() - self.elapsed_s
        last_save = self.elapsed_s
        while self.elapsed_s < self.budget_s:
            progress = self.elapsed_s / self.budget_s
            phase = next(phase for phase in self.options.phases if progress < phase.until)
            factor = rate_factor(self.step, progress)
            loss, total, index_loss, loads = self.losses(sources[phase.name].next(phase.batch), phase)
            total.backward()
            self.optimiser.step(factor)
            if progress < BIAS_FROZEN_FROM:
                self.balance(loads, BIAS_RATE * max(LEAST_BIAS_FACTOR, factor))
            self.step += 1
            self.num_tokens += phase.batch * phase.length
            if self.step % LOG_EVERY == 0 or self.device.type == "cpu":
                if self.device.type == "cuda":
                    torch.cuda.synchronize()
                self.elapsed_s = time.monotonic() - began
                self.record(phase, loss, index_loss, loads)
                if time.monotonic() > until_s:
                    self.save_state()
                    return False
                if self.elapsed_s - last_save > self.options.save_every_s:
                    last_save = self.elapsed_s
                    self.save_state()
        self.save_state()
        print(f"base: {self.step} steps, {self.num_tokens:,} tokens, {self.elapsed_s:.0f} s", flush=True)
        return True

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
    def evaluate(self, part: Part, length: int, batch: int, num_batches: int) -> dict[str, float]:
        """Return the loss on unseen rows with full attention and with block selection.

        Args:
            part: text that training never sees.
            length: row length.
            batch: rows at a time.
            num_batches: how many batches.
        """
        rows = Rows(part, to_device(part, self.device), length, 5, is_whole=True)
        batches = [rows.next(batch) for _ in range(num_batches)]
        sums = {}
        with torch.compiler.set_stance("force_eager"):
            for name in ("full", "selected"):
                phase = Phase(name, 1.0, length, batch, 8, name == "selected")
                values = [self.losses(tokens, phase)[0].item() for tokens in batches]
                sums[name] = round(sum(values) / num_batches, 4)
        return sums

    def save_state(self) -> None:
        """Write what a resumed run needs."""
        self.options.work_folder.mkdir(parents=True, exist_ok=True)
        state = {
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "progress": (self.step, self.num_tokens, self.elapsed_s, self.budget_s),
            "log": self.log,
        }
        path = self.options.work_folder / STATE_FILE
        torch.save(state, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)

    def resume(self) -> bool:
        """Go on from the last saved state, if there is one, under the budget of the run that saved it."""
        path = self.options.work_folder / STATE_FILE
        if not path.is_file():
            return False
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.num_tokens, self.elapsed_s, self.budget_s = state["progress"]
        self.log = state["log"]
        return True

    def write_log(self, path: Path) -> None:
        """Write the loss curve as CSV."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.log[0]))
            writer.writeheader()
            writer.writerows(self.log)
