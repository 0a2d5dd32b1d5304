"""Named sequences; every implementation must agree with the reference exactly on all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceCase(Case):
    """Known tokens, drafts and forbidden sequences per request."""

    texts: tuple[tuple[int, ...], ...]
    drafts: tuple[tuple[int, ...], ...]
    num_prompt_tokens: tuple[int, ...]
    sequences: tuple[tuple[tuple[int, ...], ...], ...]


def make_inputs(case: SequenceCase) -> dict[str, Tensor]:
    """Return the keyword arguments of the contract; history behind a text is token 1, which must not be read."""
    count, query_len = len(case.texts), len(case.drafts[0]) + 1
    num_sequences, width = max(map(len, case.sequences)), case.size("sequence_len")
    sequences = torch.full((count, num_sequences, width), -1)
    history = torch.ones(count, 12, dtype=torch.int64)
    for row, text in enumerate(case.texts):
        history[row, : len(text)] = torch.tensor(text, dtype=torch.int64)
        for index, sequence in enumerate(case.sequences[row]):
            sequences[row, index, width - len(sequence) :] = torch.tensor(sequence)
    return {
        "logits": torch.randn(count, query_len, case.size("vocab_size"), generator=case.generator()),
        "sequences": sequences,
        "history": history,
        "base_positions": torch.tensor([len(text) - 1 for text in case.texts]),
        "draft_tokens": torch.tensor(case.drafts, dtype=torch.int64).reshape(count, -1),
        "num_prompt_tokens": torch.tensor(case.num_prompt_tokens),
    }


def _case(
    name: str,
    guards: str,
    texts: tuple[tuple[int, ...], ...],
    drafts: tuple[tuple[int, ...], ...],
    num_prompt_tokens: tuple[int, ...],
    sequences: tuple[tuple[tuple[int, ...], ...], ...],
    width: int = 3,
) -> SequenceCase:
    return SequenceCase(
        name=name,
        guards=guards,
        seed=len(name),
        dtype=torch.float32,
        tolerance=EXACT,
        sizes={"vocab_size": 6, "sequence_len": width},
        texts=texts,
        drafts=drafts,
        num_prompt_tokens=num_prompt_tokens,
        sequences=sequences,
    )


CASES = (
    _case("none", "a request without sequences keeps its values", ((1, 2, 3),), ((4, 5),), (1,), (((),),)),
    _case("plain", "the rest stands at the end of the text", ((0, 2, 3),), ((),), (1,), (((2, 3, 4),),)),
    _case(
        "by_drafts",
        "drafts complete the rest, each row by what is before it",
        ((0, 5),),
        ((2, 3),),
        (1,),
        (((2, 3, 4),),),
    ),
    _case(
        "across", "the rest begins in the text and goes on in the drafts", ((0, 2),), ((3, 3),), (1,), (((2, 3, 4),),)
    ),
    _case("prompt", "the prompt takes no part", ((0, 2, 3),), ((3,),), (2,), (((2, 3, 4), (3, 5)),)),
    _case("short_text", "a sequence longer than what was returned", ((3,),), ((3,),), (0,), (((3, 3, 3, 3),),), 4),
    _case("no_token", "a place without a proposal is no wildcard", ((0, 2),), ((-1, 3),), (1,), (((2, 3, 4), (3, 1)),)),
    _case(
        "widths",
        "sequences of different lengths, two with the same end",
        ((0, 4, 4),),
        ((4,),),
        (1,),
        (((4, 5), (4, 4, 5), (2, 1)),),
    ),
    _case(
        "mixed", "requests are independent", ((0, 2), (0, 1, 2)), ((3,), (3,)), (1, 1), (((2, 3),), ((2, 3, 4), (3, 0)))
    ),
)
