"""Named inputs for the filters; every implementation must agree with the reference exactly on all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterCase(Case):
    """The same parameters for every row.

    `levels` above 0 gives the logits few distinct values, so that ties abound. `fault` is what row 1 holds: `nan` and
    `inf` in one place, `excluded` everywhere -inf.
    """

    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    levels: int = 0
    fault: str = ""


def make_inputs(case: FilterCase) -> dict[str, Tensor]:
    """Return the keyword arguments of the contract."""
    count = case.size("num_tokens")
    logits = torch.randn(count, case.size("vocab_size"), generator=case.generator()) * 2
    if case.levels:
        logits = (logits * case.levels / 8).round() * 8 / case.levels
    if case.fault == "excluded":
        logits[1] = -torch.inf
    elif case.fault:
        logits[1, -2] = float(case.fault)
    return {
        "logits": logits,
        "temperature": torch.full((count,), case.temperature),
        "top_k": torch.full((count,), case.top_k, dtype=torch.int32),
        "top_p": torch.full((count,), case.top_p),
        "min_p": torch.full((count,), case.min_p),
    }


def _case(
    name: str,
    guards: str,
    seed: int,
    vocab_size: int,
    temperature: float,
    *,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    levels: int = 0,
    fault: str = "",
) -> FilterCase:
    return FilterCase(
        name=name,
        guards=guards,
        seed=seed,
        dtype=torch.float32,
        tolerance=EXACT,
        sizes={"num_tokens": 4, "vocab_size": vocab_size},
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        levels=levels,
        fault=fault,
    )


CASES = (
    _case("off", "a row without filters keeps every token", 1, 37, 0.7),
    _case("top_k_one", "ties at the top: exactly one token, the lowest id", 2, 37, 1.0, top_k=1, levels=4),
    _case("top_k_ties", "ties at the cut: exactly k tokens", 3, 64, 1.0, top_k=9, levels=5),
    _case("top_k_wide", "k beyond the vocabulary is off", 4, 37, 1.0, top_k=1000),
    _case("top_p_tiny", "never fewer than one token", 5, 37, 1.0, top_p=1e-6),
    _case("top_p_ties", "ties at the nucleus boundary go by token id", 6, 64, 3.0, top_p=0.5, levels=3),
    _case("top_p_near_one", "a long tail of small masses", 7, 200, 1.0, top_p=0.999),
    _case("min_p_one", "only tokens as likely as the most likely one", 8, 64, 1.0, min_p=1.0, levels=4),
    _case("min_p_half", "the threshold is relative to the scaled maximum", 9, 64, 1.3, min_p=0.5),
    _case("all_three", "the order of the filters shows", 10, 200, 1.5, top_k=12, top_p=0.7, min_p=0.02),
    _case("cold", "a small temperature concentrates the mass", 11, 64, 0.01, top_k=20, top_p=0.9, min_p=0.1, levels=6),
    _case("hot", "a large temperature makes the row flat", 12, 64, 100.0, top_k=20, top_p=0.5),
    _case("greedy", "filters of a greedy row are ignored", 13, 37, 0.0, top_k=3, top_p=0.1, min_p=0.5),
    _case("nan_row", "a row with NaN stays as it is, and the others are filtered", 14, 64, 0.9, top_k=5, fault="nan"),
    _case("inf_row", "a row with +inf stays as it is", 15, 64, 0.9, top_p=0.5, min_p=0.02, fault="inf"),
    _case("excluded_row", "a row without any token", 16, 64, 0.9, top_k=5, top_p=0.5, min_p=0.1, fault="excluded"),
    _case("k_beyond_min_p", "top-k must not bring back what min-p took", 17, 64, 1.0, top_k=40, min_p=0.3),
    _case("k_is_vocab", "k of the whole vocabulary is off", 18, 64, 1.0, top_k=64, levels=5),
    _case("k_before_last", "all but the last", 19, 64, 1.0, top_k=63, levels=5),
    _case("cut_ties_shared", "top-p ends where top-k divides", 20, 64, 2.0, top_k=20, top_p=0.9, levels=2),
    _case("hot_beyond", "scores below the least normal number still have an order", 21, 64, 3e38, top_k=7),
    _case("cold_beyond", "scores that overflow are equal to an excluded one", 22, 64, 2e-38, top_k=50),
    _case("one_token", "a vocabulary of one", 23, 1, 1.0, top_k=1, top_p=0.5, min_p=0.5),
    _case("wide_off", "more than a block, and not a multiple of one", 24, 4133, 1.0),
    _case("wide_ties", "the tokens at the cut lie in two blocks", 25, 4133, 1.0, top_k=2500, levels=1),
    _case("wide_nucleus", "the mass of two blocks is one", 26, 4133, 4.0, top_p=0.98, min_p=1e-4, levels=3),
    _case("wide_all", "every filter over two blocks", 27, 4133, 1.2, top_k=700, top_p=0.95, min_p=0.003),
)
