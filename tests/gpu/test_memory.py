"""Memory on a GPU: what does not fit is refused with numbers before anything is allocated, and what fits is accounted.

The pages are planned from the free memory that the driver reports before the engine loads anything.
"""

from __future__ import annotations

import gc
import re

import pytest
import torch

from slipstream import LLM, SamplingParams
from slipstream.base.errors import CapacityError, ConfigError
from slipstream.config.bytes import cache_geometry, fixed_bytes
from slipstream.config.hardware import probe_hardware
from slipstream.config.options import read_options
from slipstream.config.resolve import CUDA_MEMORY_FRACTION, CUDA_RESERVE_BYTES, resolve
from support.device_models import RandomTarget
from support.tiny_llm import make_tiny_llm

DEVICE = "cuda"
TIB = 1 << 40
LONG = 40_000_000
"""Tokens whose rows fit beside one request, and whose keys and values do not."""

WIDE = {"num_heads": 8, "num_kv_heads": 8, "head_dim": 128, "index_head_dim": 128, "index_block_size": 128}


def free_bytes():
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def numbers_of(error):
    """Return the numbers of a message that could be bytes."""
    return [int(text) for text in re.findall(r"\d{7,}", str(error.value).replace(",", ""))]


def works(**options):
    """A normal engine starts in this process, and answers."""
    with LLM("demo", device=DEVICE, max_num_seqs=2, **options) as llm:
        answer = llm.generate([[5, 6, 7]], SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True))[0]
    assert len(answer.token_ids) == 3


def test_a_cache_that_is_too_large_is_refused_with_what_is_free():
    free = free_bytes()
    with pytest.raises(CapacityError, match="kv_cache_bytes=.* only .* are free after weights and rows") as error:
        LLM("demo", device=DEVICE, kv_cache_bytes=TIB)
    asked, available = numbers_of(error)[:2]
    assert asked == TIB
    usable = free * CUDA_MEMORY_FRACTION - CUDA_RESERVE_BYTES
    assert 0.9 * usable < available < usable + (256 << 20), "the number is not of this device"
    works()


def test_a_cache_that_holds_no_request_of_full_length_is_refused_with_both_numbers():
    with pytest.raises(CapacityError, match=r"one request of max_model_len=2048 tokens needs \d+ bytes") as error:
        LLM("demo", device=DEVICE, kv_cache_bytes=1 << 20)
    assert 1 << 20 in numbers_of(error)
    assert max(numbers_of(error)) > 1 << 20
    works(kv_cache_bytes=64 << 20)


@pytest.mark.parametrize(("max_model_len", "match"), [(10**12, "rows"), (LONG, "one request of max_model_len")])
def test_a_context_that_cannot_fit_is_refused_with_both_numbers(tmp_path, max_model_len, match):
    folder = make_tiny_llm(tmp_path, max_position_embeddings=max_model_len, **WIDE)
    free = free_bytes()
    with pytest.raises(CapacityError, match=match) as error:
        LLM(str(folder), device=DEVICE, max_num_seqs=1, max_model_len=max_model_len)
    numbers = numbers_of(error)
    assert max(numbers) > free * CUDA_MEMORY_FRACTION - CUDA_RESERVE_BYTES, "what is needed"
    assert any(0.2 * free < number < free for number in numbers), "what is there"
    # A shorter context of the same checkpoint starts.
    with LLM(str(folder), device=DEVICE, max_num_seqs=1, max_model_len=4096) as llm:
        assert llm.generate([[5, 6]], SamplingParams(max_tokens=2, ignore_eos=True))[0].finish_reason == "length"


def test_a_context_past_the_checkpoint_s_is_refused_by_its_number():
    with pytest.raises(ConfigError, match="max_model_len=4096: the checkpoint was made for 2048 positions"):
        LLM("demo", device=DEVICE, max_model_len=4096)


def test_memory_that_others_took_is_not_planned_with():
    """Sized from what is free, not from what the device has."""
    before = resolve(read_options({"device": DEVICE}), probe_hardware())
    others = torch.empty(32 << 30, dtype=torch.uint8, device=DEVICE)
    free = torch.cuda.mem_get_info()[0]
    assert abs(probe_hardware().cuda_free_bytes - free) < 1 << 30
    assert before.cache.num_pages > 1
    with pytest.raises(CapacityError, match="are free after weights and rows") as error:
        LLM("demo", device=DEVICE, kv_cache_bytes=free)
    assert numbers_of(error)[1] < free - (free // 20)
    del others
    works()


@pytest.mark.parametrize("drafter", ["none", "eagle3"])
def test_what_an_engine_takes_is_what_the_account_says(drafter):
    """Weights, tables, rows and pages as the account says; graphs, masks and what a step needs fit the reserve."""
    options = {"device": DEVICE, "drafter": drafter, "max_num_seqs": 16}
    hardware = probe_hardware()
    config = resolve(read_options(options), hardware)
    geometry = cache_geometry(
        config.model.target,
        config.speculation.eagle3,
        dtype=config.model.dtype,
        page_size=config.cache.page_size,
        num_pages=config.cache.num_pages,
    )
    fixed = fixed_bytes(
        config.model.target,
        config.speculation.eagle3,
        geometry,
        dtype=config.model.dtype,
        max_num_seqs=config.scheduler.max_num_seqs,
        max_model_len=config.scheduler.max_model_len,
        draft_len=config.speculation.draft_len,
        tp_size=1,
        keeps_draft_probs=config.speculation.keeps_draft_probs,
    )
    account = fixed.total + geometry.total_bytes
    free = free_bytes()
    allocated = torch.cuda.memory_allocated()
    with LLM("demo", **options) as llm:
        taken, driver = torch.cuda.memory_allocated() - allocated, free - torch.cuda.mem_get_info()[0]
        assert llm.facts.num_pages == config.cache.num_pages
    print(f"{drafter}: account {account:,} ({fixed._asdict()}, pages {geometry.total_bytes:,}), allocated {taken:,}, ")
    print(f"driver {driver:,} bytes")
    # Nothing planned is missing; an EAGLE-3 head that shares the target's tables takes less than the account.
    assert taken >= account - fixed.drafter_weights
    assert driver - account < CUDA_RESERVE_BYTES, "what is beside the account must fit into the reserve"
    wanted = config.scheduler.max_num_seqs * -(-config.scheduler.max_model_len // config.cache.page_size) + 1
    assert config.cache.num_pages == wanted, "there is room for every row at full length"


def test_a_large_cache_beside_real_widths_is_what_was_asked_for(tmp_path):
    """Half of what is free, in pages to the last one, and the engine still captures its graphs."""
    target = RandomTarget(
        tmp_path,
        device=DEVICE,
        num_heads=64,
        num_kv_heads=4,
        head_dim=128,
        rotary_dim=64,
        index_head_dim=128,
        index_block_size=128,
    )
    asked = free_bytes() // 2
    with target.llm(dtype="bfloat16", max_num_seqs=2, kv_cache_bytes=asked) as llm:
        taken = torch.cuda.memory_allocated()
        page_bytes = asked // llm.facts.num_pages
        assert page_bytes * llm.facts.num_pages <= asked < page_bytes * (llm.facts.num_pages + 2)
        assert 0 <= taken - asked + 2 * page_bytes < CUDA_RESERVE_BYTES
        assert llm.generate([[5, 6]], SamplingParams(max_tokens=2, ignore_eos=True))[0].finish_reason == "length"
