"""Named sets; every implementation must agree with the reference exactly on all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case

_SIGN_BIT = 1 << 31

Allowed = tuple[int, ...] | None
"""Token ids of one ladder row; None = every one, and the bits past the vocabulary too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskCase(Case):
    """What is allowed, by request and ladder row."""

    allowed: tuple[tuple[Allowed, ...], ...]


def make_inputs(case: MaskCase) -> dict[str, Tensor]:
    """Return the keyword arguments of the contract."""
    num_reqs, query_len, vocab_size = len(case.allowed), len(case.allowed[0]), case.size("vocab_size")
    num_words = -(-vocab_size // 32)
    words = torch.full((num_reqs, query_len, num_words), -1, dtype=torch.int32)
    for request in range(num_reqs):
        for row, tokens in enumerate(case.allowed[request]):
            if tokens is not None:
                words[request, row] = torch.tensor([_word(tokens, place) for place in range(num_words)])
    return {
        "logits": torch.randn(num_reqs, query_len, vocab_size, generator=case.generator()),
        "allowed": words,
    }


def _word(tokens: tuple[int, ...], place: int) -> int:
    """Return one word as the signed integer of the same bits."""
    bits = sum(1 << (token % 32) for token in tokens if token // 32 == place)
    return bits - 2 * _SIGN_BIT if bits >= _SIGN_BIT else bits


def _case(name: str, guards: str, vocab_size: int, allowed: tuple[tuple[Allowed, ...], ...]) -> MaskCase:
    return MaskCase(
        name=name,
        guards=guards,
        seed=len(name),
        dtype=torch.float32,
        tolerance=EXACT,
        sizes={"vocab_size": vocab_size},
        allowed=allowed,
    )


CASES = (
    _case("all", "a request without a constraint keeps its values", 70, ((None, None, None),)),
    _case("none", "a row that allows nothing is -inf throughout", 40, (((), None),)),
    _case("first_word", "the sign bit of a word is a token like any other", 40, (((0, 1, 30, 31),), ((31,),))),
    _case("word_edges", "the last bit of a word and the first of the next", 100, (((31, 32), (63, 64), (95, 96, 99)),)),
    _case("whole_words", "a vocabulary that fills its words", 64, (((0, 33, 63),),)),
    _case("narrow", "a vocabulary of less than one word", 5, (((4,), (0, 2), ()),)),
    _case(
        "mixed",
        "requests and ladder rows are independent, free ones stand between constrained ones",
        45,
        (((1, 44), (2,)), (None, None), ((), (40, 41, 3))),
    ),
)
