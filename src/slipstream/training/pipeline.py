"""A whole run: the target writes, the drafter is trained, written out and measured. Every part can be cut off.

Not here: what the drafter is (`registry`), what a terminal shows (`on_report`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from slipstream.config.resolve import DEMO
from slipstream.frontend.llm import LLM
from slipstream.training.checkpoints import LogRow, TrainState, log_as_csv
from slipstream.training.data.batches import SimilarLengths
from slipstream.training.data.prompts import TrainingPrompt, encode_fitting, read_prompts, split_prompts
from slipstream.training.data.texts import TextStore
from slipstream.training.data.vocabulary import draft_vocab_size, frequent_ids
from slipstream.training.data.writing import MIN_ANSWER_TOKENS, TextPlan, is_enough, write_texts
from slipstream.training.features import TargetFeatures
from slipstream.training.loop import Loop, LoopPaths, peak_rate
from slipstream.training.measure import DrafterScore, measure_drafter
from slipstream.training.plots import load_plotting, plot_acceptance, plot_loss
from slipstream.training.registry import find_kind
from slipstream.training.results import Outcome, write_outcome
from slipstream.training.run_folder import RunFolder, open_run, write_text
from slipstream.training.settings import TrainSettings, run_identity
from slipstream.training.target import find_target, make_processor, settle_settings, settle_target


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """News for whoever watches: `done` of `total` of a stage, and what is to be said about it.

    Args:
        stage: writing, training, or a drafter that is measured.
        done, total: tokens, thousandths of the budget, or drafters.
        detail: loss, acceptance and the like.
    """

    stage: str
    done: int
    total: int
    detail: str = ""


class TrainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a run works on, and where.

    Args:
        kind: of the drafter.
        target: `demo` or a folder.
        prompts: file of prompts to train on.
        out: folder of the run.
        eval_prompts: file of prompts to measure on; None holds out some of `prompts`.
        resume: continue the run that `out` holds.
        has_plots: draw PNG files.
        checkpoint_every_s: seconds between checkpoints.
        draft_len: drafts per step when measuring.
        eval_tokens: tokens per answer when measuring.
        max_num_seqs: texts that the engine writes at a time.
        engine: options of the engine: device, dtype, threads.
    """

    kind: str
    target: str = DEMO
    prompts: Path
    out: Path
    eval_prompts: Path | None = None
    resume: bool = False
    has_plots: bool = True
    checkpoint_every_s: float = 60.0
    draft_len: int = 3
    eval_tokens: int = 96
    max_num_seqs: int = 16
    engine: dict[str, Any] = {}


def run_training(request: TrainRequest, settings: TrainSettings, on_report: Callable[[Report], None]) -> Outcome:
    """Train one drafter.

    Args:
        request: what on and where.
        settings: how.
        on_report: told of progress.

    Returns:
        What came out; it is in the run's folder, too.

    Raises:
        ConfigError: an option, a prompt or the run's folder.
        CheckpointError: the target.
        UnsupportedFeature: a drafter that is not trained here.
    """
    taps_of, _ = find_kind(request.kind)
    target = find_target(request.target)
    if request.has_plots:
        load_plotting()
    config = settle_target(target, drafter="none", **request.engine)
    # Options of engines that open later: refused now, before a folder is made or an hour is spent.
    settle_target(
        target, drafter="ngram", draft_len=request.draft_len, max_num_seqs=request.max_num_seqs, **request.engine
    )
    settings = settle_settings(settings, config.scheduler.max_model_len)
    taps_of(settings.tap_layers, config.model.target.num_layers)
    draft_vocab_size(settings.draft_vocab_size, config.model.target.vocab_size)
    train, held_out, is_held_out = _prompts(request, settings.seed)
    processor = make_processor(target, config)
    room = settings.max_length - MIN_ANSWER_TOKENS
    asked = [one.token_ids for one in encode_fitting(train, processor, room)]
    measured = encode_fitting(held_out, processor, config.scheduler.max_model_len - MIN_ANSWER_TOKENS)
    identity = run_identity(settings, kind=request.kind, target=target, prompts=request.prompts)
    identity["prompts.held_out"] = len(held_out) if is_held_out and request.eval_prompts is None else 0
    folder = open_run(request.out, identity, kind=request.kind, resume=request.resume)
    with folder.held():
        store = TextStore(folder.texts)
        _write(target, asked, store, settings, request, on_report)
        state, peak = _train(target, folder, store, settings, request, on_report)
        _free()
        scores = _measure(target, folder, [one.prompt for one in measured], settings, request, on_report)
        outcome = Outcome(
            kind=request.kind,
            settings=settings,
            identity=identity,
            device=_device_name(config.model.device),
            num_threads=config.num_threads,
            num_texts=len(store.texts),
            num_written_tokens=store.num_written,
            num_skipped_prompts=len(train) - len(asked),
            text_hashes=store.hashes(),
            peak_rate=peak,
            steps=state.step,
            tokens=state.tokens,
            seconds=state.seconds,
            last=state.rows[-1],
            is_held_out=is_held_out,
            draft_len=request.draft_len,
            scores=tuple(scores),
        )
        write_outcome(folder.result, outcome)
        if request.has_plots:
            _plot(folder, state, outcome)
    return outcome


def _plot(folder: RunFolder, state: TrainState, outcome: Outcome) -> None:
    plot_loss(folder.loss_plot, state.rows)
    rates = {score.drafter: score.whole.acceptance_rates for score in outcome.scores if score.whole.acceptance_rates}
    if rates:
        kind = "held-out prompts" if outcome.is_held_out else "prompts of training"
        plot_acceptance(folder.acceptance_plot, rates, f"greedy, {kind}")


def _prompts(request: TrainRequest, seed: int) -> tuple[tuple[TrainingPrompt, ...], tuple[TrainingPrompt, ...], bool]:
    """Return prompts to train on, prompts to measure on, and whether these are others."""
    prompts = read_prompts(request.prompts)
    if request.eval_prompts is not None:
        measured = read_prompts(request.eval_prompts)
        return prompts, measured, not {prompt.key for prompt in prompts} & {prompt.key for prompt in measured}
    train, held_out = split_prompts(prompts, seed)
    return train, held_out or train, bool(held_out)


def _write(
    target: Path,
    prompts: Sequence[tuple[int, ...]],
    store: TextStore,
    settings: TrainSettings,
    request: TrainRequest,
    on_report: Callable[[Report], None],
) -> None:
    """Let the target write what is missing."""
    plan = TextPlan(len(prompts), settings.temperatures, settings.seed)
    if is_enough(store, plan, settings.written_tokens):
        return
    options = {"max_model_len": settings.max_length, "max_num_seqs": request.max_num_seqs, "seed": settings.seed}
    with LLM(str(target), **options, **request.engine) as llm:
        write_texts(
            llm,
            prompts,
            store,
            plan,
            num_tokens=settings.written_tokens,
            answer_tokens=settings.answer_tokens,
            max_length=settings.max_length,
            texts_per_file=settings.texts_per_file,
            on_progress=lambda done, total: on_report(
                Report(stage="writing", done=done, total=total, detail=f"{len(store.texts)} texts")
            ),
        )
    _free()


def _train(
    target: Path,
    folder: RunFolder,
    store: TextStore,
    settings: TrainSettings,
    request: TrainRequest,
    on_report: Callable[[Report], None],
) -> tuple[TrainState, float]:
    """Train until the budget is spent, and write the drafter before and after."""
    config = settle_target(target, drafter="none", max_model_len=settings.max_length, **request.engine)
    spec = config.model.target
    taps_of, build = find_kind(request.kind)
    features = TargetFeatures(config, taps_of(settings.tap_layers, spec.num_layers))
    size = draft_vocab_size(settings.draft_vocab_size, spec.vocab_size)
    kept = frequent_ids(store.count_tokens(spec.vocab_size), size, spec.eos_token_ids[:size])
    trainer = build(spec, features, kept, settings, features.device)
    trainer.export(folder.untrained)
    batches = SimilarLengths(store.texts, settings.batch_tokens, settings.seed)
    peak = peak_rate(settings, spec.hidden_size)
    loop = Loop(
        trainer,
        lambda batch: features.read(batch, trainer.kept_ids),
        batches.batch,
        settings,
        peak=peak,
        device=features.device,
        paths=LoopPaths(folder.checkpoint, folder.digest, request.checkpoint_every_s),
        on_row=lambda row, progress: on_report(_training_report(row, progress)),
    )
    state = loop.run()
    write_text(folder.log, log_as_csv(state.rows))
    trainer.export(folder.drafter)
    return state, peak


def _training_report(row: LogRow, progress: float) -> Report:
    detail = f"step {row.step}, loss {row.loss:.3f}, acceptance length about {row.acceptance_length:.2f}"
    return Report(stage="training", done=min(1000, int(progress * 1000)), total=1000, detail=detail)


def _measure(
    target: Path,
    folder: RunFolder,
    prompts: Sequence[TrainingPrompt],
    settings: TrainSettings,
    request: TrainRequest,
    on_report: Callable[[Report], None],
) -> list[DrafterScore]:
    """Measure the trained drafter, the one that it was before, and none."""
    contenders = {request.kind: str(folder.drafter), "untrained": str(folder.untrained), "none": "none"}
    scores: list[DrafterScore] = []
    for number, (name, drafter) in enumerate(contenders.items()):
        on_report(Report(stage="measuring", done=number, total=len(contenders), detail=name))
        options = {"max_num_seqs": request.max_num_seqs, "seed": settings.seed, **request.engine}
        scores.append(
            measure_drafter(
                name,
                drafter,
                target,
                prompts,
                draft_len=request.draft_len,
                max_tokens=request.eval_tokens,
                engine=options,
            )
        )
        _free()
    on_report(Report(stage="measuring", done=len(contenders), total=len(contenders), detail="done"))
    return scores


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else device


def _free() -> None:
    """Give the memory of what was just dropped back; a target, an engine and a drafter take turns on one device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
