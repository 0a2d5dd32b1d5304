from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slipstream.base.errors import EngineError
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.writer import ShardWriter


def write(folder: Path, max_shard_bytes: int, sizes: tuple[int, ...]) -> tuple[Path, ...]:
    folder.mkdir()
    writer = ShardWriter(folder, max_shard_bytes)
    for number, size in enumerate(sizes):
        writer.add(f"t{number}", torch.full((size,), number, dtype=torch.uint8))
    files = writer.finish()
    assert writer.num_bytes == sum(sizes)
    return files


def test_a_small_checkpoint_is_one_file_without_an_index(tmp_path: Path) -> None:
    files = write(tmp_path / "a", 100, (40, 60))
    assert [file.name for file in files] == ["model.safetensors"]
    assert sorted(item.name for item in (tmp_path / "a").iterdir()) == ["model.safetensors"]
    assert files[0].stat().st_mode & 0o777 == (tmp_path / "a").stat().st_mode & 0o666


def test_shards_end_before_they_grow_too_large_and_read_back_through_the_index(tmp_path: Path) -> None:
    sizes = (40, 60, 1, 99, 250, 10)
    files = write(tmp_path / "a", 100, sizes)
    assert [sorted(load_file(file)) for file in files] == [["t0", "t1"], ["t2", "t3"], ["t4"], ["t5"]]
    assert [file.name for file in files] == [f"model-{n:05d}-of-00004.safetensors" for n in range(1, 5)]
    with CheckpointReader(tmp_path / "a") as reader:
        for number, size in enumerate(sizes):
            assert torch.equal(reader.read(f"t{number}"), torch.full((size,), number, dtype=torch.uint8))


def test_no_tensor_gives_an_empty_file_and_a_name_comes_once(tmp_path: Path) -> None:
    assert load_file(write(tmp_path / "a", 100, ())[0]) == {}
    writer = ShardWriter(tmp_path)
    writer.add("w", torch.zeros(2))
    with pytest.raises(EngineError, match="w was written twice"):
        writer.add("w", torch.zeros(2))
