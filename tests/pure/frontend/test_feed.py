"""A call may hold more constrained requests than an engine compiles at once."""

from __future__ import annotations

import pytest

from slipstream.frontend.feed import MAX_COMPILING, Feed
from slipstream.frontend.llm import LLM
from slipstream.frontend.processor import TextParts
from slipstream.text.grammar.compile_queue import MAX_WAITING
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.messages import EngineStats, Outputs, RequestOutput
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import FakeSyncEngine, ScriptedEngine, fake_facts
from support.tiny_text import tiny_folder


def request(name: str, *, is_bound: bool = True) -> Request:
    sampling = SamplingParams(grammar=GrammarSpec.regex(name) if is_bound else None)
    return Request(request_id=name, prompt_token_ids=(5,), sampling=sampling, seed=1, max_seq_len=9)


def news(**fields: object) -> Outputs:
    return Outputs(outputs=(RequestOutput(**fields),), stats=EngineStats())


class Inbox:
    """An engine that only takes in."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def submit(self, request: Request) -> None:
        self.taken.append(request.request_id)


@pytest.mark.parametrize("end", [{"is_accepted": True}, {"finish_reason": "error"}, {"finish_reason": "abort"}])
def test_each_compilation_that_ends_makes_room_for_the_next_request(end: dict[str, object]) -> None:
    inbox, names = Inbox(), [str(place) for place in range(MAX_COMPILING + 3)]
    feed = Feed(inbox, [request(name) for name in names])
    feed.submit()
    feed.submit()
    assert inbox.taken == names[:-3]
    feed.follow(news(request_id="7", token_ids=(1,)))
    feed.submit()
    assert inbox.taken == names[:-3]
    feed.follow(news(request_id="7", **end))
    feed.submit()
    assert inbox.taken == names[:-2]


def test_free_requests_need_no_room() -> None:
    inbox = Inbox()
    feed = Feed(inbox, [request(str(place), is_bound=False) for place in range(3 * MAX_COMPILING)])
    feed.submit()
    assert len(inbox.taken) == 3 * MAX_COMPILING


class Narrow(ScriptedEngine):
    """Counts what compiles at once, and compiles one constraint per step."""

    most = 0

    def submit(self, request: Request) -> None:
        super().submit(request)
        self.most = max(self.most, len(self.compiling))

    def _compile(self) -> None:
        left = self.compiling
        self.compiling = dict(list(left.items())[:1])
        super()._compile()
        self.compiling = {name: one for name, one in left.items() if name not in self.running}


def test_a_call_with_more_constraints_than_the_engine_takes_is_answered() -> None:
    text, narrow = TextParts.load(tiny_folder()), Narrow(fake_facts())
    count = MAX_WAITING + 20
    params = [SamplingParams(max_tokens=4, grammar=GrammarSpec.regex(f"a{{{place + 1}}}")) for place in range(count)]
    with LLM.over(FakeSyncEngine(narrow), text) as llm:
        found = llm.generate(["AB"] * count, params)
    assert {one.finish_reason for one in found} <= {"stop", "length"}
    assert len(narrow.submitted) == count
    assert narrow.most == MAX_COMPILING < MAX_WAITING
