"""Loading: every layout gives the same network, every parameter is filled, slices of ranks reassemble to the whole."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from slipstream.base.errors import CheckpointError
from slipstream.config.bytes import target_weight_bytes
from slipstream.config.checkpoint import read_checkpoint, read_target
from slipstream.config.schema import SparseAttentionSpec, TargetSpec
from slipstream.models.m3.model import M3Model, build_m3
from slipstream.models.m3.names import find_names
from slipstream.models.m3.weights import load_m3, m3_rules
from slipstream.parallel.group import one_rank
from slipstream.parallel.mesh import Mesh
from slipstream.weights.reader import CheckpointReader
from support.m3_world import load_oracle, load_target
from support.tiny_checkpoints import make_checkpoint, make_tiny_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_checkpoint(tmp_path / "model")


def edit_weights(folder: Path, change: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def equal_networks(first: M3Model, second: M3Model) -> bool:
    pairs = zip(first.named_parameters(), second.named_parameters(), strict=True)
    return all(one[0] == two[0] and torch.equal(one[1], two[1]) for one, two in pairs)


def test_every_parameter_is_filled_and_its_bytes_are_accounted_for(folder: Path) -> None:
    spec = read_target(folder)
    model = build_m3(spec, dtype=torch.float32, device="cpu", group=one_rank())
    for parameter in model.parameters():
        parameter.fill_(torch.nan)
    done: list[tuple[int, int]] = []
    report = load_m3(model, folder, lambda *step: done.append(step))
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    num_bytes = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    assert report.num_bytes == num_bytes == target_weight_bytes(spec, "float32") == done[-1][0]
    half = build_m3(spec, dtype=torch.bfloat16, device="cpu", group=one_rank())
    num_bytes = sum(parameter.numel() * parameter.element_size() for parameter in half.parameters())
    assert num_bytes == target_weight_bytes(spec, "bfloat16")
    reasons = {name.split(".")[0]: reason for name, reason in report.ignored}
    assert set(reasons) == {"vision_tower", "multi_modal_projector", "patch_merge_mlp"}


def test_loaded_values_are_the_stored_ones(folder: Path) -> None:
    model = load_target(folder)
    stored = load_file(folder / "model.safetensors")
    prefix = "language_model.model.layers.2."
    layer = model.layers[2]
    assert torch.equal(layer.mlp.experts.w13[5, :48], stored[f"{prefix}block_sparse_moe.experts.5.w1.weight"].float())
    assert torch.equal(layer.mlp.experts.w13[5, 48:], stored[f"{prefix}block_sparse_moe.experts.5.w3.weight"].float())
    assert torch.equal(layer.mlp.router.weight, stored[f"{prefix}block_sparse_moe.gate.weight"])
    assert torch.equal(layer.mlp.router.bias, stored[f"{prefix}block_sparse_moe.e_score_correction_bias"])
    assert torch.equal(model.lm_head.weight, stored["language_model.lm_head.weight"].float())


def test_shards_and_one_file_give_the_same_network(folder: Path, tmp_path: Path) -> None:
    shards = make_tiny_checkpoint(tmp_path / "shards", num_shards=3)
    assert equal_networks(load_target(folder), load_target(shards))


@pytest.mark.parametrize("keep_names", [True, False])
def test_a_checkpoint_saved_again_by_transformers_is_the_same(folder: Path, tmp_path: Path, keep_names: bool) -> None:
    again = tmp_path / "again"
    load_oracle(folder).model.save_pretrained(again, save_original_format=keep_names)
    (again / "generation_config.json").write_text((folder / "generation_config.json").read_text())
    facts = read_checkpoint(again)
    assert facts.target == read_target(folder)
    assert (facts.dialect, facts.unknown_fields) == ("resaved", ())
    with CheckpointReader(again) as reader:
        assert find_names(reader.names, "").is_fused is not keep_names
    assert equal_networks(load_target(folder), load_target(again))


def test_a_text_only_checkpoint_has_shorter_names(folder: Path) -> None:
    expected = load_target(folder)
    tensors = load_file(folder / "model.safetensors")
    short = {re.sub(r"^language_model\.", "", name): value for name, value in tensors.items()}
    save_file(
        {name: value for name, value in short.items() if name.startswith(("model.", "lm_head"))},
        folder / "model.safetensors",
    )
    assert equal_networks(expected, load_target(folder))


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    folder = make_tiny_checkpoint(tmp_path / "tied", tie_word_embeddings=True)
    model = load_target(folder)
    assert model.lm_head.weight is model.embed_tokens.weight
    assert sum(p.numel() * p.element_size() for p in model.parameters()) == target_weight_bytes(model.spec, "float32")
    edit_weights(folder, lambda t: t.update({"language_model.lm_head.weight": torch.zeros(160, 64)}))
    report = load_m3(build_m3(model.spec, dtype=torch.float32, device="cpu", group=one_rank()), folder)
    assert ("language_model.lm_head.weight", "the head is the embedding (tie_word_embeddings)") in report.ignored


def test_without_a_routing_bias_none_is_read(tmp_path: Path) -> None:
    folder = make_tiny_checkpoint(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["use_routing_bias"] = False
    make_checkpoint.write_json(folder / "config.json", config)
    with pytest.raises(CheckpointError, match="e_score_correction_bias"):
        load_target(folder)
    edit_weights(folder, lambda t: [t.pop(name) for name in list(t) if name.endswith("correction_bias")])
    assert not load_target(folder).layers[1].mlp.router.bias.any()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("language_model.model.mtp.layers.0.enorm.weight", "multi-token prediction"),
        ("language_model.model.dspark.fc.weight", "dspark"),
        ("language_model.model.layers.0.self_attn.rotary_emb.inv_freq", "computed"),
    ],
)
def test_known_extras_are_ignored_with_a_reason(folder: Path, name: str, reason: str) -> None:
    edit_weights(folder, lambda t: t.update({name: torch.zeros(2)}))
    model = build_m3(read_target(folder), dtype=torch.float32, device="cpu", group=one_rank())
    assert reason in dict(load_m3(model, folder).ignored)[name]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("language_model.model.layers.3.self_attn.index_k_norm.weight"), "index_k_norm.weight [16]"),
        (lambda t: t.pop("language_model.model.layers.1.block_sparse_moe.experts.7.w2.weight"), "experts.7.w2.weight"),
        (lambda t: t.update({"language_model.model.norm.weight": torch.zeros(65)}), "shape [65], expected [64]"),
        (lambda t: t.update({"language_model.model.layers.4.input_layernorm.weight": torch.zeros(64)}), "layers.4."),
        (lambda t: t.update({"language_model.model.layers.0.self_attn.q_proj.bias": torch.zeros(128)}), "q_proj.bias"),
        (lambda t: t.pop("language_model.model.embed_tokens.weight"), "no token embedding"),
        (
            lambda t: t.update(
                {"language_model.lm_head.weight": t["language_model.lm_head.weight"].to(torch.float8_e4m3fn)}
            ),
            "language_model.lm_head.weight is stored as mxfp8 (F8_E4M3)",
        ),
    ],
)
def test_weights_that_do_not_match_are_named(folder: Path, change: Any, words: str) -> None:
    edit_weights(folder, change)
    with pytest.raises(CheckpointError) as caught:
        load_target(folder)
    assert words in str(caught.value)


@pytest.mark.parametrize("tp_size", [1, 2, 4])
@pytest.mark.parametrize("is_fused", [False, True])
def test_slices_of_all_ranks_reassemble_to_the_whole(
    folder: Path, tmp_path: Path, tp_size: int, is_fused: bool
) -> None:
    """Four ranks hold each of the two KV heads twice: both copies must be equal."""
    if is_fused:
        load_oracle(folder).model.save_pretrained(tmp_path / "fused", save_original_format=False)
        (tmp_path / "fused" / "generation_config.json").write_text((folder / "generation_config.json").read_text())
        folder = tmp_path / "fused"
    rebuilt: dict[str, torch.Tensor] = {}
    ranks_of_kv: list[torch.Tensor] = []
    for rank in range(tp_size):
        group: Any = SimpleNamespace(mesh=Mesh(tp_size, rank))
        model = load_target(folder, group=group)
        parameters = dict(model.named_parameters())
        with CheckpointReader(folder) as reader:
            rules = m3_rules(model, find_names(reader.names, ""))
        for rule in rules:
            whole = rebuilt.setdefault(rule.tensor, torch.full(rule.shape, torch.nan))
            piece = parameters[rule.parameter][rule.target or ...]
            seen = whole[rule.source or ...]
            assert ((seen == piece) | seen.isnan()).all()
            whole[rule.source or ...] = piece
        ranks_of_kv.append(model.layers[1].attention.qkv_proj.weight)
    with CheckpointReader(folder) as reader:
        for name, whole in rebuilt.items():
            assert torch.equal(whole, reader.read(name).float()), name
    assert len({weight.shape for weight in ranks_of_kv}) == 1


@pytest.mark.parametrize(("num_full_layers", "num_tensors"), [(3, 23_416), (0, 23_416 + 3 * 4)])
def test_the_rules_name_every_tensor_of_the_released_model(num_full_layers: int, num_tensors: int) -> None:
    """The published index lists 23,416 tensors, 523 of them for images; sparse layers have four more each."""
    freq = [0] * num_full_layers + [1] * (60 - num_full_layers)
    sparse = SparseAttentionSpec(
        num_index_heads=4, index_head_dim=128, index_block_size=128, topk_blocks=16, num_init_blocks=0,
        num_local_blocks=1,
    )  # fmt: skip
    spec = TargetSpec(
        hidden_size=6144, num_layers=60, num_heads=64, num_kv_heads=4, head_dim=128, rotary_dim=64, rope_theta=5e6,
        rms_norm_eps=1e-6, vocab_size=200064, max_position_embeddings=1048576, tie_word_embeddings=False,
        dense_intermediate_size=12288, expert_intermediate_size=3072, shared_intermediate_size=3072, num_experts=128,
        topk_experts=4, num_shared_experts=1, routed_scaling_factor=2.0, has_routing_bias=True, swiglu_alpha=1.702,
        swiglu_limit=7.0, is_moe_layer=(False,) * 3 + (True,) * 57, is_sparse_layer=tuple(map(bool, freq)),
        sparse=sparse, eos_token_ids=(200020,),
    )  # fmt: skip
    model = build_m3(spec, dtype=torch.bfloat16, device="meta", group=one_rank(), max_positions=8)
    names = find_names(["language_model.model.embed_tokens.weight"], "")
    tensors = {rule.tensor: rule for rule in m3_rules(model, names)}
    assert len(tensors) + 523 == num_tensors
    assert tensors["language_model.model.layers.3.self_attn.index_q_proj.weight"].shape == (512, 6144)
    assert tensors["language_model.model.layers.59.block_sparse_moe.experts.127.w2.weight"].shape == (6144, 3072)
    total = sum(rule.num_elements for rule in m3_rules(model, names))
    assert total == sum(parameter.numel() for parameter in model.parameters())
