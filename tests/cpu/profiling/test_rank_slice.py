"""A slice runs the engine's own step; its rows, pages and widths are those of one rank."""

from __future__ import annotations

import pytest
import torch

from slipstream.config.bytes import TARGET_GROUP
from slipstream.profiling.rank_slice import RankSlice, SliceSettings, StandInDrafter, slice_config, slice_spec
from slipstream.profiling.shapes import real_spec
from support.narrow_shapes import narrow_spec


@pytest.fixture(scope="module", params=["bfloat16", "float8_e4m3"])
def one(request):
    settings = SliceSettings(tp_size=8, batch=2, draft_len=3, context=100, kv_dtype=request.param)
    with torch.inference_mode():
        return RankSlice(narrow_spec(), settings, torch.device("cpu"))


@pytest.mark.parametrize(("tp_size", "sizes"), [(8, (8, 1, 1, 384)), (4, (16, 1, 1, 768)), (2, (32, 2, 2, 1536))])
def test_the_real_slices(tp_size, sizes):
    spec, rank = slice_spec(real_spec("m3"), tp_size)
    assert (spec.num_heads, spec.num_kv_heads, spec.sparse.num_index_heads, spec.expert_intermediate_size) == sizes
    assert rank.vocab_rows == 200_064 // tp_size
    assert spec.hidden_size == 6144


def test_a_step_advances_every_row_and_rewinding_takes_it_back(one):
    with torch.inference_mode():
        one.rewind()
        before = one.parts.rows.num_computed_tokens.clone()
        pending = one.step()
        moved = one.parts.rows.num_computed_tokens - before
        assert torch.equal(moved[:2], pending.num_accepted + 1)
        assert bool(pending.is_finite.all())
        one.rewind()
        assert torch.equal(one.parts.rows.num_computed_tokens, before)
        again = one.step()
    assert torch.equal(pending.emitted[:, 0], again.emitted[:, 0])


def test_requests_own_pages_of_their_own(one):
    used = one.parts.tables.table(TARGET_GROUP)[:2]
    assert used.unique().numel() == used.numel()
    assert int(used.min()) > 0


def test_experts_are_counted(one):
    with torch.inference_mode():
        assert 2 <= one.count_experts() <= 8
    assert one.model.on_routed is None


def test_the_cache_is_of_the_asked_type(one):
    plane = one.parts.pools.layer("target_k", 0)
    assert str(plane.dtype).startswith(f"torch.{one.settings.kv_dtype}")


def test_room_is_left_for_measured_steps():
    spec, _ = slice_spec(narrow_spec(), 8)
    config = slice_config(spec, SliceSettings(8, 3, 3, 100), torch.device("cpu"))
    assert config.scheduler.max_model_len > 1000
    assert config.cache.num_pages == 3 * -(-config.scheduler.max_model_len // 16) + 1


def test_the_stand_in_proposes_full_ladders():
    assert StandInDrafter(3).spec.draft_len == 3
