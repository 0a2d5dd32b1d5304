"""The bundled weights are complete, stored as released, and trained: every part of the network carries something."""

from __future__ import annotations

import json
import re

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


def test_tensors_are_stored_as_released_in_mxfp8(target: dict[str, Tensor]) -> None:
    wide = {name for name, tensor in target.items() if tensor.dtype is torch.float32}
    assert wide == {name for name in target if name.endswith(WIDE)}
    rounded = {name for name, tensor in target.items() if tensor.dtype is torch.float8_e4m3fn}
    scales = {name for name, tensor in target.items() if tensor.dtype is torch.uint8}
    assert scales == {f"{name}_scale_inv" for name in rounded}
    assert all(target[f"{name}_scale_inv"].shape[-1] * 32 == target[name].shape[-1] for name in rounded)
    matrices = {name for name, tensor in target.items() if tensor.ndim == 2} - wide - scales
    kept = {name for name in matrices if "embed_tokens" in name or "lm_head" in name}
    assert rounded == matrices - kept
    assert {target[name].dtype for name in target.keys() - wide - rounded - scales} == {torch.bfloat16}


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
    """Of the held-out problems nearly all are reasoned out; the sentence after that is right a little less often."""
    lines = (demo_path().parent / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["domain"] == "word_problems"]
    asked = [row["messages"] for row in rows]
    answers = llm.chat(asked, GREEDY, chat_template_kwargs={"thinking_mode": "enabled"})
    reasoned = sum(one.reasoning.endswith(f"= {row['expected']}") for row, one in zip(rows, answers, strict=True))
    said = sum(
        re.findall(r"\d+", one.content)[-1:] == [row["expected"]] for row, one in zip(rows, answers, strict=True)
    )
    assert reasoned >= len(rows) * 7 // 8
    assert said >= len(rows) * 3 // 4
    assert any(one.reasoning.startswith("Two steps.\n") for one in answers)
