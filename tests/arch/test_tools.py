"""The project's own checkers find what they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.project import load_tool

PAGE = """
| concept | write | never |
| --- | --- | --- |
| storage | `page` | `kv_block`, `block_id` |
| no alternative | | `out_loc` |

| concept | write |
| --- | --- |
| other | `thing` |
"""


def test_refused_words_are_read_from_the_last_column():
    assert load_tool("check_words").read_refused_words(PAGE) == {
        "kv_block": "`page`",
        "block_id": "`page`",
        "out_loc": "no alternative",
    }


def test_hits_are_whole_words_outside_the_allowed_places():
    tool = load_tool("check_words")
    refused = tool.read_refused_words(PAGE)
    text = "kv_block = 1\nkv_blocks = my_block_id\n# the Block_ID\n"
    assert [(h.line, h.word) for h in tool.find_hits(text, Path("a/b.py"), refused, ())] == [
        (1, "kv_block"),
        (3, "Block_ID"),
    ]
    spared = tool.find_hits(text, Path("a/b.py"), refused, (("kv_block", "a/"), ("block_id", "c/")))
    assert [h.word for h in spared] == ["Block_ID"]
    assert "write `page`" in str(spared[0])


def test_exceptions_need_a_reason(tmp_path):
    path = tmp_path / "allowed.toml"
    path.write_text('[[allow]]\nword = "x"\npath = "y"\n', encoding="utf-8")
    with pytest.raises(SystemExit, match="no reason"):
        load_tool("check_words").read_allowed(path)


def test_the_source_uses_the_projects_words(capsys):
    status = load_tool("check_words").main()
    assert status == 0, capsys.readouterr().out


def test_a_tree_with_a_refused_word_fails(tmp_path, capsys):
    for folder in ("docs", "tools", "src/slipstream"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs" / "words.md").write_text(PAGE, encoding="utf-8")
    (tmp_path / "tools" / "words_allowed.toml").write_text("", encoding="utf-8")
    (tmp_path / "src" / "slipstream" / "a.py").write_text("out_loc = 0\n", encoding="utf-8")
    assert load_tool("check_words").main(tmp_path) == 1
    assert "a.py:1" in capsys.readouterr().out


def test_code_lines_leave_out_blanks_comments_and_docstrings():
    head = '"""Module\n\ndoc."""\n\n# comment\nx = 1  # why\n\n'
    source = head + 'def f():\n    """Doc."""\n    return (\n        x\n    )\n'
    assert load_tool("size_report").count_code_lines(source) == 5


def test_rooms_are_first_folders():
    tool = load_tool("size_report")
    assert tool.room_of("src/slipstream/cache/logical/pages.py") == "cache"
    assert tool.measure_tree()["base"] > 0
