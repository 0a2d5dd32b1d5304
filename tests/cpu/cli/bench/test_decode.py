from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError
from slipstream.cli.bench.decode import Lineup, bench_options, make_prompts
from slipstream.cli.settings import settle
from slipstream.config.options import Options
from slipstream.frontend.processor import TextParts
from slipstream.harness.compare import compare, score
from slipstream.harness.workload import WorkItem
from support.tiny_llm import make_tiny_llm

ITEMS = [
    WorkItem(domain="code", prompt="def add(first, second): return first plus second"),
    WorkItem(domain="code", prompt="for item in the list of all items, print the item"),
    WorkItem(domain="text", prompt="Once upon a time there was a sea, and in the sea there was a fish"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny_llm(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def text(folder):
    return TextParts.load(folder)


def test_prompts_are_as_long_as_asked_and_end_as_written(text):
    whole = make_prompts(ITEMS, text, num_tokens=None, per_domain=9)
    assert [prompt.domain for prompt in whole] == ["code", "code", "text"]
    cut = make_prompts(ITEMS[:2], text, num_tokens=len(whole[0].token_ids) + 4, per_domain=1)
    assert len(cut) == 1
    assert cut[0].token_ids[4:] == whole[0].token_ids
    assert cut[0].token_ids[:4] == whole[1].token_ids[-4:]
    with pytest.raises(ConfigError, match=r"domain text: \d+ tokens of prompt text are available"):
        make_prompts(ITEMS[2:], text, num_tokens=len(whole[2].token_ids) + 1, per_domain=1)


def test_drafting_changes_no_greedy_token_and_is_counted(folder, text):
    options = bench_options(Options(model=str(folder), drafter="ngram", draft_len=2, threads=1, max_model_len=64))
    prompts = make_prompts(ITEMS, text, num_tokens=8, per_domain=1)
    with Lineup(options, settle(options), peer=None, ignore_eos=True, also=["ngram"]) as lineup:
        names = [contender.name for contender in lineup.contenders]
        result = compare(lineup.contenders, prompts, max_tokens=12, repetitions=1)
    assert names == ["no drafter", "ngram, 2 drafts", "ngram, 4 drafts"]
    assert result.differing == (("ngram, 2 drafts", 0), ("ngram, 4 drafts", 0))
    drafting = next(s for s in score(result) if s.contender == names[1])
    assert drafting.acceptance_length is not None
    assert drafting.acceptance_length >= 1.0


def test_a_fair_run_reuses_no_prefix_unless_told():
    assert bench_options(Options()).prefix_cache is False
    assert bench_options(Options()).max_num_seqs == 1
    assert bench_options(Options(prefix_cache=True)).prefix_cache is True
