from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.moe.experts.contract import experts
from slipstream.kernels.moe.swiglu_oai.contract import swiglu_oai
from support import mutants
from support.kernel_cases import cases_of, check_case, check_mutant, inputs_of

OPERATION = "moe/experts"
FAULTS = [
    ("first_token", "batch"),
    ("first_weight", "batch"),
    ("first_weight", "one_token"),
    ("plain_silu", "batch"),
    ("swapped", "batch"),
    ("plain_silu", "beyond_the_clamp"),
    ("gate_clamped_below", "beyond_the_clamp"),
    ("up_not_clamped", "beyond_the_clamp"),
    ("no_one", "beyond_the_clamp"),
    ("alpha_is_fixed", "beyond_the_clamp"),
    ("padding_is_last", "padding"),
    ("padding_is_last", "one_padding"),
]


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    """A backend that loses alpha, the limit or the 1 still gives plausible numbers: S2 of the public faults."""
    check_mutant(OPERATION, case_name, partial(mutants.experts, fault=fault), mutants.experts)


@pytest.mark.parametrize("topk_experts", [1, 2, 4, 8, 15])
@pytest.mark.parametrize("num_tokens", [1, 2, 9])
def test_slots_are_added_in_order(topk_experts, num_tokens):
    """To the bit: the sum of a token is the written-out sum over its slots, whatever else is in the batch."""
    generator = torch.Generator().manual_seed(topk_experts)
    x = torch.randn(num_tokens, 32, generator=generator)
    w13 = torch.randn(16, 16, 32, generator=generator) * 0.1
    w2 = torch.randn(16, 32, 8, generator=generator) * 0.3
    ids = torch.stack([torch.randperm(16, generator=generator)[:topk_experts] for _ in range(num_tokens)])
    weights = torch.rand(num_tokens, topk_experts, generator=generator)
    result = experts(x, ids, weights, w13, w2, 1.702, 7.0)
    outputs = torch.zeros(num_tokens, topk_experts, 32)
    for slot in range(topk_experts):
        own = experts(x, ids[:, slot : slot + 1], torch.ones(num_tokens, 1), w13, w2, 1.702, 7.0)
        outputs[:, slot] = own
    total = outputs[:, 0] * weights[:, :1]
    for slot in range(1, topk_experts):
        total = total + outputs[:, slot] * weights[:, slot : slot + 1]
    assert torch.allclose(result, total, atol=2e-6)
    by_slot = outputs * weights.unsqueeze(2)
    written_out = by_slot[:, 0]
    for slot in range(1, topk_experts):
        written_out = written_out + by_slot[:, slot]
    assert torch.equal(by_slot.sum(1), written_out)


def test_tokens_come_out_alike_alone_and_in_a_batch():
    inputs = inputs_of(OPERATION, "batch")
    together = experts(**inputs)
    for token in range(len(together)):
        one = {
            name: value[token : token + 1] if name in ("x", "expert_ids", "expert_weights") else value
            for name, value in inputs.items()
        }
        assert torch.allclose(experts(**one)[0], together[token], atol=2e-6)


def test_padding_yields_zeros_even_from_nan():
    inputs = inputs_of(OPERATION, "padding")
    inputs["x"][-2:] = float("nan")
    result = experts(**inputs)
    assert not result[-2:].any()
    assert result[:-2].isfinite().all()


def test_a_slice_of_the_inner_axis_gives_a_part_of_the_sum():
    inputs = inputs_of(OPERATION, "batch")
    whole = experts(**inputs)
    width = inputs["w2"].shape[2]
    parts = []
    for held in (slice(0, width // 2), slice(width // 2, width)):
        w13 = torch.cat([inputs["w13"][:, :width][:, held], inputs["w13"][:, width:][:, held]], dim=1)
        parts.append(experts(**{**inputs, "w13": w13, "w2": inputs["w2"][:, :, held]}))
    assert torch.allclose(parts[0] + parts[1], whole, atol=5e-6)


def test_one_expert_with_weight_one_is_the_plain_mlp():
    inputs = inputs_of(OPERATION, "batch")
    ids = torch.full((7, 1), 4)
    result = experts(**{**inputs, "expert_ids": ids, "expert_weights": torch.ones(7, 1)})
    plain = swiglu_oai(inputs["x"] @ inputs["w13"][4].T, inputs["alpha"], inputs["limit"]) @ inputs["w2"][4].T
    assert torch.allclose(result, plain, atol=2e-6)


def test_empty_batch():
    inputs = inputs_of(OPERATION, "batch")
    for name in ("x", "expert_ids", "expert_weights"):
        inputs[name] = inputs[name][:0]
    assert experts(**inputs).shape == (0, 24)


def test_constants_of_the_activation_are_required():
    inputs = inputs_of(OPERATION, "batch")
    del inputs["alpha"]
    with pytest.raises(TypeError, match="alpha"):
        experts(**inputs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(6, 24)}, r"x is \[6, 24\]"),
        ({"expert_ids": torch.zeros(7, 3, dtype=torch.int32)}, "expert_ids is .*int32"),
        ({"expert_weights": torch.zeros(7, 2)}, r"expert_weights is \[7, 2\]"),
        ({"w2": torch.zeros(6, 23, 12)}, r"w2 is \[6, 23, 12\]"),
        ({"w13": torch.zeros(6, 23, 24)}, r"w13 is \[6, 23, 24\]"),
        ({"w13": torch.zeros(6, 24, 24, dtype=torch.bfloat16)}, "w13 is .*bfloat16"),
    ],
)
def test_disagreements_are_refused(changes, message):
    with pytest.raises(ShapeError, match=message):
        experts(**{**inputs_of(OPERATION, "batch"), **changes})
