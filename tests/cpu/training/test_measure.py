from __future__ import annotations

import pytest

from slipstream.demo import demo_drafter_path, demo_path
from slipstream.training.data.prompts import TrainingPrompt
from slipstream.training.measure import StatsWatch, measure_drafter
from slipstream.wire.messages import EngineStats, Outputs

PROMPTS = [
    TrainingPrompt(domain="count", where="1", text="Tom has 3 apples. He buys 4 more."),
    TrainingPrompt(domain="chat", where="2", messages=({"role": "user", "content": "Hello! How are you?"},)),
    TrainingPrompt(domain="count", where="3", text="Anna has 12 books and gives away 5."),
]


def measure(drafter):
    return measure_drafter(
        drafter,
        str(demo_drafter_path()) if drafter == "eagle3" else drafter,
        demo_path(),
        PROMPTS,
        draft_len=3,
        max_tokens=24,
        engine={"device": "cpu", "threads": 1, "max_model_len": 128},
    )


@pytest.fixture(scope="module")
def scores():
    return measure("eagle3"), measure("none")


def test_domains_add_up_to_the_whole(scores):
    first, *_ = scores
    assert [(d.domain, d.num_prompts) for d in first.domains] == [("count", 2), ("chat", 1), ("all", 3)]
    assert sum(d.num_tokens for d in first.domains[:-1]) == first.whole.num_tokens
    assert sum(d.num_verify_steps for d in first.domains[:-1]) == first.whole.num_verify_steps


def test_lengths_and_rates_tell_the_same(scores):
    """A ladder gives the accepted drafts and one more; only the last one of an answer may be cut."""
    for domain in scores[0].domains:
        assert 1 < domain.acceptance_length <= 1 + sum(domain.acceptance_rates) + 1e-9
        assert (
            domain.acceptance_length
            > 1 + sum(domain.acceptance_rates) - 4 * domain.num_prompts / domain.num_verify_steps
        )
        assert list(domain.acceptance_rates) == sorted(domain.acceptance_rates, reverse=True)


def test_without_a_drafter_there_is_nothing_to_accept_and_the_text_is_the_same(scores):
    with_drafter, without = scores
    assert without.whole.acceptance_length is None
    assert without.whole.acceptance_rates == ()
    assert with_drafter.answers == without.answers
    assert with_drafter.whole.num_tokens == sum(map(len, without.answers))


def test_an_engine_is_watched_and_passed_through():
    class Engine:
        def __init__(self):
            self.calls = []

        def submit(self, request):
            self.calls.append(("submit", request))

        def abort(self, request_id):
            self.calls.append(("abort", request_id))

        def poll(self, timeout_s):
            return [Outputs(outputs=(), stats=EngineStats(num_drafts=7))]

        def close(self):
            self.calls.append(("close",))

    engine = Engine()
    watch = StatsWatch(engine)
    watch.submit("r")
    watch.abort("i")
    assert len(watch.poll(0.1)) == 1
    assert watch.last.num_drafts == 7
    watch.close()
    assert engine.calls == [("submit", "r"), ("abort", "i"), ("close",)]
