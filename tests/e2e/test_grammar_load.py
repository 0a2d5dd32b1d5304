"""Thirty requests whose text has a form, at once, beside free ones: every text valid, no free text changed.

Half of them think first, so that the form begins behind the closing tag, wherever in an accepted run that lies. Every
drafter and both ways of verification are a server of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from support.grammar_load import FORMS, Load, constrained_load, request, why_invalid
from support.live_server import LiveServer, live_server
from support.plain_client import PlainClient

pytestmark = pytest.mark.xdist_group("e2e")

NUM_CONSTRAINED = 30
NUM_FREE = 6
SERVERS = list(itertools.product(("eagle3", "ngram"), ("coupled", "rejection")))


class Reply(NamedTuple):
    """What a client has of an answer."""

    reasoning: str
    content: str
    finish_reason: str | None
    num_accepted: int


@pytest.fixture(scope="module", params=SERVERS, ids="-".join)
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    drafter, verification = request.param
    options = ["--drafter", drafter, "--verification", verification, "--dtype", "float32", "--max-num-seqs", "40"]
    with live_server("demo", *options) as one:
        yield one


def ask(server: LiveServer, load: Load) -> Reply:
    client = PlainClient(server.base_url)
    if not load.streams:
        answer = client.chat(**load.fields)
        choice = answer["choices"][0]
        message = choice["message"]
        accepted = answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]
        return Reply(
            message.get("reasoning_content") or "", message["content"] or "", choice["finish_reason"], accepted
        )
    chunks = client.stream(**load.fields, stream_options={"include_usage": True})
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    texts = {name: join(choices, name) for name in ("reasoning_content", "content")}
    usage = next(chunk["usage"] for chunk in reversed(chunks) if chunk.get("usage"))
    accepted = usage["completion_tokens_details"]["accepted_prediction_tokens"]
    ends = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    return Reply(texts["reasoning_content"], texts["content"], ends[-1] if ends else None, accepted)


def join(choices: list[dict[str, Any]], name: str) -> str:
    return "".join(choice["delta"].get(name) or "" for choice in choices)


def free_load() -> list[Load]:
    return [
        Load(
            None,
            bool(place % 2),
            bool(place % 3),
            request(None, 3 * place, thinks=bool(place % 2)) | {"max_tokens": 80},
        )
        for place in range(NUM_FREE)
    ]


def test_every_text_is_valid_and_no_free_text_changes(server: LiveServer) -> None:
    free = free_load()
    alone = [ask(server, load) for load in free]
    loads = [*constrained_load(NUM_CONSTRAINED), *free]
    with ThreadPoolExecutor(len(loads)) as pool:
        replies = list(pool.map(lambda load: ask(server, load), loads))
    constrained, beside = replies[:NUM_CONSTRAINED], replies[NUM_CONSTRAINED:]
    assert [fault for load, reply in zip(loads, constrained, strict=False) if (fault := fault_of(load, reply))] == []
    assert [reply[:3] for reply in beside] == [reply[:3] for reply in alone]
    assert sum(reply.num_accepted for reply in constrained) > 0, "no draft was accepted: the hard case did not occur"
    assert server.metric("vllm:num_requests_running") == 0


def fault_of(load: Load, reply: Reply) -> str | None:
    """What is wrong with a constrained answer, or None."""
    assert load.form is not None
    if reply.finish_reason != "stop":
        return f"{load.form.name}: ended by {reply.finish_reason}: {reply}"
    if load.thinks != bool(reply.reasoning):
        return f"{load.form.name}: reasoning is {reply.reasoning!r}"
    why = why_invalid(load.form, reply.content)
    return f"{load.form.name}: {why}" if why else None


def test_the_constraint_makes_the_form_and_leaves_the_reasoning_alone(server: LiveServer) -> None:
    """The control: the model does not write such texts by itself, and thinks the same in either case."""
    loads = constrained_load(2 * len(FORMS))
    loads = [load for load in loads if load.thinks and load.fields["temperature"] == 0]
    plain = [load._replace(fields=without_form(load)) for load in loads]
    with ThreadPoolExecutor(2 * len(loads)) as pool:
        replies = list(pool.map(lambda load: ask(server, load), [*loads, *plain]))
    formed, free = replies[: len(loads)], replies[len(loads) :]
    assert [reply.reasoning for reply in formed] == [reply.reasoning for reply in free]
    assert len({reply.reasoning for reply in free}) >= 3
    invalid = [fault for load, reply in zip(plain, free, strict=True) if (fault := fault_of(load, reply))]
    assert len(invalid) >= len(loads) - 1


def without_form(load: Load) -> dict[str, Any]:
    assert load.form is not None
    return {name: value for name, value in load.fields.items() if name not in load.form.fields}


WRONG = {
    "answer": ['{"answer": 1.5}', '{"answer": 10000}', '{"answer": 3, "more": 1}', "{}", '{"answer": 3', ""],
    "person": ['{"name": "Maria", "age": 0, "city": "Oslo"}', '{"name": "maria", "age": 3, "city": "Oslo"}', "null"],
    "nested": ['{"name": "Ben"}', '{"name": "Ben", "who": {}}', '{"name": "Ben", "who": {"name": "B"}}'],
    "listed": ["[null]", '[null, "three"]', "[1, 1, 1, 1, 1]"],
    "regex": ["Yes: 3 apples", "Maybe: 3 apples.", "Yes: 3 apples.\n"],
    "choice": ["forty", "42 ", ""],
    "grammar": ["a=1", "a=1,b=2,c=3.", "A=1."],
    "json_object": ["[]", "{]", '{"a": NaN}', "</mm:think>{}"],
}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_wrong_texts_are_noticed(form) -> None:
    assert all(why_invalid(form, text) for text in WRONG[form.name])
