"""Named biases; every implementation must agree with the reference exactly on all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasCase(Case):
    """Biases (token, value) and end tokens per request."""

    biases: tuple[tuple[tuple[int, float], ...], ...]
    end_tokens: tuple[tuple[int, ...], ...]
    first_end_positions: tuple[int, ...]
    base_positions: tuple[int, ...]


def make_inputs(case: BiasCase) -> dict[str, Tensor]:
    """Return the keyword arguments of the contract."""
    count, query_len, vocab_size = len(case.biases), case.size("query_len"), case.size("vocab_size")
    bias, is_end_token = torch.zeros(count, vocab_size), torch.zeros(count, vocab_size, dtype=torch.bool)
    for row in range(count):
        for token, value in case.biases[row]:
            bias[row, token] = value
        is_end_token[row, list(case.end_tokens[row])] = True
    return {
        "logits": torch.randn(count, query_len, vocab_size, generator=case.generator()),
        "bias": bias,
        "is_end_token": is_end_token,
        "first_end_position": torch.tensor(case.first_end_positions),
        "base_positions": torch.tensor(case.base_positions),
    }


def _case(
    name: str,
    guards: str,
    biases: tuple[tuple[tuple[int, float], ...], ...],
    end_tokens: tuple[tuple[int, ...], ...],
    first_end_positions: tuple[int, ...],
    base_positions: tuple[int, ...],
) -> BiasCase:
    return BiasCase(
        name=name,
        guards=guards,
        seed=len(name),
        dtype=torch.float32,
        tolerance=EXACT,
        sizes={"query_len": 4, "vocab_size": 7},
        biases=biases,
        end_tokens=end_tokens,
        first_end_positions=first_end_positions,
        base_positions=base_positions,
    )


CASES = (
    _case("off", "a request without biases keeps its values", ((),), ((),), (0,), (4,)),
    _case(
        "bias",
        "values of both signs, one token forbidden",
        (((1, 2.5), (3, -100.0), (5, -torch.inf)),),
        ((),),
        (0,),
        (4,),
    ),
    _case("early", "the first rows of a ladder may not end, the later ones may", ((),), ((0, 6),), (8,), (5,)),
    _case("late", "an end that is allowed everywhere", ((),), ((2,),), (5,), (4,)),
    _case(
        "mixed",
        "requests are independent, and an end token may have a bias too",
        (((2, 1.0),), (), ((0, -torch.inf),)),
        ((2, 3), (1,), (0,)),
        (9, 3, 7),
        (6, 2, -1),
    ),
)
