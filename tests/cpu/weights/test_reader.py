import json
from pathlib import Path

import pytest
import torch

from slipstream.base.errors import CheckpointError
from slipstream.weights.reader import CheckpointReader
from support.tiny_tensors import write_shards, write_single

A = torch.arange(12, dtype=torch.float32).view(3, 4)
B = torch.arange(6, dtype=torch.bfloat16).view(2, 3)


def test_one_file_and_shards_read_the_same(tmp_path: Path) -> None:
    single = write_single(tmp_path / "single", {"a": A, "b": B})
    shards = write_shards(tmp_path / "shards", {"x.safetensors": {"a": A}, "y.safetensors": {"b": B}})
    for folder, file in ((single, "model.safetensors"), (shards, "y.safetensors")):
        with CheckpointReader(folder) as reader:
            assert reader.names == {"a", "b"}
            assert (reader.shape("b"), reader.dtype("b"), reader.dtype("a")) == ((2, 3), "BF16", "F32")
            assert torch.equal(reader.read("a"), A)
            assert torch.equal(reader.read("b"), B)
            assert reader.file("b") == folder / file


def test_parts_are_read_by_rows_columns_and_both(tmp_path: Path) -> None:
    with CheckpointReader(write_single(tmp_path, {"a": A, "s": torch.tensor(3.0)})) as reader:
        assert torch.equal(reader.read("a", (slice(1, 3),)), A[1:3])
        assert torch.equal(reader.read("a", (slice(None), slice(1, 2))), A[:, 1:2])
        assert torch.equal(reader.read("a", (slice(0, 2), slice(2, 4))), A[:2, 2:])
        assert reader.read("s").item() == 3.0


def test_tensors_outlive_the_reader(tmp_path: Path) -> None:
    with CheckpointReader(write_single(tmp_path, {"a": A})) as reader:
        kept = reader.read("a")
    assert torch.equal(kept, A)


def test_a_folder_without_weights_says_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no weights; expected model\.safetensors.*convert"):
        CheckpointReader(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_shards(tmp_path, {"x.safetensors": {"a": A}, "y.safetensors": {"b": B}})
    (folder / "y.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"y\.safetensors: the file is missing"):
        CheckpointReader(folder)


@pytest.mark.parametrize("keep", [0, 4, 60, -1])
def test_a_half_written_shard_is_named(tmp_path: Path, keep: int) -> None:
    folder = write_shards(tmp_path, {"x.safetensors": {"a": A}, "y.safetensors": {"b": B}})
    whole = (folder / "y.safetensors").read_bytes()
    (folder / "y.safetensors").write_bytes(whole[:keep])
    with pytest.raises(CheckpointError, match=r"y\.safetensors: not a complete safetensors file.*half-written"):
        CheckpointReader(folder)


@pytest.mark.parametrize("garbage", [b"\xff" * 64, b"\x08\x00\x00\x00\x00\x00\x00\x00not json", b"version https://lfs"])
def test_a_header_of_garbage_is_named(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(garbage)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: not a complete safetensors file"):
        CheckpointReader(tmp_path)


def test_a_tensor_in_two_shards_is_an_error(tmp_path: Path) -> None:
    folder = write_shards(tmp_path, {"x.safetensors": {"a": A, "c": B}, "y.safetensors": {"a": A}})
    with pytest.raises(CheckpointError, match=r"the tensor a is in two shards, x\.safetensors and y\.safetensors"):
        CheckpointReader(folder)


def test_index_and_shards_must_agree(tmp_path: Path) -> None:
    shards = {"x.safetensors": {"a": A}, "y.safetensors": {"b": B}}
    files = {"a": "x.safetensors", "b": "y.safetensors"}
    absent = write_shards(tmp_path / "1", shards, files | {"c": "x.safetensors"})
    with pytest.raises(CheckpointError, match=r"lists the tensor c in x\.safetensors, but no shard holds it"):
        CheckpointReader(absent)
    swapped = write_shards(tmp_path / "2", shards, {"a": "y.safetensors", "b": "x.safetensors"})
    with pytest.raises(CheckpointError, match=r"lists the tensor a in y\.safetensors, but it is in x\.safetensors"):
        CheckpointReader(swapped)
    more = write_shards(tmp_path / "3", {"x.safetensors": {"a": A, "b": B}}, {"a": "x.safetensors"})
    with pytest.raises(CheckpointError, match=r"holds the tensor b, which .* does not list"):
        CheckpointReader(more)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("{}", "weight_map is missing"),
        ('{"weight_map": []}', "weight_map is missing"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "not a plain file name"),
        ('{"weight_map": {"a": 3}}', "not a plain file name"),
    ],
)
def test_a_broken_index_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError) as caught:
        CheckpointReader(tmp_path)
    assert "model.safetensors.index.json" in str(caught.value)
    assert words in str(caught.value)


def test_asking_for_an_absent_tensor_names_it(tmp_path: Path) -> None:
    with (
        CheckpointReader(write_single(tmp_path, {"a": A})) as reader,
        pytest.raises(CheckpointError, match="q is missing"),
    ):
        reader.shape("q")


def test_the_index_wins_over_a_stray_single_file(tmp_path: Path) -> None:
    folder = write_single(write_shards(tmp_path, {"x.safetensors": {"a": A}}), {"stray": B})
    with CheckpointReader(folder) as reader:
        assert reader.names == {"a"}
    assert json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"] == {"a": "x.safetensors"}
