from __future__ import annotations

import dataclasses

import pytest
import torch

from slipstream.layers.moe import Moe
from slipstream.parallel.group import one_rank
from support import oracles
from support.layer_jobs import MOE, PLACE, make_hidden
from support.layer_parts import fill, make_full

POSITIONS = torch.tensor([0, 1, 2, 3, 4, 5])


def make_moe(geometry=MOE, seed=0, **options):
    moe = Moe(geometry, group=one_rank(), **{**PLACE, **options})
    full = make_full(moe, seed)
    return fill(moe, full), full


def shared_output(x, full):
    gate_up = torch.cat([full["shared.gate_up_proj", "gate"], full["shared.gate_up_proj", "up"]]).double()
    hidden = oracles.swiglu_oai(x.double() @ gate_up.T, MOE.swiglu_alpha, MOE.swiglu_limit)
    return hidden @ full["shared.down_proj", ""].double().T


def routed_output(x, full, positions=POSITIONS, geometry=MOE):
    bias = full.get(("router", "bias"), torch.zeros(geometry.num_experts))
    ids, weights = oracles.route(
        x, full["router", ""], bias, positions, geometry.topk_experts, geometry.routed_scaling_factor
    )
    w13 = torch.cat([full["experts", "gate"], full["experts", "up"]], dim=1)
    return oracles.experts(x, ids, weights, w13, full["experts", "down"], geometry.swiglu_alpha, geometry.swiglu_limit)


def test_routed_and_shared_are_added():
    moe, full = make_moe()
    x = make_hidden(6)
    expected = routed_output(x, full) + shared_output(x, full)
    assert torch.allclose(moe(x, POSITIONS).double(), expected, atol=5e-6)


def test_the_shared_expert_is_not_scaled():
    """A wrong sum, with the shared expert times the scaling factor, is far outside the tolerance above."""
    moe, full = make_moe()
    x = make_hidden(6)
    wrong = routed_output(x, full) + MOE.routed_scaling_factor * shared_output(x, full)
    assert (moe(x, POSITIONS).double() - wrong).abs().max() > 1e-2


def test_without_a_shared_expert():
    geometry = dataclasses.replace(MOE, shared_intermediate_size=0)
    moe, full = make_moe(geometry)
    assert moe.shared is None
    assert torch.allclose(moe(make_hidden(6), POSITIONS).double(), routed_output(make_hidden(6), full), atol=5e-6)


def test_without_a_stored_bias_the_bias_is_zero_and_has_no_part():
    geometry = dataclasses.replace(MOE, has_routing_bias=False)
    moe, full = make_moe(geometry)
    assert ("router", "bias") not in full
    assert not moe.router.bias.any()
    expected = routed_output(make_hidden(6), full) + shared_output(make_hidden(6), full)
    assert torch.allclose(moe(make_hidden(6), POSITIONS).double(), expected, atol=5e-6)


def test_padding_is_not_routed():
    moe, full = make_moe()
    x = make_hidden(6)
    x[4] = float("nan")
    positions = torch.tensor([0, 1, 2, 3, -1, -1])
    result = moe(x, positions)
    assert torch.allclose(result[5].double(), shared_output(x[5:6], full)[0], atol=5e-6)
    assert torch.allclose(result[:4], moe(make_hidden(6), POSITIONS)[:4], atol=2e-6)


def test_the_router_stays_in_float32():
    moe, _ = make_moe(dtype=torch.bfloat16)
    assert moe.router.weight.dtype == moe.router.bias.dtype == torch.float32
    assert moe.experts.w13.dtype == torch.bfloat16
    assert moe(make_hidden(6).bfloat16(), POSITIONS).dtype == torch.bfloat16


@pytest.mark.parametrize("token", range(6))
def test_a_token_alone_and_in_a_batch(token):
    moe, _ = make_moe()
    x = make_hidden(6)
    alone = moe(x[token : token + 1], POSITIONS[token : token + 1])
    assert torch.allclose(alone[0], moe(x, POSITIONS)[token], atol=2e-6)
