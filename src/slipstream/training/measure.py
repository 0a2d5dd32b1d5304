"""What a drafter is worth: acceptance by domain and position on prompts, through the engine itself, greedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from slipstream.engine.interface import SyncEngine
from slipstream.engine.spawn import start_inline
from slipstream.frontend.llm import LLM
from slipstream.frontend.processor import Processor, TextParts
from slipstream.harness.stats import acceptance_length
from slipstream.training.data.prompts import TrainingPrompt, encode_prompt
from slipstream.training.target import settle_target
from slipstream.wire.messages import EngineStats, Outputs, ToFrontend
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams

ALL = "all"


class DomainScore(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance on the prompts of one domain.

    Args:
        acceptance_length: None without a drafter, or where no ladder was verified.
        acceptance_rates: per draft position, of all ladders.
    """

    domain: str
    num_prompts: int
    num_tokens: int
    num_verify_steps: int
    acceptance_length: float | None
    acceptance_rates: tuple[float, ...]


class DrafterScore(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance of one drafter, by domain and in all, and the answers.

    Args:
        answers: token ids of every answer, in the order of the prompts; drafters must not differ in them.
    """

    drafter: str
    domains: tuple[DomainScore, ...]
    answers: tuple[tuple[int, ...], ...]

    @property
    def whole(self) -> DomainScore:
        """Return the score over all domains."""
        return next(score for score in self.domains if score.domain == ALL)


class StatsWatch:
    """An engine whose last counters are kept at hand; it is a `SyncEngine` itself."""

    def __init__(self, engine: SyncEngine) -> None:
        self._engine = engine
        self.last = EngineStats()

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self._engine.submit(request)

    def abort(self, request_id: str) -> None:
        """End a request."""
        self._engine.abort(request_id)

    def poll(self, timeout_s: float) -> list[ToFrontend]:
        """Return the news, and remember the counters in it."""
        messages = self._engine.poll(timeout_s)
        for message in messages:
            if isinstance(message, Outputs):
                self.last = message.stats
        return messages

    def close(self) -> None:
        """End the engine."""
        self._engine.close()


def measure_drafter(
    name: str,
    drafter: str,
    target: Path,
    prompts: Sequence[TrainingPrompt],
    *,
    draft_len: int,
    max_tokens: int,
    engine: Mapping[str, Any],
) -> DrafterScore:
    """Answer prompts with a drafter, domain after domain.

    Args:
        name: for the result.
        drafter: `none` or a folder.
        target: folder of the target.
        prompts: at least one.
        draft_len: drafts per step.
        max_tokens: of an answer.
        engine: further options of the engine.

    Raises:
        CheckpointError: the drafter does not fit the target.
        ConfigError: a prompt that cannot be asked.
    """
    length = {} if drafter == "none" else {"draft_len": draft_len}
    config = settle_target(target, drafter=drafter, prefix_cache=False, **length, **engine)
    watch = StatsWatch(start_inline(config))
    text = TextParts.load(target)
    by_domain: dict[str, list[int]] = {}
    for place, prompt in enumerate(prompts):
        by_domain.setdefault(prompt.domain, []).append(place)
    answers: dict[int, tuple[int, ...]] = {}
    scores: list[DomainScore] = []
    totals = [0, 0, 0]
    with LLM.over(watch, text) as llm:
        processor = Processor(text, llm.facts)
        started = watch.last
        for domain, places in by_domain.items():
            before = watch.last
            ids = [encode_prompt(prompts[place], processor) for place in places]
            room = [min(max_tokens, max(1, llm.facts.max_model_len - len(one))) for one in ids]
            done = llm.generate(ids, [SamplingParams(temperature=0.0, max_tokens=count) for count in room])
            answers |= {place: one.token_ids for place, one in zip(places, done, strict=True)}
            sums = [
                sum(len(one.token_ids) for one in done),
                sum(one.num_verify_steps for one in done),
                sum(one.num_emitted for one in done),
            ]
            totals = [total + value for total, value in zip(totals, sums, strict=True)]
            scores.append(_score(domain, len(places), sums, before, watch.last))
        scores.append(_score(ALL, len(prompts), totals, started, watch.last))
    return DrafterScore(
        drafter=name, domains=tuple(scores), answers=tuple(answers[place] for place in range(len(prompts)))
    )


def _score(domain: str, num_prompts: int, sums: list[int], before: EngineStats, after: EngineStats) -> DomainScore:
    num_tokens, num_verify_steps, num_emitted = sums
    earlier = (*before.num_accepted_per_position, *(0 for _ in after.num_accepted_per_position))
    accepted = [now - then for now, then in zip(after.num_accepted_per_position, earlier, strict=False)]
    num_ladders = after.num_drafts - before.num_drafts
    return DomainScore(
        domain=domain,
        num_prompts=num_prompts,
        num_tokens=num_tokens,
        num_verify_steps=num_verify_steps,
        acceptance_length=acceptance_length(num_verify_steps, num_emitted),
        acceptance_rates=tuple(count / num_ladders for count in accepted) if num_ladders else (),
    )
