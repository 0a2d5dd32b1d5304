"""On-policy text: the engine answers the prompts, and what it answers is kept.

Which prompt, temperature and seed text number n has follows from n alone, so a cut-off run goes on where it was.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slipstream.base.errors import ConfigError
from slipstream.frontend.llm import LLM, Completion
from slipstream.training.data.texts import Text, TextStore, make_text
from slipstream.wire.sampling_params import SamplingParams

MIN_ANSWER_TOKENS = 4
_SEED_STRIDE = 1_000_003
_SEED_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked for one text."""

    prompt: int
    temperature: float
    seed: int


class TextPlan:
    """Which text comes when: rounds over all prompts, each in an order of its own, temperatures in turn.

    Once a prompt has had every temperature, greedy asks would repeat themselves and are given another temperature.

    Args:
        num_prompts: at least one.
        temperatures: at least one.
        seed: of orders and draws.
    """

    def __init__(self, num_prompts: int, temperatures: Sequence[float], seed: int) -> None:
        self.num_prompts, self.temperatures, self.seed = num_prompts, tuple(temperatures), seed
        self._drawn = tuple(t for t in temperatures if t > 0)
        self._orders: dict[int, list[int]] = {}

    @property
    def num_texts(self) -> int | None:
        """Return how many different texts there can be; None is any number."""
        return None if self._drawn else self.num_prompts

    def ask(self, number: int) -> Ask:
        """Return what text `number` is asked."""
        round_, place = divmod(number, self.num_prompts)
        if round_ not in self._orders:
            order = list(range(self.num_prompts))
            random.Random(f"order {self.seed} {round_}").shuffle(order)
            self._orders = {round_: order}
        prompt = self._orders[round_][place]
        turn = prompt + round_
        temperature = self.temperatures[turn % len(self.temperatures)]
        if temperature == 0.0 and round_ >= len(self.temperatures) and self._drawn:
            temperature = self._drawn[turn % len(self._drawn)]
        return Ask(prompt, temperature, (self.seed * _SEED_STRIDE + number) % _SEED_LIMIT)


def is_enough(store: TextStore, plan: TextPlan, num_tokens: int) -> bool:
    """Return whether a store holds what was wanted, or all that the plan can give."""
    is_exhausted = plan.num_texts is not None and len(store.texts) >= plan.num_texts
    return is_exhausted or store.num_written >= num_tokens


def write_texts(
    llm: LLM,
    prompts: Sequence[tuple[int, ...]],
    store: TextStore,
    plan: TextPlan,
    *,
    num_tokens: int,
    answer_tokens: int,
    max_length: int,
    texts_per_file: int,
    on_progress: Callable[[int, int], None],
) -> None:
    """Let the engine write until the store holds enough.

    Args:
        llm: the target's engine.
        prompts: token ids of each prompt, all shorter than `max_length`.
        store: what is there already is kept and counted.
        plan: which text comes when.
        num_tokens: tokens of all answers to stop at.
        answer_tokens: most tokens of one answer.
        max_length: most tokens of prompt and answer.
        texts_per_file: how many are asked for together, and what a cut-off run may lose.
        on_progress: called with (tokens written, tokens wanted).

    Raises:
        ConfigError: the prompts give no text, or one of them no answer.
    """
    on_progress(min(store.num_written, num_tokens), num_tokens)
    while not is_enough(store, plan, num_tokens):
        begin = store.num_files * texts_per_file
        numbers = range(begin, begin + texts_per_file)
        if plan.num_texts is not None:
            numbers = range(begin, min(numbers.stop, plan.num_texts))
        asks = [plan.ask(number) for number in numbers]
        params = [
            SamplingParams(
                temperature=ask.temperature,
                seed=ask.seed,
                max_tokens=min(answer_tokens, max_length - len(prompts[ask.prompt])),
            )
            for ask in asks
        ]
        answers = llm.generate([prompts[ask.prompt] for ask in asks], params)
        store.append([_text(ask, answer) for ask, answer in zip(asks, answers, strict=True)])
        on_progress(min(store.num_written, num_tokens), num_tokens)
    if not store.num_written:
        raise ConfigError("the target wrote nothing: every answer ended at once; give other prompts")


def _text(ask: Ask, answer: Completion) -> Text:
    if answer.finish_reason == "error":
        raise ConfigError(f"the target failed at prompt {ask.prompt}: {answer.error}")
    ids = (*answer.prompt_token_ids, *answer.token_ids)
    return make_text(ids, len(answer.prompt_token_ids), ask.temperature, ask.prompt)
