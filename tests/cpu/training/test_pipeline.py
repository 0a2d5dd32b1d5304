"""A whole run on a tiny target, and a real one: a head trained for seconds drafts for the demo."""

from __future__ import annotations

import tomllib

import pytest
from safetensors.torch import load_file

from slipstream.base.errors import CheckpointError, ConfigError, UnsupportedFeature
from slipstream.demo import demo_path
from slipstream.training import pipeline
from slipstream.training.data.texts import TextStore
from slipstream.training.pipeline import TrainRequest, run_training
from slipstream.training.settings import Budget, TrainSettings
from support.train_world import make_target, write_prompts

ENGINE = {"device": "cpu", "threads": 1}
TINY = TrainSettings(
    written_tokens=300,
    texts_per_file=16,
    answer_tokens=12,
    max_length=64,
    batch_tokens=128,
    budget=Budget(unit="steps", amount=6),
    warm_up_steps=1,
    num_unrolled=3,
    log_every=2,
)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return str(make_target(tmp_path_factory.mktemp("target"))[0])


@pytest.fixture
def request_of(target, tmp_path):
    prompts = write_prompts(tmp_path / "prompts.jsonl")

    def make(out, **changes):
        fields = {
            "kind": "eagle3",
            "target": target,
            "prompts": prompts,
            "out": tmp_path / out,
            "has_plots": False,
            "checkpoint_every_s": 0.0,
            "draft_len": 2,
            "eval_tokens": 6,
            "engine": ENGINE,
        }
        return TrainRequest(**(fields | changes))

    return make


class Killed(BaseException):
    """The process is gone."""


def weights(request):
    return load_file(request.out / "eagle3" / "model.safetensors")


def test_a_run_that_is_killed_while_writing_and_training_ends_the_same(request_of):
    straight = request_of("straight")
    seen = []
    outcome = run_training(straight, TINY, seen.append)
    assert {report.stage for report in seen} == {"writing", "training", "measuring"}
    assert outcome.steps == 6

    def die_at(stage, done):
        def watch(report):
            if report.stage == stage and report.done >= done:
                raise Killed

        return watch

    killed = request_of("killed", resume=True)
    for stage, done in (("writing", 1), ("training", 300)):
        with pytest.raises(Killed):
            run_training(killed, TINY, die_at(stage, done))
    run_training(killed, TINY, lambda report: None)
    assert TextStore(killed.out / "texts").texts == TextStore(straight.out / "texts").texts
    ours, theirs = weights(killed), weights(straight)
    assert ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)
    result = tomllib.loads((killed.out / "result.toml").read_text(encoding="utf-8"))
    assert result["measurement"] == {
        "draft_len": 2, "is_held_out": True, "num_answers": 2, "num_equal_answers": 2
    }  # fmt: skip
    assert result["training"]["steps"] == 6
    assert len((killed.out / "loss.csv").read_text().splitlines()) == 1 + 3


def test_training_makes_a_head_that_drafts_for_the_demo(tmp_path):
    """A few seconds of training; the head before it is the control."""
    settings = TrainSettings(
        temperatures=(0.0,),
        written_tokens=200,
        texts_per_file=8,
        answer_tokens=24,
        max_length=96,
        batch_tokens=256,
        budget=Budget(unit="steps", amount=30),
        warm_up_steps=4,
        num_unrolled=2,
    )
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(f"Tom has {n} apples. He buys {n + 1} more." for n in range(2, 10)), encoding="utf-8")
    request = TrainRequest(
        kind="eagle3", prompts=prompts, out=tmp_path / "run", has_plots=False, eval_tokens=16, engine=ENGINE
    )
    outcome = run_training(request, settings, lambda report: None)
    trained, untrained, _ = (score.whole.acceptance_length for score in outcome.scores)
    assert untrained < 1.2
    assert trained > untrained + 0.3
    assert outcome.num_equal_answers == len(outcome.scores[-1].answers)
    assert demo_path().name not in str(outcome.identity)


def test_plots_are_drawn_or_refused_before_any_work(request_of, monkeypatch):
    def refuse():
        raise ConfigError("plots need matplotlib")

    monkeypatch.setattr(pipeline, "load_plotting", refuse)
    request = request_of("plots", has_plots=True)
    with pytest.raises(ConfigError, match="plots need matplotlib"):
        run_training(request, TINY, lambda report: None)
    assert not request.out.exists()
    drawn = []
    monkeypatch.setattr(pipeline, "load_plotting", lambda: None)
    monkeypatch.setattr(pipeline, "plot_loss", lambda path, rows: drawn.append((path.name, len(rows))))
    monkeypatch.setattr(pipeline, "plot_acceptance", lambda path, rates, title: drawn.append((path.name, set(rates))))
    run_training(request, TINY, lambda report: None)
    assert drawn == [("loss.png", 3), ("acceptance.png", {"eagle3", "untrained"})]


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"kind": "dspark"}, UnsupportedFeature, "train-drafter dspark"),
        ({"target": "nowhere"}, CheckpointError, "--target nowhere"),
        ({"prompts": "nowhere"}, ConfigError, "no such file of prompts"),
        ({"eval_prompts": "nowhere"}, ConfigError, "no such file of prompts"),
    ],
)
def test_bad_input_is_refused_before_the_folder_is_made(request_of, tmp_path, changes, error, said):
    paths = {k: tmp_path / v if k.endswith("prompts") else v for k, v in changes.items()}
    request = request_of("out", **paths)
    with pytest.raises(error, match=said):
        run_training(request, TINY, lambda report: None)
    assert not request.out.exists()


def test_prompts_that_are_trained_on_are_not_called_held_out(request_of, tmp_path):
    prompts = request_of("out").prompts
    others = write_prompts(tmp_path / "others.jsonl", count=14)
    rows = others.read_text(encoding="utf-8").splitlines()
    others.write_text("\n".join(rows[12:]), encoding="utf-8")
    for measured, is_held_out in ((None, True), (others, True), (prompts, False)):
        assert pipeline._prompts(request_of("out", eval_prompts=measured), 0)[2] is is_held_out


def test_prompts_that_do_not_fit_are_refused(request_of, tmp_path):
    long = tmp_path / "long.txt"
    long.write_text("the quick brown fox " * 40 + "\n" + "dog " * 200, encoding="utf-8")
    with pytest.raises(ConfigError, match="prompts has at most 60 tokens; give shorter ones, or raise --max-length"):
        run_training(request_of("out", prompts=long), TINY, lambda report: None)


def test_two_processes_do_not_train_in_one_folder(request_of):
    request = request_of("out", resume=True)

    def look(report):
        with pytest.raises(ConfigError, match="another process works on this run"):
            run_training(request, TINY, lambda report: None)
        raise Killed

    with pytest.raises(Killed):
        run_training(request, TINY, look)
