"""Drafts: how many are accepted, per domain and position, and whether they leave greedy answers as they were."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from slipstream.evaluation.estimates import estimate_ratio, estimate_share
from slipstream.evaluation.findings import ALL, Acceptance, Lossless
from slipstream.evaluation.measures.work import Meter, answer_cost
from slipstream.evaluation.subject import Answer, Subject
from slipstream.evaluation.suite import Prompt, Suite
from slipstream.evaluation.words import encode_prompt
from slipstream.frontend.processor import TextParts

NEAR_TIE_NATS = {"float32": 1e-3, "bfloat16": 0.1}
"""How close the two best tokens may be before the order of additions decides between them, by dtype."""
_SHOWN_CHARS = 120


class DraftPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as token ids."""

    domain: str
    token_ids: tuple[int, ...]


class OpenReference(Protocol):
    """Opens the engine without a drafter."""

    def __call__(self) -> AbstractContextManager[Subject]:
        """Return it as a context manager."""
        ...


def choose_prompts(
    text: TextParts, suite: Suite, *, is_native: bool, count: int, max_tokens: int
) -> tuple[DraftPrompt, ...]:
    """Return prompts, domains in turn, so that any first part of them holds all domains evenly.

    Args:
        text: tokenizer and template.
        suite: the prompts.
        is_native: conversations can be rendered; without, only plain texts are taken.
        count: most prompts.
        max_tokens: longest prompt.
    """
    domains: dict[str, list[Prompt]] = {}
    for row in suite.prompts:
        if is_native or not row.messages:
            domains.setdefault(row.domain, []).append(row)
    rounds = max(map(len, domains.values()), default=0)
    order = [rows[turn] for turn in range(rounds) for rows in domains.values() if turn < len(rows)]
    chosen: list[DraftPrompt] = []
    for row in order:
        if len(chosen) == count:
            break
        token_ids = encode_prompt(text, row)
        if len(token_ids) <= max_tokens:
            chosen.append(DraftPrompt(domain=row.domain, token_ids=token_ids))
    return tuple(chosen)


def answer_all(
    subject: Subject, prompts: Sequence[DraftPrompt], max_tokens: int, temperature: float, meter: Meter
) -> list[Answer]:
    """Return the answers to all prompts."""
    answers: list[Answer] = []
    asked = [prompt.token_ids for prompt in prompts]
    for ids, answer in zip(asked, subject.answer(asked, max_tokens=max_tokens, temperature=temperature), strict=True):
        answers.append(answer)
        meter(answer_cost(ids, max_tokens))
    return answers


def tally_acceptance(
    drafter: str, temperature: float, prompts: Sequence[DraftPrompt], answers: Sequence[Answer], draft_len: int
) -> Iterator[Acceptance]:
    """Yield the acceptance of each domain, then of all together.

    Args:
        drafter: name in the result.
        temperature: at which the answers were made.
        prompts, answers: in the same order; what has no answer is left out.
        draft_len: drafts per step.
    """
    domains: dict[str, list[Answer]] = {}
    for prompt, answer in zip(prompts, answers, strict=False):
        if answer.steps:
            domains.setdefault(prompt.domain, []).append(answer)
    groups = {**domains, ALL: [answer for members in domains.values() for answer in members]}
    for domain, members in groups.items():
        if not members:
            continue
        steps = [step for answer in members for step in answer.steps]
        yield Acceptance(
            drafter=drafter,
            domain=domain,
            temperature=temperature,
            num_prompts=len(members),
            num_verify_steps=len(steps),
            acceptance_length=estimate_ratio(
                [float(sum(step.num_emitted for step in answer.steps)) for answer in members],
                [float(len(answer.steps)) for answer in members],
            ),
            positions=tuple(
                estimate_share(
                    sum(step.num_accepted > place for step in steps),
                    sum(step.num_draft_tokens > place for step in steps),
                )
                for place in range(draft_len)
            ),
        )


def compare_answers(
    prompts: Sequence[DraftPrompt],
    plain: Sequence[Answer],
    drafted: Sequence[Answer],
    open_reference: OpenReference,
    decode: Callable[[Sequence[int]], str],
) -> Lossless:
    """Return how many greedy answers the drafter left as they were.

    Where two answers part, the engine without a drafter is asked how close its two best tokens are there. Only an
    answer that goes on with one of these two can be a near-tie.

    Args:
        prompts: in the order of both.
        plain, drafted: answers without and with the drafter; the first `len(drafted)` are compared.
        open_reference: opens the engine without a drafter; only called when an answer differs.
        decode: token ids to text.
    """
    parted = [
        (place, _first_difference(before.token_ids, after.token_ids))
        for place, (before, after) in enumerate(zip(plain, drafted, strict=False))
        if before.token_ids != after.token_ids
    ]
    num_near_ties, first_different = 0, None
    if parted:
        beginnings = [(*prompts[place].token_ids, *plain[place].token_ids[:index]) for place, index in parted]
        with open_reference() as subject:
            limit = NEAR_TIE_NATS.get(subject.facts.dtype, 0.0)
            closer = list(subject.answer(beginnings, max_tokens=1, has_margin=True))
        for (place, index), beginning, answer in zip(parted, beginnings, closer, strict=True):
            is_close = (math.inf if answer.margin is None else answer.margin) < limit
            if is_close and set(drafted[place].token_ids[index : index + 1]) & set(answer.best_ids):
                num_near_ties += 1
            elif first_different is None:
                first_different = decode(beginning)[-_SHOWN_CHARS:]
    num_compared = min(len(plain), len(drafted))
    return Lossless(
        num_prompts=num_compared,
        num_identical=num_compared - len(parted),
        num_near_ties=num_near_ties,
        num_different=len(parted) - num_near_ties,
        first_different=first_different,
    )


def _first_difference(left: Sequence[int], right: Sequence[int]) -> int:
    return next(
        (place for place, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]),
        min(len(left), len(right)),
    )
