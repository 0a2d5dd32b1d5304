"""Texts that the target wrote, in numbered files of one folder. A file is there as a whole or not at all."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from slipstream.base.errors import ConfigError
from slipstream.training.run_folder import write_whole
from slipstream.training.settings import hash_file

_TYPE = "i"


@dataclass(frozen=True, slots=True)
class Text:
    """One prompt and the target's answer.

    Args:
        token_ids: prompt, then answer; 32-bit integers, because there may be very many.
        num_prompt_tokens: where the answer begins.
        temperature: at which it was drawn.
        prompt: number of the prompt.
    """

    token_ids: array[int]
    num_prompt_tokens: int
    temperature: float
    prompt: int

    @property
    def num_written(self) -> int:
        """Return the tokens of the answer."""
        return len(self.token_ids) - self.num_prompt_tokens


def make_text(token_ids: Sequence[int], num_prompt_tokens: int, temperature: float, prompt: int) -> Text:
    """Return a text of any sequence of token ids."""
    return Text(array(_TYPE, token_ids), num_prompt_tokens, temperature, prompt)


def as_tensor(token_ids: array[int]) -> Tensor:
    """Return [num_tokens] int32, a view."""
    return torch.frombuffer(token_ids, dtype=torch.int32)


class TextStore:
    """The files of a folder, in order. What was appended is never changed.

    Args:
        folder: made at the first append.

    Raises:
        ConfigError: a file that is damaged, or missing in the middle.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.texts: list[Text] = []
        self._files = sorted(folder.glob("*.safetensors"))
        for number, file in enumerate(self._files):
            if file != self._path(number):
                raise ConfigError(f"{folder}: {self._path(number).name} is missing; restore it, or begin a new run")
            self.texts += _read(file)

    @property
    def num_written(self) -> int:
        """Return the tokens of all answers."""
        return sum(text.num_written for text in self.texts)

    @property
    def num_files(self) -> int:
        """Return how many files there are."""
        return len(self._files)

    def append(self, texts: Sequence[Text]) -> None:
        """Add one file."""
        path = self._path(len(self._files))
        tensors = {
            "token_ids": torch.cat([as_tensor(text.token_ids) for text in texts]),
            "num_tokens": torch.tensor([len(text.token_ids) for text in texts], dtype=torch.int64),
            "num_prompt_tokens": torch.tensor([text.num_prompt_tokens for text in texts], dtype=torch.int64),
            "temperature": torch.tensor([text.temperature for text in texts], dtype=torch.float64),
            "prompt": torch.tensor([text.prompt for text in texts], dtype=torch.int64),
        }
        write_whole(path, lambda partial: save_file(tensors, partial))
        self._files.append(path)
        self.texts += texts

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of every file, by name."""
        return {file.name: hash_file(file) for file in self._files}

    def count_tokens(self, vocab_size: int) -> Tensor:
        """Return [vocab_size] int64: how often the target wrote each token."""
        counts = torch.zeros(vocab_size, dtype=torch.int64)
        for text in self.texts:
            counts += torch.bincount(as_tensor(text.token_ids)[text.num_prompt_tokens :], minlength=vocab_size)
        return counts

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.safetensors"


def _read(file: Path) -> list[Text]:
    try:
        stored = load_file(file)
        pieces = stored["token_ids"].split(stored["num_tokens"].tolist())
        return [
            Text(array(_TYPE, ids.numpy().tobytes()), first, temperature, prompt)
            for ids, first, temperature, prompt in zip(
                pieces,
                stored["num_prompt_tokens"].tolist(),
                stored["temperature"].tolist(),
                stored["prompt"].tolist(),
                strict=True,
            )
        ]
    except (SafetensorError, OSError, KeyError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{file}: not a file of texts ({error}); remove it, and --resume writes it again") from None
