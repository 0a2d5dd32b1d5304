"""Packed sets of tokens at every ladder row, one value at a time."""

from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.case import case_named
from slipstream.kernels.sampling.mask_logits.cases import CASES, MaskCase, make_inputs
from slipstream.kernels.sampling.mask_logits.contract import mask_logits


def expected(case: MaskCase, given: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = given["logits"].clone()
    for request, rows in enumerate(case.allowed):
        for row, tokens in enumerate(rows):
            for token in range(logits.shape[2]):
                if tokens is not None and token not in tokens:
                    logits[request, row, token] = -torch.inf
    return logits


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_one_value_at_a_time(case: MaskCase):
    given = make_inputs(case)
    assert torch.equal(mask_logits(**given), expected(case, given))


def mutant(logits: torch.Tensor, allowed: torch.Tensor, fault: str | None) -> torch.Tensor:
    """Another way to do it, with faults that can be switched on."""
    out = logits.clone()
    num_reqs, query_len, vocab_size = logits.shape
    for request in range(num_reqs):
        for row in range(query_len):
            words = allowed[0 if fault == "first_request" else request, 0 if fault == "first_row" else row].tolist()
            for token in range(vocab_size):
                place = 31 - token % 32 if fault == "most_significant_first" else token % 32
                word = words[(token + 1) // 32 if fault == "off_by_one" and token + 1 < vocab_size else token // 32]
                if fault == "unsigned" and word < 0:
                    word = 0
                is_allowed = bool(word >> place & 1) or (fault == "last_word_free" and token // 32 == len(words) - 1)
                if fault == "empty_is_free" and not any(words):
                    is_allowed = True
                if not is_allowed:
                    out[request, row, token] = -torch.inf
    return out


FAULTS = {
    "first_request": "mixed",
    "first_row": "word_edges",
    "most_significant_first": "first_word",
    "off_by_one": "word_edges",
    "unsigned": "first_word",
    "last_word_free": "word_edges",
    "empty_is_free": "none",
}


def test_the_other_way_without_a_fault_is_accepted():
    for case in CASES:
        given = make_inputs(case)
        assert torch.equal(mutant(**given, fault=None), expected(case, given))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_noticed_by_its_case(fault: str):
    case = case_named(CASES, FAULTS[fault])
    given = make_inputs(case)
    assert not torch.equal(mutant(**given, fault=fault), expected(case, given))


@pytest.mark.parametrize("token", [32, 40], ids=["allowed", "forbidden"])
@pytest.mark.parametrize("fault", [torch.nan, torch.inf], ids=str)
def test_a_fault_is_not_hidden_by_a_mask(fault: float, token: int):
    given = make_inputs(case_named(CASES, "word_edges"))
    given["logits"][0, 0, token] = fault
    masked = mask_logits(**given)
    assert not torch.isfinite(masked[0, 0].amax())
    assert masked[0, 0].amax() != -torch.inf, "it must not look like a row that allows nothing"
    assert torch.isfinite(masked[0, 1].amax())


def test_bits_past_the_vocabulary_are_not_read():
    given = make_inputs(case_named(CASES, "narrow"))
    before = mask_logits(**given)
    given["allowed"] |= ~0x1F
    assert torch.equal(mask_logits(**given), before)


def test_a_part_of_a_larger_buffer_will_do():
    given = make_inputs(case_named(CASES, "mixed"))
    wide = torch.full((3, 5, 2), 7, dtype=torch.int32)
    wide[:, 1:3] = given["allowed"]
    assert torch.equal(mask_logits(given["logits"], wide[:, 1:3]), mask_logits(**given))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("allowed", torch.zeros(1, 3, 4, dtype=torch.int64), r"allowed is \[1, 3, 4\] int64, allowed is .* int32"),
        ("allowed", torch.zeros(1, 3, 3, dtype=torch.int32), r"allowed is \[1, 3, 3\] int32, allowed is \[1, 3, 4\]"),
        ("allowed", torch.zeros(1, 2, 4, dtype=torch.int32), r"allowed is \[1, 2, 4\] int32"),
        ("logits", torch.zeros(1, 3, 100, dtype=torch.bfloat16), r"logits is .* bfloat16"),
    ],
)
def test_wrong_shapes_and_dtypes_are_named(name: str, value: torch.Tensor, says: str):
    given = make_inputs(case_named(CASES, "word_edges"))
    with pytest.raises(ShapeError, match=says):
        mask_logits(**(given | {name: value}))
