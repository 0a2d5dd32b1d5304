"""What `recipes/demo/describe.py` writes into documents: only what stands between markers, and every sample whole."""

from __future__ import annotations

import support.demo_recipe  # noqa: F401

# isort: split
import json
import tomllib
from pathlib import Path

import pytest
from describe import acceptance_table, fill_provenance, needle_block, replace_block, sample_table
from show_samples import Sample
from simulate_acceptance import Tally

PAGE = "Before.\n<!-- one: by a script -->\nold | 1\n<!-- end of one -->\nAfter.\n"


def sample(question: str, answer: str, num_tokens: int = 20) -> Sample:
    return Sample("disabled", [{"role": "user", "content": question}], num_tokens, answer)


def test_a_block_is_replaced_and_nothing_else() -> None:
    page = replace_block(PAGE, "one", r"new \1 text")
    assert page == PAGE.replace("old | 1", "\nnew \\1 text\n")
    assert replace_block(page, "one", r"new \1 text") == page


@pytest.mark.parametrize("page", ["Nothing here.\n", PAGE + PAGE])
def test_a_block_that_is_missing_or_twice_there_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="'one' must stand once"):
        replace_block(page, "one", "x")


def test_the_table_of_samples_keeps_order_and_shows_thinking() -> None:
    rows = sample_table([sample("Hello!", "Hi | there"), sample("6 * 7?", "One step.\n6 * 7 = 42</mm:think>42.")])
    assert rows.splitlines()[2:] == [
        r"| Hello! | Hi \| there |",
        r"| 6 \* 7? | *One step. ⏎ 6 \* 7 = 42* 42. |",
    ]


def test_of_a_long_text_only_the_question_is_shown() -> None:
    row = sample_table([sample("It rains. " * 300 + "\n\nWhere is Tom?", "Tom is here.", 1845)]).splitlines()[-1]
    assert row == "| *1845 tokens of stories and facts, then:* Where is Tom? | Tom is here. |"


def test_all_prompts_together_come_last() -> None:
    table = acceptance_table({"json": Tally(2, 4, 6, 1), "all": Tally(4, 4, 8, 2), "word_problems": Tally(2, 0, 2, 1)})
    assert [line.split(" | ")[0] for line in table.splitlines()[2:]] == ["| JSON", "| word problems", "| all"]
    assert table.splitlines()[2] == "| JSON | 1 | 2 | 4 | 6 | 3.00 |"


def test_provenance_keeps_its_other_tables(tmp_path: Path) -> None:
    file = tmp_path / "provenance.toml"
    file.write_text('[acceptance]\n# how\nall = 0\nold = 1\n\n[data]\n"x" = "1"\n\n[shipped]\nnone = ""\n')
    fill_provenance(file, {"a/b": "ff"}, {"all": Tally(2, 4, 5, 1)})
    values = tomllib.loads(file.read_text())
    assert values == {"acceptance": {"all": 2.5}, "data": {"x": "1"}, "shipped": {"a/b": "ff"}}
    assert "# how" in file.read_text()


def test_needles_are_those_after_tuning_where_there_was_some(tmp_path: Path) -> None:
    before, after = ({"256": {"full": 0.94, "learned": share}} for share in (0.9, 0.935))
    (tmp_path / "results.json").write_text(json.dumps({"needles": before}))
    assert needle_block(tmp_path).splitlines()[-1] == "| 256 | 94 % | 90 % |"
    (tmp_path / "tune_results.json").write_text(json.dumps({"samples": 256, "needles_after": after}))
    block = needle_block(tmp_path)
    assert block.startswith("256 needles of each length, after")
    assert block.splitlines()[-1] == "| 256 | 94 % | 94 % |"
