"""Named inputs for the penalties; every implementation must agree with the reference exactly on all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case


@dataclass(frozen=True, slots=True, kw_only=True)
class PenaltyCase(Case):
    """Penalties (repetition, presence, frequency) per request, and what each request's text looks like."""

    penalties: tuple[tuple[float, float, float], ...]
    base_positions: tuple[int, ...]
    num_prompt_tokens: tuple[int, ...]
    missing: int = 0


def make_inputs(case: PenaltyCase) -> dict[str, Tensor]:
    """Return the keyword arguments of the contract; the last `missing` drafts of every request are no proposals."""
    count, query_len, vocab_size = len(case.penalties), case.size("query_len"), case.size("vocab_size")
    generator = case.generator()
    drafts = torch.randint(0, vocab_size, (count, query_len - 1), generator=generator)
    if case.missing:
        drafts[:, -case.missing :] = -1
    repetition, presence, frequency = torch.tensor(case.penalties).unbind(1)
    return {
        "logits": torch.randn(count, query_len, vocab_size, generator=generator) * 2,
        "history": torch.randint(0, vocab_size, (count, case.size("max_model_len")), generator=generator),
        "base_positions": torch.tensor(case.base_positions),
        "draft_tokens": drafts,
        "num_prompt_tokens": torch.tensor(case.num_prompt_tokens),
        "repetition": repetition.clone(),
        "presence": presence.clone(),
        "frequency": frequency.clone(),
    }


def _case(
    name: str,
    guards: str,
    penalties: tuple[tuple[float, float, float], ...],
    base_positions: tuple[int, ...],
    num_prompt_tokens: tuple[int, ...],
    *,
    query_len: int = 4,
    missing: int = 0,
) -> PenaltyCase:
    return PenaltyCase(
        name=name,
        guards=guards,
        seed=len(name),
        dtype=torch.float32,
        tolerance=EXACT,
        sizes={"query_len": query_len, "vocab_size": 9, "max_model_len": 16},
        penalties=penalties,
        base_positions=base_positions,
        num_prompt_tokens=num_prompt_tokens,
        missing=missing,
    )


CASES = (
    _case("off", "a request without penalties keeps its bits", ((1.0, 0.0, 0.0),), (6,), (3,)),
    _case("first_token", "right after the prompt nothing was returned", ((1.5, 1.0, 1.0),), (4,), (5,), query_len=1),
    _case(
        "repetition", "the sign of the logit decides; prompt and returned tokens count", ((1.7, 0.0, 0.0),), (7,), (4,)
    ),
    _case("presence", "the prompt does not count, and a token counts once", ((1.0, 0.7, 0.0),), (8,), (3,)),
    _case("frequency", "each occurrence counts, those among the drafts too", ((1.0, 0.0, -0.4),), (9,), (2,)),
    _case(
        "mixed",
        "requests are independent; one of them is off",
        ((0.6, -1.0, 0.5), (1.0, 0.0, 0.0), (1.2, 0.3, 0.1)),
        (5, 9, 3),
        (2, 4, 4),
    ),
    _case("missing", "a place without a proposal is not token 0", ((1.3, 0.5, 0.5),), (6,), (3,), missing=2),
    _case("padding", "a padding entry reads nothing", ((1.0, 0.0, 0.0), (1.4, 0.2, 0.9)), (-1, 4), (0, 2)),
    _case("at_the_end", "drafts past the longest history", ((1.2, 0.5, 0.5),), (15,), (6,)),
)
