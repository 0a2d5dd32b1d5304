"""Read the small JSON files beside a checkpoint's tokenizer. Not here: config.json as the engine's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from slipstream.base.errors import CheckpointError

FAMILY_EOS = "[e~["
"""The end of a turn in every tokenizer of the family; used when no file names an end token."""

_LFS_HEAD = "version https://git-lfs"
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def read_text(path: Path) -> str:
    """Return the text of a checkpoint file.

    Raises:
        CheckpointError: the file is missing, unreadable, not UTF-8, empty, or a Git LFS pointer.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: give a folder that holds a complete checkpoint") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 (byte {error.start}): fetch the file again") from error
    if text.startswith(_LFS_HEAD):
        raise CheckpointError(f"{path} is a Git LFS pointer, not the file: fetch the checkpoint with LFS content")
    if not text.strip():
        raise CheckpointError(f"{path} is empty: fetch the file again")
    return text


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a checkpoint file.

    Raises:
        CheckpointError: as `read_text`, or the text is not one complete JSON object.
    """
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not complete JSON ({error}): fetch the file again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a JSON {type(value).__name__}, not an object: fetch the file again")
    return value


def read_optional_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one when there is no such file."""
    return read_object(path) if path.exists() else {}


def named_tokens(tokenizer_config: dict[str, Any]) -> dict[str, str]:
    """Return the tokens that have a name (`bos_token`, `eos_token`, …) as text; templates read them."""
    named: dict[str, str] = {}
    for name in _NAMED_TOKENS:
        value = tokenizer_config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            named[name] = value
    return named


def eos_token_ids(folder: Path) -> tuple[int, ...]:
    """Return the end tokens that the checkpoint's configuration names; empty when it names none.

    `generation_config.json` wins over `config.json`, whose text section wins over its top level.

    Raises:
        CheckpointError: a file is broken, or the field is neither an id nor a list of ids.
    """
    generation = folder / "generation_config.json"
    model = folder / "config.json"
    model_config = read_optional_object(model)
    text_config = model_config.get("text_config")
    sources = (
        (generation, read_optional_object(generation)),
        (model, text_config if isinstance(text_config, dict) else {}),
        (model, model_config),
    )
    for path, source in sources:
        value = source.get("eos_token_id")
        if value is None:
            continue
        ids = value if isinstance(value, list) else [value]
        if not ids or not all(type(item) is int and item >= 0 for item in ids):
            raise CheckpointError(f"{path}: eos_token_id={value!r} is not allowed: a token id or a list of them")
        return tuple(dict.fromkeys(ids))
    return ()
