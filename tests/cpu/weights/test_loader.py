from pathlib import Path

import pytest
import torch
from torch import Tensor

from slipstream.base.errors import CheckpointError, EngineError
from slipstream.weights.loader import load_weights
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import IgnoreRule, WeightRule
from support.tiny_tensors import write_single

ALL = slice(None)


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"q": (4, 3), "k": (2, 3), "e0": (2, 3), "e1": (2, 3)}
    return {name: torch.randn(*shape, generator=generator).bfloat16() for name, shape in shapes.items()}


RULES = (
    WeightRule("qk", "q", (4, 3), target=(slice(0, 4),)),
    WeightRule("qk", "k", (2, 3), target=(slice(4, 6),)),
    WeightRule("experts", "e0", (2, 3), target=(0,)),
    WeightRule("experts", "e1", (2, 3), target=(1,)),
)


def test_pieces_are_fused_stacked_and_cast(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    parameters = {"qk": torch.zeros(6, 3), "experts": torch.zeros(2, 2, 3, dtype=torch.bfloat16)}
    steps: list[tuple[int, int]] = []
    with CheckpointReader(write_single(tmp_path, tensors | {"x": torch.zeros(1)})) as reader:
        report = load_weights(
            parameters, RULES, reader, ignored=[IgnoreRule("x", "odd")], on_progress=lambda *s: steps.append(s)
        )
    assert torch.equal(parameters["qk"], torch.cat((tensors["q"], tensors["k"])).float())
    assert torch.equal(parameters["experts"], torch.stack((tensors["e0"], tensors["e1"])))
    total = 18 * 4 + 12 * 2
    assert (report.num_tensors, report.num_bytes, report.ignored) == (4, total, (("x", "odd"),))
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1] == (total, total)
    assert len(steps) == 4


def test_a_float32_parameter_keeps_a_float32_tensor_exactly(tmp_path: Path) -> None:
    router = torch.randn(3, 3) + 1e-6
    parameters = {"router": torch.zeros(3, 3), "narrow": torch.zeros(3, 3, dtype=torch.bfloat16)}
    rules = (WeightRule("router", "r", (3, 3)), WeightRule("narrow", "r", (3, 3)))
    with CheckpointReader(write_single(tmp_path, {"r": router})) as reader:
        load_weights(parameters, rules, reader)
    assert torch.equal(parameters["router"], router)
    assert torch.equal(parameters["narrow"], router.bfloat16())


def test_columns_and_rows_of_the_source(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    parameters = {"a": torch.zeros(2, 3), "b": torch.zeros(4, 1)}
    rules = (WeightRule("a", "q", (4, 3), (slice(2, 4), ALL)), WeightRule("b", "q", (4, 3), (ALL, slice(1, 2))))
    with CheckpointReader(write_single(tmp_path, {"q": tensors["q"]})) as reader:
        load_weights(parameters, rules, reader)
    assert torch.equal(parameters["a"], tensors["q"][2:].float())
    assert torch.equal(parameters["b"], tensors["q"][:, 1:2].float())


def test_nothing_is_written_when_the_checkpoint_is_refused(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    parameters = {"qk": torch.zeros(6, 3), "experts": torch.zeros(2, 2, 3)}
    del tensors["e1"]
    with CheckpointReader(write_single(tmp_path, tensors)) as reader, pytest.raises(CheckpointError, match="e1"):
        load_weights(parameters, RULES, reader)
    assert not any(parameter.any() for parameter in parameters.values())


def test_an_optional_tensor_leaves_its_parameter_as_it_was(tmp_path: Path) -> None:
    parameters = {"a": torch.zeros(2), "bias": torch.ones(2)}
    rules = (WeightRule("a", "a", (2,)), WeightRule("bias", "bias", (2,), optional=True))
    with CheckpointReader(write_single(tmp_path, {"a": torch.full((2,), 5.0)})) as reader:
        report = load_weights(parameters, rules, reader)
    assert parameters["bias"].tolist() == [1.0, 1.0]
    assert report.absent == ("bias",)


def test_a_table_with_a_hole_is_a_fault_of_the_network(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    with CheckpointReader(write_single(tmp_path, {"q": tensors["q"], "k": tensors["k"]})) as reader:
        with pytest.raises(EngineError, match="fill 18 of 21 elements of qk"):
            load_weights({"qk": torch.zeros(7, 3)}, RULES[:2], reader)
        with pytest.raises(EngineError, match="fill 0 of 1 elements of more"):
            load_weights({"qk": torch.zeros(6, 3), "more": torch.zeros(1)}, RULES[:2], reader)
        with pytest.raises(EngineError, match="fills qk, which the network does not have"):
            load_weights({}, RULES[:2], reader)
