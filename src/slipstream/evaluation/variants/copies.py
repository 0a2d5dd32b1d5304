"""Write a changed copy of a checkpoint, or a control of a drafter's head, into a folder.

A change of config.json alone links the weights; a change of tensors writes them again in their stored formats.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from slipstream.config.checkpoint import CONFIG_FILE, read_target
from slipstream.config.fields import read_json
from slipstream.evaluation.variants.features import Feature
from slipstream.evaluation.variants.tensors import Tensors
from slipstream.models.m3.names import IGNORED
from slipstream.weights.reader import INDEX_FILE, CheckpointReader
from slipstream.weights.writer import ShardWriter

UNTRAINED = "untrained"
SHUFFLED = "shuffled features"
CONTROLS = (UNTRAINED, SHUFFLED)
_FEATURES_IN = "fc.weight"
_SPREAD = 0.02


def write_variant(source: Path, folder: Path, feature: Feature, seed: int) -> bool:
    """Write a checkpoint without a feature.

    Args:
        source: the checkpoint.
        folder: becomes the copy; created.
        feature: what is switched off.
        seed: of random changes.

    Returns:
        Whether the checkpoint has the feature; without, the copy must not be used.

    Raises:
        CheckpointError: the checkpoint cannot be read.
        UnsupportedFeature: a tensor is stored in a format that cannot express the change.
    """
    spec = read_target(source)
    folder.mkdir(parents=True, exist_ok=True)
    config = read_json(source / CONFIG_FILE, purpose="the model's configuration")
    text: dict[str, Any] = config.get("text_config") or config
    is_there = feature.edit_config is None or feature.edit_config(text, spec)
    _copy_small_files(source, folder)
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=1), encoding="utf-8")
    if feature.edit_tensors is None:
        _link_weights(source, folder)
        return is_there
    tensors = _read_tensors(source)
    is_there = feature.edit_tensors(tensors, spec, torch.Generator().manual_seed(seed)) and is_there
    _write_tensors(folder, tensors)
    return is_there


def write_control(source: Path, folder: Path, control: str, seed: int) -> None:
    """Write a head that must not be accepted more than by luck.

    Args:
        source: the trained head.
        folder: becomes the control; created.
        control: `untrained`, a head of random weights, or `shuffled features`, the trained head whose inputs from the
            target are in random order.
        seed: of the randomness.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _copy_small_files(source, folder)
    shutil.copyfile(source / CONFIG_FILE, folder / CONFIG_FILE)
    tensors = _read_tensors(source)
    generator = torch.Generator().manual_seed(seed)
    if control == SHUFFLED:
        weight = tensors[_FEATURES_IN]
        tensors[_FEATURES_IN] = weight[:, torch.randperm(weight.shape[1], generator=generator)].contiguous()
    else:
        for name, tensor in tensors.items():
            # Norms, vectors, begin as one; maps between vocabularies are whole numbers and stay.
            if tensor.is_floating_point() and tensor.dim() > 1:
                tensors[name] = (torch.randn(tensor.shape, generator=generator) * _SPREAD).to(torch.bfloat16)
            elif tensor.is_floating_point():
                tensors[name] = torch.ones_like(tensor)
    _write_tensors(folder, tensors)


def weight_files(folder: Path) -> list[Path]:
    """Return the files of weights of a checkpoint."""
    return sorted(folder.glob("*.safetensors"))


def _copy_small_files(source: Path, folder: Path) -> None:
    """Copy tokenizer, template and the like; weights, their index and the configuration are written otherwise."""
    skipped = {CONFIG_FILE, INDEX_FILE}
    for file in source.iterdir():
        if file.is_file() and file.suffix in (".json", ".jinja", ".txt") and file.name not in skipped:
            shutil.copyfile(file, folder / file.name)


def _link_weights(source: Path, folder: Path) -> None:
    for file in [*weight_files(source), source / INDEX_FILE]:
        if file.is_file():
            (folder / file.name).symlink_to(file.resolve())


def _read_tensors(source: Path) -> Tensors:
    """Return the stored tensors, without those that the network leaves out."""
    with CheckpointReader(source) as reader:
        return {name: reader.read(name) for name in reader.names if not any(rule.matches(name) for rule in IGNORED)}


def _write_tensors(folder: Path, tensors: Tensors) -> None:
    writer = ShardWriter(folder)
    for name, tensor in tensors.items():
        writer.add(name, tensor)
    writer.finish()
