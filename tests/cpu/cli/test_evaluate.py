"""`slipstream evaluate` on a tiny checkpoint: a whole run, its files, its exit codes, and two deliberate faults."""

from __future__ import annotations

import io
import sys
import tomllib
from contextlib import contextmanager

import msgspec
import pytest
import torch
from rich.console import Console

from slipstream.base.errors import ConfigError
from slipstream.cli import evaluate as module
from slipstream.cli.evaluate import ProgressBar, check_outputs, choose_plan, exit_code
from slipstream.cli.main import main
from slipstream.config.checkpoint import read_target
from slipstream.evaluation.findings import Findings, Lossless
from slipstream.evaluation.plan import FULL, MEASURES, QUICK
from slipstream.evaluation.subject import EngineLab
from slipstream.evaluation.variants import features
from slipstream.evaluation.variants.features import Feature
from support.evaluation_world import PLAN, good_findings, tiny_suite, write_suite
from support.tiny_checkpoints import make_tiny_eagle3
from support.tiny_llm import make_tiny_llm

SMALL = msgspec.structs.replace(PLAN, name="quick")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = make_tiny_llm(tmp_path_factory.mktemp("tiny"))
    make_tiny_eagle3(folder / "eagle3", read_target(folder))
    return folder


@pytest.fixture
def suite(tmp_path):
    return write_suite(tmp_path / "suite.jsonl", tiny_suite())


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(module, "QUICK", SMALL)


def run(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", *map(str, arguments)])
    return stopped.value.code


def test_a_whole_run_shows_writes_and_draws(checkpoint, suite, tmp_path, capsys):
    out, pictures = tmp_path / "r.toml", tmp_path / "plots"
    flags = ("--quick", "--suite", suite, "--threads", 1, "--out", out, "--plots", pictures)
    assert run(checkpoint, *flags) == 0
    shown = capsys.readouterr()
    for title in ("Bits per byte", "Word problems", "Needle", "Acceptance", "Greedy answers", "Ablations", "Marks"):
        assert title in shown.out
    assert "bits per byte ..." in shown.err
    result = tomllib.loads(out.read_text(encoding="utf-8"))
    assert result["kind"] == "evaluation"
    assert result["provenance"]["revision"]
    assert result["suite"] == {"name": "tiny", "seed": 7, "version": 1}
    assert result["plan"]["num_prompts"] == PLAN.num_prompts
    assert result["is_partial"] is False
    assert {row["drafter"] for row in result["acceptance"]} == {"trained", "untrained", "shuffled features"}
    assert {cell["selection"] for cell in result["needle"]} == {"learned", "full", "random", "local"}
    assert len(result["ablations"]) == len(features.FEATURES)
    assert result["lossless"][0]["num_different"] == 0
    assert {file.stem for file in pictures.iterdir()} >= {"bits", "acceptance", "ablations"}
    # Without a drafter's folder of its own, the copies must not find one beside them.
    assert result["config"]["speculation.drafter"] == "eagle3"


def test_missed_marks_fail_only_when_they_should(checkpoint, suite, capsys):
    flags = ("--quick", "--suite", suite, "--threads", 1, "--only", "problems", "--drafter", "none")
    assert run(checkpoint, *flags) == 0
    assert "missed" in capsys.readouterr().out
    assert run(checkpoint, *flags, "--strict") == 1


def test_a_drafter_that_changes_text_fails_the_run(checkpoint, suite, monkeypatch, capsys):
    class Changing:
        """Another last token, as a faulty verification would let through."""

        def __init__(self, subject):
            self.facts, self._subject = subject.facts, subject

        def answer(self, prompts, **settings):
            for answer in self._subject.answer(prompts, **settings):
                changed = (*answer.token_ids[:-1], answer.token_ids[-1] ^ 1)
                yield msgspec.structs.replace(answer, token_ids=changed)

    real = EngineLab.open

    @contextmanager
    def open_changed(self, *, model=None, drafter=None):
        with real(self, model=model, drafter=drafter) as subject:
            yield Changing(subject) if drafter is None else subject

    monkeypatch.setattr(EngineLab, "open", open_changed)
    assert run(checkpoint, "--quick", "--suite", suite, "--threads", 1, "--only", "speculation") == 1
    shown = capsys.readouterr().out
    assert "FAIL" in shown
    assert "0 of 4 identical" in shown


def test_an_ablation_that_changes_nothing_is_reported(checkpoint, suite, monkeypatch, capsys):
    def touch(tensors, spec, generator):
        name = next(iter(sorted(tensors)))
        tensors[name] = tensors[name] + torch.zeros_like(tensors[name])
        return True

    monkeypatch.setattr(
        "slipstream.evaluation.variants.workshop.FEATURES", (Feature("idle", "nothing", edit_tensors=touch),)
    )
    assert run(checkpoint, "--quick", "--suite", suite, "--threads", 1, "--only", "ablations") == 0
    shown = capsys.readouterr().out
    assert "CHANGED NOTHING" in shown
    assert "idle (nothing)" in shown


def test_ctrl_c_shows_and_writes_what_was_found(checkpoint, suite, monkeypatch, tmp_path, capsys):
    class Stopping(ProgressBar):
        def begin(self, title):
            super().begin(title)
            if title == "word problems":
                raise KeyboardInterrupt

    monkeypatch.setattr(module, "ProgressBar", Stopping)
    out = tmp_path / "r.json"
    assert run(checkpoint, "--quick", "--suite", suite, "--threads", 1, "--out", out) == 130
    shown = capsys.readouterr().out
    assert shown.startswith("PARTIAL: the run was interrupted")
    assert "unfinished: problems, needle, speculation, ablations" in shown
    assert '"is_partial": true' in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--only", "speed"), "--only speed: no such measurement; allowed: bits, problems"),
        (("--out", "r.txt"), "--out r.txt: the name must end in .toml or .json"),
        (("--out", f"{__file__}/r.toml"), "cannot be written there; give a file in a folder"),
        (("--suite", "nowhere.jsonl"), "no evaluation suite at nowhere.jsonl"),
        (("--drafter", "nowhere"), "drafter='nowhere'"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_runs(checkpoint, capsys, flags, reason):
    assert run(checkpoint, *flags) == 2
    assert reason in capsys.readouterr().err


def test_plots_are_refused_in_time(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="not a folder"):
        check_outputs(None, tmp_path / "file")
    with pytest.raises(ConfigError, match="cannot be written there"):
        check_outputs(None, tmp_path / "file" / "plots")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match="--plots needs matplotlib"):
        check_outputs(None, tmp_path)


def test_a_plan_is_full_unless_told():
    assert choose_plan((), is_quick=False) is FULL
    assert choose_plan(("needle", "bits"), is_quick=False).measures == ("bits", "needle")
    assert choose_plan((), is_quick=True).measures == QUICK.measures == MEASURES


def test_exit_codes():
    changed = Findings(lossless=[Lossless(num_prompts=1, num_identical=0, num_near_ties=0, num_different=1)])
    assert exit_code(good_findings(), is_strict=True) == 0
    assert exit_code(changed, is_strict=False) == 1
    changed.is_partial = True
    assert exit_code(changed, is_strict=True) == 130


def test_the_bar_says_how_far_it_is_and_how_long_it_takes():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with ProgressBar(console) as bar:
        bar.begin("bits per byte")
        bar.expect(200)
        bar.advance(100)
        bar._bars.refresh()
    shown = console.file.getvalue()
    assert "bits per byte" in shown
    assert "50%" in shown
    assert ":" in shown
