from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import KernelError, ShapeError
from slipstream.kernels.moe.route import cpu, reference
from slipstream.kernels.moe.route.contract import route
from slipstream.kernels.select import select
from support import mutants
from support.kernel_cases import cases_of, check_case, check_mutant, inputs_of

OPERATION = "moe/route"
FAULTS = [
    ("biased_weights", "biased"),
    ("no_bias", "biased"),
    ("softmax", "biased"),
    ("not_normalised", "unbiased"),
    ("not_scaled", "unbiased"),
    ("higher_id_wins", "ties"),
    ("padding_routed", "padding"),
    ("rounded_logits", "bf16"),
]


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    check_mutant(OPERATION, case_name, partial(mutants.route, fault=fault), mutants.route)


def test_bias_moves_the_choice_and_not_the_weights():
    inputs = inputs_of(OPERATION, "unbiased")
    plain_ids, plain_weights = route(**inputs)
    everyone = {**inputs, "topk_experts": 10}
    all_ids, all_weights = route(**everyone)
    # One bias for all experts changes nothing; a bias for one brings it in with its own score.
    ids, weights = route(**{**inputs, "router_bias": torch.full((10,), 0.7)})
    assert torch.equal(ids, plain_ids)
    assert torch.allclose(weights, plain_weights)
    lifted = torch.zeros(10)
    lifted[7] = 5.0
    ids, weights = route(**{**inputs, "router_bias": lifted})
    assert (ids[:, 0] == 7).all()
    own = all_weights.gather(1, (all_ids == 7).int().argmax(1, keepdim=True))
    ratio = weights[:, :1] / weights.sum(1, keepdim=True)
    scores = all_weights.gather(1, torch.stack([(all_ids == i).int().argmax(1) for i in range(10)], 1))
    assert torch.allclose(ratio, own / scores.gather(1, ids).sum(1, keepdim=True), atol=1e-6)


def test_weights_sum_to_the_scaling_factor():
    inputs = inputs_of(OPERATION, "biased")
    assert torch.allclose(route(**inputs)[1].sum(1), torch.full((12,), 2.5), atol=1e-5)


def test_padding_chooses_nobody_whatever_it_holds():
    """D37 of the public faults; the last padding row of the case is NaN."""
    inputs = inputs_of(OPERATION, "padding")
    ids, weights = route(**inputs)
    assert inputs["x"][-1].isnan().all()
    assert (ids[-3:] == -1).all()
    assert not weights[-3:].any()


def test_tokens_are_routed_alike_alone_and_in_a_batch():
    inputs = inputs_of(OPERATION, "biased")
    ids, weights = route(**inputs)
    for token in range(len(ids)):
        one = {**inputs, "x": inputs["x"][token : token + 1], "positions": inputs["positions"][token : token + 1]}
        own_ids, own_weights = route(**one)
        assert torch.equal(own_ids[0], ids[token])
        assert torch.allclose(own_weights[0], weights[token], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"x": torch.zeros(12, 23)}, ShapeError, r"x is \[12, 23\]"),
        ({"router_weight": torch.zeros(10, 24, dtype=torch.bfloat16)}, ShapeError, "router_weight is .*bfloat16"),
        ({"router_bias": torch.zeros(9)}, ShapeError, r"router_bias is \[9\]"),
        ({"positions": torch.zeros(12)}, ShapeError, "positions is .*float32"),
        ({"topk_experts": 11}, KernelError, "topk_experts is 11, allowed is 1 .. 10"),
        ({"topk_experts": 0}, KernelError, "topk_experts is 0"),
    ],
)
def test_disagreements_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        route(**{**inputs_of(OPERATION, "biased"), **changes})


def test_the_host_routes_few_tokens_and_the_reference_many(monkeypatch):
    """Both choose alike; equal scores too, which a router of small integers gives in plenty."""
    assert select(OPERATION, "cpu").function is cpu.route
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(-1, 2, (30, 6), generator=generator).float()
    weight = torch.randint(-1, 2, (12, 6), generator=generator).float()
    positions = torch.arange(30) - 2
    arguments = (x, weight, torch.zeros(12), positions, 4, 2.5)
    expected_ids, expected_weights = reference.route(*arguments)
    ids, weights = cpu.route(*arguments)
    assert torch.equal(ids, expected_ids)
    assert torch.allclose(weights, expected_weights, atol=1e-6)
    scores = torch.sigmoid(x @ weight.T).gather(1, expected_ids[:, :1].clamp(min=0))
    assert (torch.sigmoid(x @ weight.T) == scores).sum() > 35, "there are ties among the best"
    monkeypatch.setattr(cpu, "MAX_HOST_SCORES", 30 * 12 - 1)
    assert torch.equal(cpu.route(*arguments)[1], expected_weights)
