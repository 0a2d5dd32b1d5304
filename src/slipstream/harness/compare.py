"""Compare generators on the same prompts in one run: interleaved repetitions, medians, acceptance by domain.

A generator is anything that continues token ids; this module knows no engine. Machines drift while they run, so every
repetition visits every contender, in an order that rotates. Not here: load with several users (load).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from slipstream.harness.client import Clock
from slipstream.harness.stats import acceptance_length, draft_acceptance_rate, median


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """What a contender made of a prompt; the speculation counts are 0 without a drafter."""

    token_ids: tuple[int, ...]
    num_verify_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted: int = 0
    num_emitted: int = 0


class Contender(Protocol):
    """A generator under comparison."""

    name: str

    def generate(self, prompt_token_ids: Sequence[int], max_tokens: int) -> Continuation:
        """Continue a prompt by `max_tokens` tokens, greedily, one request at a time."""
        ...


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt as token ids."""

    domain: str
    token_ids: tuple[int, ...]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One timed call."""

    contender: str
    domain: str
    repetition: int
    seconds: float
    num_prompt_tokens: int
    num_output_tokens: int
    num_verify_steps: int
    num_draft_tokens: int
    num_accepted: int
    num_emitted: int


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One contender over the prompts of one domain, or over all.

    Args:
        tokens_per_s: median over the repetitions of output tokens per second, prompt time included.
        slowest_tokens_per_s, fastest_tokens_per_s: the range of the repetitions.
        speedup: tokens_per_s over that of the baseline, the first contender.
        acceptance_length: mean tokens per verify step; None without a drafter.
    """

    contender: str
    domain: str
    num_prompts: int
    num_repetitions: int
    tokens_per_s: float
    slowest_tokens_per_s: float
    fastest_tokens_per_s: float
    speedup: float
    acceptance_length: float | None
    draft_acceptance_rate: float | None


ALL_DOMAINS = "all"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All trials of a run and which contenders agreed.

    Args:
        differing: (contender, number of prompts) whose tokens differ from the baseline's in the last repetition.
    """

    trials: tuple[Trial, ...]
    differing: tuple[tuple[str, int], ...]


def compare(
    contenders: Sequence[Contender],
    prompts: Sequence[Prompt],
    *,
    max_tokens: int,
    repetitions: int,
    is_exact: bool = True,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    clock: Clock = time.perf_counter,
) -> Comparison:
    """Time every contender on every prompt `repetitions` times, after one uncounted call each.

    Args:
        contenders: the first is the baseline.
        prompts: at least one.
        max_tokens: tokens per call.
        repetitions: at least 1.
        is_exact: refuse a call that produced fewer tokens; otherwise answers may end early.
        on_trial: told of each timed call.
        clock: seconds, monotonic.

    Raises:
        ValueError: a contender produced another number of tokens than asked.
    """
    for contender in contenders:
        contender.generate(prompts[0].token_ids, max_tokens)
    trials: list[Trial] = []
    answers: dict[tuple[str, int], tuple[int, ...]] = {}
    for repetition in range(repetitions):
        for index, prompt in enumerate(prompts):
            shift = (repetition + index) % len(contenders)
            for contender in (*contenders[shift:], *contenders[:shift]):
                trial, answers[contender.name, index] = _run_trial(contender, prompt, repetition, max_tokens, clock)
                if is_exact and trial.num_output_tokens != max_tokens:
                    raise ValueError(
                        f"{contender.name} produced {trial.num_output_tokens} tokens, {max_tokens} were asked for"
                    )
                trials.append(trial)
                on_trial(trial)
    return Comparison(trials=tuple(trials), differing=_count_differences(contenders, len(prompts), answers))


def _run_trial(
    contender: Contender, prompt: Prompt, repetition: int, max_tokens: int, clock: Clock
) -> tuple[Trial, tuple[int, ...]]:
    started = clock()
    made = contender.generate(prompt.token_ids, max_tokens)
    seconds = clock() - started
    trial = Trial(
        contender=contender.name,
        domain=prompt.domain,
        repetition=repetition,
        seconds=seconds,
        num_prompt_tokens=len(prompt.token_ids),
        num_output_tokens=len(made.token_ids),
        num_verify_steps=made.num_verify_steps,
        num_draft_tokens=made.num_draft_tokens,
        num_accepted=made.num_accepted,
        num_emitted=made.num_emitted,
    )
    return trial, made.token_ids


def _count_differences(
    contenders: Sequence[Contender], num_prompts: int, answers: dict[tuple[str, int], tuple[int, ...]]
) -> tuple[tuple[str, int], ...]:
    base = contenders[0].name
    return tuple(
        (other.name, sum(answers[base, index] != answers[other.name, index] for index in range(num_prompts)))
        for other in contenders[1:]
    )


def score(comparison: Comparison) -> tuple[Score, ...]:
    """Return scores of every contender: over all prompts first, then by domain."""
    trials = comparison.trials
    names = tuple(dict.fromkeys(trial.contender for trial in sorted(trials, key=lambda trial: trial.repetition)))
    domains = tuple(dict.fromkeys(trial.domain for trial in trials))
    scores: list[Score] = []
    for domain in (ALL_DOMAINS, *domains):
        chosen = [trial for trial in trials if domain in (ALL_DOMAINS, trial.domain)]
        speeds = {name: _speeds([trial for trial in chosen if trial.contender == name]) for name in names}
        base = median(speeds[names[0]])
        scores += [
            _score([trial for trial in chosen if trial.contender == name], domain, speeds[name], base) for name in names
        ]
    return tuple(scores)


def _speeds(trials: Sequence[Trial]) -> list[float]:
    repetitions = sorted({trial.repetition for trial in trials})
    return [
        sum(trial.num_output_tokens for trial in trials if trial.repetition == repetition)
        / sum(trial.seconds for trial in trials if trial.repetition == repetition)
        for repetition in repetitions
    ]


def _score(trials: Sequence[Trial], domain: str, speeds: Sequence[float], base: float) -> Score:
    steps = sum(trial.num_verify_steps for trial in trials)
    drafts = sum(trial.num_draft_tokens for trial in trials)
    accepted = sum(trial.num_accepted for trial in trials)
    emitted = sum(trial.num_emitted for trial in trials)
    return Score(
        contender=trials[0].contender,
        domain=domain,
        num_prompts=len([trial for trial in trials if trial.repetition == trials[0].repetition]),
        num_repetitions=len(speeds),
        tokens_per_s=median(speeds),
        slowest_tokens_per_s=min(speeds),
        fastest_tokens_per_s=max(speeds),
        speedup=median(speeds) / base,
        acceptance_length=acceptance_length(steps, emitted),
        draft_acceptance_rate=draft_acceptance_rate(drafts, accepted),
    )


def cut_prompt(previous: Sequence[int], own: Sequence[int], num_tokens: int | None) -> tuple[int, ...]:
    """Return a prompt of exactly `num_tokens` tokens that ends as `own` does.

    A short prompt is preceded by earlier text, as in a conversation; a long one loses its beginning. With None the
    prompt is left as it is.

    Raises:
        ValueError: both together are too short.
    """
    if num_tokens is None:
        return tuple(own)
    joined = (*previous, *own)
    if len(joined) < num_tokens:
        raise ValueError(f"{len(joined)} tokens of prompt text are available, {num_tokens} are needed")
    return tuple(joined[len(joined) - num_tokens :])
