"""The bundled checkpoint with one token whose embedding is NaN: whoever uses it has logits that are not finite."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from slipstream.demo import demo_path

BROKEN_TOKEN = 3000
EMBEDDING = "language_model.model.embed_tokens.weight"


def make_broken_checkpoint(folder: Path) -> Path:
    """Write the checkpoint into a new folder, and return it."""
    shutil.copytree(demo_path(), folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors[EMBEDDING][BROKEN_TOKEN] = torch.nan
    save_file(tensors, file, metadata={"format": "pt"})
    return folder
