from __future__ import annotations

import json
from collections import Counter

import pytest

from slipstream.base.errors import ConfigError
from slipstream.harness.workload import WorkItem, choose_items, group_by_domain, parse_item, read_items

CHAT = {"domain": "code", "messages": [{"role": "user", "content": "hi"}]}


def write_lines(path, *values):
    path.write_text("\n\n".join(json.dumps(value) for value in values), encoding="utf-8")
    return path


def test_items_are_read_in_order(tmp_path):
    items = read_items(write_lines(tmp_path / "p.jsonl", CHAT, {"domain": "text", "prompt": "Once", "note": 1}))
    assert items == (
        WorkItem(domain="code", messages=(("user", "hi"),)),
        WorkItem(domain="text", prompt="Once"),
    )
    assert list(group_by_domain(items)) == ["code", "text"]


def test_the_thinking_mode_is_for_the_template():
    item = parse_item(json.dumps({**CHAT, "thinking_mode": "disabled"}), "here")
    assert item.template_kwargs == {"thinking_mode": "disabled"}
    assert parse_item(json.dumps(CHAT), "here").template_kwargs == {}


def test_a_bare_prompt_becomes_a_user_turn():
    assert WorkItem(domain="d", prompt="Once").as_chat() == [{"role": "user", "content": "Once"}]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"messages": []}',
        '{"domain": "d"}',
        '{"domain": "d", "prompt": ""}',
        '{"domain": "d", "prompt": 3}',
        '{"domain": "d", "messages": []}',
        '{"domain": "d", "messages": ["x"]}',
        '{"domain": "d", "messages": [{"role": "user", "content": "x"}], "thinking_mode": 1}',
        '{"domain": "d", "messages": [{"role": "user"}]}',
        '{"domain": "d", "prompt": "x", "messages": [{"role": "user", "content": "x"}]}',
    ],
)
def test_other_lines_are_refused_with_their_place(line):
    with pytest.raises(ConfigError, match="file:7"):
        parse_item(line, "file:7")


def test_absent_and_empty_files_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no prompts at"):
        read_items(tmp_path / "absent.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds no prompts"):
        read_items(tmp_path / "empty.jsonl")


def test_choice_balances_domains_and_repeats_by_seed():
    items = [WorkItem(domain="a", prompt=str(i)) for i in range(10)] + [WorkItem(domain="b", prompt="only")]
    chosen = choose_items(items, 8, seed=1)
    assert Counter(item.domain for item in chosen) == {"a": 4, "b": 4}
    assert len({item.prompt for item in chosen if item.domain == "a"}) == 4
    assert chosen == choose_items(items, 8, seed=1)
    assert chosen != choose_items(items, 8, seed=2)
    with pytest.raises(ConfigError):
        choose_items([], 1, seed=0)
