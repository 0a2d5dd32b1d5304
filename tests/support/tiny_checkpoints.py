"""Tiny random checkpoints for every test, written by tools/make_checkpoint.py. Importable without torch."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from slipstream.config.schema import TargetSpec

_TOOLS = Path(__file__).resolve().parents[2] / "tools"


def _load_tool(name: str) -> ModuleType:
    """Return tools/<name>.py as a module; a later tool may import an earlier one by its name."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, _TOOLS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


make_checkpoint = _load_tool("make_checkpoint")
make_eagle3 = _load_tool("make_eagle3")
Geometry = make_checkpoint.Geometry
Eagle3Geometry = make_eagle3.Eagle3Geometry


def tiny_config(**geometry: Any) -> dict[str, Any]:
    """Return the released config.json of a tiny target as a fresh dict; no files, no torch."""
    return make_checkpoint.released_config(Geometry(**geometry))


def write_tiny_config(folder: Path, config: dict[str, Any] | None = None, **geometry: Any) -> Path:
    """Write config.json (given, or of a tiny target) and generation_config.json, no weights; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    make_checkpoint.write_json(folder / "config.json", tiny_config(**geometry) if config is None else config)
    make_checkpoint.write_json(folder / "generation_config.json", {"eos_token_id": 2})
    return folder


def make_tiny_checkpoint(
    folder: Path,
    *,
    seed: int = 0,
    dtype: str = "bfloat16",
    num_shards: int = 1,
    vision: bool = True,
    **geometry: Any,
) -> Path:
    """Write a tiny released-layout checkpoint into `folder` (created) and return it.

    Args:
        folder: becomes the checkpoint folder itself.
        seed, dtype, num_shards, vision: see write_checkpoint of the tool.
        geometry: fields of Geometry, e.g. num_layers=4, sparse=(0, 1, 1, 1), index_block_size=8.
    """
    return make_checkpoint.write_checkpoint(
        folder, Geometry(**geometry), seed=seed, dtype=dtype, num_shards=num_shards, vision=vision
    )


def make_tiny_eagle3(folder: Path, target: TargetSpec, *, seed: int = 1, dtype: str = "bfloat16", **flags: Any) -> Path:
    """Write a random EAGLE-3 head that fits `target` into `folder` (created) and return it.

    Args:
        folder: becomes the drafter folder; `<checkpoint>/eagle3` makes it the bundled drafter.
        target: the spec that the head must fit.
        seed, dtype: of the weights.
        flags: fields of Eagle3Geometry, e.g. aux_layer_ids=(0, 1, 3) as post(x), draft_vocab_size=64,
            fc_norm=True, norm_before_fc=True, norm_output=True, norm_before_residual=True,
            embeddings=False, lm_head=False, num_heads, num_kv_heads, head_dim.
            aux_layer_ids=None leaves the ids out of the config.
    """
    return make_eagle3.write_eagle3(folder, _eagle3_geometry(target, flags), seed=seed, dtype=dtype)


def tiny_eagle3_config(target: TargetSpec, **flags: Any) -> dict[str, Any]:
    """Return config.json of a head that fits `target`; flags as in make_tiny_eagle3. No files, no torch."""
    return make_eagle3.eagle3_config(_eagle3_geometry(target, flags))


def _eagle3_geometry(target: TargetSpec, flags: dict[str, Any]) -> Any:
    fields: dict[str, Any] = {
        "target_hidden_size": target.hidden_size,
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "max_position_embeddings": target.max_position_embeddings,
        "aux_layer_ids": make_eagle3.default_taps(target.num_layers),
    } | flags
    if fields["aux_layer_ids"] is not None and "num_taps" not in flags:
        fields["num_taps"] = len(fields["aux_layer_ids"])
    return Eagle3Geometry(**fields)
