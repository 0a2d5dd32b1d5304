"""Needle: a fact at a known depth of a text of known length, other facts of its kind around it, asked for at the end.

With other facts in sight a lucky guess is right once in as many times as there are facts: that is chance.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

import msgspec

from slipstream.evaluation.estimates import estimate_share
from slipstream.evaluation.findings import NeedleCell, Selection
from slipstream.evaluation.measures.work import Meter, answer_cost
from slipstream.evaluation.plan import Plan
from slipstream.evaluation.subject import Subject
from slipstream.evaluation.suite import Needle, Suite
from slipstream.evaluation.words import encode_needle
from slipstream.frontend.processor import TextParts


class NeedleSet(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts of one length and depth, with the words a right answer holds."""

    num_tokens: int
    depth: float
    prompts: tuple[tuple[int, ...], ...]
    expected: tuple[str, ...]
    chance: float


def build_needles(text: TextParts, suite: Suite, plan: Plan, max_model_len: int) -> tuple[NeedleSet, ...]:
    """Return the prompts of every length and depth that the model can hold.

    The same facts are asked for in every cell, so that cells differ in length and depth alone.
    """
    needles = suite.needles[: plan.num_needles]
    if not needles or not suite.fillers:
        return ()
    sets: list[NeedleSet] = []
    chance = sum(1 / (1 + len(needle.others)) for needle in needles) / len(needles)
    for length in plan.needle_lengths:
        if length + plan.max_needle_tokens > max_model_len:
            continue
        for depth in plan.needle_depths:
            rng = random.Random(f"{plan.seed}-{length}")
            prompts = tuple(build_prompt(text, needle, suite.fillers, length, depth, rng) for needle in needles)
            expected = tuple(needle.fact.expected for needle in needles)
            sets.append(NeedleSet(num_tokens=length, depth=depth, prompts=prompts, expected=expected, chance=chance))
    return tuple(sets)


def build_prompt(
    text: TextParts, needle: Needle, fillers: Sequence[str], num_tokens: int, depth: float, rng: random.Random
) -> tuple[int, ...]:
    """Return a prompt of at most `num_tokens` tokens, as long as whole sentences allow.

    Args:
        text: tokenizer and template.
        needle: the fact and the others.
        fillers: ordinary sentences; a long text repeats them.
        num_tokens: length.
        depth: place of the fact among the sentences, 0 to 1.
        rng: decides fillers and the places of other facts.
    """
    others = [fact.text for fact in needle.others]
    budget = num_tokens - len(encode_needle(text, needle, [*others, needle.fact.text]))
    chosen: list[str] = []
    pool = list(fillers)
    rng.shuffle(pool)
    for filler in (pool * (1 + num_tokens // len(pool)))[:num_tokens]:
        cost = len(text.tokenizer.encode_plain(f" {filler}"))
        if cost <= budget:
            budget -= cost
            chosen.append(filler)
        elif budget < num_tokens // 20:
            break
    for other in others:
        chosen.insert(rng.randint(0, len(chosen)), other)
    prompt = _put(text, needle, chosen, depth)
    # Tokens at the joints of sentences may be one more than counted.
    while len(prompt) > num_tokens and len(chosen) > len(others):
        chosen.remove(next(sentence for sentence in reversed(chosen) if sentence not in others))
        prompt = _put(text, needle, chosen, depth)
    return prompt


def measure_needles(
    subject: Subject, sets: Sequence[NeedleSet], selection: Selection, max_tokens: int, meter: Meter
) -> Iterator[NeedleCell]:
    """Yield the share of facts found, per length and depth, under the subject's selection of blocks."""
    for cell in sets:
        num_found = 0
        answers = subject.answer(cell.prompts, max_tokens=max_tokens)
        for prompt, expected, answer in zip(cell.prompts, cell.expected, answers, strict=True):
            num_found += holds(answer.text, expected)
            meter(answer_cost(prompt, max_tokens))
        yield NeedleCell(
            selection=selection,
            num_tokens=cell.num_tokens,
            depth=cell.depth,
            found=estimate_share(num_found, len(cell.prompts)),
            chance=cell.chance,
        )


def holds(answer: str, expected: str) -> bool:
    """Return whether the expected words stand in the answer, not as a part of longer ones."""
    return re.search(rf"(?<!\w){re.escape(expected)}(?!\w)", answer) is not None


def _put(text: TextParts, needle: Needle, sentences: Sequence[str], depth: float) -> tuple[int, ...]:
    place = round(depth * len(sentences))
    return encode_needle(text, needle, [*sentences[:place], needle.fact.text, *sentences[place:]])
