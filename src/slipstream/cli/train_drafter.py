"""`slipstream train-drafter`: train a draft network on text that its target writes itself."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from slipstream.base.errors import ConfigError
from slipstream.cli.console import make_error_console
from slipstream.training.kinds import check_kind
from slipstream.training.settings import Budget, BudgetUnit, TrainSettings

if TYPE_CHECKING:
    from slipstream.training.pipeline import Report

_LINE_EVERY_S = 10.0
_DEFAULT_STEPS = 1000
_DEFAULTS = TrainSettings()


def _option(name: str, metavar: str, text: str) -> typer.models.OptionInfo:
    return typer.Option(name, metavar=metavar, help=text)


def _check_kind(kind: str) -> str:
    return check_kind(kind)


# Looked at before any option, so that a drafter that is not trained here is refused whatever else is missing.
Kind = Annotated[
    str, typer.Argument(metavar="DRAFTER", help="What to train: eagle3.", callback=_check_kind, is_eager=True)
]
Prompts = Annotated[
    Path, _option("--prompts", "FILE", "What the target is asked: JSON lines with messages, or one text a line.")
]
Out = Annotated[Path, _option("--out", "FOLDER", "Where the run and its drafter are kept.")]
Target = Annotated[str, _option("--target", "demo|FOLDER", "The target.")]
EvalPrompts = Annotated[Path | None, _option("--eval-prompts", "FILE", "Measured on; else some prompts are held out.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run that the folder holds, if any.")]
Steps = Annotated[int | None, _option("--steps", "N", "Optimiser steps.  [default: 1000]")]
Tokens = Annotated[int | None, _option("--tokens", "N", "Tokens of training texts, instead of steps.")]
MaxMinutes = Annotated[float | None, _option("--max-minutes", "X", "Minutes of stepping, instead of steps.")]
WriteTokens = Annotated[int, _option("--write-tokens", "N", "Tokens that the target writes.")]
AnswerTokens = Annotated[int, _option("--answer-tokens", "N", "Most tokens of one answer.")]
TextsPerFile = Annotated[int, _option("--texts-per-file", "N", "Texts that are asked for and kept together.")]
MaxNumSeqs = Annotated[int, _option("--max-num-seqs", "N", "Texts that the engine writes at a time.")]
Temperatures = Annotated[str, _option("--temperatures", "X,X", "The target writes at them in turn; 0 is greedy.")]
MaxLength = Annotated[int, _option("--max-length", "N", "Most tokens of a text; 0: the target's, at most 1024.")]
BatchTokens = Annotated[int, _option("--batch-tokens", "N", "Tokens of one step; 0: four texts of that length.")]
DraftVocabSize = Annotated[int, _option("--draft-vocab-size", "N", "Tokens it can draft; 0: half, at most 32768.")]
Taps = Annotated[str, _option("--taps", "N,N", "Target layers whose output it reads.  [default: by depth]")]
Unroll = Annotated[int, _option("--unroll", "N", "Draft steps unrolled in training.")]
StepWeight = Annotated[float, _option("--step-weight", "X", "Weight of a draft step beside the one before.")]
LearningRate = Annotated[float, _option("--learning-rate", "X", "Highest learning rate; 0: by width.")]
WarmUpSteps = Annotated[int, _option("--warm-up-steps", "N", "Steps of growing rate.")]
LogEvery = Annotated[int, _option("--log-every", "N", "Steps between lines of the log.")]
CheckpointEvery = Annotated[
    float, typer.Option("--checkpoint-every", metavar="X", min=0, help="Seconds between checkpoints.")
]
DraftLen = Annotated[int, typer.Option("--draft-len", metavar="N", min=1, help="Drafts per step when measuring.")]
EvalTokens = Annotated[int, typer.Option("--eval-tokens", metavar="N", min=2, help="Tokens per answer then.")]
Plots = Annotated[bool, typer.Option("--plots/--no-plots", help="Draw PNG files; needs the extra plots.")]
Seed = Annotated[int, _option("--seed", "N", "Seed of everything random.")]
Device = Annotated[str, _option("--device", "auto|cpu|cuda", "Where it runs.")]
Dtype = Annotated[str, _option("--dtype", "auto|float32|bfloat16", "Arithmetic of the target.")]
Threads = Annotated[str, _option("--threads", "N|auto", "CPU threads.")]


def train_drafter(
    kind: Kind,
    prompts: Prompts,
    out: Out,
    target: Target = "demo",
    eval_prompts: EvalPrompts = None,
    resume: Resume = False,
    steps: Steps = None,
    tokens: Tokens = None,
    max_minutes: MaxMinutes = None,
    write_tokens: WriteTokens = _DEFAULTS.written_tokens,
    answer_tokens: AnswerTokens = _DEFAULTS.answer_tokens,
    texts_per_file: TextsPerFile = _DEFAULTS.texts_per_file,
    max_num_seqs: MaxNumSeqs = 16,
    temperatures: Temperatures = "0,0.7,1",
    max_length: MaxLength = _DEFAULTS.max_length,
    batch_tokens: BatchTokens = _DEFAULTS.batch_tokens,
    draft_vocab_size: DraftVocabSize = _DEFAULTS.draft_vocab_size,
    taps: Taps = "",
    unroll: Unroll = _DEFAULTS.num_unrolled,
    step_weight: StepWeight = _DEFAULTS.step_weight,
    learning_rate: LearningRate = _DEFAULTS.peak_rate,
    warm_up_steps: WarmUpSteps = _DEFAULTS.warm_up_steps,
    log_every: LogEvery = _DEFAULTS.log_every,
    checkpoint_every: CheckpointEvery = 60.0,
    draft_len: DraftLen = 3,
    eval_tokens: EvalTokens = 96,
    plots: Plots = True,
    seed: Seed = _DEFAULTS.seed,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = "auto",
) -> None:
    """Train a draft network for a target, on text that the target writes itself.

    The run can be stopped at any moment and goes on with --resume. The drafter lies in a folder of --out; serve takes
    that as --drafter.
    """
    # Whatever imports torch is imported when a run begins.
    from slipstream.training.pipeline import TrainRequest, run_training
    from slipstream.training.results import format_outcome

    settings = TrainSettings(
        seed=seed,
        temperatures=read_numbers("--temperatures", temperatures),
        written_tokens=write_tokens,
        texts_per_file=texts_per_file,
        answer_tokens=answer_tokens,
        max_length=max_length,
        budget=read_budget(steps, tokens, max_minutes),
        batch_tokens=batch_tokens,
        peak_rate=learning_rate,
        warm_up_steps=warm_up_steps,
        num_unrolled=unroll,
        step_weight=step_weight,
        draft_vocab_size=draft_vocab_size,
        tap_layers=read_layers(taps),
        log_every=log_every,
    )
    request = TrainRequest(
        kind=kind,
        target=target,
        prompts=prompts,
        out=out,
        eval_prompts=eval_prompts,
        resume=resume,
        has_plots=plots,
        checkpoint_every_s=checkpoint_every,
        draft_len=draft_len,
        eval_tokens=eval_tokens,
        max_num_seqs=max_num_seqs,
        engine={"device": device, "dtype": dtype, "threads": read_threads(threads)},
    )
    console = make_error_console()
    with TrainingDisplay(console) as display:
        outcome = run_training(request, settings, display)
    typer.echo(format_outcome(outcome))
    console.print(f"written to {out}", markup=False)


def read_budget(steps: int | None, tokens: int | None, max_minutes: float | None) -> Budget:
    """Return how long to train.

    Raises:
        ConfigError: more than one was given.
    """
    asked: tuple[tuple[BudgetUnit, float | None], ...] = (
        ("steps", steps),
        ("tokens", tokens),
        ("minutes", max_minutes),
    )
    given = [Budget(unit=unit, amount=float(amount)) for unit, amount in asked if amount is not None]
    if len(given) > 1:
        raise ConfigError("--steps, --tokens and --max-minutes: give one of them")
    return given[0] if given else Budget(unit="steps", amount=_DEFAULT_STEPS)


def read_numbers(flag: str, text: str) -> tuple[float, ...]:
    """Return the numbers of a list with commas.

    Raises:
        ConfigError: something else.
    """
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigError(f"{flag} {text}: give numbers with commas between them, such as 0,0.7,1") from None


def read_layers(text: str) -> tuple[int, ...]:
    """Return the layers of a list with commas.

    Raises:
        ConfigError: something else.
    """
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigError(f"--taps {text}: give layers with commas between them, such as 1,3,4") from None


def read_threads(text: str) -> int | str:
    """Return a number of threads as such; any other word is left for the option table to accept or refuse."""
    return int(text) if text.isascii() and text.isdigit() else text


class TrainingDisplay:
    """Shows a run: a bar per stage on a terminal, else a line every ten seconds. Use as a context manager.

    Args:
        console: where to show.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last_line_s = -math.inf
        self._stage = ""
        self._began = (0.0, 0.0)  # seconds and share when the stage began

    def __enter__(self) -> TrainingDisplay:
        if self._console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[detail]}", markup=False),
            )
            self._bars = Progress(*columns, console=self._console)
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, report: Report) -> None:
        """Show one report."""
        if self._bars is None:
            self._print(report)
            return
        if report.stage not in self._tasks:
            self._tasks[report.stage] = self._bars.add_task(report.stage, total=report.total, detail="")
        self._bars.update(self._tasks[report.stage], completed=report.done, total=report.total, detail=report.detail)

    def _print(self, report: Report) -> None:
        now = time.monotonic()
        is_new = report.stage != self._stage or report.done == report.total
        if not is_new and now - self._last_line_s < _LINE_EVERY_S:
            return
        share = report.done / report.total if report.total else 1.0
        if report.stage != self._stage:
            self._began = (now, share)
        self._last_line_s, self._stage = now, report.stage
        began_s, first = self._began
        left = f", {(now - began_s) * (1 - share) / (share - first):.0f} s left" if first < share < 1 else ""
        self._console.print(f"{report.stage} {share:.0%}: {report.detail}{left}", markup=False)
