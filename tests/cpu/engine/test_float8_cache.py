"""A float8 cache (`kv_cache_dtype=fp8`) in whole engines: its own rounding, and otherwise nothing else changes."""

from __future__ import annotations

import pytest

from slipstream import LLM, SamplingParams
from slipstream.cli.settings import settle
from slipstream.config.explain import explain_text
from slipstream.config.options import Options
from support.tiny_checkpoints import make_tiny_eagle3
from support.tiny_llm import make_tiny_llm

# The first repeats itself, so that an n-gram drafter has something to say; the second is longer than a chunk.
PROMPTS = [[9, 8, 7, 6, 5, 4] * 9, [5 + place * 7 % 60 for place in range(100)]]
GREEDY = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True, logprobs=0)
COUPLED = SamplingParams(temperature=0.8, seed=3, max_tokens=16, ignore_eos=True, logprobs=0)
SETTINGS = {"threads": 1, "max_num_seqs": 2, "kv_cache_bytes": 8 << 20, "poison_freed_pages": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = make_tiny_llm(tmp_path_factory.mktemp("tiny"))
    make_tiny_eagle3(made / "eagle3", settle(Options(model=str(made))).model.target, aux_layer_ids=(0, 1, 2))
    return made


def run(folder, **options):
    """Return the answers of two rounds, the second of which finds its prompts in the cache, and the pages."""
    with LLM(str(folder), **{**SETTINGS, "kv_cache_dtype": "fp8", **options}) as llm:
        rounds = [llm.generate(PROMPTS, [GREEDY, COUPLED]) for _ in range(2)]
        assert all(one.error is None for answers in rounds for one in answers)
        return rounds, llm.facts.num_pages


def tokens(answers):
    return [one.token_ids for one in answers]


@pytest.fixture(scope="module")
def plain(folder):
    return run(folder, drafter="none")


@pytest.mark.parametrize(
    "options",
    [
        {"drafter": "ngram"},
        {"drafter": "eagle3"},
        {"drafter": "eagle3", "prefill_chunk_tokens": 17, "overlap": "on"},
        {"drafter": "eagle3", "tp": 2},
    ],
    ids=["ngram", "eagle3", "chunks and overlap", "two ranks"],
)
def test_tokens_are_those_of_an_engine_without_drafts(folder, plain, options):
    """Pages start as NaN, so a read of what nobody wrote would show too."""
    (first, second), _ = run(folder, **options)
    assert tokens(first) == tokens(plain[0][0])
    assert tokens(second) == tokens(first)
    assert sum(one.num_prefix_hit_tokens for one in second) > 0
    assert sum(one.num_draft_tokens for one in first) > 0


def test_it_rounds_and_takes_a_quarter_of_float32(folder, plain):
    (wide, _), num_wide = run(folder, drafter="none", kv_cache_dtype="auto", dtype="float32")
    found, wanted = plain[0][0][0].logprobs[0], wide[0].logprobs[0]
    assert found != wanted, "the option changes nothing"
    assert found == pytest.approx(wanted, abs=0.2)
    assert plain[1] == pytest.approx(4 * num_wide, abs=4)


def test_the_account_is_of_single_bytes_but_for_the_drafter(folder):
    texts = {
        name: [line.split() for line in explain_text(settle(Options(model=str(folder), **options))).splitlines()]
        for name, options in {"wide": {"dtype": "float32"}, "float8": {"kv_cache_dtype": "fp8"}}.items()
    }
    pools = {name: {words[1]: int(words[2]) for words in text if words[:1] == ["pool"]} for name, text in texts.items()}
    shares = {name: pools["wide"][name] / size for name, size in pools["float8"].items()}
    assert shares == {"target_k": 4, "target_v": 4, "index_k": 4, "draft_k": 1, "draft_v": 1, "boundary_taps": 1}
    assert ["kv_dtype", "float8_e4m3", "option"] in [words[:3] for words in texts["float8"]]
