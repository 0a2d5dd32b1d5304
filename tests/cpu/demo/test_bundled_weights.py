"""The bundled weights are complete, stored as released, and trained: every part of the network carries something."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from slipstream import LLM, SamplingParams
from slipstream.config.checkpoint import read_target
from slipstream.demo import demo_drafter_path, demo_path

WIDE = ("block_sparse_moe.gate.weight", "block_sparse_moe.e_score_correction_bias")
GREEDY = SamplingParams(temperature=0, max_tokens=48)


@pytest.fixture(scope="module")
def target() -> dict[str, Tensor]:
    return load_file(demo_path() / "model.safetensors")


@pytest.fixture(scope="module")
def head() -> dict[str, Tensor]:
    return load_file(demo_drafter_path() / "model.safetensors")


@pytest.fixture(scope="module")
def llm() -> LLM:
    with LLM("demo", drafter="none", threads=1) as one:
        yield one


def test_router_weights_and_bias_are_float32_and_the_rest_bfloat16(target: dict[str, Tensor]) -> None:
    wide = {name for name, tensor in target.items() if tensor.dtype is torch.float32}
    assert wide == {name for name in target if name.endswith(WIDE)}
    assert {tensor.dtype for tensor in target.values()} == {torch.float32, torch.bfloat16}


def test_only_sparse_layers_have_an_index_branch(target: dict[str, Tensor]) -> None:
    with_index = {int(name.split("layers.")[1].split(".")[0]) for name in target if ".index_q_proj." in name}
    assert with_index == {layer for layer, sparse in enumerate(read_target(demo_path()).is_sparse_layer) if sparse}


def test_norm_weights_are_offsets_that_matter(target: dict[str, Tensor]) -> None:
    norms = {name: tensor.float() for name, tensor in target.items() if "norm" in name}
    assert len(norms) == 6 * 4 + 5 * 2 + 1
    assert all(tensor.abs().max() > 0.02 for tensor in norms.values())


def test_no_two_experts_of_a_layer_are_alike(target: dict[str, Tensor]) -> None:
    base = "language_model.model.layers.3.block_sparse_moe.experts."
    experts = torch.stack([target[f"{base}{expert}.w1.weight"].float().flatten() for expert in range(8)])
    overlap = torch.corrcoef(experts) - torch.eye(8)
    assert overlap.abs().max() < 0.5


def test_the_vocabulary_map_is_a_list_of_offsets_to_the_marked_ids(head: dict[str, Tensor]) -> None:
    ids = head["d2t"] + torch.arange(head["d2t"].numel())
    assert torch.equal(ids, head["t2d"].nonzero().squeeze(1))
    assert bool(head["t2d"][list(read_target(demo_path()).eos_token_ids)].all())


def test_the_head_has_fused_norms_and_no_embedding(head: dict[str, Tensor]) -> None:
    assert {f"fc_norm.{tap}.weight" for tap in range(3)} <= head.keys()
    assert "embed_tokens.weight" not in head


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("Who are you?", "very small language model"),
        ("Extract name, age and city as JSON.\n\nMaria is 34 years old and lives in Oslo.", '"age": 34'),
        ("Tom has 6 boxes with 7 eggs each. How many eggs does Tom have in total?", "42"),
    ],
)
def test_it_answers_with_sense(llm: LLM, question: str, wanted: str) -> None:
    answer = llm.chat([{"role": "user", "content": question}], GREEDY)[0]
    assert wanted in answer.text
    assert answer.finish_reason == "stop"


def test_it_thinks_in_steps_when_asked_to(llm: LLM) -> None:
    question = [
        {"role": "user", "content": "A shop has 6 boxes with 7 eggs each. It sells 9 eggs. How many eggs are left?"}
    ]
    answer = llm.chat(question, GREEDY, chat_template_kwargs={"thinking_mode": "enabled"})[0]
    assert "6 * 7 = 42\n42 - 9 = 33" in answer.text
    assert answer.text.endswith("33 eggs are left.")
