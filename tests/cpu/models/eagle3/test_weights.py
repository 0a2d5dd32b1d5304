"""Names of the field's checkpoints, tables shared with the target, and heads that must be refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from slipstream.base.errors import CheckpointError
from slipstream.config.schema import Eagle3Spec
from slipstream.models.eagle3.model import Eagle3Model
from slipstream.models.eagle3.weights import load_eagle3
from slipstream.parallel.group import one_rank
from slipstream.weights.loader import LoadReport
from support.eagle3_rig import VOCAB, Tables, make_head, make_tables

FILE = "model.safetensors"


def load(
    folder: Path, spec: Eagle3Spec, tables: Tables, dtype: torch.dtype = torch.float32
) -> tuple[Eagle3Model, LoadReport]:
    return load_eagle3(folder, spec, tables, group=one_rank(), dtype=dtype, device="cpu", max_positions=32)


def edit(folder: Path, **changes: torch.Tensor | None) -> None:
    """Replace, add or (None) remove tensors; double underscores stand for dots."""
    tensors = load_file(folder / FILE)
    for name, tensor in changes.items():
        tensors.pop(name.replace("__", "."), None)
        if tensor is not None:
            tensors[name.replace("__", ".")] = tensor.contiguous()
    save_file(tensors, folder / FILE)


def rename(folder: Path, old: str, new: str) -> None:
    tensors = load_file(folder / FILE)
    assert any(old in name for name in tensors)
    save_file({name.replace(old, new): tensor for name, tensor in tensors.items()}, folder / FILE)


def parameters(model: Eagle3Model) -> dict[str, torch.Tensor]:
    return {name: parameter.data.clone() for name, parameter in model.named_parameters()}


def test_every_tensor_lands_where_it_belongs(tmp_path: Path):
    spec = make_head(tmp_path, fc_norm=True)
    stored = load_file(tmp_path / FILE)
    model, report = load(tmp_path, spec, make_tables())
    assert report.num_tensors == len(stored)
    assert torch.equal(model.fc.weight, stored["fc.weight"])
    assert torch.equal(model.norm.weight, stored["norm.weight"])
    for tap in range(3):
        assert torch.equal(model.fc_norm[tap].weight, stored[f"fc_norm.{tap}.weight"])
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        assert torch.equal(getattr(model, name).weight, stored[f"midlayer.{name}.weight"])
    qkv = torch.cat([stored[f"midlayer.self_attn.{part}_proj.weight"] for part in "qkv"])
    assert torch.equal(model.attention.qkv_proj.weight, qkv)
    gate_up = torch.cat([stored[f"midlayer.mlp.{part}_proj.weight"] for part in ("gate", "up")])
    assert torch.equal(model.mlp.gate_up_proj.weight, gate_up)
    assert torch.equal(model.mlp.down_proj.weight, stored["midlayer.mlp.down_proj.weight"])
    assert torch.equal(model.attention.o_proj.weight, stored["midlayer.self_attn.o_proj.weight"])


@pytest.mark.parametrize(
    ("old", "new", "flags"),
    [
        ("midlayer.", "layers.0.", {}),
        ("fc_norm.0", "aux_norm_low", {"fc_norm": True}),
        ("fc_norm.1", "aux_norm_mid", {"fc_norm": True}),
        ("fc_norm.2", "aux_norm_high", {"fc_norm": True}),
    ],
)
def test_both_spellings_mean_the_same(tmp_path: Path, old: str, new: str, flags: dict):
    spec = make_head(tmp_path, **flags)
    wanted = parameters(load(tmp_path, spec, make_tables())[0])
    if old.startswith("fc_norm"):
        for tap, name in enumerate(("aux_norm_low", "aux_norm_mid", "aux_norm_high")):
            rename(tmp_path, f"fc_norm.{tap}", name)
    else:
        rename(tmp_path, old, new)
    assert any(name.startswith(new) for name in load_file(tmp_path / FILE))
    found = parameters(load(tmp_path, spec, make_tables())[0])
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("name", ["fc_norm.0.weight", "lm_head.bias", "layers.1.input_layernorm.weight", "target.x"])
def test_an_unknown_tensor_stops_the_load(tmp_path: Path, name: str):
    """A norm that is dropped silently gives a good first draft and a decay after it."""
    spec = make_head(tmp_path)
    edit(tmp_path, **{name: torch.zeros(32)})
    with pytest.raises(CheckpointError, match=name):
        load(tmp_path, spec, make_tables())


@pytest.mark.parametrize("name", ["fc_norm.1.weight", "norm.weight", "midlayer.self_attn.k_proj.weight"])
def test_a_missing_tensor_stops_the_load(tmp_path: Path, name: str):
    spec = make_head(tmp_path, fc_norm=True)
    edit(tmp_path, **{name: None})
    with pytest.raises(CheckpointError, match=name):
        load(tmp_path, spec, make_tables())


def test_a_head_of_other_sizes_stops_the_load(tmp_path: Path):
    make_head(tmp_path / "a", num_kv_heads=4)
    spec = make_head(tmp_path / "b", num_kv_heads=2)
    with pytest.raises(CheckpointError, match=r"k_proj.weight has shape \[32, 64\], expected \[16, 64\]"):
        load(tmp_path / "a", spec, make_tables())


def test_absent_tables_are_the_target_s(tmp_path: Path):
    spec = make_head(tmp_path, embeddings=False, lm_head=False)
    model, _ = load(tmp_path, spec, make_tables())
    assert model.embedding is None
    assert model.lm_head is None
    assert not any("embedding" in name or "lm_head" in name for name in parameters(model))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_equal_tables_are_dropped_and_different_ones_kept(tmp_path: Path, dtype: torch.dtype):
    spec = make_head(tmp_path)
    tables = make_tables()
    stored = load_file(tmp_path / FILE)
    in_dtype = Tables(tables.embedding.to(dtype), tables.lm_head.to(dtype))
    model, report = load(tmp_path, spec, in_dtype, dtype)
    assert model.embedding is not None
    assert model.lm_head is not None
    assert torch.equal(model.embedding.weight, stored["embed_tokens.weight"].to(dtype))
    assert torch.equal(model.lm_head.weight, stored["lm_head.weight"].to(dtype))
    assert report.ignored == ()

    edit(tmp_path, embed_tokens__weight=tables.embedding, lm_head__weight=tables.lm_head)
    model, report = load(tmp_path, spec, in_dtype, dtype)
    assert model.embedding is None
    assert model.lm_head is None
    assert {name for name, _ in report.ignored} == {"embed_tokens.weight", "lm_head.weight"}

    # One changed element of the last row or column is enough to keep a table.
    for name, attribute, table in (
        ("embed_tokens__weight", "embedding", tables.embedding),
        ("lm_head__weight", "lm_head", tables.lm_head),
    ):
        changed = table.clone()
        changed[-1, -1] += 1.0
        edit(tmp_path, **{name: changed})
        model, _ = load(tmp_path, spec, in_dtype, dtype)
        assert getattr(model, attribute) is not None
        edit(tmp_path, **{name: table})


def test_a_vocabulary_map_holds_offsets(tmp_path: Path):
    spec = make_head(tmp_path, draft_vocab_size=20)
    stored = load_file(tmp_path / FILE)
    model, report = load(tmp_path, spec, make_tables())
    wanted = stored["t2d"].nonzero()[:, 0]
    assert model.target_ids.tolist() == wanted.tolist()
    assert {name for name, _ in report.ignored} == {"d2t", "t2d"}


def test_a_map_beside_a_full_vocabulary_is_honoured(tmp_path: Path):
    spec = make_head(tmp_path)
    edit(tmp_path, d2t=torch.arange(VOCAB).flip(0) - torch.arange(VOCAB))
    model, _ = load(tmp_path, spec, make_tables())
    assert model.target_ids.tolist() == list(range(VOCAB))[::-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d2t": None}, "there is no tensor d2t"),
        ({"d2t": torch.zeros(19, dtype=torch.int64)}, r"expected \[20\] integers"),
        ({"d2t": torch.zeros(20)}, r"expected \[20\] integers"),
        ({"d2t": torch.full((20,), VOCAB)}, "points at token ids"),
        ({"d2t": torch.full((20,), -1)}, "points at token ids -1"),
        ({"lm_head.weight": None}, "there is no tensor lm_head.weight"),
    ],
    ids=str,
)
def test_a_reduced_vocabulary_that_does_not_fit_is_refused(tmp_path: Path, change: dict, message: str):
    spec = make_head(tmp_path, draft_vocab_size=20)
    edit(tmp_path, **change)
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path, spec, make_tables())


def test_a_narrower_head_cannot_borrow_the_target_s_embedding(tmp_path: Path):
    spec = make_head(tmp_path, target_hidden_size=48, embeddings=False)
    with pytest.raises(CheckpointError, match="no tensor embed_tokens.weight"):
        load(tmp_path, spec, make_tables(48))
