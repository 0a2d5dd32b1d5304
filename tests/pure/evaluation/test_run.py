"""A run: everything in turn, what cannot be measured is noted, Ctrl-C keeps what was found."""

from __future__ import annotations

import msgspec
import pytest

from slipstream.base.errors import ConfigError
from slipstream.evaluation.plan import MEASURES
from slipstream.evaluation.run import Run
from slipstream.evaluation.subject import VerifyStep
from support.evaluation_world import (
    PLAN,
    TEXT,
    FakeLab,
    FakeProgress,
    FakeSubject,
    FakeWorkshop,
    header,
    tiny_suite,
)

STEPS = (VerifyStep(3, 2, 3),)


def make(lab=None, *, suite=None, workshop=None, has_drafter=True, **changes):
    lab = lab or FakeLab(plain=FakeSubject(), drafted=FakeSubject(steps=STEPS), rope=FakeSubject(logprob=-2.0))
    progress = FakeProgress()
    plan = msgspec.structs.replace(PLAN, **changes)
    run = Run(lab, TEXT, suite or tiny_suite(), plan, workshop or FakeWorkshop(), progress, has_drafter=has_drafter)
    return run, lab, progress


def test_everything_is_measured_and_the_work_was_foreseen():
    run, lab, progress = make()
    found = run.execute()
    assert not found.is_partial
    assert found.unfinished == []
    assert [row.domain for row in found.bits] == ["documents", "chat"]
    assert len(found.problems) == 4
    assert {cell.selection for cell in found.needle} == {"learned", "full"}
    assert {(row.drafter, row.temperature) for row in found.acceptance} == {("trained", 0.0), ("trained", 1.0)}
    assert found.lossless[0].num_identical == found.lossless[0].num_prompts == 4
    assert [row.feature for row in found.ablations] == ["rope", "far"]
    assert found.ablations[0].change.value > 0.0
    assert found.ablations[1].largest_shift == 0.0
    assert lab.opened == ["plain", "drafted", "untrained", "plain", "rope", "far"]
    # The feature that the checkpoint lacks was foreseen, and left out.
    texts = sum(len(ids) for ids in lab.subjects["rope"].asked)
    assert progress.done == progress.total - texts


def test_what_is_left_out_is_noted():
    notes = " / ".join(make()[0].execute().notes)
    assert "absent: this checkpoint does not have it" in notes
    assert "needle: no texts of 4096 tokens (context of 512)" in notes
    assert "no drafter: acceptance" in " ".join(make(has_drafter=False)[0].execute().notes)
    assert "no control drafters" in " ".join(make(workshop=FakeWorkshop(controls=()))[0].execute().notes)


def test_a_drafter_that_changes_text_is_reported():
    lab = FakeLab(plain=FakeSubject(), drafted=FakeSubject(lambda ids: "72", steps=STEPS))
    found = make(lab)[0].execute()
    assert found.lossless[0].num_different == 4
    assert not found.lossless[0].is_lossless


def test_a_foreign_template_leaves_plain_texts_and_prompts():
    found = make(suite=tiny_suite(header=header("another")))[0].execute()
    assert [row.domain for row in found.bits] == ["documents"]
    assert found.problems == found.needle == []
    assert {row.domain for row in found.acceptance} == {"documents", "all"}
    assert "chat template is not the suite's" in " ".join(found.notes)


@pytest.mark.parametrize("measure", MEASURES)
def test_one_measurement_alone_runs_nothing_else(measure):
    found = make(measures=(measure,))[0].execute()
    lists = {
        "bits": found.bits,
        "problems": found.problems,
        "needle": found.needle,
        "speculation": found.acceptance,
        "ablations": found.ablations,
    }
    assert [name for name, rows in lists.items() if rows] == [measure]
    assert found.unfinished == []


@pytest.mark.parametrize("stop_after", range(0, 24, 3))
def test_ctrl_c_keeps_what_was_found_and_says_what_is_missing(stop_after):
    lab = FakeLab(plain=FakeSubject(stop_after=stop_after), drafted=FakeSubject(steps=STEPS))
    found = make(lab)[0].execute()
    assert found.is_partial
    assert "ablations" in found.unfinished
    assert ("bits" in found.unfinished) == (len(found.bits) < 2)
    whole = make()[0].execute()
    assert found.bits == whole.bits[: len(found.bits)]
    assert found.problems == whole.problems[: len(found.problems)]


def test_one_change_that_fails_does_not_end_the_run():
    class Failing(FakeWorkshop):
        def variant(self, feature):
            if feature == "rope":
                raise ConfigError("cannot be written")
            return super().variant(feature)

        def control(self, name):
            raise ConfigError(f"{name}, neither")

    found = make(workshop=Failing())[0].execute()
    assert [row.feature for row in found.ablations] == ["far"]
    assert "rope: not measured (cannot be written)" in found.notes
    assert "control drafter untrained: not measured (untrained, neither)" in found.notes
    assert {row.drafter for row in found.acceptance} == {"trained"}


def test_a_large_checkpoint_is_not_copied():
    found = make(workshop=FakeWorkshop(num_bytes=100), max_copy_bytes=50)[0].execute()
    assert [row.feature for row in found.ablations] == ["rope", "far"]
    notes = " ".join(found.notes)
    assert "the checkpoint has 100 bytes; ablations that rewrite weights are left out above 50" in notes
    assert "absent" not in notes


def test_a_suite_without_anything_to_ask_is_refused():
    empty = tiny_suite(texts=(), dialogues=(), problems=(), needles=(), prompts=())
    with pytest.raises(ConfigError, match="suite tiny: it holds nothing that this model can be asked"):
        make(suite=empty)[0].execute()


def test_fewer_prompts_than_asked_are_noted():
    assert "the suite has 4 prompts for this model, 9 were asked" in make(num_prompts=9)[0].execute().notes


def test_without_a_training_sample_there_is_no_rival():
    texts = tuple(row for row in tiny_suite().texts if row.split == "test")
    dialogues = tuple(row for row in tiny_suite().dialogues if row.split == "test")
    found = make(suite=tiny_suite(texts=texts, dialogues=dialogues))[0].execute()
    assert found.bits[0].ngram_bits_per_byte is None
    assert any("no n-gram model" in note for note in found.notes)
