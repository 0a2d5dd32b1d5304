from __future__ import annotations

import pytest

from slipstream.scheduler.lifecycle import Decoding, Finished, Flight, Ledger, Prefilling, Waiting
from slipstream.wire.ids import NO_ROW, RowId
from support.fake_runner import make_request


def make_ledger(num_prompt: int = 10, max_tokens: int = 20) -> Ledger:
    return Ledger.open(make_request("a", range(num_prompt), max_tokens=max_tokens, arrival_s=2.0), order=7)


def make_decoding(*max_emitted: int, num_prompt: int = 10, max_tokens: int = 20) -> Decoding:
    decoding = Decoding(ledger=make_ledger(num_prompt, max_tokens), row=RowId(1), num_computed_tokens=9, last_step=0)
    decoding.flights.extend(Flight(step, None, count) for step, count in enumerate(max_emitted))
    return decoding


def test_a_started_request_has_what_the_hit_covers_behind_it():
    prefilling = Waiting(make_ledger()).start(RowId(3), 4, step_id=5)
    assert isinstance(prefilling, Prefilling)
    assert (prefilling.row, prefilling.num_computed_tokens, prefilling.num_planned_tokens) == (3, 4, 4)
    assert prefilling.num_remaining_tokens == 6
    assert prefilling.last_step == 5


def test_a_transition_moves_row_and_flights_and_empties_the_old_state():
    prefilling = Waiting(make_ledger()).start(RowId(3), 4, step_id=5)
    prefilling.flights.append(Flight(5, 10, 1))
    decoding = prefilling.to_decoding()
    assert (decoding.row, len(decoding.flights), decoding.last_step) == (3, 1, 5)
    assert (prefilling.row, len(prefilling.flights)) == (NO_ROW, 0)
    waiting = decoding.to_waiting()
    assert waiting.ledger is decoding.ledger
    assert (decoding.row, len(decoding.flights)) == (NO_ROW, 0)


@pytest.mark.parametrize("draft_len", [0, 3])
def test_pages_are_reserved_for_full_acceptance_and_the_drafts_after_it(draft_len):
    ladder = draft_len + 1
    num_computed = 9  # ten known tokens, the last of them not computed
    assert make_decoding().num_reserved_tokens(draft_len, 1) == min(num_computed + ladder + draft_len, 30)
    assert make_decoding(ladder).num_reserved_tokens(draft_len, 1) == num_computed + 2 * ladder + draft_len
    assert make_decoding(ladder).num_reserved_tokens(draft_len) == num_computed + ladder + draft_len
    # A last chunk in flight emits one token; a chunk before it none.
    assert make_decoding(0, 1).num_reserved_tokens(draft_len, 1) == 10 + ladder + draft_len


def test_nothing_is_reserved_past_the_requests_own_limit():
    assert make_decoding(10, max_tokens=6).num_reserved_tokens(9, 1) == 16


@pytest.mark.parametrize(
    ("flights", "expected"), [((), True), ((4,), True), ((0, 1), True), ((4, 4), False), ((0, 0), True)]
)
def test_a_row_advances_while_the_least_progress_stays_below_the_limit(flights, expected):
    assert make_decoding(*flights, max_tokens=2).can_advance is expected


def test_the_last_output_carries_the_times():
    ledger = make_ledger()
    ledger.first_scheduled_s, ledger.first_token_s, ledger.num_preemptions = 5.0, 9.0, 2
    ledger.num_prefix_hit_tokens = 8
    output = Finished(ledger, "stop", stop_reason=3).final_output(12.0, token_ids=(3,), logprobs=(-0.5,))
    assert (output.queue_s, output.prefill_s, output.decode_s) == (3.0, 4.0, 3.0)
    assert (output.finish_reason, output.stop_reason, output.num_preemptions) == ("stop", 3, 2)
    assert (output.token_ids, output.logprobs, output.num_prefix_hit_tokens) == ((3,), (-0.5,), 8)


def test_a_request_that_never_ran_has_only_queued():
    output = Finished(make_ledger(), "abort").final_output(12.0)
    assert (output.queue_s, output.prefill_s, output.decode_s) == (10.0, 0.0, 0.0)
