"""Write tensors into safetensors shards of bounded size, one at a time.

Not here: what the tensors are; see `quantise`.
"""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from slipstream.base.errors import EngineError
from slipstream.weights.reader import INDEX_FILE, SINGLE_FILE

DEFAULT_SHARD_BYTES = 4 << 30


class ShardWriter:
    """Collects tensors and writes a shard each time enough of them came together.

    At most one shard is held in memory. Call `finish` in the end: only then have the files their names, and a folder
    of several shards its index.

    Args:
        folder: where the files go; it exists and holds no weights.
        max_shard_bytes: a shard ends before the tensor that would exceed this; a larger tensor has its own shard.
    """

    def __init__(self, folder: Path, max_shard_bytes: int = DEFAULT_SHARD_BYTES) -> None:
        self._folder = folder
        self._max_shard_bytes = max_shard_bytes
        self._held: dict[str, Tensor] = {}
        self._held_bytes = 0
        self._shards: list[tuple[str, ...]] = []
        self._names: set[str] = set()
        self.num_bytes = 0

    def add(self, name: str, tensor: Tensor) -> None:
        """Take one tensor.

        Raises:
            EngineError: the name came before.
        """
        if name in self._names:
            raise EngineError(f"the tensor {name} was written twice")
        size = tensor.numel() * tensor.element_size()
        if self._held and self._held_bytes + size > self._max_shard_bytes:
            self._write()
        self._names.add(name)
        self._held[name] = tensor.contiguous()
        self._held_bytes += size
        self.num_bytes += size

    def finish(self) -> tuple[Path, ...]:
        """Write what is held, name the shards and write the index; return the files of weights."""
        if self._held or not self._shards:
            self._write()
        count = len(self._shards)
        if count == 1:
            return (self._partial(0).rename(self._folder / SINGLE_FILE),)
        weight_map: dict[str, str] = {}
        files: list[Path] = []
        for number, names in enumerate(self._shards):
            file = f"model-{number + 1:05d}-of-{count:05d}.safetensors"
            files.append(self._partial(number).rename(self._folder / file))
            weight_map |= dict.fromkeys(names, file)
        index = {"metadata": {"total_size": self.num_bytes}, "weight_map": dict(sorted(weight_map.items()))}
        (self._folder / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
        return tuple(files)

    def _partial(self, number: int) -> Path:
        return self._folder / f"shard-{number:05d}.partial"

    def _write(self) -> None:
        path = self._partial(len(self._shards))
        save_file(self._held, path, metadata={"format": "pt"})
        # The library writes files that only their owner may read.
        path.chmod(self._folder.stat().st_mode & 0o666)
        self._shards.append(tuple(self._held))
        self._held, self._held_bytes = {}, 0
