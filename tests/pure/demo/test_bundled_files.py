"""The demo's files fit together: tokenizer, template, configs, prompts. Weights: tests/cpu/demo."""

from __future__ import annotations

import json

import pytest

from slipstream.base.errors import RequestError
from slipstream.config.checkpoint import read_target
from slipstream.config.drafter import read_eagle3
from slipstream.demo import demo_drafter_path, demo_path
from slipstream.harness.workload import group_by_domain, read_items
from slipstream.text.chat_template import ChatTemplate
from slipstream.text.tokenizer import Tokenizer

MAX_BYTES = 36 * 10**6
"""Of target, head, tokenizer and template together."""
MARKERS = (
    "]~!b[", "]~b]", "[e~[", "<mm:think>", "</mm:think>", "]<]minimax[>[", "<tool_call>", "</tool_call>",
    "]<]image[>[", "]<]video[>[", "]<]start of image[>[", "]<]end of image[>[",
)  # fmt: skip
FIRST_MARKER = 4032
QUESTION = [{"role": "user", "content": "Hello!"}]
OPENED = "]~!b[]~b]user\nHello![e~[\n]~b]ai\n"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(demo_path())


@pytest.fixture(scope="module")
def template(tokenizer: Tokenizer) -> ChatTemplate:
    found = ChatTemplate.find(demo_path(), tokenizer)
    assert found is not None
    return found


def test_every_marker_of_the_family_is_one_token(tokenizer: Tokenizer) -> None:
    ids = [tokenizer.encode(marker) for marker in MARKERS]
    assert ids == [[FIRST_MARKER + place] for place in range(len(MARKERS))]


def test_digits_are_single_tokens(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode("2026")) == 4


def test_the_end_of_a_turn_ends_the_text_in_every_config() -> None:
    end = FIRST_MARKER + MARKERS.index("[e~[")
    generation = json.loads((demo_path() / "generation_config.json").read_text())
    draft = json.loads((demo_drafter_path() / "config.json").read_text())
    assert read_target(demo_path()).eos_token_ids == (end,)
    assert (generation["eos_token_id"], draft["eos_token_id"]) == (end, end)


def test_the_target_has_one_dense_layer_and_then_sparse_ones() -> None:
    target = read_target(demo_path())
    assert target.is_sparse_layer == target.is_moe_layer == (False, True, True, True, True, True)


def test_the_head_fits_the_target_and_taps_what_training_tapped() -> None:
    spec = read_eagle3(demo_drafter_path(), read_target(demo_path())).spec
    assert spec.aux_layer_ids == (1, 3, 4)
    assert spec.draft_vocab_size < read_target(demo_path()).vocab_size


@pytest.mark.parametrize(
    ("mode", "ending"),
    [(None, "</mm:think>"), ("disabled", "</mm:think>"), ("enabled", "<mm:think>"), ("adaptive", "")],
)
def test_thinking_mode_decides_how_the_answer_opens(template: ChatTemplate, mode: str | None, ending: str) -> None:
    kwargs = {} if mode is None else {"thinking_mode": mode}
    assert template.render(QUESTION, template_kwargs=kwargs) == OPENED + ending


def test_an_unknown_thinking_mode_is_refused(template: ChatTemplate) -> None:
    with pytest.raises(RequestError, match="enabled, disabled or adaptive"):
        template.render(QUESTION, template_kwargs={"thinking_mode": "sometimes"})


def test_past_answers_carry_their_thinking_or_a_bare_close(template: ChatTemplate) -> None:
    turns = [*QUESTION, {"role": "assistant", "content": "Hi!"}, *QUESTION]
    thought = [*QUESTION, {"role": "assistant", "content": "Hi!", "reasoning_content": "A greeting."}, *QUESTION]
    assert "]~b]ai\n</mm:think>Hi![e~[\n" in template.render(turns)
    assert "]~b]ai\n<mm:think>A greeting.</mm:think>Hi![e~[\n" in template.render(thought)


def test_an_answer_sent_back_with_its_think_tags_is_not_thought_twice(template: ChatTemplate) -> None:
    turns = [*QUESTION, {"role": "assistant", "content": "<mm:think>A greeting.</mm:think>Hi!"}, *QUESTION]
    assert "]~b]ai\n<mm:think>A greeting.</mm:think>Hi![e~[\n" in template.render(turns)


def test_there_are_held_out_prompts_of_every_domain() -> None:
    domains = group_by_domain(read_items(demo_path().parent / "prompts.jsonl"))
    assert {name: len(items) for name, items in domains.items()} == {
        "chat": 16, "word_problems": 16, "small_talk": 12, "json": 12, "recall": 8, "stories": 12, "needle": 8,
    }  # fmt: skip


def test_some_prompts_are_long_enough_for_blocks_to_be_chosen(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    sparse = read_target(demo_path()).sparse
    assert sparse is not None
    covered = sparse.topk_blocks * sparse.index_block_size
    rows = [json.loads(line) for line in (demo_path().parent / "prompts.jsonl").read_text().splitlines()]
    lengths = {
        domain: max(len(template.encode(row["messages"])) for row in rows if row["domain"] == domain)
        for domain in ("recall", "needle")
    }
    assert lengths["recall"] > 2 * covered
    assert lengths["needle"] > 14 * covered


def test_every_prompt_leaves_room_for_an_answer(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    """The benchmarks ask for up to 128 tokens."""
    rows = [json.loads(line) for line in (demo_path().parent / "prompts.jsonl").read_text().splitlines()]
    longest = max(len(template.encode(row["messages"])) for row in rows)
    assert longest + 128 <= read_target(demo_path()).max_position_embeddings


def test_what_is_bundled_stays_small_enough_for_the_package() -> None:
    folders = (demo_path(), demo_drafter_path())
    assert sum(file.stat().st_size for folder in folders for file in folder.iterdir()) <= MAX_BYTES


def test_the_card_says_what_the_model_is_not() -> None:
    card = (demo_path() / "README.md").read_text()
    assert "It is not\nMiniMax's model and holds none of its weights." in card


def test_notices_name_every_source() -> None:
    notices = (demo_path().parent / "LICENSES.md").read_text()
    for source in ("WordNet", "PostgreSQL", "Django", "Node.js", "Rust", "Python", "SQLite", "SmolLM2-135M-Instruct"):
        assert source in notices
