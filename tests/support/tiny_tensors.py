"""Small safetensors folders written by hand, complete or broken on purpose."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor


def write_shards(folder: Path, shards: dict[str, dict[str, Tensor]], weight_map: dict[str, str] | None = None) -> Path:
    """Write files of tensors and an index; the index lists what the files hold unless `weight_map` says otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    listed: dict[str, str] = {}
    for file, tensors in shards.items():
        save_file(tensors, folder / file)
        listed |= dict.fromkeys(tensors, file)
    index = {"metadata": {}, "weight_map": listed if weight_map is None else weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_single(folder: Path, tensors: dict[str, Tensor]) -> Path:
    """Write one file of tensors without an index."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    return folder
