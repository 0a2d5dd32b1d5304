"""Whether two texts part only where the choice was a near tie: what may differ between products of other shapes.

In bfloat16 the same text computed in another batch, chunk or ladder has logits that differ by a rounding. Then two runs
may draw different tokens, but only where the two best draws were that close; after it the texts have nothing in common.
So the comparison stops at the first difference and asks how far apart the two tokens were, scored by a third run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from slipstream import LLM, SamplingParams
from slipstream.sampling.noise import gumbel_noise

Tokens = Sequence[int]


@dataclass(frozen=True)
class Parting:
    """The first difference of two answers to the same prompt.

    Args:
        place: in the answer.
        gap: between the two tokens' draws, in logits of the scorer.
    """

    place: int
    gap: float


def partings(
    scorer: LLM,
    prompts: Sequence[Tokens],
    left: Sequence[Tokens],
    right: Sequence[Tokens],
    params: Sequence[SamplingParams],
) -> list[Parting]:
    """Return where pairs of answers part, and by how much; equal pairs are left out.

    Args:
        scorer: tells log-probabilities of a prompt.
        prompts, left, right: token ids; the pairs are as long as they have to be.
        params: greedy, or coupled by a seed and without filters.
    """
    assert not any(one.has_filters or one.has_edits for one in params), "filtered draws have no gap"
    found: list[tuple[int, int]] = []
    texts: list[list[int]] = []
    for index, (prompt, one, other) in enumerate(zip(prompts, left, right, strict=True)):
        if tuple(one) == tuple(other):
            continue
        place = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
        assert place is not None, f"answer {index}: one text is the beginning of the other ({len(one)}, {len(other)})"
        found.append((index, place))
        texts += [[*prompt, *one[: place + 1]], [*prompt, *other[: place + 1]]]
    scores = last_logprobs(scorer, texts)
    return [
        Parting(place, _gap(texts[2 * at], texts[2 * at + 1], scores[2 * at : 2 * at + 2], params[index]))
        for at, (index, place) in enumerate(found)
    ]


def own_parting(
    num_prompt_tokens: int,
    left: tuple[Tokens, Sequence[float]],
    right: tuple[Tokens, Sequence[float]],
    params: SamplingParams,
) -> Parting | None:
    """Return where two answers part, scored by the runs that gave them: for prompts too long to score again.

    Args:
        num_prompt_tokens: of the prompt.
        left, right: token ids and their raw log-probabilities.
        params: as in `partings`.
    """
    pairs = enumerate(zip(left[0], right[0], strict=True))
    place = next((at for at, pair in pairs if pair[0] != pair[1]), None)
    if place is None:
        return None
    texts = [[0] * num_prompt_tokens + list(tokens[: place + 1]) for tokens in (left[0], right[0])]
    return Parting(place, _gap(texts[0], texts[1], (left[1][place], right[1][place]), params))


def last_logprobs(scorer: LLM, texts: Sequence[Tokens]) -> list[float]:
    """Return the raw log-probability of every text's last token."""
    if not texts:
        return []
    asked = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    return [answer.prompt_logprobs[-1] for answer in scorer.generate([list(text) for text in texts], asked)]


def _gap(one: Tokens, other: Tokens, logprobs: Sequence[float], params: SamplingParams) -> float:
    if params.is_greedy:
        return abs(logprobs[0] - logprobs[1])
    assert params.seed is not None, "only draws with a seed can be told again"
    seed, position = torch.tensor([params.seed]), torch.tensor([len(one) - 1])
    noise = gumbel_noise(seed, position, max(one[-1], other[-1]) + 1)[0]
    keys = [
        logprob + params.temperature * float(noise[text[-1]])
        for logprob, text in zip(logprobs, (one, other), strict=True)
    ]
    return abs(keys[0] - keys[1])
