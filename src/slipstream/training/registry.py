"""How each kind of drafter begins. Nothing else in this room knows which kinds there are."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from slipstream.config.schema import TargetSpec
from slipstream.training.eagle3.design import choose_taps
from slipstream.training.eagle3.trainer import build_eagle3
from slipstream.training.interface import DraftTrainer, TargetTables
from slipstream.training.kinds import check_kind
from slipstream.training.settings import TrainSettings

Build = Callable[[TargetSpec, TargetTables, Tensor, TrainSettings, torch.device], DraftTrainer]
"""(target, its tables, kept tokens, settings, device) -> a drafter that has not been trained."""

ChooseTaps = Callable[[tuple[int, ...], int], tuple[int, ...]]
"""(taps asked for, layers of the target) -> taps."""

_KINDS: dict[str, tuple[ChooseTaps, Build]] = {"eagle3": (choose_taps, build_eagle3)}


def find_kind(kind: str) -> tuple[ChooseTaps, Build]:
    """Return how a kind of drafter chooses its taps and how it is built.

    Raises:
        UnsupportedFeature: a drafter that is known and not trained here.
        ConfigError: an unknown word.
    """
    return _KINDS[check_kind(kind)]
