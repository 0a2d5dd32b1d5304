"""Answers with reasoning and calls over the scripted engine: a template that shows tools, scripts that say a text."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from hypothesis import strategies as st

from slipstream.base.errors import RequestError
from slipstream.frontend.answer_stream import AnswerDelta, TokenText
from slipstream.frontend.processor import TextParts
from slipstream.text.tools.parser import CallDelta
from slipstream.text.tools.render import render_tool_calls
from support.fake_engine import Script
from support.project import PACKAGE
from support.tiny_text import write_tiny_text

json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8"), max_size=6),
        st.sampled_from([{}, [], "", 0, 1, {"type": "text"}, {"type": "auto"}, {"effort": "low"}, {"type": "enabled"}]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3),
    ),
    max_leaves=6,
)
"""What a field may hold, sensible or not."""

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
"""The schema of what tests call."""


@functools.cache
def tool_text() -> TextParts:
    """Return the tiny tokenizer with the bundled model's chat template, which shows tools and opens reasoning."""
    folder = Path(tempfile.mkdtemp(prefix="tool-text-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    template = (PACKAGE / "demo" / "checkpoint" / "chat_template.jinja").read_text(encoding="utf-8")
    return TextParts.load(write_tiny_text(folder, template=template))


def says(text: str) -> Script:
    """Return a script that answers every prompt with a text and the end."""
    tokenizer = tool_text().tokenizer
    ids = [*tokenizer.encode(text), tokenizer.control_ids["[e~["]]
    return lambda request: ids


def calls_text(*calls: tuple[str, dict[str, Any]]) -> str:
    """Return what a model writes to call functions."""
    return render_tool_calls(calls)


def prompt_of(world: Any, place: int = -1) -> str:
    """Return the text of a prompt that the engine got."""
    ids = world.engine.submitted[place].prompt_token_ids
    return tool_text().tokenizer.decode(ids, skip_special_tokens=False)


def begun(index: int, name: str = "f", arguments: str = "") -> CallDelta:
    """Return the first delta of a call."""
    return CallDelta(index, arguments, f"call_{index}", name)


def reasoning(text: str) -> AnswerDelta:
    """Return a delta of reasoning, made by one token."""
    return AnswerDelta(reasoning=text, tokens=(TokenText(text, False, "reasoning"),))


def counts(num_prompt: int = 10, num_hits: int = 4, num_generated: int = 7) -> Any:
    """Return what answers read of a request's stream."""
    return SimpleNamespace(
        request=SimpleNamespace(prompt_token_ids=(0,) * num_prompt),
        num_prefix_hit_tokens=num_hits,
        num_generated_tokens=num_generated,
    )


def named_events(response: httpx.Response) -> list[Any]:
    """Return the events of a stream whose events have names; each is called what its type says."""
    assert response.headers["content-type"].startswith("text/event-stream")
    *blocks, rest = response.text.split("\n\n")
    assert rest == "", "the last event ends with an empty line"
    found = []
    for block in blocks:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def refusal_of(function: Any, *args: Any, **options: Any) -> RequestError:
    """Return the error that a call raises."""
    try:
        function(*args, **options)
    except RequestError as error:
        return error
    raise AssertionError("nothing was refused")
