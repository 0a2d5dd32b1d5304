"""Quantised copies of checkpoints: what is quantised, what it becomes, and that a failure leaves nothing behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from slipstream.base.errors import CapacityError, CheckpointError, ConfigError
from slipstream.config.checkpoint import read_checkpoint, read_target
from slipstream.config.quantization.spec import QUANTISED, WeightFormat
from slipstream.models.m3.model import M3Model, build_m3
from slipstream.models.m3.weights import load_m3
from slipstream.parallel.group import one_rank
from slipstream.parallel.mesh import Mesh
from slipstream.weights import new_checkpoint
from slipstream.weights.quantise import plan_format, quantise_checkpoint
from support.quantised import dequantised_copy
from support.tiny_checkpoints import make_tiny_checkpoint

LAYER = "language_model.model.layers.1."
MOE = f"{LAYER}block_sparse_moe."
GEOMETRY = {"expert_intermediate_size": 64, "shared_intermediate_size": 32}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_tiny_checkpoint(tmp_path_factory.mktemp("source") / "model", num_shards=2, **GEOMETRY)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("x")
    (folder / "notes.bin").write_bytes(b"weights of another kind")
    (folder / "eagle3").mkdir()
    (folder / "eagle3" / "config.json").write_text("{}")
    return folder


def weights(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file in folder.glob("*.safetensors"):
        found |= load_file(file)
    return found


def load(folder: Path, group: Any = None, dtype: torch.dtype = torch.bfloat16) -> M3Model:
    model = build_m3(read_target(folder), dtype=dtype, device="cpu", group=group or one_rank())
    load_m3(model, folder)
    return model


def equal_networks(first: M3Model, second: M3Model) -> bool:
    pairs = zip(first.named_parameters(), second.named_parameters(), strict=True)
    return all(one[0] == two[0] and torch.equal(one[1], two[1]) for one, two in pairs)


@pytest.mark.parametrize(
    ("name", "released", "experts"),
    [
        (f"{MOE}experts.3.w1.weight", "nvfp4", "nvfp4"),
        (f"{MOE}experts.3.w2.weight", "nvfp4", "nvfp4"),
        (f"{MOE}shared_experts.gate_proj.weight", "mxfp8", "plain"),
        (f"{LAYER}mlp.down_proj.weight", "mxfp8", "plain"),
        (f"{LAYER}self_attn.o_proj.weight", "mxfp8", "plain"),
        (f"{LAYER}self_attn.index_k_proj.weight", "mxfp8", "plain"),
        (f"{LAYER}self_attn.index_k_norm.weight", "plain", "plain"),
        (f"{MOE}gate.weight", "plain", "plain"),
        (f"{MOE}e_score_correction_bias", "plain", "plain"),
        (f"{LAYER}input_layernorm.weight", "plain", "plain"),
        ("language_model.lm_head.weight", "plain", "plain"),
        ("language_model.model.embed_tokens.weight", "plain", "plain"),
        ("vision_tower.layers.0.self_attn.q_proj.weight", "plain", "plain"),
        ("language_model.model.mtp.layers.0.self_attn.q_proj.weight", "plain", "plain"),
        ("language_model.model.dspark.layers.0.mlp.gate_proj.weight", "plain", "plain"),
    ],
)
def test_the_table_of_what_is_quantised(name: str, released: str, experts: str) -> None:
    assert plan_format(name, "nvfp4", "released") == released
    assert plan_format(name, "nvfp4", "experts") == experts


@pytest.mark.parametrize("wanted", QUANTISED)
@pytest.mark.parametrize("recipe", ["released", "experts"])
def test_a_quantised_copy_loads_as_its_dequantised_oracle(
    source: Path, tmp_path: Path, wanted: WeightFormat, recipe: Any
) -> None:
    done: list[tuple[int, int]] = []
    report = quantise_checkpoint(
        source, tmp_path / "q", wanted, recipe=recipe, on_progress=lambda *step: done.append(step)
    )
    assert done[-1][0] == done[-1][1] == len(done) == sum(report.counts.values())
    assert set(report.counts) == {wanted, "plain"} | ({"mxfp8"} if recipe == "released" else set())
    assert report.num_bytes < report.num_bytes_before
    facts = read_checkpoint(report.folder)
    assert facts.target == read_target(source)
    assert set(facts.quantization.formats) == set(report.counts) - {"plain"}
    oracle = dequantised_copy(report.folder, tmp_path / "plain")
    for dtype in (torch.bfloat16, torch.float32):
        # The oracle's copy is rounded to bfloat16; MXFP8 is exact in it.
        if dtype == torch.bfloat16 or wanted == "mxfp8":
            assert equal_networks(load(report.folder, dtype=dtype), load(oracle, dtype=dtype))


@pytest.mark.parametrize("wanted", QUANTISED)
def test_slices_of_two_ranks_are_those_of_the_dequantised_copy(
    source: Path, tmp_path: Path, wanted: WeightFormat
) -> None:
    quantised = quantise_checkpoint(source, tmp_path / "q", wanted).folder
    oracle = dequantised_copy(quantised, tmp_path / "plain")
    # Width 32 and 48 of a rank cut groups of 32.
    whole = load(quantised)
    for rank in range(2):
        group: Any = SimpleNamespace(mesh=Mesh(2, rank))
        part = load(quantised, group)
        assert equal_networks(part, load(oracle, group))
        assert not equal_networks_in_shape(part, whole)


def equal_networks_in_shape(first: M3Model, second: M3Model) -> bool:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return all(one.shape == two.shape for one, two in pairs)


@pytest.mark.parametrize("wanted", QUANTISED)
def test_weights_stay_near_and_everything_else_stays(source: Path, tmp_path: Path, wanted: WeightFormat) -> None:
    quantised = quantise_checkpoint(source, tmp_path / "q", wanted).folder
    before, after = weights(source), weights(dequantised_copy(quantised, tmp_path / "plain"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        form = plan_format(name, wanted, "released")
        error = (after[name].float() - tensor.float()).abs().max() / tensor.float().abs().max()
        limit = {"plain": 0.0, "mxfp8": 1 / 16, "nvfp4": 1 / 5, "nvfp4-m31": 1 / 5}[form]
        assert float(error) <= limit, name
        assert after[name].dtype == tensor.dtype


@pytest.mark.parametrize(("wanted", "factor"), [("nvfp4", "weight_scale_2"), ("nvfp4-m31", "weight_global_scale")])
def test_gate_and_up_of_an_expert_share_their_global_scale(
    source: Path, tmp_path: Path, wanted: WeightFormat, factor: str
) -> None:
    before = weights(source)
    stored = weights(quantise_checkpoint(source, tmp_path / "q", wanted).folder)
    for expert in range(8):
        stem = f"{MOE}experts.{expert}."
        gate, up, down = (stored[f"{stem}{part}.{factor}"].reshape(()) for part in ("w1", "w3", "w2"))
        assert torch.equal(gate, up)
        assert not torch.equal(gate, down)
        amax = max(float(before[f"{stem}{part}.weight"].abs().max()) for part in ("w1", "w3"))
        expected = amax / 2688 if wanted == "nvfp4" else 2688 / amax
        assert float(gate) == pytest.approx(expected, rel=1e-6)


def test_other_files_come_along_and_other_weights_do_not(source: Path, tmp_path: Path) -> None:
    folder = quantise_checkpoint(source, tmp_path / "new" / "q", "nvfp4", max_shard_bytes=20_000).folder
    names = {item.name for item in folder.iterdir()}
    kept = {"config.json", "generation_config.json", "hf_quant_config.json", "tokenizer.json", "chat_template.jinja"}
    assert kept | {"model.safetensors.index.json", "eagle3"} <= names
    assert "notes.bin" not in names
    assert (folder / "eagle3" / "config.json").read_text() == "{}"
    shards = [item for item in folder.iterdir() if item.suffix == ".safetensors"]
    assert len(shards) > 2
    assert len(names) == len(kept) + 2 + len(shards)
    assert [item.name for item in folder.parent.iterdir()] == ["q"]
    ignored = json.loads((folder / "config.json").read_text())["quantization_config"]["exclude_modules"]
    assert "vision_tower" in ignored
    assert "language_model.lm_head" in ignored
    assert not any("norm" in name or "gate_proj" in name for name in ignored)


def test_an_existing_folder_is_only_replaced_when_asked_and_when_it_is_a_checkpoint(
    source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "q"
    first = quantise_checkpoint(source, target, "mxfp8")
    with pytest.raises(ConfigError, match=r"it exists already; give another folder, or --force"):
        quantise_checkpoint(source, target, "nvfp4")
    assert weights(first.folder).keys() == weights(target).keys()
    quantise_checkpoint(source, target, "nvfp4", is_forced=True)
    assert (target / "hf_quant_config.json").is_file()
    assert [item.name for item in tmp_path.iterdir()] == ["q"]
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="this is neither; remove it yourself"):
        quantise_checkpoint(source, tmp_path / "home", "mxfp8", is_forced=True)
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize("place", [".", "inside", ".."])
def test_source_and_target_are_apart(source: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="lie within each other"):
        quantise_checkpoint(source, source / place, "mxfp8", is_forced=True)
    assert weights(source)


def edited(source: Path, folder: Path, change: Any) -> Path:
    folder.mkdir()
    tensors = weights(source)
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    shutil.copy(source / "config.json", folder)
    return folder


W1, W3 = f"{MOE}experts.0.w1.weight", f"{MOE}experts.0.w3.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.update({W1: t[W1] * torch.inf}), f"{W1} holds NaN or infinity"),
        (lambda t: t.update({W1: torch.zeros(64, 40).bfloat16()}), r"\[64, 40\]; nvfp4 takes .* multiple of 16"),
        (lambda t: t.update({W1: torch.zeros(64, 64).char()}), "stored as I8"),
        (lambda t: t.pop(W3), f"{W3} is missing, which shares its scale with {W1}"),
        (lambda t: t.update({f"{LAYER}mlp.experts.gate_up_proj": torch.zeros(2, 2, 2)}), "holds fused projections"),
    ],
)
def test_a_weight_that_cannot_be_quantised_is_named_and_nothing_is_left(
    source: Path, tmp_path: Path, change: Any, words: str
) -> None:
    broken = edited(source, tmp_path / "broken", change)
    with pytest.raises(CheckpointError, match=words):
        quantise_checkpoint(broken, tmp_path / "q", "nvfp4")
    assert [item.name for item in tmp_path.iterdir()] == ["broken"]


def test_an_interruption_leaves_nothing_and_an_old_checkpoint_as_it_was(source: Path, tmp_path: Path) -> None:
    target = quantise_checkpoint(source, tmp_path / "q", "mxfp8").folder

    def interrupt(done: int, total: int) -> None:
        if done == total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantise_checkpoint(source, target, "nvfp4", is_forced=True, on_progress=interrupt)
    assert [item.name for item in tmp_path.iterdir()] == ["q"]
    assert read_checkpoint(target).quantization.formats == ("mxfp8",)


def test_quantising_twice_and_foreign_checkpoints_are_refused(source: Path, tmp_path: Path) -> None:
    once = quantise_checkpoint(source, tmp_path / "q", "mxfp8").folder
    with pytest.raises(CheckpointError, match=r"quantised already \(mxfp8\)"):
        quantise_checkpoint(once, tmp_path / "twice", "nvfp4")
    (tmp_path / "odd").mkdir()
    save_file({"w": torch.zeros(2, 2)}, tmp_path / "odd" / "model.safetensors")
    (tmp_path / "odd" / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="no tensor to quantise"):
        quantise_checkpoint(tmp_path / "odd", tmp_path / "r", "mxfp8")


def test_a_full_disk_is_noticed_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_checkpoint.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(CapacityError, match="but 1000 are free"):
        quantise_checkpoint(source, tmp_path / "q", "mxfp8")
    assert list(tmp_path.iterdir()) == []


def test_a_declaration_that_does_not_fit_the_weights_names_the_tensor(source: Path, tmp_path: Path) -> None:
    folder = quantise_checkpoint(source, tmp_path / "q", "mxfp8").folder
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["ignored_layers"].append(f"{LAYER}self_attn.q_proj")
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"layers.1.self_attn.q_proj.weight is stored as mxfp8 .* declares plain"):
        load(folder)
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="is stored as mxfp8 .* no quantization_config declares plain"):
        load(folder)
