from __future__ import annotations

import json

import pytest

from slipstream.base.errors import ConfigError
from slipstream.demo import demo_path
from slipstream.frontend.processor import Processor, TextParts
from slipstream.training.data.prompts import (
    MAX_HELD_OUT,
    TrainingPrompt,
    encode_fitting,
    encode_prompt,
    read_prompts,
    split_prompts,
)
from support.fake_engine import fake_facts

USER = {"role": "user", "content": "the fox"}
TOOL = {"type": "function", "function": {"name": "look_up", "description": "d", "parameters": {"type": "object"}}}


def write(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_conversations_and_texts_are_read(tmp_path):
    lines = [{"domain": "a", "messages": [USER], "thinking_mode": "disabled", "expected": ""}, "", {"prompt": "x"}]
    first, second = read_prompts(write(tmp_path / "p.jsonl", *lines))
    assert (first.domain, first.messages, first.thinking_mode, first.where) == ("a", (USER,), "disabled", "p.jsonl:1")
    assert (second.domain, second.text, second.where) == ("all", "x", "p.jsonl:3")


def test_any_other_file_has_a_text_a_line(tmp_path):
    prompts = read_prompts(write(tmp_path / "p.txt", "one", " ", '{"not": "parsed"}'))
    assert [prompt.text for prompt in prompts] == ["one", '{"not": "parsed"}']


def test_only_line_feeds_end_a_line(tmp_path):
    words = "one\u2028two\x85three"
    line = json.dumps({"prompt": words}, ensure_ascii=False)
    first, second = read_prompts(write(tmp_path / "p.jsonl", f"{line}\r", '{"prompt": "x"}'))
    assert (first.text, second.text, second.where) == (words, "x", "p.jsonl:2")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON .nested too deeply"),
        ("9" * 5_000, "not JSON .*a number too long"),
        ([], "either 'messages' or 'prompt'"),
        ({"domain": "a"}, "either 'messages' or 'prompt'"),
        ({"messages": [USER], "prompt": "x"}, "either 'messages' or 'prompt'"),
        ({"messages": []}, "'messages' is empty"),
        ({"messages": "hello"}, "'messages' must be a list of objects"),
        ({"messages": ["hello"]}, "'messages' must be a list of objects"),
        ({"messages": [USER], "tools": "t"}, "'tools' must be a list of objects"),
        ({"prompt": ""}, "'prompt' must be a string that is not empty"),
        ({"prompt": "x", "domain": 3}, "must be strings"),
        ({"messages": [USER], "thinking_mode": True}, "must be strings"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path, line, said):
    with pytest.raises(ConfigError, match=rf"p\.jsonl:2: .*{said}"):
        read_prompts(write(tmp_path / "p.jsonl", {"prompt": "x"}, line))


def test_files_without_prompts_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such file of prompts"):
        read_prompts(tmp_path / "absent.jsonl")
    with pytest.raises(ConfigError, match="holds no prompts"):
        read_prompts(write(tmp_path / "p.jsonl", "", ""))
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="give a text file in UTF-8"):
        read_prompts(tmp_path / "b.txt")


def prompts_of(domain, count):
    return [TrainingPrompt(domain=domain, where=f"{domain}:{n}", text=f"{domain} {n}") for n in range(count)]


def test_a_tenth_of_every_domain_is_held_out():
    prompts = prompts_of("a", 40) + prompts_of("b", 5) + prompts_of("c", 1)
    kept, held_out = split_prompts(prompts, 3)
    assert sorted(prompt.domain for prompt in held_out) == ["a"] * 4 + ["b"]
    assert sorted((*kept, *held_out), key=prompts.index) == prompts
    assert split_prompts(prompts, 3) == (kept, held_out)
    assert split_prompts(prompts, 4)[1] != held_out


def test_not_more_than_can_be_measured_are_held_out():
    assert len(split_prompts(prompts_of("a", 5000), 0)[1]) == MAX_HELD_OUT


@pytest.fixture(scope="module")
def processor():
    return Processor(TextParts.load(demo_path()), fake_facts(vocab_size=4096, max_model_len=2048))


def test_prompts_are_what_the_template_makes_of_them(processor):
    bare = encode_prompt(TrainingPrompt(domain="a", where="", text="the fox"), processor)
    chat = TrainingPrompt(domain="a", where="", messages=(USER,))
    asked = encode_prompt(chat, processor)
    assert len(asked) > len(bare)
    shown = processor.tokenizer.decode(asked)
    with_tools = encode_prompt(TrainingPrompt(domain="a", where="", messages=(USER,), tools=(TOOL,)), processor)
    assert "look_up" in processor.tokenizer.decode(with_tools)
    assert "look_up" not in shown
    quiet = TrainingPrompt(domain="a", where="", messages=(USER,), thinking_mode="disabled")
    assert encode_prompt(quiet, processor) != encode_prompt(
        TrainingPrompt(domain="a", where="", messages=(USER,), thinking_mode="enabled"), processor
    )


def test_a_conversation_that_is_refused_is_named(processor):
    with pytest.raises(ConfigError, match=r"p\.jsonl:9: this prompt cannot be asked: .*role"):
        encode_prompt(
            TrainingPrompt(domain="a", where="p.jsonl:9", messages=({"role": "x", "content": "y"},)), processor
        )


def test_prompts_that_are_too_long_are_left_out(processor):
    prompts = [TrainingPrompt(domain="a", where="", text="fox " * count) for count in (500, 3, 20_000, 1)]
    fitting = encode_fitting(prompts, processor, 100)
    assert [one.prompt for one in fitting] == [prompts[1], prompts[3]]
    assert fitting[0].token_ids == encode_prompt(prompts[1], processor)
    with pytest.raises(ConfigError, match="none of the 4 prompts has at most 1 tokens"):
        encode_fitting(prompts, processor, 1)


def test_equal_questions_have_equal_keys_wherever_they_stand(tmp_path):
    rows = [{"messages": [USER]}, {"domain": "b", "messages": [USER]}, {"messages": [USER], "tools": [TOOL]}]
    same, moved, other = (prompt.key for prompt in read_prompts(write(tmp_path / "p.jsonl", *rows)))
    assert same == moved != other
