"""Named inputs for the noise; every implementation must agree with the reference on all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import Case, Tolerance

_ONE_ULP = Tolerance(0.0, 1.2e-7, "the hash is exact; the logarithms may differ by one unit in the last place")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseCase(Case):
    """Keys of the draws, and the token ids of the columns."""

    seeds: tuple[int, ...]
    positions: tuple[int, ...]
    first_token_id: int = 0


def make_inputs(case: NoiseCase) -> dict[str, Tensor]:
    """Return the keyword arguments of the contract."""
    first = case.first_token_id
    return {
        "seed": torch.tensor(case.seeds),
        "position": torch.tensor(case.positions),
        "token_ids": torch.arange(first, first + case.size("vocab_size")),
    }


def _case(
    name: str, guards: str, seeds: tuple[int, ...], positions: tuple[int, ...], width: int, first: int = 0
) -> NoiseCase:
    return NoiseCase(
        name=name,
        guards=guards,
        seed=0,
        dtype=torch.float32,
        tolerance=_ONE_ULP,
        sizes={"vocab_size": width},
        seeds=seeds,
        positions=positions,
        first_token_id=first,
    )


CASES = (
    _case("one_draw", "seed and position zero must not give a degenerate key", (0,), (0,), 7),
    _case("negative_seed", "an arithmetic shift must not smear the sign", (-1, -(2**63)), (3, 3), 64),
    _case("high_bits", "the upper half of the seed counts", (5, 5 + (1 << 32), 5 + (1 << 62)), (9, 9, 9), 64),
    _case("long_context", "positions of a million-token context", (1, 1), (2**20 - 1, 2**20), 33),
    _case("large_vocabulary", "token ids of a 200k vocabulary, odd width", (12345,), (17,), 1064, 199_000),
    _case("padding", "a padding entry must not fail", (7, 7), (-1, 0), 16),
)
