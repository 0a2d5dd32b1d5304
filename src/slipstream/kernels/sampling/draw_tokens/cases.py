"""Named inputs for a draw; every implementation must return the reference's tokens on all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawCase(Case):
    """Temperatures of the draws.

    `levels` above 0 gives the logits few distinct values; `stride` above 1 makes token ids differ from columns. The
    two best scores of every draw differ by more than 1e-5 where noise is involved, so that the token is exact.
    """

    temperatures: tuple[float, ...]
    levels: int = 0
    stride: int = 1


def make_inputs(case: DrawCase) -> dict[str, Tensor | bool]:
    """Return the keyword arguments of the contract."""
    count, width = len(case.temperatures), case.size("vocab_size")
    logits = torch.randn(count, width, generator=case.generator()) * 3
    if case.levels:
        logits = logits.sign() * logits.abs().ceil().clamp(max=case.levels)
    return {
        "logits": logits,
        "temperature": torch.tensor(case.temperatures),
        "seed": torch.arange(count) * 1000 - 5,
        "position": torch.arange(count) + 11,
        "token_ids": torch.arange(width) * case.stride,
        "has_noise": any(case.temperatures),
    }


def _case(
    name: str, guards: str, seed: int, width: int, temperatures: tuple[float, ...], levels: int = 0, stride: int = 1
) -> DrawCase:
    return DrawCase(
        name=name,
        guards=guards,
        seed=seed,
        dtype=torch.float32,
        tolerance=EXACT,
        sizes={"vocab_size": width},
        temperatures=temperatures,
        levels=levels,
        stride=stride,
    )


CASES = (
    _case("greedy", "no noise at all", 1, 33, (0.0, 0.0)),
    _case("greedy_ties", "the lowest id of equal maxima", 2, 64, (0.0, 0.0, 0.0), levels=3),
    _case("mixed", "greedy and drawn rows in one call", 3, 130, (0.0, 1.0, 0.3, 2.0)),
    _case("cold", "a tiny temperature must not overflow into a tie", 4, 64, (0.01, 1e-30)),
    _case("mapped", "a reduced vocabulary: the noise is that of the target's id", 5, 17, (0.0, 0.9, 1.1), stride=3),
)
