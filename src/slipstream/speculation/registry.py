"""Build the drafter that the configuration names."""

from __future__ import annotations

from pathlib import Path

import torch

from slipstream.base.errors import ConfigError
from slipstream.config.schema import Eagle3Spec, SpeculationSection
from slipstream.models.eagle3.weights import TokenTables, load_eagle3
from slipstream.parallel.group import TensorParallelGroup
from slipstream.speculation.eagle3 import Eagle3Drafter
from slipstream.speculation.interface import Drafter, DrafterSpec
from slipstream.speculation.ngram import NgramDrafter
from slipstream.speculation.none import NoDrafter
from slipstream.weights.loader import OnProgress


def drafter_spec(section: SpeculationSection) -> DrafterSpec:
    """Return what the configured drafter needs of the engine; nothing is loaded.

    Args:
        section: the resolved choice.

    Raises:
        ConfigError: a section that does not hold what its drafter needs.
    """
    if section.drafter == "none":
        return NoDrafter().spec
    if section.drafter == "ngram":
        return NgramDrafter(section.draft_len, section.ngram_max, section.ngram_min).spec
    _, head = _eagle3(section)
    return DrafterSpec(
        name="eagle3",
        draft_len=section.draft_len,
        aux_layer_ids=head.aux_layer_ids,
        num_cache_layers=1,
        num_kv_heads=head.num_kv_heads,
        head_dim=head.head_dim,
        has_probs=True,
    )


def build_drafter(
    section: SpeculationSection,
    target: TokenTables,
    *,
    group: TensorParallelGroup,
    dtype: torch.dtype,
    device: torch.device | str,
    max_model_len: int,
    on_progress: OnProgress | None = None,
) -> Drafter:
    """Return the configured drafter, with its weights.

    Args:
        section: the resolved choice.
        target: the target network; its embedding and output head may be shared.
        group: the ranks that share a draft network.
        dtype: of a draft network's weights and activations.
        device: where it lives.
        max_model_len: longest request in tokens.
        on_progress: called with (bytes done, bytes in all) while weights load.

    Raises:
        ConfigError: a section that does not hold what its drafter needs.
        CheckpointError: a draft network's files.
    """
    if section.drafter == "none":
        return NoDrafter()
    if section.drafter == "ngram":
        return NgramDrafter(section.draft_len, section.ngram_max, section.ngram_min)
    folder, head = _eagle3(section)
    model, _ = load_eagle3(
        folder,
        head,
        target,
        group=group,
        dtype=dtype,
        device=device,
        max_positions=max_model_len,
        on_progress=on_progress,
    )
    return Eagle3Drafter(model, target, section.draft_len)


def _eagle3(section: SpeculationSection) -> tuple[Path, Eagle3Spec]:
    if section.drafter_path is None or section.eagle3 is None:
        raise ConfigError(
            "drafter=eagle3 without the folder of its checkpoint; give drafter_path, or choose none or ngram"
        )
    return Path(section.drafter_path), section.eagle3
