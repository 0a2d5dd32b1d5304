"""Constrained rows of a batch: what the host has not seen reaches it before the forward, and masks come back."""

from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import EngineError
from slipstream.parallel.group import TensorParallelGroup, one_rank
from slipstream.runner.grammar_registry import GrammarRegistry
from slipstream.runner.grammar_rows import GrammarRows, LadderMasks
from slipstream.text.grammar.bitmask import allowed_tokens, num_words
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import RowStart
from support.layer_parts import run_ranks
from support.no_host_read import NoHostRead
from support.table_grammar import TableMatcher

VOCAB, DRAFT_LEN, MAX_LEN = 70, 2, 12
EVERYTHING = list(range(VOCAB))
TABLE = {None: (1, 2, 64), 1: (2, 64), 2: (1,), 64: (64, 69), 69: ()}


def begin(
    row: int, tokens: tuple[int, ...], name: str | None = "r", num_prompt: int = 3, limit: int = MAX_LEN
) -> RowStart:
    return RowStart(
        row=row,
        token_ids=tokens,
        num_computed_tokens=0,
        max_seq_len=limit,
        sampling=SamplingParams(),
        seed=0,
        num_prompt_tokens=num_prompt,
        grammar_id=name,
    )


class Rig:
    """Rows of four requests, their histories, and matchers by name."""

    def __init__(self, group: TensorParallelGroup | None = None) -> None:
        self.registry = GrammarRegistry()
        self.matchers: dict[str, TableMatcher] = {}
        self.rows = GrammarRows(
            self.registry,
            vocab_size=VOCAB,
            draft_len=DRAFT_LEN,
            device=torch.device("cpu"),
            group=group or one_rank(),
        )
        self.history = torch.zeros((5, MAX_LEN), dtype=torch.int64)

    def put(self, name: str, **options: object) -> None:
        def make() -> TableMatcher:
            self.matchers[name] = TableMatcher(TABLE, VOCAB, **options)
            return self.matchers[name]

        self.registry.put(name, make)

    def start(self, start: RowStart) -> None:
        self.history[start.row] = 0
        self.history[start.row, : len(start.token_ids)] = torch.tensor(start.token_ids)
        self.rows.start(start)

    def emit(self, row: int, first: int, *tokens: int) -> None:
        self.history[row, first : first + len(tokens)] = torch.tensor(tokens)

    def ladders(self, rows: tuple[int, ...], base: list[int], drafts: list[list[int]]) -> LadderMasks | None:
        pending = self.rows.before_ladders(rows, torch.tensor(base), torch.tensor(drafts), self.history)
        # The next step may begin to change everything while the host still works.
        self.history.fill_(9)
        return None if pending is None else pending.fill()


def tokens_of(masks: LadderMasks, place: int) -> list[list[int]]:
    return [allowed_tokens(row, VOCAB) for row in masks.allowed[place].numpy()]


def test_batches_without_a_constraint_pay_nothing() -> None:
    rig = Rig()
    rig.start(begin(0, (5, 6, 7), None))
    rig.start(begin(1, (5, 6, 7), None))
    assert rig.ladders((0, 1), [3, 3], [[1, 1], [2, 2]]) is None
    assert rig.rows.before_first_tokens((0, 1)) is None


def test_a_first_token_has_one_row_and_nothing_to_wait_for() -> None:
    rig = Rig()
    rig.put("r")
    rig.start(begin(2, (5, 6, 7)))
    rig.start(begin(0, (5, 6, 7), None))
    pending = rig.rows.before_first_tokens((0, 2))
    assert pending is not None
    masks = pending.fill()
    assert masks.allowed.shape == (2, 1, num_words(VOCAB))
    assert tokens_of(masks, 0) == [EVERYTHING]
    assert tokens_of(masks, 1) == [[1, 2, 64]]
    assert masks.is_constrained == (False, True)
    assert masks.faults == (None, None)


def test_the_host_follows_what_each_ladder_emitted_before_the_next_begins() -> None:
    rig = Rig()
    rig.put("r")
    rig.start(begin(1, (5, 6, 7)))
    rig.start(begin(3, (8, 8), None))
    rig.emit(1, 3, 1)
    masks = rig.ladders((1, 3), [3, 2], [[2, 1], [3, 3]])
    assert masks is not None
    assert rig.matchers["r"].accepted == [1]
    assert tokens_of(masks, 0) == [[2, 64], [1], [2, 64]]
    assert tokens_of(masks, 1) == [EVERYTHING] * 3
    assert masks.max_accepted.tolist() == [2, 2]
    # All drafts were accepted and a bonus followed: three new tokens, the most that there can be.
    rig.emit(1, 4, 2, 1, 64)
    masks = rig.ladders((1,), [6], [[64, 69]])
    assert masks is not None
    assert rig.matchers["r"].accepted == [1, 2, 1, 64]
    assert tokens_of(masks, 0)[:2] == [[64, 69]] * 2
    # None was accepted: one new token.
    rig.emit(1, 7, 64)
    assert rig.ladders((1,), [7], [[7, -1]]) is not None
    assert rig.matchers["r"].accepted == [1, 2, 1, 64, 64]


def test_more_tokens_than_a_step_can_emit_mean_that_the_host_is_lost() -> None:
    rig = Rig()
    rig.put("r")
    rig.start(begin(1, (5, 6, 7)))
    with pytest.raises(EngineError, match="at position 7, the host has followed 3"):
        rig.ladders((1,), [7], [[1, 1]])


def test_what_lies_past_the_limit_is_not_followed() -> None:
    """With overlap a step may begin past the end of a request; what is there is read by nobody, and may be anything."""
    rig = Rig()
    rig.put("r")
    rig.start(begin(1, (5, 6, 7), limit=5))
    rig.emit(1, 3, 1, 2, 33)
    assert rig.ladders((1,), [5], [[1, 1]]) is not None
    assert rig.matchers["r"].accepted == [1, 2]
    rig.emit(1, 3, 1, 2, 33, 34, 35)
    masks = rig.ladders((1,), [7], [[1, 1]])
    assert masks is not None
    assert masks.faults == (None,)
    assert rig.matchers["r"].accepted == [1, 2]


def test_a_row_that_starts_again_follows_from_the_returned_tokens() -> None:
    rig = Rig()
    rig.put("r")
    rig.start(begin(1, (5, 6, 7)))
    rig.emit(1, 3, 1, 2)
    rig.ladders((1,), [4], [[1, 1]])
    rig.start(begin(0, (5, 6, 7, 1, 2), num_prompt=3))
    assert rig.matchers["r"].accepted == [1, 2]
    pending = rig.rows.before_first_tokens((0,))
    assert pending is not None
    assert tokens_of(pending.fill(), 0) == [[1]]
    rig.start(begin(1, (9, 9), None))
    assert rig.rows.before_first_tokens((1,)) is None, "the next tenant of the old row is free"


@pytest.mark.parametrize("way", ["token", "library"])
def test_a_fault_is_one_rows_end(way: str) -> None:
    rig = Rig()
    rig.put("r", fails=RuntimeError("broken") if way == "library" else None)
    rig.put("s")
    rig.start(begin(0, (5, 6, 7)))
    rig.start(begin(1, (5, 6, 7), "s"))
    rig.emit(0, 3, 44 if way == "token" else 1)
    rig.emit(1, 3, 1)
    for _ in range(2):
        history = rig.history.clone()
        masks = rig.ladders((0, 1), [3, 3], [[1, 1], [2, 1]])
        rig.history = history
        assert masks is not None
        assert tokens_of(masks, 0) == [[]] * 3
        assert tokens_of(masks, 1) == [[2, 64], [1], [2, 64]]
        reason = "token 44 after None" if way == "token" else "RuntimeError: broken"
        assert reason in (masks.faults[0] or "")
        assert masks.faults[1] is None
        assert masks.max_accepted.tolist() == [0, 2]


def test_where_a_grammar_ends_behind_a_draft_no_more_is_accepted() -> None:
    rig = Rig()
    rig.put("r", dies_at=64)
    rig.start(begin(0, (5, 6, 7)))
    masks = rig.ladders((0,), [2], [[1, 64]])
    assert masks is not None
    assert masks.max_accepted.tolist() == [1]
    assert masks.faults == (None,)


def test_a_constrained_row_without_a_grammar_is_a_fault_of_the_engine() -> None:
    with pytest.raises(EngineError, match="'r' has a constraint, but no compiled grammar"):
        Rig().start(begin(0, (5, 6, 7)))


def test_only_the_handoff_reads() -> None:
    rig = Rig()
    rig.put("r")
    rig.start(begin(1, (5, 6, 7)))
    rig.emit(1, 3, 1)
    with NoHostRead():
        masks = rig.ladders((1,), [3], [[2, 1]])
        rig.rows.free_masks(3, 2).fill()
        rig.start(begin(0, (5, 6, 7)))
    assert masks is not None


def test_free_masks_allow_everything() -> None:
    masks = Rig().rows.free_masks(2, 3).fill()
    assert masks.allowed.shape == (2, 4, num_words(VOCAB))
    assert bool((masks.allowed == -1).all())
    assert masks.max_accepted.tolist() == [3, 3]


def test_other_ranks_receive_what_rank_0_decides() -> None:
    """They know that a row is constrained, and nothing else: they have no grammar to follow."""

    def job(group: TensorParallelGroup) -> tuple[list[list[list[int]]], list[int], int]:
        rig = Rig(group)
        if group.mesh.tp_rank == 0:
            rig.put("r", dies_at=64)
        rig.start(begin(1, (5, 6, 7)))
        rig.start(begin(2, (5, 6, 7), None))
        first = rig.rows.before_first_tokens((1, 2))
        assert first is not None
        tokens = tokens_of(first.fill(), 0)
        rig.emit(1, 3, 1)
        masks = rig.ladders((1, 2), [3, 3], [[2, 64], [0, 0]])
        assert masks is not None
        return [tokens, tokens_of(masks, 0), tokens_of(masks, 1)], masks.max_accepted.tolist(), len(rig.registry)

    leader, follower = run_ranks(2, job)
    assert leader[:2] == follower[:2]
    assert leader[0][0] == [[1, 2, 64]]
    assert leader[0][1][0] == [2, 64]
    assert (leader[2], follower[2]) == (1, 0)
