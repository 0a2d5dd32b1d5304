"""The training loop: batches in, a trained module out, whatever the drafter is.

It can be stopped at any moment: the last checkpoint is whole, and going on from it gives the same weights as never
having stopped, as far as the device computes the same twice and the budget is not a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from slipstream.training.checkpoints import LogRow, TrainState, load_checkpoint, save_checkpoint
from slipstream.training.data.batches import TokenBatch
from slipstream.training.interface import BatchLoss, DraftTrainer, FeatureBatch
from slipstream.training.settings import TrainSettings

BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.01
MAX_GRAD_NORM = 1.0
RATE_TIMES_WIDTH = 0.5
"""Learning rate by width: 2e-3 at 256, where it was found, and 8e-5 at 6144, near what heads of that width use."""


@dataclass(frozen=True, slots=True)
class LoopPaths:
    """Where the loop keeps its state, of which run, and how often in seconds."""

    checkpoint: Path
    digest: str
    every_s: float


def peak_rate(settings: TrainSettings, hidden_size: int) -> float:
    """Return the highest learning rate of a run."""
    return settings.peak_rate or RATE_TIMES_WIDTH / hidden_size


def rate_at(peak: float, warm_up_steps: int, step: int, progress: float) -> float:
    """Return the learning rate: a linear warm-up, then a cosine to zero at progress 1."""
    warm = min(1.0, (step + 1) / (warm_up_steps + 1))
    return peak * warm * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def make_optimiser(trainer: DraftTrainer, device: torch.device) -> torch.optim.AdamW:
    """Return the optimiser; norms are not decayed."""
    parameters = [parameter for parameter in trainer.module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=BETAS, fused=device.type == "cuda")


class Loop:
    """One run of the loop.

    Args:
        trainer: the drafter.
        read: turns token batches into features.
        batch: gives batch n.
        settings: of the run.
        peak: highest learning rate.
        device: where it all is.
        paths: for checkpoints.
        on_row: told of every new line of the log, and the share of the budget that is spent.
    """

    def __init__(
        self,
        trainer: DraftTrainer,
        read: Callable[[TokenBatch], FeatureBatch],
        batch: Callable[[int], TokenBatch],
        settings: TrainSettings,
        *,
        peak: float,
        device: torch.device,
        paths: LoopPaths,
        on_row: Callable[[LogRow, float], None],
    ) -> None:
        self.trainer, self.settings, self.device = trainer, settings, device
        self._read, self._batch, self._peak, self._paths, self._on_row = read, batch, peak, paths, on_row
        self._optimiser = make_optimiser(trainer, device)
        self.state = load_checkpoint(paths.checkpoint, paths.digest, trainer.module, self._optimiser)

    @property
    def progress(self) -> float:
        """Return the share of the budget that is spent."""
        state = self.state
        return self.settings.budget.progress(steps=state.step, tokens=state.tokens, seconds=state.seconds)

    def run(self) -> TrainState:
        """Train until the budget is spent, and keep the last state."""
        saved = began = time.monotonic()
        before_s = self.state.seconds
        window: list[BatchLoss] = []
        while self.progress < 1.0:
            window.append(self._step())
            self.state.seconds = before_s + time.monotonic() - began
            is_due = self.state.step % self.settings.log_every == 0
            if is_due or self.progress >= 1.0:
                row = self._row(window)
                self.state.rows.append(row)
                self._on_row(row, self.progress)
                window = []
            # A checkpoint holds whole lines of the log only, so that going on gives the same log, too.
            if not window and time.monotonic() - saved >= self._paths.every_s:
                self.save()
                saved = time.monotonic()
        self.save()
        return self.state

    def save(self) -> None:
        """Write a checkpoint."""
        paths = self._paths
        save_checkpoint(paths.checkpoint, paths.digest, self.state, self.trainer.module, self._optimiser)

    def _step(self) -> BatchLoss:
        batch = self._batch(self.state.step)
        features = self._read(batch)
        is_cuda = self.device.type == "cuda"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_cuda):
            result = self.trainer.loss(features)
        result.loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trainer.module.parameters(), MAX_GRAD_NORM)
        rate = rate_at(self._peak, self.settings.warm_up_steps, self.state.step, self.progress)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self.state.step += 1
        self.state.tokens += batch.num_tokens
        return BatchLoss(result.loss.detach(), result.num_reached, result.num_starts)

    def _row(self, window: list[BatchLoss]) -> LogRow:
        """Read a window's figures from the device; nothing else in the loop waits for it."""
        starts = max(1, int(torch.stack([one.num_starts for one in window]).sum()))
        reached = torch.stack([one.num_reached for one in window]).sum(0).tolist()
        return LogRow(
            step=self.state.step,
            tokens=self.state.tokens,
            seconds=self.state.seconds,
            loss=float(torch.stack([one.loss for one in window]).mean()),
            reached=tuple(count / starts for count in reached),
        )
