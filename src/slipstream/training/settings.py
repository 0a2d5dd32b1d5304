"""What a training run was asked for, and what makes two runs the same run.

Not here: where it runs (device, threads), which may change between the legs of one run.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Literal

import msgspec

from slipstream.base.errors import CheckpointError, ConfigError
from slipstream.config.checkpoint import CONFIG_FILE

BudgetUnit = Literal["steps", "tokens", "minutes"]
_BUDGET_FLAGS: dict[BudgetUnit, str] = {"steps": "--steps", "tokens": "--tokens", "minutes": "--max-minutes"}
_HASH_PIECE_BYTES = 1 << 20


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How long to train: optimiser steps, tokens of training texts, or minutes of stepping."""

    unit: BudgetUnit
    amount: float

    def progress(self, *, steps: int, tokens: int, seconds: float) -> float:
        """Return the share of the budget that is spent; 1 or more ends the run."""
        spent = {"steps": float(steps), "tokens": float(tokens), "minutes": seconds / 60}[self.unit]
        return spent / self.amount


class TrainSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what a run does.

    Args:
        seed: of prompts' order, of what the target draws, of first weights and of batches.
        temperatures: the target answers at them in turn; 0 is greedy.
        written_tokens: how many tokens the target writes.
        texts_per_file: texts that are asked for together and kept together.
        answer_tokens: most tokens of one answer.
        max_length: tokens of a text, prompt and answer; longer prompts are left out. 0 takes the target's limit.
        budget: how long to train.
        batch_tokens: tokens of one optimiser step, padding included; 0 takes four texts of that length.
        peak_rate: learning rate after the warm-up, before a cosine to zero; 0 takes one that suits the width.
        warm_up_steps: steps of growing rate.
        num_unrolled: draft steps that are unrolled in training.
        step_weight: each unrolled step counts this much of the one before it.
        draft_vocab_size: tokens that the drafter can draft; 0 takes half of the vocabulary, 32,768 at most.
        tap_layers: zero-based target layers whose output is read; empty takes a low, a middle and a high one.
        log_every: steps between two lines of the log.
    """

    seed: int = 0
    temperatures: tuple[float, ...] = (0.0, 0.7, 1.0)
    written_tokens: int = 200_000
    texts_per_file: int = 64
    answer_tokens: int = 256
    max_length: int = 0
    budget: Budget = Budget(unit="steps", amount=1000)
    batch_tokens: int = 0
    peak_rate: float = 0.0
    warm_up_steps: int = 50
    num_unrolled: int = 5
    step_weight: float = 0.8
    draft_vocab_size: int = 0
    tap_layers: tuple[int, ...] = ()
    log_every: int = 10


def check_settings(settings: TrainSettings) -> TrainSettings:
    """Return settings that can be run.

    Raises:
        ConfigError: a value outside its range.
    """
    whole = {
        "--seed": (settings.seed, 0),
        "--write-tokens": (settings.written_tokens, 1),
        "--texts-per-file": (settings.texts_per_file, 1),
        "--answer-tokens": (settings.answer_tokens, 4),
        "--max-length": (settings.max_length, 8),
        "--batch-tokens": (settings.batch_tokens, settings.max_length),
        "--warm-up-steps": (settings.warm_up_steps, 0),
        "--unroll": (settings.num_unrolled, 1),
        "--draft-vocab-size": (settings.draft_vocab_size, 0),
        "--log-every": (settings.log_every, 1),
    }
    for name, (value, minimum) in whole.items():
        if value < minimum:
            raise ConfigError(f"{name} {value} is not allowed: give a whole number of at least {minimum}")
    if not settings.temperatures or any(not 0 <= t <= 2 for t in settings.temperatures):
        raise ConfigError(f"--temperatures {list(settings.temperatures)}: give numbers from 0 to 2; 0 is greedy")
    if not 0 < settings.step_weight <= 1:
        raise ConfigError(f"--step-weight {settings.step_weight}: give a number above 0 and at most 1")
    if not (math.isfinite(settings.peak_rate) and settings.peak_rate >= 0):
        raise ConfigError(f"--learning-rate {settings.peak_rate}: give a number above 0, or 0 for one by width")
    if not (math.isfinite(settings.budget.amount) and settings.budget.amount > 0):
        flag = _BUDGET_FLAGS[settings.budget.unit]
        raise ConfigError(f"{flag} {settings.budget.amount:g}: give a finite number above 0")
    return settings


def run_identity(settings: TrainSettings, *, kind: str, target: Path, prompts: Path) -> dict[str, Any]:
    """Return what must be equal for a folder's run to be continued: settings, and the bytes they work on.

    Args:
        settings: of the run.
        kind: of the drafter.
        target: folder of the target's checkpoint.
        prompts: file of prompts.

    Raises:
        CheckpointError: the target has no readable configuration.
        ConfigError: there is no such file of prompts.
    """
    identity = {f"settings.{name}": value for name, value in msgspec.to_builtins(settings).items()}
    return identity | {
        "drafter": kind,
        "target.config": hash_file(_required(target / CONFIG_FILE, CheckpointError)),
        "target.weights": hash_ends(target),
        "prompts": hash_file(_required(prompts, ConfigError)),
    }


def digest_of(identity: dict[str, Any]) -> str:
    """Return one short word for a run's identity."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(_HASH_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def hash_ends(folder: Path) -> str:
    """Return a word for a checkpoint's weights: names, sizes, and both ends of every file.

    Reading all of them would take minutes on a large model.
    """
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(_HASH_PIECE_BYTES))
            stream.seek(max(0, size - _HASH_PIECE_BYTES))
            digest.update(stream.read(_HASH_PIECE_BYTES))
    return digest.hexdigest()


def _required(path: Path, error: type[Exception]) -> Path:
    if not path.is_file():
        raise error(f"{path}: no such file")
    return path
