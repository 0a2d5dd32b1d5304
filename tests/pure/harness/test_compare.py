from __future__ import annotations

import pytest

from slipstream.harness.compare import Continuation, Prompt, compare, cut_prompt, score


class FakeClock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Scripted:
    """Takes a fixed time per token, and slows down or answers differently on request."""

    def __init__(self, name, seconds_per_token, clock, *, accepted=0, log=None, wrong_for=(), length=None):
        self.name = name
        self._seconds = seconds_per_token
        self._clock = clock
        self._accepted = accepted
        self._log = log if log is not None else []
        self._wrong_for = wrong_for
        self._length = length

    def generate(self, prompt_token_ids, max_tokens):
        self._log.append((self.name, prompt_token_ids[0]))
        self._clock.now += self._seconds * max_tokens
        token = 9 if prompt_token_ids[0] in self._wrong_for else 1
        steps = max_tokens // (1 + self._accepted) if self._accepted else 0
        return Continuation(
            token_ids=(token,) * (max_tokens if self._length is None else self._length),
            num_verify_steps=steps,
            num_draft_tokens=4 * steps,
            num_accepted=self._accepted * steps,
            num_emitted=max_tokens - 1 if steps else 0,
        )


PROMPTS = [Prompt(domain="code", token_ids=(0, 5)), Prompt(domain="text", token_ids=(1, 5, 6))]


def test_speeds_and_acceptance_are_scored_by_domain_and_overall():
    clock = FakeClock()
    plain = Scripted("off", 0.1, clock)
    drafting = Scripted("on", 0.05, clock, accepted=3)
    result = compare([plain, drafting], PROMPTS, max_tokens=8, repetitions=3, clock=clock)
    table = {(s.domain, s.contender): s for s in score(result)}
    assert list(table) == [(d, c) for d in ("all", "code", "text") for c in ("off", "on")]
    assert table["all", "off"].tokens_per_s == pytest.approx(10.0)
    assert table["all", "on"].tokens_per_s == pytest.approx(20.0)
    assert table["code", "on"].speedup == pytest.approx(2.0)
    # Two steps of each 8-token answer made 7 tokens: the last run is cut by the limit inside its accepted drafts.
    assert table["all", "on"].acceptance_length == 3.5
    assert table["all", "on"].draft_acceptance_rate == 0.75
    assert table["all", "off"].acceptance_length is None
    assert (table["all", "on"].num_prompts, table["all", "on"].num_repetitions) == (2, 3)
    assert table["code", "on"].num_prompts == 1
    assert result.differing == (("on", 0),)


def test_contenders_take_turns_in_rotating_order_after_a_warm_up():
    clock, log = FakeClock(), []
    contenders = [Scripted(name, 1.0, clock, log=log) for name in "abc"]
    compare(contenders, PROMPTS, max_tokens=1, repetitions=2, clock=clock)
    order = "".join(name for name, _ in log)
    assert order == "abc" + "abc" + "bca" + "bca" + "cab"


def test_different_tokens_are_counted_by_prompt():
    clock = FakeClock()
    contenders = [Scripted("off", 1.0, clock), Scripted("on", 1.0, clock, wrong_for=(1,))]
    assert compare(contenders, PROMPTS, max_tokens=2, repetitions=1, clock=clock).differing == (("on", 1),)


def test_a_short_answer_is_refused_unless_answers_may_end_early():
    clock = FakeClock()
    contenders = [Scripted("on", 1.0, clock, length=3)]
    with pytest.raises(ValueError, match="on produced 3 tokens, 4 were asked for"):
        compare(contenders, PROMPTS, max_tokens=4, repetitions=1, clock=clock)
    early = compare(contenders, PROMPTS, max_tokens=4, repetitions=1, is_exact=False, clock=clock)
    assert [trial.num_output_tokens for trial in early.trials] == [3, 3]


def test_the_baseline_is_the_first_contender_whatever_the_rotation():
    clock = FakeClock()
    slow, quick = Scripted("slow", 0.2, clock), Scripted("quick", 0.1, clock)
    first = score(compare([slow, quick], PROMPTS[:1], max_tokens=2, repetitions=2, clock=clock))
    assert [(s.contender, s.speedup) for s in first if s.domain == "all"] == [
        ("slow", 1.0),
        ("quick", pytest.approx(2.0)),
    ]


def test_prompts_are_cut_at_the_front_and_filled_with_earlier_text():
    assert cut_prompt([1, 2, 3], [4, 5], 4) == (2, 3, 4, 5)
    assert cut_prompt([], [1, 2, 3], 2) == (2, 3)
    assert cut_prompt([1], [2], None) == (2,)
    with pytest.raises(ValueError, match="2 tokens"):
        cut_prompt([1], [2], 3)
