"""An engine under evaluation: scores and answers through LLM, verify steps kept per request, engines closed."""

from __future__ import annotations

import pytest

from slipstream.evaluation import subject as module
from slipstream.evaluation.subject import CHUNK, EngineLab, EngineSubject, VerifyStep
from support.evaluation_world import TEXT
from support.fake_engine import FakeConfig, FakeModelSection, FakeSyncEngine, ScriptedEngine, fake_facts
from support.tiny_text import tiny_folder


def fake():
    return FakeSyncEngine(ScriptedEngine(fake_facts()))


def test_every_token_but_the_first_is_scored():
    subject = EngineSubject(fake(), TEXT)
    prompts = [(5, 6, 7), (9, 8)] * CHUNK
    scores = list(subject.score(prompts))
    assert scores[0] == (-0.25, -0.5)
    assert [len(score) for score in scores] == [2, 1] * CHUNK


def test_answers_come_in_order_with_their_verify_steps():
    engine = fake()
    subject = EngineSubject(engine, TEXT)
    prompts = [(5, 6, 7), (9, 8)]
    answers = list(subject.answer(prompts, max_tokens=20))
    assert [answer.token_ids[: len(prompt)] for answer, prompt in zip(answers, prompts, strict=True)] == prompts
    for answer in answers:
        # The first token comes from the prompt's own pass.
        assert sum(step.num_emitted for step in answer.steps) == len(answer.token_ids) - 1
        assert all(step.num_accepted <= step.num_draft_tokens == 3 for step in answer.steps)
        assert answer.margin is None
    assert subject._record.steps == {}
    subject.close()
    assert engine.is_closed


def test_a_margin_is_the_lead_of_the_best_token():
    answer = next(iter(EngineSubject(fake(), TEXT).answer([(5, 6)], max_tokens=1, has_margin=True)))
    assert answer.margin == pytest.approx(0.125)
    assert answer.best_ids == (6, 7)
    assert answer.steps == ()


def test_a_lab_opens_what_is_asked_for_and_closes_it(monkeypatch):
    engines, asked = [], []

    def start(config):
        engines.append(fake())
        return engines[-1]

    def settle(model, drafter):
        asked.append((model, drafter))
        return FakeConfig(model=FakeModelSection(path=str(tiny_folder())))

    monkeypatch.setattr(module, "start_inline", start)
    with pytest.raises(KeyboardInterrupt), EngineLab(settle).open(model="copy", drafter="none"):
        raise KeyboardInterrupt
    assert asked == [("copy", "none")]
    assert engines[0].is_closed


def test_a_step_that_emits_nothing_is_no_verify_step():
    assert VerifyStep(3, 2, 3).num_emitted == 3
