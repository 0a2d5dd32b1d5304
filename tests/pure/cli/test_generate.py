from __future__ import annotations

import asyncio
import io
import sys

import pytest

from slipstream.base.errors import ConfigError
from slipstream.cli.generate import AnswerStats, answer, read_prompts
from slipstream.frontend.stream import Delta
from slipstream.harness.workload import WorkItem
from slipstream.wire.sampling_params import SamplingParams


def give_input(monkeypatch, text, *, is_terminal=False):
    stream = io.StringIO(text)
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stdin", stream)


def prompts_of(items):
    return [item.prompt for item in items]


def test_arguments_come_first_then_the_file(tmp_path, monkeypatch):
    give_input(monkeypatch, "never read")
    file = tmp_path / "p.txt"
    file.write_text("one\n\ntwo\n", encoding="utf-8")
    assert prompts_of(read_prompts(["a", "b"], file)) == ["a", "b", "one", "two"]


def test_json_lines_are_work_items(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text('{"domain": "d", "messages": [{"role": "user", "content": "x"}]}\n', encoding="utf-8")
    assert read_prompts([], file) == (WorkItem(domain="d", messages=(("user", "x"),)),)


def test_standard_input_is_one_prompt_unless_it_is_a_terminal(monkeypatch):
    give_input(monkeypatch, "two\nlines")
    assert prompts_of(read_prompts([], None)) == ["two\nlines"]
    give_input(monkeypatch, "typed later", is_terminal=True)
    with pytest.raises(ConfigError, match="no prompt"):
        read_prompts([], None)
    give_input(monkeypatch, "")
    with pytest.raises(ConfigError, match="no prompt"):
        read_prompts([], None)


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="absent"):
        read_prompts([], tmp_path / "absent.txt")


def test_one_line_tells_speed_and_acceptance():
    stats = AnswerStats(
        num_prompt_tokens=10,
        num_output_tokens=21,
        ttft_s=0.1,
        total_s=1.1,
        num_verify_steps=5,
        num_draft_tokens=20,
        num_accepted=15,
        num_emitted=18,
        finish_reason="length",
    )
    line = stats.describe()
    assert "10 + 21 tokens" in line
    assert "first after 100 ms" in line
    assert "20.0 tokens/s" in line
    assert "acceptance length 3.60 (15 of 20 drafts, 5 verify steps)" in line


def test_without_a_drafter_no_acceptance_is_told():
    stats = AnswerStats(
        num_prompt_tokens=1,
        num_output_tokens=1,
        ttft_s=0.1,
        total_s=0.1,
        num_verify_steps=0,
        num_draft_tokens=0,
        num_accepted=0,
        num_emitted=0,
        finish_reason="stop",
    )
    assert "acceptance" not in stats.describe()
    assert "one token" in stats.describe()


class FakeStream:
    num_generated_tokens = 3
    num_verify_steps = 2
    num_draft_tokens = 4
    num_accepted = 1
    num_emitted = 2

    class request:  # noqa: N801 - stands for an attribute
        prompt_token_ids = (1, 2)


class FakeGeneration:
    stream = FakeStream()
    is_closed = False

    async def __aiter__(self):
        yield Delta(text="a", token_ids=(1,))
        yield Delta(text="bc", token_ids=(2, 3), finish_reason="stop")

    def close(self):
        self.is_closed = True


class FakeLLM:
    """Records how it was asked."""

    def __init__(self):
        self.asked = []
        self.generation = FakeGeneration()

    async def open(self, prompt, sampling):
        self.asked.append(("text", prompt))
        return self.generation

    async def open_chat(self, ask, sampling):
        self.asked.append(("chat", ask.messages))
        return self.generation


@pytest.mark.parametrize(
    ("item", "is_chat", "asked"),
    [
        (WorkItem(domain="d", prompt="x"), False, ("text", "x")),
        (WorkItem(domain="d", prompt="x"), True, ("chat", [{"role": "user", "content": "x"}])),
        (WorkItem(domain="d", messages=(("user", "y"),)), False, ("chat", [{"role": "user", "content": "y"}])),
    ],
)
def test_text_is_written_as_it_comes(item, is_chat, asked):
    llm, written = FakeLLM(), []
    stats = asyncio.run(answer(llm, item, SamplingParams(), is_chat=is_chat, write=written.append))
    assert llm.asked == [asked]
    assert written == ["a", "bc", "\n"]
    assert llm.generation.is_closed
    assert (stats.num_prompt_tokens, stats.num_output_tokens, stats.finish_reason) == (2, 3, "stop")
    assert 0 <= stats.ttft_s <= stats.total_s
