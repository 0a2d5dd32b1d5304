"""A checkpoint folder that appears when it is complete: written beside its place, then renamed, or not there at all.

Not here: what is written; see `quantise` and `dequantise`.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from slipstream.base.errors import CapacityError, ConfigError
from slipstream.config.quantization.read import CONFIG_FILE, MODELOPT_FILE
from slipstream.weights.reader import INDEX_FILE, SINGLE_FILE

_BUNDLED_DRAFTER = "eagle3"
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".index.json")


@contextmanager
def new_checkpoint(source: Path, target: Path, num_bytes: int, *, is_forced: bool) -> Iterator[Path]:
    """Give a folder to write into; it takes the target's place when the block ends well, and goes when it fails.

    A run that was killed by force leaves its folder beside the target; the next one to the same target removes that.

    Args:
        source: the checkpoint that is copied from; must lie elsewhere.
        target: the folder to make.
        num_bytes: what will be written, at least.
        is_forced: a checkpoint at the target may be replaced.

    Raises:
        ConfigError: the target exists, or lies in the source, or the other way round, or cannot be written.
        CapacityError: the disk is too small, or became full.
    """
    check_target(source, target, is_forced=is_forced)
    existing = next(folder for folder in target.absolute().parents if folder.exists())
    free = shutil.disk_usage(existing).free
    if num_bytes > free:
        raise CapacityError(f"{existing}: the weights take {num_bytes} bytes, but {free} are free there")
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise ConfigError(f"DST={target}: {existing} cannot be written to; give another folder")
    _remove_leftovers(target)
    partial = target.parent / f".{target.name}.partial-{os.getpid()}"
    try:
        partial.mkdir(parents=True)
        with _locked(partial):
            yield partial
            _put_in_place(partial, target)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CapacityError(f"DST={target}: writing failed ({error}); make room, or give another folder") from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Mark a folder as in use; the system takes the mark away when this process ends, however it does."""
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(number)


def _remove_leftovers(target: Path) -> None:
    """Remove what runs to the same target left when they were killed; not what another process still writes."""
    for folder in target.parent.glob(f".{glob.escape(target.name)}.partial-*"):
        with contextlib.suppress(OSError), _locked(folder):
            shutil.rmtree(folder)


def check_target(source: Path, target: Path, *, is_forced: bool) -> None:
    """Refuse a target that must not be written.

    Raises:
        ConfigError: see new_checkpoint.
    """
    try:
        here, there = source.resolve(), target.resolve()
        target.exists()
    except OSError as error:
        raise ConfigError(f"DST={target}: no folder can have this name ({error.strerror}); give another one") from None
    if here == there or here in there.parents or there in here.parents:
        raise ConfigError(f"DST={target}: it and SRC={source} lie within each other; give a folder of its own")
    if not target.exists() and not target.is_symlink():
        return
    if not is_forced:
        raise ConfigError(f"DST={target}: it exists already; give another folder, or --force to replace it")
    is_checkpoint = (target / CONFIG_FILE).is_file() and any(
        (target / file).is_file() for file in (SINGLE_FILE, INDEX_FILE)
    )
    if target.is_symlink() or not target.is_dir() or not (is_checkpoint or not any(target.iterdir())):
        raise ConfigError(
            f"DST={target}: --force replaces a checkpoint ({CONFIG_FILE} and safetensors) or an empty folder, and this "
            "is neither; remove it yourself, or give another folder"
        )


def write_companions(
    source: Path, folder: Path, config: Mapping[str, Any], modelopt: Mapping[str, Any] | None = None
) -> None:
    """Write config.json, and copy tokenizer, template and whatever else is not weights; a bundled drafter as it is.

    Args:
        source: the checkpoint that is copied from.
        folder: where to write.
        config: config.json of the new checkpoint.
        modelopt: its hf_quant_config.json, or None.
    """
    for item in sorted(source.iterdir()):
        if item.is_file() and item.name != MODELOPT_FILE and not item.name.endswith(_WEIGHT_SUFFIXES):
            shutil.copy2(item, folder / item.name)
    if (source / _BUNDLED_DRAFTER).is_dir():
        shutil.copytree(source / _BUNDLED_DRAFTER, folder / _BUNDLED_DRAFTER)
    for file, value in ((CONFIG_FILE, config), (MODELOPT_FILE, modelopt)):
        if value is not None:
            (folder / file).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _put_in_place(partial: Path, target: Path) -> None:
    if not target.exists():
        partial.rename(target)
        return
    old = target.parent / f".{target.name}.old-{os.getpid()}"
    target.rename(old)
    try:
        partial.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old)
