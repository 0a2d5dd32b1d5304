from pathlib import Path

import pytest
import torch

from slipstream.base.errors import CheckpointError
from slipstream.config.quantization.spec import Quantization
from slipstream.weights.formats.nvfp4 import quantise_nvfp4
from slipstream.weights.manifest import build_manifest
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import IgnoreRule, WeightRule
from support.tiny_tensors import write_shards, write_single

RULE = WeightRule("p", "w", (2, 3))


def test_every_tensor_is_used_or_ignored_with_a_reason(tmp_path: Path) -> None:
    folder = write_single(tmp_path, {"w": torch.zeros(2, 3), "vision.a": torch.zeros(1), "vision.b": torch.zeros(1)})
    with CheckpointReader(folder) as reader:
        manifest = build_manifest(reader, [RULE], [IgnoreRule(r"vision\..*", "no images")])
    assert manifest.ignored == (("vision.a", "no images"), ("vision.b", "no images"))
    assert manifest.rules == (RULE,)


def test_a_tensor_that_nobody_uses_is_named_with_its_file(tmp_path: Path) -> None:
    folder = write_shards(
        tmp_path, {"x.safetensors": {"w": torch.zeros(2, 3)}, "y.safetensors": {"odd": torch.zeros(1)}}
    )
    with CheckpointReader(folder) as reader, pytest.raises(CheckpointError, match=r"odd \(in y\.safetensors\)"):
        build_manifest(reader, [RULE], [])


def test_many_leftovers_are_counted(tmp_path: Path) -> None:
    tensors = {"w": torch.zeros(2, 3)} | {f"odd{number}": torch.zeros(1) for number in range(7)}
    with (
        CheckpointReader(write_single(tmp_path, tensors)) as reader,
        pytest.raises(CheckpointError, match="and 2 more"),
    ):
        build_manifest(reader, [RULE], [])


def test_missing_tensors_are_named_with_the_expected_shape(tmp_path: Path) -> None:
    with (
        CheckpointReader(write_single(tmp_path, {"x": torch.zeros(1)})) as reader,
        pytest.raises(CheckpointError, match=r"tensors are missing: w \[2, 3\]"),
    ):
        build_manifest(reader, [RULE], [])


def test_a_misshaped_tensor_names_both_shapes_and_the_file(tmp_path: Path) -> None:
    with (
        CheckpointReader(write_single(tmp_path, {"w": torch.zeros(3, 2)})) as reader,
        pytest.raises(CheckpointError) as caught,
    ):
        build_manifest(reader, [RULE], [])
    for words in ("model.safetensors", "tensor w has shape [3, 2]", "expected [2, 3]"):
        assert words in str(caught.value)


def test_an_optional_tensor_may_be_absent_but_not_misshaped(tmp_path: Path) -> None:
    optional = WeightRule("q", "maybe", (2,), optional=True)
    with CheckpointReader(write_single(tmp_path / "1", {"w": torch.zeros(2, 3)})) as reader:
        manifest = build_manifest(reader, [RULE, optional], [])
        assert manifest.absent == ("maybe",)
        assert manifest.rules == (RULE,)
    wrong = write_single(tmp_path / "2", {"w": torch.zeros(2, 3), "maybe": torch.zeros(3)})
    with CheckpointReader(wrong) as reader, pytest.raises(CheckpointError, match="maybe has shape"):
        build_manifest(reader, [RULE, optional], [])


def test_quantised_tensors_stop_before_anything_is_read(tmp_path: Path) -> None:
    folder = write_single(tmp_path, {"w": torch.zeros(2, 3).to(torch.float8_e4m3fn), "w_scale_inv": torch.zeros(2, 1)})
    with CheckpointReader(folder) as reader, pytest.raises(CheckpointError, match=r"stored as mxfp8 \(F8_E4M3\)"):
        build_manifest(reader, [RULE], [])


def test_several_rules_may_share_a_tensor(tmp_path: Path) -> None:
    upper = WeightRule("a", "w", (2, 3), (slice(0, 1), slice(None)))
    lower = WeightRule("b", "w", (2, 3), (slice(1, 2), slice(None)))
    with CheckpointReader(write_single(tmp_path, {"w": torch.zeros(2, 3)})) as reader:
        assert build_manifest(reader, [upper, lower], []).rules == (upper, lower)


def test_packed_tensors_are_covered_by_their_stored_names_and_activation_scales_are_known(tmp_path: Path) -> None:
    name = "layers.0.experts.0.w1.weight"
    packed, scales, factor = quantise_nvfp4(torch.randn(2, 32))
    tensors = {f"{name}_packed": packed, f"{name}_scale": scales, f"{name}_global_scale": factor.reshape(1)}
    tensors |= {"layers.0.experts.0.w1.input_global_scale": torch.ones(1)}
    rule = WeightRule("p", name, (2, 32), optional=True)
    declared = Quantization(experts="nvfp4-m31")
    with CheckpointReader(write_single(tmp_path, tensors)) as reader:
        manifest = build_manifest(reader, [rule], [], declared)
        assert manifest.formats[name].name == "nvfp4-m31"
        assert manifest.ignored == (("layers.0.experts.0.w1.input_global_scale", "activations are not quantised"),)
        with pytest.raises(CheckpointError, match=r"w1.weight has shape \[2, 32\], expected \[2, 16\]"):
            build_manifest(reader, [WeightRule("p", name, (2, 16))], [], declared)
        with pytest.raises(CheckpointError, match="stored as nvfp4-m31"):
            build_manifest(reader, [rule], [])


def test_a_stray_scale_beside_a_plain_tensor_stops_the_load(tmp_path: Path) -> None:
    tensors = {"w": torch.zeros(2, 3), "w_scale_inv": torch.zeros(2, 1, dtype=torch.uint8)}
    with (
        CheckpointReader(write_single(tmp_path, tensors)) as reader,
        pytest.raises(CheckpointError, match="nothing uses: w_scale_inv"),
    ):
        build_manifest(reader, [RULE], [])
