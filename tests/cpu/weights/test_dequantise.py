"""Plain copies of quantised checkpoints hold what the oracles say, in the names of the original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from slipstream.base.errors import CheckpointError, ConfigError
from slipstream.config.checkpoint import read_checkpoint
from slipstream.config.quantization.read import read_quantization
from slipstream.config.quantization.spec import QUANTISED, Quantization, WeightFormat
from slipstream.weights.dequantise import dequantise_checkpoint, logical_tensors
from slipstream.weights.quantise import quantise_checkpoint
from slipstream.weights.reader import CheckpointReader
from support.quantised import dequantised_copy
from support.tiny_checkpoints import make_tiny_checkpoint


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"expert_intermediate_size": 64, "shared_intermediate_size": 32}
    return make_tiny_checkpoint(tmp_path_factory.mktemp("source") / "model", **sizes)


@pytest.mark.parametrize("wanted", QUANTISED)
@pytest.mark.parametrize("recipe", ["released", "experts"])
def test_a_plain_copy_holds_the_oracles_values_under_the_original_names(
    source: Path, tmp_path: Path, wanted: WeightFormat, recipe: Any
) -> None:
    quantised = quantise_checkpoint(source, tmp_path / "q", wanted, recipe=recipe)
    done: list[tuple[int, int]] = []
    report = dequantise_checkpoint(quantised.folder, tmp_path / "p", on_progress=lambda *step: done.append(step))
    assert report.counts == quantised.counts
    assert done[-1] == (len(done), sum(report.counts.values()))
    found, original = (load_file(folder / "model.safetensors") for folder in (report.folder, source))
    oracle = load_file(dequantised_copy(quantised.folder, tmp_path / "oracle") / "model.safetensors")
    assert found.keys() == original.keys() == oracle.keys()
    for name, tensor in found.items():
        assert tensor.dtype == original[name].dtype
        assert torch.equal(tensor, oracle[name])
    assert read_checkpoint(report.folder) == read_checkpoint(source)
    assert not (report.folder / "hf_quant_config.json").exists()
    assert (report.folder / "generation_config.json").is_file()


def test_quantising_the_plain_copy_of_mxfp8_loses_nothing_more(source: Path, tmp_path: Path) -> None:
    first = quantise_checkpoint(source, tmp_path / "q", "mxfp8").folder
    plain = dequantise_checkpoint(first, tmp_path / "p").folder
    again = quantise_checkpoint(plain, tmp_path / "r", "mxfp8").folder
    # Bytes may differ: a group whose largest value was rounded down to a power's end fits the next smaller scale.
    twice = load_file(dequantise_checkpoint(again, tmp_path / "s").folder / "model.safetensors")
    once = load_file(plain / "model.safetensors")
    assert all(torch.equal(once[name], twice[name]) for name in once)


def test_a_declaration_in_the_text_section_goes_too(source: Path, tmp_path: Path) -> None:
    folder = quantise_checkpoint(source, tmp_path / "q", "mxfp8").folder
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["quantization_config"] = config.pop("quantization_config")
    (folder / "config.json").write_text(json.dumps(config))
    plain = dequantise_checkpoint(folder, tmp_path / "p").folder
    assert read_quantization(plain).formats == ()


def test_what_is_plain_already_and_what_exists_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not quantised; there is nothing to undo"):
        dequantise_checkpoint(source, tmp_path / "p")
    (tmp_path / "taken").mkdir()
    with pytest.raises(ConfigError, match="it exists already"):
        dequantise_checkpoint(source, tmp_path / "taken")
    assert [item.name for item in tmp_path.iterdir()] == ["taken"]


def test_a_scale_that_belongs_to_nothing_is_named_and_nothing_is_left(source: Path, tmp_path: Path) -> None:
    folder = quantise_checkpoint(source, tmp_path / "q", "mxfp8").folder
    tensors = load_file(folder / "model.safetensors") | {"odd.weight_scale": torch.ones(1)}
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"odd.weight_scale belongs to no quantised tensor"):
        dequantise_checkpoint(folder, tmp_path / "p")
    assert [item.name for item in tmp_path.iterdir()] == ["q"]


def test_logical_tensors_are_those_of_the_original(source: Path, tmp_path: Path) -> None:
    folder = quantise_checkpoint(source, tmp_path / "q", "nvfp4-m31").folder
    with CheckpointReader(source) as reader, CheckpointReader(folder) as packed:
        plain = logical_tensors(reader, Quantization())
        assert plain.keys() == logical_tensors(packed, read_quantization(folder)).keys()
        assert {form.name for form in plain.values()} == {"plain"}
