"""Properties of the network itself: every way of feeding tokens agrees, taps are what they say, mutants are caught."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

from slipstream.base.errors import ConfigError, EngineError
from slipstream.config.checkpoint import read_target
from slipstream.config.drafter import read_eagle3
from slipstream.kernels.norm.qk_norm_rope.contract import qk_norm_rope
from slipstream.layers import mlp as mlp_layer
from slipstream.models.interface import LayerCache, TargetModel
from slipstream.models.m3.model import M3Model, build_m3
from slipstream.models.m3.weights import load_m3
from slipstream.parallel.group import one_rank
from support.m3_world import PagedCache, load_target, prompt, recorded_blocks, tiny_target
from support.tiny_checkpoints import make_tiny_checkpoint, tiny_eagle3_config

NUM_TOKENS = 90
TOLERANCE = 2e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_checkpoint(tmp_path_factory.mktemp("m3") / "model", num_local_blocks=2)


@pytest.fixture(scope="module")
def model(folder: Path) -> M3Model:
    return load_target(folder, aux_layer_ids=(0, 2, 3))


@pytest.fixture(scope="module")
def tokens(model: M3Model) -> list[int]:
    return prompt(model.spec, NUM_TOKENS)


@pytest.fixture(scope="module")
def whole(model: M3Model, tokens: list[int]) -> Tensor:
    return PagedCache(model, max_tokens=NUM_TOKENS).logits([(0, tokens)])


def test_it_is_a_target_model(model: M3Model) -> None:
    as_protocol: TargetModel = model
    assert as_protocol.embed(torch.tensor([3, 4])).shape == (2, 64)


@pytest.mark.parametrize("sizes", [(1,) * NUM_TOKENS, (30, 30, 30), (7, 1, 50, 32), (32, 8, 8, 42), (89, 1)])
def test_chunks_of_any_size_equal_the_whole_prompt(
    model: M3Model, tokens: list[int], whole: Tensor, sizes: Sequence[int]
) -> None:
    cache = PagedCache(model, max_tokens=NUM_TOKENS, seed=3)
    ends = list(itertools.accumulate(sizes))
    pieces = [cache.logits([(0, tokens[end - size : end])]) for size, end in zip(sizes, ends, strict=True)]
    assert (torch.cat(pieces) - whole).abs().max() <= 5e-5


def test_ladders_with_rejected_drafts_equal_the_whole_prompt(model: M3Model, tokens: list[int], whole: Tensor) -> None:
    """Five-token ladders: a right start, then wrong drafts whose slots the next ladder overwrites."""
    cache = PagedCache(model, max_tokens=NUM_TOKENS + 5)
    cache.step([(0, tokens[:20])])
    position, step = 20, 0
    while position < NUM_TOKENS - 5:
        num_right = step % 5 + 1
        ladder = tokens[position : position + num_right] + [5 + step] * (5 - num_right)
        logits = cache.logits([(0, ladder)])[:num_right]
        assert (logits - whole[position : position + num_right]).abs().max() <= 5e-5
        position, step = position + num_right, step + 1
        cache.rewind(0, position)
    assert step > 10


def test_ladders_and_decoding_choose_the_blocks_of_the_whole_prompt(model: M3Model, tokens: list[int]) -> None:
    with recorded_blocks() as at_once:
        PagedCache(model, max_tokens=NUM_TOKENS).step([(0, tokens)])
    num_sparse = len(at_once)
    for size in (1, 5):
        with recorded_blocks() as in_steps:
            cache = PagedCache(model, max_tokens=NUM_TOKENS)
            for start in range(0, NUM_TOKENS, size):
                cache.step([(0, tokens[start : start + size])])
        for layer in range(num_sparse):
            assert torch.equal(torch.cat(in_steps[layer::num_sparse]), at_once[layer])


def test_company_padding_and_page_order_change_nothing(model: M3Model, tokens: list[int], whole: Tensor) -> None:
    cache = PagedCache(model, num_reqs=3, max_tokens=NUM_TOKENS, seed=9)
    others = [prompt(model.spec, 40, seed=seed) for seed in (1, 2)]
    first = cache.logits([(1, others[0]), (0, tokens[:50]), (2, others[1][:3])], num_padding=4)
    second = cache.logits([(2, others[1][3:]), (0, tokens[50:])], num_padding=1)
    together = torch.cat([first[40:90], second[37:77]])
    assert (together - whole).abs().max() <= 5e-5


def test_padding_rows_are_finite_and_write_nothing(model: M3Model, tokens: list[int]) -> None:
    cache = PagedCache(model, max_tokens=16)
    assert cache.logits([(0, tokens[:3])], num_padding=2).isfinite().all()
    for layer in cache.caches:
        written = layer.k.isfinite().all(dim=(2, 3))
        assert int(written.sum()) == 3
        assert not written[0].any()


def test_no_tokens_give_empty_results_of_the_same_types(model: M3Model, tokens: list[int]) -> None:
    cache = PagedCache(model, max_tokens=8)
    empty, full = cache.step([]), cache.step([(0, tokens[:2])])
    assert empty.hidden.shape == (0, 64)
    assert empty.aux_hidden_states.shape == (0, 3 * 64)
    assert empty.hidden.dtype == full.hidden.dtype
    assert empty.aux_hidden_states.dtype == full.aux_hidden_states.dtype
    assert model.compute_logits(empty.hidden).shape == (0, 160)


def test_without_taps_their_width_is_zero(folder: Path, tokens: list[int]) -> None:
    output = PagedCache(load_target(folder), max_tokens=8).step([(0, tokens[:2])])
    assert output.aux_hidden_states.shape == (2, 0)


@pytest.mark.parametrize("taps", [(2, 1), (1, 1), (-1,), (4,)])
def test_taps_that_do_not_exist_are_refused(folder: Path, taps: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="different layers from 0 to 3, ascending"):
        load_target(folder, aux_layer_ids=taps)


def test_a_tap_is_the_stream_after_its_layer(tmp_path: Path) -> None:
    """Layer i adds 2^i to a stream of zeros, so the output of layer x is 2^(x+1) - 1, for every x."""
    spec = tiny_target(tmp_path / "model", num_layers=5).spec
    head = tmp_path / "head"
    head.mkdir()
    for taps in [*itertools.combinations(range(5), 1), *itertools.combinations(range(5), 3)]:
        config = tiny_eagle3_config(spec, aux_layer_ids=taps)
        (head / "config.json").write_text(json.dumps(config))
        model = load_target(tmp_path / "model", aux_layer_ids=read_eagle3(head, spec).spec.aux_layer_ids)
        model.embed_tokens.weight.zero_()
        for number, layer in enumerate(model.layers):
            layer.attention.forward = lambda normed, *_: torch.zeros_like(normed)
            layer.mlp.forward = lambda normed, *_, number=number: torch.full_like(normed, 2.0**number)
        output = PagedCache(model, max_tokens=8).step([(0, [3, 4])])
        values = output.aux_hidden_states.view(2, len(taps), 64)
        expected = torch.tensor([2.0 ** (layer + 1) - 1 for layer in taps]).view(1, -1, 1)
        assert torch.equal(values, expected.expand_as(values))


def test_the_last_tap_is_what_the_final_norm_reads(model: M3Model, tokens: list[int]) -> None:
    output = PagedCache(model, max_tokens=NUM_TOKENS).step([(0, tokens)])
    last = output.aux_hidden_states[:, -64:]
    assert torch.equal(model.norm(last), output.hidden)
    assert not torch.equal(last, output.hidden)


def test_taps_do_not_depend_on_other_taps(folder: Path, tokens: list[int]) -> None:
    both = PagedCache(load_target(folder, aux_layer_ids=(1, 3)), max_tokens=8).step([(0, tokens[:4])])
    one = PagedCache(load_target(folder, aux_layer_ids=(1,)), max_tokens=8).step([(0, tokens[:4])])
    assert torch.equal(both.aux_hidden_states[:, :64], one.aux_hidden_states)


def test_enough_blocks_make_sparse_layers_dense(tmp_path: Path) -> None:
    model = tiny_target(tmp_path / "model", topk_blocks=12)
    tokens = prompt(model.spec, NUM_TOKENS)
    logits = PagedCache(model, max_tokens=NUM_TOKENS).logits([(0, tokens)])
    narrow = build_and_load(tmp_path / "model", sparse={"topk_blocks": 4})
    assert (PagedCache(narrow, max_tokens=NUM_TOKENS).logits([(0, tokens)])[32:] - logits[32:]).abs().max() > 1.0
    wider = build_and_load(tmp_path / "model", sparse={"topk_blocks": 40})
    assert torch.equal(PagedCache(wider, max_tokens=NUM_TOKENS).logits([(0, tokens)]), logits)


def test_a_missing_index_pool_is_a_fault(model: M3Model, tokens: list[int]) -> None:
    cache = PagedCache(model, max_tokens=8)
    cache.caches = tuple(LayerCache(layer.k, layer.v) for layer in cache.caches)
    with pytest.raises(EngineError, match="no pool for its index keys"):
        cache.step([(0, tokens[:2])])


def test_bfloat16_keeps_its_types_and_follows_float32(folder: Path, tokens: list[int], whole: Tensor) -> None:
    narrow = load_target(folder, dtype=torch.bfloat16, aux_layer_ids=(3,))
    cache = PagedCache(narrow, max_tokens=NUM_TOKENS)
    output = cache.step([(0, tokens)])
    assert output.hidden.dtype == output.aux_hidden_states.dtype == torch.bfloat16
    logits = narrow.compute_logits(output.hidden)
    assert logits.dtype == torch.float32
    # Up to the fourth block every block is visible, so rounding cannot change a choice of blocks there.
    assert (logits[:32] - whole[:32]).abs().mean() < 0.25
    routers = [layer.mlp.router.weight for layer in narrow.layers if hasattr(layer.mlp, "router")]
    assert {router.dtype for router in routers} == {torch.float32}


def build_and_load(folder: Path, *, sparse: dict[str, Any] | None = None, **changes: Any) -> M3Model:
    """The network of a folder with a part of its configuration changed."""
    spec = read_target(folder)
    if sparse is not None:
        changes["sparse"] = msgspec.structs.replace(spec.sparse, **sparse)
    model = build_m3(msgspec.structs.replace(spec, **changes), dtype=torch.float32, device="cpu", group=one_rank())
    load_m3(model, folder)
    return model


class RotateOnly(nn.Module):
    """Stands where the head norm stood."""

    def forward(self, heads: Tensor, rope_table: Tensor, positions: Tensor, *_: Any) -> Tensor:
        return qk_norm_rope(heads, None, None, 0.0, False, rope_table, positions)


def norms(model: M3Model, kind: str) -> list[Tensor]:
    return [value for name, value in model.named_parameters() if kind in name]


def experts(model: M3Model) -> list[Any]:
    return [layer.mlp for layer in model.layers if hasattr(layer.mlp, "router")]


def without_head_norm(model: M3Model) -> None:
    for layer in model.layers:
        layer.attention.qk_norm = RotateOnly()


WEIGHT_MUTANTS: dict[str, Callable[[M3Model], Any]] = {
    "no_plus_one_in_layer_norms": lambda m: [w.sub_(1) for w in norms(m, "input_norm") + norms(m, "attention_norm")],
    "no_plus_one_in_final_norm": lambda m: m.norm.weight.sub_(1),
    "no_plus_one_in_head_norms": lambda m: [w[:2].sub_(1) for w in norms(m, "qk_norm")],
    "no_plus_one_in_index_norms": lambda m: [w[2:].sub_(1) for w in norms(m, "qk_norm")],
    "no_head_norm": without_head_norm,
    "no_routing_bias": lambda m: [moe.router.bias.zero_() for moe in experts(m)],
    "no_shared_expert": lambda m: [moe.shared.down_proj.weight.zero_() for moe in experts(m)],
    "shared_expert_scaled": lambda m: [moe.shared.down_proj.weight.mul_(2) for moe in experts(m)],
    "gate_and_up_swapped": lambda m: [moe.experts.w13.copy_(moe.experts.w13.roll(48, dims=1)) for moe in experts(m)],
}
CONFIG_MUTANTS: dict[str, dict[str, Any]] = {
    "all_of_a_head_rotated": {"rotary_dim": 16},
    "half_as_much_rotated": {"rotary_dim": 4},
    "other_theta": {"rope_theta": 10_000.0},
    "routed_experts_not_scaled": {"routed_scaling_factor": 1.0},
    "one_expert_too_few": {"topk_experts": 1},
    "no_clamp": {"swiglu_limit": 1e9},
    "other_clamp": {"swiglu_limit": 6.0},
    "other_alpha": {"swiglu_alpha": 1.0},
    "local_block_forgotten": {"sparse": {"num_local_blocks": 1}},
    "one_block_too_few": {"sparse": {"topk_blocks": 3}},
    "first_block_forced": {"sparse": {"num_init_blocks": 1}},
}


@pytest.mark.parametrize("name", WEIGHT_MUTANTS)
def test_a_changed_feature_exceeds_the_tolerance(folder: Path, tokens: list[int], whole: Tensor, name: str) -> None:
    mutant = load_target(folder)
    WEIGHT_MUTANTS[name](mutant)
    logits = PagedCache(mutant, max_tokens=NUM_TOKENS).logits([(0, tokens)])
    assert (logits - whole).abs().max() > 50 * TOLERANCE


@pytest.mark.parametrize("name", CONFIG_MUTANTS)
def test_a_changed_constant_exceeds_the_tolerance(folder: Path, tokens: list[int], whole: Tensor, name: str) -> None:
    mutant = build_and_load(folder, **CONFIG_MUTANTS[name])
    logits = PagedCache(mutant, max_tokens=NUM_TOKENS).logits([(0, tokens)])
    assert (logits - whole).abs().max() > 50 * TOLERANCE


@pytest.mark.parametrize("fault", ["no_plus_one_on_up", "gate_clamped_from_below"])
def test_a_changed_activation_exceeds_the_tolerance(
    tmp_path: Path, tokens: list[int], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """With a limit of 1: below -7 the gate is worth nothing, so its lower clamp would not show."""

    def wrong(gate_up: Tensor, alpha: float, limit: float) -> Tensor:
        gate, up = gate_up.chunk(2, dim=1)
        gate = gate.clamp(-limit if fault == "gate_clamped_from_below" else None, limit)
        up = up.clamp(-limit, limit) + (0.0 if fault == "no_plus_one_on_up" else 1.0)
        return up * gate * torch.sigmoid(alpha * gate)

    model = tiny_target(tmp_path / "model", swiglu_limit=1.0)
    right = PagedCache(model, max_tokens=NUM_TOKENS).logits([(0, tokens)])
    monkeypatch.setattr(mlp_layer, "swiglu_oai", wrong)
    logits = PagedCache(model, max_tokens=NUM_TOKENS).logits([(0, tokens)])
    assert (logits - right).abs().max() > 50 * TOLERANCE
