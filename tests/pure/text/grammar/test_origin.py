"""Copies share tables; a new generation has its own, and is compiled once however many ask for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from slipstream.text.grammar.origin import MAX_RENEWAL_S, GrammarOrigin, is_table_full


class State:
    """A library matcher that knows which one it was copied from."""

    def __init__(self, name):
        self.name = name

    def deep_copy(self):
        return State(f"copy of {self.name}")


def make_origin(names):
    return GrammarOrigin(lambda: State(next(names)), State("first"))


def test_copies_are_of_the_present_generation():
    origin = make_origin(iter(["second", "third"]))
    assert origin.generation == 0
    generation, state = origin.copy()
    assert (generation, state.name) == (0, "copy of first")
    generation, state = origin.renew(0)
    assert (generation, state.name) == (1, "copy of second")
    assert origin.copy()[1].name == "copy of second"
    assert origin.renew(1)[1].name == "copy of third"
    assert origin.generation == 2


def test_what_is_slow_to_compile_is_not_compiled_in_the_middle_of_a_text():
    names = iter(["second"])
    slow = GrammarOrigin(lambda: State(next(names)), State("first"), compile_s=MAX_RENEWAL_S + 0.01)
    assert not slow.is_worn_out
    assert slow.renew(0) is None
    assert slow.is_worn_out
    assert (slow.generation, slow.copy()[1].name) == (0, "copy of first")
    quick = GrammarOrigin(lambda: State(next(names)), State("first"), compile_s=MAX_RENEWAL_S)
    assert quick.renew(0)[1].name == "copy of second"
    assert not quick.is_worn_out


def test_a_generation_that_is_past_already_is_not_compiled_again():
    origin = make_origin(iter(["second"]))
    origin.renew(0)
    assert [origin.renew(0)[0] for _ in range(3)] == [1, 1, 1]


def test_threads_that_find_the_tables_full_compile_once():
    compiled = []
    barrier = threading.Barrier(8)

    def compile_again():
        compiled.append(1)
        return State("second")

    origin = GrammarOrigin(compile_again, State("first"))

    def run(_):
        barrier.wait()
        return origin.renew(0)[0]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(8))) == [1] * 8
    assert compiled == [1]


@pytest.mark.parametrize(
    ("error", "full"),
    [
        ("lexer error: too many states: 400 >= 400", True),
        ("lexer error: too many expressions constructed", True),
        ("Parser Error: Current row has 2407 items; max is 2000", False),
        ("", False),
    ],
)
def test_only_full_tables_go_away_with_empty_ones(error, full):
    assert is_table_full(error) is full
