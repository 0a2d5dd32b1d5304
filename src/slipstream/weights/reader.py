"""The door to safetensors: names, shapes and lazy slices of a checkpoint folder.

Not here: what the tensors mean (`rules`), how quantised ones are decoded (`formats`).
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from slipstream.base.errors import CheckpointError
from slipstream.config.fields import read_json
from slipstream.weights.rules import SourceIndex

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"


class CheckpointReader:
    """Lazy access to the tensors of one checkpoint folder; a context manager that closes its files.

    Args:
        folder: holds `model.safetensors`, or `model.safetensors.index.json` and the shards it names.

    Raises:
        CheckpointError: no weights, a missing or half-written shard, a tensor in two shards, or an index that
            disagrees with the shards; the message names the file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = ExitStack()
        self._handles: dict[str, Any] = {}
        self._file_of: dict[str, str] = {}
        try:
            self._open(folder)
        except BaseException:
            self._files.close()
            raise
        self._names = frozenset(self._file_of)

    def _open(self, folder: Path) -> None:
        index = folder / INDEX_FILE
        if index.is_file():
            weight_map = _weight_map(index)
            for file in sorted(set(weight_map.values())):
                self._open_file(file, f"named by {INDEX_FILE}")
            self._compare(index, weight_map)
        elif (folder / SINGLE_FILE).is_file():
            self._open_file(SINGLE_FILE, "the only file of weights")
        else:
            raise CheckpointError(
                f"{folder}: no weights; expected {SINGLE_FILE}, or {INDEX_FILE} and its shards. "
                "Other formats (.bin, .pt, .gguf) are not read: convert them to safetensors"
            )

    def _open_file(self, file: str, role: str) -> None:
        path = self.folder / file
        if not path.is_file():
            raise CheckpointError(f"{path}: the file is missing ({role}); copy or download it again")
        try:
            handle = self._files.enter_context(safe_open(path, framework="pt"))
            names = list(handle.keys())
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path}: not a complete safetensors file ({error}); it may be half-written: copy or download it again"
            ) from None
        self._handles[file] = handle
        for name in names:
            if name in self._file_of:
                raise CheckpointError(
                    f"{self.folder}: the tensor {name} is in two shards, {self._file_of[name]} and {file}; "
                    "remove the stale one"
                )
            self._file_of[name] = file

    def _compare(self, index: Path, weight_map: dict[str, str]) -> None:
        for name, file in weight_map.items():
            found = self._file_of.get(name)
            if found != file:
                where = f"it is in {found}" if found else "no shard holds it"
                raise CheckpointError(f"{index}: lists the tensor {name} in {file}, but {where}")
        extra = sorted(set(self._file_of) - set(weight_map))
        if extra:
            raise CheckpointError(
                f"{self.folder / self._file_of[extra[0]]}: holds the tensor {extra[0]}, which {INDEX_FILE} does "
                "not list; index and shards are of different versions"
            )

    def __enter__(self) -> CheckpointReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; tensors that were read stay valid."""
        self._files.close()

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all tensors."""
        return self._names

    def file(self, name: str) -> Path:
        """Return the file that holds a tensor."""
        return self.folder / self._file_of[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape without reading it."""
        return tuple(self._slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """Return a tensor's stored dtype as safetensors spells it: BF16, F32, F8_E4M3, U8, ..."""
        return str(self._slice(name).get_dtype())

    def read(self, name: str, source: SourceIndex = ()) -> Tensor:
        """Return a tensor, or a part of it, in its stored dtype; only that part is read from disk."""
        if not source:
            return self._handles[self._file_of[name]].get_tensor(name)
        return self._slice(name)[source]

    def _slice(self, name: str) -> Any:
        if name not in self._file_of:
            raise CheckpointError(f"{self.folder}: the tensor {name} is missing")
        return self._handles[self._file_of[name]].get_slice(name)


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json(index, purpose="the list of tensors and shards").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: the field weight_map is missing or empty; the index may be half-written")
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise CheckpointError(f"{index}: weight_map[{name!r}]={file!r} is not a plain file name")
    return weight_map
