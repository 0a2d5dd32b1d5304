from __future__ import annotations

from slipstream.scheduler.tally import Tally


def test_ladders_are_counted_per_position():
    tally = Tally(num_accepted_per_position=[0, 0, 0])
    tally.count_ladder(3, 2)
    tally.count_ladder(2, 0)
    tally.count_ladder(3, 3)
    assert (tally.num_drafts, tally.num_draft_tokens, tally.num_accepted_tokens) == (3, 8, 5)
    assert tally.num_accepted_per_position == [2, 2, 1]


def test_a_ladder_without_a_proposal_is_plain_decoding():
    tally = Tally(num_accepted_per_position=[0])
    tally.count_ladder(0, 0)
    assert tally == Tally(num_accepted_per_position=[0])
