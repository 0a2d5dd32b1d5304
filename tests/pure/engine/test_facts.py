from __future__ import annotations

from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.resolve import resolve
from slipstream.engine.facts import facts_of

MACHINE = Hardware(num_cpus=2, total_memory_bytes=16 << 30, available_memory_bytes=16 << 30)


def test_a_front_end_is_told_what_the_engine_resolved():
    config = resolve(Options(drafter="ngram", draft_len=2, max_num_seqs=3, max_model_len=100), MACHINE)
    facts = facts_of(config)
    assert (facts.drafter, facts.draft_len, facts.max_num_seqs, facts.max_model_len) == ("ngram", 2, 3, 100)
    assert facts.num_cache_tokens == (facts.num_pages - 1) * facts.page_size, "the null page holds nobody's tokens"
    assert facts.num_cache_tokens >= 3 * 100
    assert facts.vocab_size == config.model.target.vocab_size
