"""What a run asks of changed copies is what the workshop of the tests, too, fulfils."""

from __future__ import annotations

from slipstream.evaluation.changes import Change, Workshop
from support.evaluation_world import FakeWorkshop


def test_a_change_copies_weights_only_when_it_says_so():
    assert not Change(feature="a", means="b").needs_copy
    workshop: Workshop = FakeWorkshop()
    with workshop.variant("absent") as folder:
        assert folder is None
    with workshop.control("untrained") as folder:
        assert folder.name == "untrained"
