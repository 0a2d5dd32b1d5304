"""What live requests are constrained by: followed by id, restarted after a preemption, ended by their own faults."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.base.errors import EngineError
from slipstream.runner.grammar_registry import GrammarRegistry
from slipstream.text.grammar.bitmask import allowed_tokens, num_words
from slipstream.text.grammar.compiler import GrammarCompiler
from slipstream.text.grammar.matcher import GrammarFault
from slipstream.wire.grammar import GrammarSpec
from support.grammar_world import end_id, grammar_tokenizer, letters, model_vocab_size
from support.table_grammar import Panic, TableMatcher

VOCAB = 40
EVERYTHING = list(range(VOCAB))
TABLE = {None: (1, 2), 1: (2, 3), 2: (1, 39), 3: (3,)}


def begin(table=TABLE, **options):
    registry = GrammarRegistry()
    registry.put("r", lambda: TableMatcher(table, VOCAB, **options))
    registry.restart("r", ())
    return registry


def follow(registry, tokens=(), drafts=()):
    out = np.full((len(drafts) + 1, num_words(VOCAB)), 0x5A5A5A5A, dtype=np.int32)
    return registry.follow("r", tokens, drafts, out), [allowed_tokens(row, VOCAB) for row in out]


def test_masks_follow_what_was_emitted():
    registry = begin()
    assert follow(registry) == (0, [[1, 2]])
    assert follow(registry, [1]) == (0, [[2, 3]])
    assert follow(registry, [2, 1]) == (0, [[2, 3]])
    assert follow(registry) == (0, [[2, 3]]), "looking twice changes nothing"


def test_drafts_are_looked_through_and_not_taken():
    registry = begin()
    assert follow(registry, [], [1, 2, 1]) == (3, [[1, 2], [2, 3], [1, 39], [2, 3]])
    assert follow(registry, [2]) == (0, [[1, 39]])


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("token", [7, -1], ids=["forbidden", "no proposal"])
def test_a_forbidden_draft_is_left_to_the_verdict(place, token):
    """Its row's mask refuses it; under rejection a draft that was taken away instead would bend the distribution."""
    drafts = [1, 2, 1]
    drafts[place] = token
    num_drafts, rows = follow(begin(), [], drafts)
    assert num_drafts == 3
    assert token not in rows[place]
    assert rows[place + 1 :] == [EVERYTHING] * (3 - place), "never read, and no reason to end a request"


@pytest.mark.parametrize("place", range(3))
def test_where_a_grammar_dies_behind_a_draft_the_step_ends_with_that_draft(place):
    """The next step then says why, exactly as it would have without drafts."""
    registry = begin({None: (1, 3), 1: (1, 3), 3: (1,)}, dies_at=3)
    num_drafts, rows = follow(registry, [], [*[1] * place, 3, *[1] * (2 - place)])
    assert num_drafts == place, "the drafts before it; it comes itself as the step's last token"
    assert 3 in rows[place]
    assert rows[place + 1] == EVERYTHING, "it must not look like a row that allows nothing"
    for _ in range(2):
        with pytest.raises(GrammarFault, match="the table ends at 3"):
            follow(registry, [*[1] * place, 3])


def test_a_token_that_does_not_fit_ends_this_request_only():
    registry = begin()
    registry.put("other", lambda: TableMatcher(TABLE, VOCAB))
    registry.restart("other", [1])
    out = np.ones((2, num_words(VOCAB)), dtype=np.int32)
    for _ in range(2):
        with pytest.raises(GrammarFault, match="token 9 after None"):
            registry.follow("r", [9], [1], out)
        assert not out.any()
    assert registry.follow("other", [2], [1], out) == 1
    assert allowed_tokens(out[0], VOCAB) == [1, 39]


@pytest.mark.parametrize(
    "error", [Panic("index out of bounds"), ValueError("index out of bounds")], ids=["panic", "error"]
)
def test_whatever_breaks_in_the_library_is_one_requests_fault(error):
    registry = begin(fails=error)
    for _ in range(2):
        with pytest.raises(GrammarFault, match=f"its library failed .{type(error).__name__}: index out of bounds"):
            follow(registry)

    def broken_start():
        raise error

    registry.put("s", broken_start)
    registry.restart("s", ())
    with pytest.raises(GrammarFault, match="its library failed"):
        registry.follow("s", (), (), np.empty((1, 2), dtype=np.int32))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_not_a_fault_of_the_library(error):
    with pytest.raises(error):
        follow(begin(fails=error()))


def test_a_restart_takes_what_was_returned():
    registry = begin()
    follow(registry, [1, 2, 39 - 38])
    registry.restart("r", [1, 2])
    assert follow(registry) == (0, [[1, 39]])
    registry.restart("r", ())
    assert follow(registry) == (0, [[1, 2]])


def test_a_restart_with_a_text_that_does_not_fit_shows_at_the_next_look():
    registry = begin()
    registry.restart("r", [3])
    with pytest.raises(GrammarFault, match="token 3 after None"):
        follow(registry)
    registry.restart("r", [1])
    assert follow(registry) == (0, [[2, 3]]), "a new start forgets the fault"


def test_entries_live_from_acceptance_to_the_end():
    registry = begin()
    assert len(registry) == 1
    assert "r" in registry
    assert "s" not in registry
    registry.drop("r")
    registry.drop("r")
    assert len(registry) == 0
    for ask in (lambda: follow(registry), lambda: registry.restart("r", ())):
        with pytest.raises(EngineError, match="'r' has a constraint, but no compiled grammar"):
            ask()


def test_a_row_that_has_not_started_is_a_fault():
    registry = GrammarRegistry()
    registry.put("r", lambda: TableMatcher(TABLE, VOCAB))
    with pytest.raises(GrammarFault, match="has not started"):
        follow(registry)


def test_real_grammars_are_followed_to_their_end():
    with GrammarCompiler(grammar_tokenizer(), vocab_size=model_vocab_size()) as compiler:
        grammar = compiler.compile(GrammarSpec.regex("ab?"))
        registry = GrammarRegistry()
        registry.put("r", grammar.start)
        registry.restart("r", letters("a"))
        out = np.empty((4, num_words(model_vocab_size())), dtype=np.int32)
        assert registry.follow("r", (), [*letters("b"), end_id(), end_id()], out) == 3
        rows = [allowed_tokens(row, model_vocab_size()) for row in out]
        assert rows == [sorted([*letters("b"), end_id()]), [end_id()], [end_id()], [end_id()]]
        registry.follow("r", [*letters("b"), end_id(), end_id()], [], out[:1])
        assert allowed_tokens(out[0], model_vocab_size()) == [end_id()], "what comes after the end is read by nobody"
