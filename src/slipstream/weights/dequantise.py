"""Make a plain checkpoint from a quantised one, for programs that read no other; the inverse of `quantise`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from slipstream.base.errors import CheckpointError
from slipstream.config.fields import read_json
from slipstream.config.quantization.read import CONFIG_FILE, FIELD, read_quantization
from slipstream.config.quantization.spec import PLAIN, Quantization
from slipstream.weights.formats.find import find_format
from slipstream.weights.formats.interface import Format
from slipstream.weights.new_checkpoint import check_target, new_checkpoint, write_companions
from slipstream.weights.quantise import QuantiseReport
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.writer import DEFAULT_SHARD_BYTES, ShardWriter

OnProgress = Callable[[int, int], None]
_COMPANIONS = ("_scale_inv", "_scale", "_scale_2", "_global_scale", ".input_scale", ".input_global_scale")
_PACKED = "_packed"


def dequantise_checkpoint(
    source: Path,
    target: Path,
    *,
    is_forced: bool = False,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
    on_progress: OnProgress | None = None,
) -> QuantiseReport:
    """Write a copy of a quantised checkpoint with its weights in bfloat16; plain tensors stay as they are.

    MXFP8 is exact in bfloat16, NVFP4 is rounded once.

    Args:
        source: a quantised checkpoint.
        target: the new folder.
        is_forced: a checkpoint at the target may be replaced.
        max_shard_bytes: largest file of weights.
        on_progress: called with (tensors done, tensors in all).

    Returns:
        What was made; the counts are those of the source.

    Raises:
        ConfigError: the target exists, or lies in the source, or the other way round.
        CheckpointError: the source is not quantised, or damaged.
        CapacityError: the disk is too small.
    """
    check_target(source, target, is_forced=is_forced)
    config = read_json(source / CONFIG_FILE, purpose="the model's configuration")
    declared = read_quantization(source)
    if not declared.formats:
        raise CheckpointError(f"{declared.where}: the weights are not quantised; there is nothing to undo")
    with CheckpointReader(source) as reader:
        formats = logical_tensors(reader, declared)
        before = sum(file.stat().st_size for file in {reader.file(stored) for stored in reader.names})
        needed = sum(torch.Size(form.shape(reader, name)).numel() * 2 for name, form in formats.items())
        with new_checkpoint(source, target, needed, is_forced=is_forced) as folder:
            writer = ShardWriter(folder, max_shard_bytes)
            for done, (name, form) in enumerate(formats.items()):
                values = form.read(reader, name, ())
                writer.add(name, values if form.name == PLAIN else values.to(torch.bfloat16))
                if on_progress is not None:
                    on_progress(done + 1, len(formats))
            writer.finish()
            plain = {field: _without(value) for field, value in config.items() if field != FIELD}
            write_companions(source, folder, plain)
    names = [form.name for form in formats.values()]
    counts = {name: names.count(name) for name in sorted(set(names))}
    return QuantiseReport(target, counts, before, writer.num_bytes)


def logical_tensors(reader: CheckpointReader, quantization: Quantization) -> dict[str, Format]:
    """Return the format of every logical tensor of a checkpoint, in the order of the files.

    Args:
        reader: the checkpoint.
        quantization: what it declares.

    Raises:
        CheckpointError: a format that is not supported or not as declared, or a scale that belongs to nothing.
    """
    formats: dict[str, Format] = {}
    covered: set[str] = set()
    for stored in sorted(reader.names, key=lambda name: (str(reader.file(name)), name)):
        if stored.endswith(_COMPANIONS):
            continue
        name = stored.removesuffix(_PACKED)
        formats[name] = find_format(reader, name, quantization)
        covered |= {*formats[name].stored_names(name), *formats[name].unused_names(name)}
    stray = sorted(reader.names - covered)
    if stray:
        raise CheckpointError(f"{reader.file(stray[0])}: {stray[0]} belongs to no quantised tensor")
    return formats


def _without(value: object) -> object:
    return {name: item for name, item in value.items() if name != FIELD} if isinstance(value, dict) else value
