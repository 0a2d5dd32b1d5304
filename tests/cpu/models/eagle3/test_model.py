"""The network's switches, one by one, by properties that the wrong arithmetic cannot have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.models.eagle3.model import Eagle3Model
from slipstream.models.eagle3.weights import load_eagle3
from slipstream.parallel.group import one_rank
from support.eagle3_rig import make_head, make_tables


def build(folder: Path, **flags: object) -> Eagle3Model:
    spec = make_head(folder, **flags)
    tables = make_tables(spec.target_hidden_size)
    return load_eagle3(folder, spec, tables, group=one_rank(), dtype=torch.float32, device="cpu", max_positions=32)[0]


def run(model: Eagle3Model, states: torch.Tensor, position: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Run one row per state, each alone in a request of its own."""
    count = states.shape[0]
    shape = (count + 1, 4, model.spec.num_kv_heads, model.spec.head_dim)
    table = torch.arange(1, count + 1, dtype=torch.int32)[:, None]
    positions = torch.full((count,), position)
    slots = (table[:, 0].long()) * 4 + position
    inputs = AttentionInputs(positions, torch.arange(count), table, slots, table, slots)
    embeddings = torch.randn(count, model.spec.hidden_size, generator=torch.Generator().manual_seed(1))
    k, v = torch.full(shape, torch.nan), torch.full(shape, torch.nan)
    return model(embeddings, states, inputs, positions - 1, k, v)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rms(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(-1).sqrt()


@pytest.mark.parametrize(("flag", "is_invariant"), [("norm_before_fc", True), ("fc_norm", True), (None, False)])
def test_a_norm_before_the_projection_removes_the_scale_of_the_taps(tmp_path: Path, flag: str, is_invariant: bool):
    model = build(tmp_path, **({flag: True} if flag else {}))
    taps = random(5, 96)
    close = torch.allclose(model.fuse(taps), model.fuse(7 * taps), atol=1e-4)
    assert close is is_invariant


def test_fc_norm_normalises_each_tap_and_norm_before_fc_all_together(tmp_path: Path):
    taps = random(5, 96)
    scaled = taps * torch.tensor([1.0, 7.0, 0.2]).repeat_interleave(32)
    each = build(tmp_path / "each", fc_norm=True)
    together = build(tmp_path / "together", norm_before_fc=True)
    torch.testing.assert_close(each.fuse(taps), each.fuse(scaled), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(together.fuse(taps), together.fuse(scaled), atol=0.1)


def test_norm_output_feeds_back_the_normed_state(tmp_path: Path):
    model = build(tmp_path, norm_output=True)
    hidden, feedback = run(model, random(6, 32) * 5)
    assert torch.equal(hidden, feedback)
    torch.testing.assert_close(rms(feedback / model.norm.weight), torch.ones(6), atol=1e-4, rtol=0)


def test_without_norm_output_the_feedback_is_the_residual_stream(tmp_path: Path):
    """Not the MLP's branch alone, and the output is its norm."""
    model = build(tmp_path)
    states = random(6, 32) * 50
    hidden, feedback = run(model, states)
    torch.testing.assert_close(hidden, model.norm(feedback), atol=1e-5, rtol=1e-5)
    assert (rms(feedback - states) < 0.5 * rms(states)).all(), "the residual does not carry the state"
    assert (rms(feedback) > 10).all()


def test_norm_before_residual_starts_from_the_normed_state(tmp_path: Path):
    model = build(tmp_path, norm_before_residual=True)
    states = random(6, 32)
    _, feedback = run(model, states)
    _, scaled = run(model, states * 50)
    torch.testing.assert_close(feedback, scaled, atol=1e-3, rtol=1e-3)
    plain = build(tmp_path / "plain")
    _, feedback = run(plain, states)
    _, scaled = run(plain, states * 50)
    assert (rms(scaled) > 10 * rms(feedback)).all()


def test_norm_weights_are_gains_not_offsets(tmp_path: Path):
    """A weight of zero silences; an offset from one would not."""
    model = build(tmp_path, norm_output=True)
    model.norm.weight.zero_()
    hidden, _ = run(model, random(3, 32))
    assert not hidden.any()


def test_the_embedding_comes_first(tmp_path: Path):
    """Zero columns on the left must hide the embedding, zero columns on the right the state."""
    model = build(tmp_path, norm_before_residual=True)
    model.attention.qkv_proj.weight[:, 32:] = 0
    _, one = run(model, random(4, 32, seed=1))
    _, other = run(model, -random(4, 32, seed=1))
    # What remains of the state is its residual; its sign is all that differs before the MLP.
    assert not torch.allclose(one, other)
    model.attention.qkv_proj.weight[:, :32] = 0
    model.attention.o_proj.weight.zero_()
    states = random(4, 32, seed=2)
    x, residual = model._enter(torch.ones(4, 32), states)
    assert torch.equal(x[:, :32], model.input_layernorm(torch.ones(4, 32)))
    assert torch.equal(x[:, 32:], model.hidden_norm(states))
    assert torch.equal(residual, model.hidden_norm(states))


def test_store_writes_what_forward_writes(tmp_path: Path):
    model = build(tmp_path)
    states, embeddings = random(3, 32), random(3, 32, seed=1)
    table = torch.tensor([[1, 2]], dtype=torch.int32)
    positions = torch.tensor([3, 4, 6])
    slots = torch.tensor([7, 8, -1])
    inputs = AttentionInputs(positions, torch.zeros(3, dtype=torch.int64), table, slots, table, slots)
    pools = [torch.zeros(3, 4, 2, 8) for _ in range(4)]
    model.store(embeddings, states, inputs, positions - 1, pools[0], pools[1])
    model(embeddings, states, inputs, positions - 1, pools[2], pools[3])
    torch.testing.assert_close(pools[0], pools[2], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(pools[1], pools[3], atol=1e-5, rtol=1e-5)
    assert pools[0].flatten(0, 1)[[7, 8]].abs().sum((1, 2)).gt(0).all()
    assert not pools[0].flatten(0, 1)[[0, 1, 2, 3, 4, 5, 6, 9, 10, 11]].any(), "slot -1 is not the last slot"


def test_rotation_is_that_of_the_state_s_position(tmp_path: Path):
    model = build(tmp_path)
    table = torch.tensor([[1, 2]], dtype=torch.int32)

    def keys(rope_position: int) -> torch.Tensor:
        slots = torch.tensor([6])
        inputs = AttentionInputs(torch.tensor([2]), torch.tensor([0]), table, slots, table, slots)
        k, v = torch.zeros(3, 4, 2, 8), torch.zeros(3, 4, 2, 8)
        model.store(random(1, 32), random(1, 32, seed=1), inputs, torch.tensor([rope_position]), k, v)
        return k.flatten(0, 1)[6]

    assert not torch.allclose(keys(1), keys(2))
    torch.testing.assert_close(keys(1).norm(), keys(2).norm())
