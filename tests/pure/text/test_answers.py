"""Recorded answers, some of them malformed or cut off, fed to the parsers in every way that text can arrive.

Every chunk size from 1 to 64, random cuts, and the pieces of real tokens must give what a reader expects of the whole.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given

from slipstream.demo import demo_path
from slipstream.frontend.answer_stream import AnswerStream, join_answer
from slipstream.frontend.stream import Delta
from slipstream.text.detokenizer import IncrementalDetokenizer
from slipstream.text.reasoning.parser import ReasoningDelta, ReasoningParser
from slipstream.text.tokenizer import Tokenizer
from slipstream.text.tools.parser import ToolCallParser, ToolDelta
from support.answers import PARAMETERS, Answer, chunks, load_answers, new_ids, read
from support.cuts import cut, sizes
from support.profiles import relaxed

TOKENIZER = Tokenizer.load(demo_path())
ANSWERS = load_answers()
each = pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.name)


def token_pieces(text):
    """The pieces that the tokens of a text arrive in, as the model would write them."""
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    pieces = detokenizer.feed(TOKENIZER.encode(text))
    return [*pieces, detokenizer.flush()]


def differing(reader, answers=ANSWERS):
    """The answers that a reader sees wrongly in some chunk size."""
    return {
        answer.name
        for answer in answers
        for size in range(1, 65)
        if reader(chunks(answer.text, size), answer.starts_in) != answer.seen
    }


def test_there_are_answers_of_every_kind():
    assert len(ANSWERS) >= 30
    assert sum(bool(answer.seen.reasoning) for answer in ANSWERS) >= 10
    assert sum(bool(answer.seen.calls) for answer in ANSWERS) >= 15
    assert sum(answer.seen.closing is not None for answer in ANSWERS) >= 3
    assert {answer.starts_in for answer in ANSWERS} == {"reasoning", "content", "undecided"}
    assert sum(len(answer.text) > 64 for answer in ANSWERS) >= 15


@each
def test_a_whole_answer_is_seen_as_recorded(answer):
    assert read([answer.text], answer.starts_in) == answer.seen


@each
def test_every_chunk_size_is_seen_as_the_whole(answer):
    assert differing(read, [answer]) == set()


@each
@relaxed
@given(piece_sizes=sizes)
def test_random_cuts_are_seen_as_the_whole(answer, piece_sizes):
    assert read(cut(answer.text, piece_sizes), answer.starts_in) == answer.seen


@each
def test_every_single_cut_is_seen_as_the_whole(answer):
    for place in range(len(answer.text) + 1):
        pieces = [answer.text[:place], "", answer.text[place:]]
        assert read(pieces, answer.starts_in) == answer.seen, pieces


@each
def test_tokens_are_seen_as_the_whole(answer):
    assert read(token_pieces(answer.text), answer.starts_in) == answer.seen


def stream_answer(answer: Answer, runs: list[list[str]], finish: str):
    """Feed runs of pieces, one run per delta, the last one ending the answer."""
    stream = AnswerStream(answer.starts_in, PARAMETERS, new_id=new_ids())
    deltas = [Delta(text="".join(run), token_ids=(), pieces=tuple(run), num_accepted=len(run) - 1) for run in runs]
    ends = [None] * (len(deltas) - 1) + [finish]
    answers = []
    for delta, end in zip(deltas, ends, strict=True):
        answers.append(
            stream.feed(
                Delta(**{name: getattr(delta, name) for name in delta.__struct_fields__} | {"finish_reason": end})
            )
        )
    return join_answer(answers)


def runs_of(pieces, rng):
    """Pieces in runs of one to four, as verified ladders bring them."""
    runs, start = [], 0
    while start < len(pieces):
        end = start + rng.randint(1, 4)
        runs.append(pieces[start:end])
        start = end
    return runs or [[""]]


@each
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_the_stream_of_an_answer_sees_the_same(answer, finish):
    rng = random.Random(answer.name)
    for pieces in [*(chunks(answer.text, size) for size in range(1, 65)), token_pieces(answer.text)]:
        whole = stream_answer(answer, runs_of(list(pieces), rng), finish)
        is_cut_off = answer.seen.closing is not None
        closing = answer.seen.closing if is_cut_off and finish == "stop" else ""
        calls = [(call.id, call.name, call.arguments) for call in whole.calls]
        expected = [list(call) for call in answer.seen.calls]
        if is_cut_off:
            expected[-1][2] += closing
        # Where a limit cut the answer, what is likely the head of a marker is no content.
        content = answer.seen.content.removesuffix(" ]<]minim") if finish == "length" else answer.seen.content
        assert (whole.reasoning, whole.content) == (answer.seen.reasoning, content)
        assert calls == [tuple(call) for call in expected]
        assert whole.finish_reason == ("tool_calls" if calls and finish == "stop" else finish)
        by_token = {"reasoning": whole.reasoning, "content": whole.content, "call": "".join(c[2] for c in calls)}
        for part, text in by_token.items():
            assert "".join(token.text for token in whole.tokens if token.part == part) == text


class NoMemory(ReasoningParser):
    """Forgets what it withheld at the end of every piece."""

    def feed(self, piece: str) -> ReasoningDelta:
        first, rest = super().feed(piece), self.flush()
        return ReasoningDelta(first.reasoning + rest.reasoning, first.content + rest.content)


class Trimming(ReasoningParser):
    """Drops blanks in front of every piece, not of the first alone."""

    def feed(self, piece: str) -> ReasoningDelta:
        return super().feed(piece.lstrip())


class Dropping(ReasoningParser):
    """Drops what was withheld when the answer ends."""

    def flush(self) -> ReasoningDelta:
        super().flush()
        return ReasoningDelta()


class LateTags(ReasoningParser):
    """Sees a tag only if it does not lie at the end of a piece."""

    def feed(self, piece: str) -> ReasoningDelta:
        held = getattr(self, "late", "")
        self.late = piece[-1:] if piece.endswith(">") else ""
        return super().feed(held + (piece[:-1] if self.late else piece))


class AnyTags(ReasoningParser):
    """Takes every piece that begins with a closing tag for the end of the reasoning."""

    def feed(self, piece: str) -> ReasoningDelta:
        if piece.startswith("</mm:"):
            self.state = "content"
        return super().feed(piece)


class PieceByPiece(ToolCallParser):
    """Gives out what it withheld of a tag at the end of every piece."""

    def feed(self, piece: str) -> ToolDelta:
        delta = super().feed(piece)
        text, tag = self._reader.flush()
        return ToolDelta(delta.content + text + tag, delta.calls)


class OneCallAPiece(ToolCallParser):
    """Reports the last call of a piece only."""

    def feed(self, piece: str) -> ToolDelta:
        delta = super().feed(piece)
        return ToolDelta(delta.content, delta.calls[-1:])


class Stripping(ToolCallParser):
    """Strips the content of every piece."""

    def feed(self, piece: str) -> ToolDelta:
        delta = super().feed(piece)
        return ToolDelta(delta.content.strip(), delta.calls)


class ForgettingTools(ToolCallParser):
    """Drops what was withheld when the answer ends."""

    def flush(self) -> ToolDelta:
        return ToolDelta(unfinished=super().flush().unfinished)


@pytest.mark.parametrize("mutant", [NoMemory, Trimming, Dropping, LateTags, AnyTags])
def test_a_broken_parser_of_reasoning_is_noticed(mutant):
    assert differing(lambda pieces, starts_in: read(pieces, starts_in, reasoning_class=mutant))


@pytest.mark.parametrize("mutant", [PieceByPiece, OneCallAPiece, Stripping, ForgettingTools])
def test_a_broken_parser_of_calls_is_noticed(mutant):
    assert differing(lambda pieces, starts_in: read(pieces, starts_in, tools_class=mutant))
