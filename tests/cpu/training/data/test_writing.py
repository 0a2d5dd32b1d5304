from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from slipstream.base.errors import ConfigError
from slipstream.training.data.texts import TextStore
from slipstream.training.data.writing import TextPlan, write_texts

TEXTS_PER_FILE = 8
PROMPTS = [(1, 2, 3), (4,), (5, 6)]


class Scribe:
    """Answers with its seed's last digits, as often as it may; can be cut off after some calls."""

    def __init__(self, max_calls=None, finish_reason="stop"):
        self.max_calls, self.finish_reason, self.num_calls, self.params = max_calls, finish_reason, 0, []

    def generate(self, prompts, params):
        if self.num_calls == self.max_calls:
            raise KeyboardInterrupt
        self.num_calls += 1
        self.params += params
        return [
            SimpleNamespace(
                prompt_token_ids=tuple(prompt),
                token_ids=(one.seed % 10,) * min(one.max_tokens, 4),
                finish_reason=self.finish_reason,
                error="broken",
            )
            for prompt, one in zip(prompts, params, strict=True)
        ]


def write(scribe, store, num_tokens, temperatures=(0.0, 0.7, 1.0), seed=0):
    seen = []
    write_texts(
        scribe,
        PROMPTS,
        store,
        TextPlan(len(PROMPTS), temperatures, seed),
        num_tokens=num_tokens,
        answer_tokens=6,
        max_length=8,
        texts_per_file=TEXTS_PER_FILE,
        on_progress=lambda *news: seen.append(news),
    )
    return seen


def test_every_prompt_gets_every_temperature_once_before_any_twice():
    plan = TextPlan(5, (0.0, 0.7, 1.0), 3)
    asks = [plan.ask(number) for number in range(15)]
    assert Counter((ask.prompt, ask.temperature) for ask in asks) == {
        (p, t): 1 for p in range(5) for t in (0.0, 0.7, 1.0)
    }
    assert len({ask.seed for ask in asks}) == 15
    assert [ask.prompt for ask in asks[:5]] != [ask.prompt for ask in asks[5:10]]
    assert {plan.ask(number).temperature for number in range(15, 40)} == {0.7, 1.0}
    assert [TextPlan(5, (0.0, 0.7, 1.0), 3).ask(number) for number in (7, 2)] == [asks[7], asks[2]]


def test_greedy_asks_alone_end_with_the_prompts(tmp_path):
    store = TextStore(tmp_path)
    write(Scribe(), store, 10_000, temperatures=(0.0,))
    assert sorted(text.prompt for text in store.texts) == [0, 1, 2]


def test_a_cut_off_run_goes_on_where_it_was(tmp_path):
    goal = 3 * TEXTS_PER_FILE * 4
    whole = TextStore(tmp_path / "whole")
    news = write(Scribe(), whole, goal)
    assert news[0] == (0, goal)
    assert news[-1] == (goal, goal)
    parts = TextStore(tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        write(Scribe(max_calls=1), parts, goal)
    again = TextStore(tmp_path / "parts")
    assert again.num_files == 1
    rest = Scribe()
    write(rest, again, goal)
    assert rest.num_calls == whole.num_files - 1
    assert TextStore(tmp_path / "parts").texts == whole.texts


def test_answers_fit_the_longest_text(tmp_path):
    scribe = Scribe()
    write(scribe, TextStore(tmp_path), 50)
    assert {one.max_tokens for one in scribe.params} == {5, 6}


def test_a_target_that_fails_or_says_nothing_is_named(tmp_path):
    with pytest.raises(ConfigError, match="the target failed at prompt .: broken"):
        write(Scribe(finish_reason="error"), TextStore(tmp_path / "a"), 50)

    class Mute(Scribe):
        def generate(self, prompts, params):
            return [SimpleNamespace(prompt_token_ids=p, token_ids=(), finish_reason="stop") for p in prompts]

    with pytest.raises(ConfigError, match="the target wrote nothing"):
        write(Mute(), TextStore(tmp_path / "b"), 50, temperatures=(0.0,))
