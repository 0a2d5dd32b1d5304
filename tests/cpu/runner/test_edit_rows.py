"""Rows of edits: made when somebody asks, gathered where somebody needs them, clean for the next tenant."""

from __future__ import annotations

import pytest
import torch

from slipstream.runner.edit_rows import NO_NEEDS, EditNeeds, EditRows, edit_needs_of
from slipstream.wire.request import MAX_BAD_SEQUENCE_LEN
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import RowStart

VOCAB = 10
HISTORY = torch.arange(3 * 6).view(3, 6)
ALL = EditNeeds(True, True, True)


def start(row: int = 0, *, stop: tuple[int, ...] = (), bad: tuple[tuple[int, ...], ...] = (), **sampling: object):
    return RowStart(
        row=row,
        token_ids=(1, 2, 3, 4),
        num_computed_tokens=0,
        max_seq_len=6,
        sampling=SamplingParams(**sampling),
        seed=0,
        num_prompt_tokens=3,
        stop_token_ids=stop,
        bad_token_ids=bad,
    )


def rows() -> EditRows:
    return EditRows(2, VOCAB, torch.device("cpu"))


@pytest.mark.parametrize(
    ("one", "needs"),
    [
        (start(), NO_NEEDS),
        (start(temperature=0.5, top_k=3), NO_NEEDS),
        (start(min_tokens=2), NO_NEEDS),
        (start(min_tokens=2, stop=(4,)), EditNeeds(has_biases=True)),
        (start(logit_bias={1: 0.5}), EditNeeds(has_biases=True)),
        (start(allowed_token_ids=[1]), EditNeeds(has_biases=True)),
        (start(bad=((3,),)), EditNeeds(has_biases=True)),
        (start(bad=((3, 4),)), EditNeeds(has_sequences=True)),
        (start(bad=((3,), (3, 4))), EditNeeds(has_biases=True, has_sequences=True)),
        (start(repetition_penalty=1.1), EditNeeds(has_penalties=True)),
        (start(frequency_penalty=1.1, stop=(3,)), EditNeeds(has_penalties=True)),
    ],
)
def test_needs_are_known_on_the_host(one: RowStart, needs: EditNeeds) -> None:
    assert edit_needs_of(one) == needs
    assert bool(needs) == (needs != NO_NEEDS)
    made = rows()
    assert made.start(one) == needs
    assert made.is_allocated == bool(needs)


def test_the_needs_of_a_batch_are_the_union() -> None:
    assert EditNeeds(True, False, False) | EditNeeds(False, False, True) == EditNeeds(True, False, True)


def test_only_what_is_needed_is_gathered() -> None:
    made = rows()
    assert made.gather(torch.tensor([0, 2]), ALL, HISTORY) is None, "nobody has asked for anything"
    made.start(start(logit_bias={1: 0.5}))
    assert made.gather(torch.tensor([0]), NO_NEEDS, HISTORY) is None
    biases = made.gather(torch.tensor([0]), EditNeeds(has_biases=True), HISTORY)
    assert biases is not None
    assert (biases.sequences, biases.penalties, len(biases.history)) == (None, None, 0)
    penalties = made.gather(torch.tensor([1, 0]), EditNeeds(has_penalties=True), HISTORY)
    assert penalties is not None
    assert (penalties.biases, penalties.sequences) == (None, None)
    assert torch.equal(penalties.history, HISTORY[[1, 0]])


def test_a_start_writes_what_was_asked() -> None:
    made = rows()
    made.start(
        start(
            1,
            stop=(2, 9),
            bad=((4,), (5, 6), (7, 8, 9)),
            logit_bias={3: -1.5, 5: 2.0},
            allowed_token_ids=[2, 3, 4],
            min_tokens=2,
            repetition_penalty=1.5,
            presence_penalty=0.5,
            frequency_penalty=-0.25,
        )
    )
    edits = made.gather(torch.tensor([1]), ALL, HISTORY)
    assert edits is not None
    assert edits.biases is not None
    assert edits.penalties is not None
    assert edits.sequences is not None
    infinite = float("-inf")
    assert edits.biases.bias[0].tolist() == [*[infinite] * 2, 0.0, -1.5, *[infinite] * 6]
    assert edits.biases.is_end_token[0].nonzero()[:, 0].tolist() == [2, 9]
    assert edits.biases.first_end_position.tolist() == [5], "three tokens of prompt, two of answer"
    assert edits.sequences[0, :2, -3:].tolist() == [[-1, 5, 6], [7, 8, 9]]
    assert (edits.sequences[0, 2:] == -1).all()
    assert edits.sequences.shape[2] == MAX_BAD_SEQUENCE_LEN
    penalties = edits.penalties
    assert [penalties.repetition.item(), penalties.presence.item(), penalties.frequency.item()] == [1.5, 0.5, -0.25]
    assert edits.num_prompt_tokens.tolist() == [3]


def test_the_next_tenant_and_the_scratch_row_find_neutral_values() -> None:
    made = rows()
    made.start(start(stop=(2,), bad=((4,), (5, 6)), allowed_token_ids=[2], min_tokens=2, repetition_penalty=1.5))
    made.start(start())
    edits = made.gather(torch.tensor([0, 2]), ALL, HISTORY)
    assert edits is not None
    assert edits.biases is not None
    assert edits.penalties is not None
    assert edits.sequences is not None
    assert not edits.biases.bias.any()
    assert not edits.biases.is_end_token.any()
    assert not edits.biases.first_end_position.any()
    assert (edits.sequences == -1).all()
    assert edits.penalties.repetition.tolist() == [1.0, 1.0]
    assert not edits.penalties.presence.any()
    assert not edits.penalties.frequency.any()
