from __future__ import annotations

import msgspec
import pytest

from slipstream.cli.settings import settle
from slipstream.config.options import Options
from slipstream.engine.assemble import assemble, cache_salt
from slipstream.engine.facts import facts_of
from support.tiny_checkpoints import make_tiny_eagle3
from support.tiny_llm import make_tiny_llm


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = make_tiny_llm(tmp_path_factory.mktemp("tiny"))
    bare = settle(Options(model=str(folder)))
    make_tiny_eagle3(folder / "eagle3", bare.model.target, aux_layer_ids=(0, 1, 2))
    return settle(Options(model=str(folder), threads=1, max_model_len=64, max_num_seqs=2))


def test_an_assembled_engine_is_idle_and_holds_all_pages(config):
    core, facts = assemble(config, lambda progress: None)
    assert not core.has_work
    assert core.stats().num_free_pages == core.stats().num_pages
    assert facts == facts_of(config)
    assert facts.num_cache_tokens == (config.cache.num_pages - 1) * config.cache.page_size
    assert (facts.drafter, facts.draft_len) == ("eagle3", config.speculation.draft_len)


def test_engines_whose_pages_differ_have_different_salts(config):
    model, speculation = config.model, config.speculation
    others = [
        msgspec.structs.replace(config, model=msgspec.structs.replace(model, dtype="bfloat16")),
        msgspec.structs.replace(config, model=msgspec.structs.replace(model, path="elsewhere")),
        msgspec.structs.replace(config, cache=msgspec.structs.replace(config.cache, kv_dtype="float8_e4m3")),
        msgspec.structs.replace(config, speculation=msgspec.structs.replace(speculation, drafter="none")),
        msgspec.structs.replace(config, speculation=msgspec.structs.replace(speculation, drafter_path="other")),
    ]
    assert len({cache_salt(config), *(cache_salt(other) for other in others)}) == 6
    assert cache_salt(config) == cache_salt(msgspec.structs.replace(config, num_threads=7))
