"""What a front end must know of an engine, from its configuration alone. No torch, and no engine is needed."""

from __future__ import annotations

from slipstream.config.schema import EngineConfig
from slipstream.wire.messages import EngineFacts


def facts_of(config: EngineConfig) -> EngineFacts:
    """Return what the front end must know of an engine with this configuration."""
    return EngineFacts(
        model_name=config.model.name,
        vocab_size=config.model.target.vocab_size,
        max_model_len=config.scheduler.max_model_len,
        max_num_seqs=config.scheduler.max_num_seqs,
        page_size=config.cache.page_size,
        num_pages=config.cache.num_pages,
        num_cache_tokens=(config.cache.num_pages - 1) * config.cache.page_size,
        drafter=config.speculation.drafter,
        draft_len=config.speculation.draft_len,
        verification=config.speculation.verification,
        device=config.model.device,
        dtype=config.model.dtype,
        eos_token_ids=config.model.target.eos_token_ids,
    )
