"""Make a quantised checkpoint from one in bfloat16, one tensor at a time, in a new folder that appears when complete.

Which modules: the projections of the decoder, as the family's released quantised checkpoints have it. Never the router,
embedding, head, norms, images or drafters. Not here: the arithmetic (`formats`), the declaration's spelling
(`config.quantization.declare`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from slipstream.base.errors import CheckpointError
from slipstream.config.fields import read_json
from slipstream.config.quantization.declare import declare
from slipstream.config.quantization.read import CONFIG_FILE, read_quantization
from slipstream.config.quantization.spec import MXFP8, NVFP4_M31, PLAIN, PROJECTIONS, Recipe, WeightFormat
from slipstream.weights.formats import mxfp8, nvfp4
from slipstream.weights.formats.find import find_format
from slipstream.weights.formats.plain import PLAIN_DTYPES
from slipstream.weights.new_checkpoint import check_target, new_checkpoint, write_companions
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.writer import DEFAULT_SHARD_BYTES, ShardWriter

OnProgress = Callable[[int, int], None]

_OTHER_BRANCHES = ("vision_tower", "multi_modal_projector", "patch_merge_mlp", "mtp", "dspark")
_PARTNER = {"w1": "w3", "w3": "w1"}
_FUSED = ("gate_up_proj", "qkv_proj")


@dataclass(frozen=True, slots=True)
class QuantiseReport:
    """What was made.

    Args:
        folder: the new checkpoint.
        counts: format -> tensors stored so; plain are those that were kept.
        num_bytes_before, num_bytes: of all weights.
    """

    folder: Path
    counts: dict[str, int]
    num_bytes_before: int
    num_bytes: int


def plan_format(name: str, wanted: WeightFormat, recipe: Recipe) -> WeightFormat:
    """Return the format that a tensor gets.

    Args:
        name: stored name, in the released layout.
        wanted: format of the checkpoint.
        recipe: `released`: routed experts in the wanted format, all other projections of the decoder in MXFP8;
            `experts`: routed experts alone.
    """
    steps = name.split(".")
    if steps[-1] != "weight" or "layers" not in steps or any(branch in steps for branch in _OTHER_BRANCHES):
        return PLAIN
    if len(steps) < 2 or steps[-2] not in PROJECTIONS:
        return PLAIN
    if "experts" in steps:
        return wanted
    return MXFP8 if recipe == "released" else PLAIN


def quantise_checkpoint(
    source: Path,
    target: Path,
    wanted: WeightFormat,
    *,
    recipe: Recipe = "released",
    is_forced: bool = False,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
    on_progress: OnProgress | None = None,
) -> QuantiseReport:
    """Write a quantised copy of a checkpoint.

    Everything is written into a folder beside the target, which gets the target's name in the end; nothing is left of
    it when something fails.

    Args:
        source: a checkpoint in bfloat16, float16 or float32, in the released layout.
        target: the new folder.
        wanted: mxfp8, nvfp4 or nvfp4-m31.
        recipe: see `plan_format`.
        is_forced: a checkpoint at the target may be replaced.
        max_shard_bytes: largest file of weights.
        on_progress: called with (tensors done, tensors in all).

    Returns:
        What was made.

    Raises:
        ConfigError: the target exists, or lies in the source, or the other way round.
        CheckpointError: the source is quantised already, fused, or has a weight that cannot be quantised.
        CapacityError: the disk is too small.
    """
    check_target(source, target, is_forced=is_forced)
    config = read_json(source / CONFIG_FILE, purpose="the model's configuration")
    declared = read_quantization(source)
    if declared.formats:
        raise CheckpointError(
            f"{declared.where}: the weights are quantised already ({', '.join(declared.formats)}); quantising twice "
            f"loses twice: give the bfloat16 release, or write one first with slipstream quantize {source.name} COPY "
            "--format bfloat16"
        )
    # The declaration of packed experts alone says that activations are not quantised.
    has_input_scale = wanted != NVFP4_M31 or recipe == "released"
    with CheckpointReader(source) as reader:
        formats = _plan(reader, wanted, recipe)
        needed = sum(_num_bytes(reader, name, form) for name, form in formats.items())
        with new_checkpoint(source, target, needed, is_forced=is_forced) as folder:
            writer = ShardWriter(folder, max_shard_bytes)
            for done, name in enumerate(formats):
                for stored, tensor in _convert(reader, name, formats[name], has_input_scale=has_input_scale):
                    writer.add(stored, tensor)
                if on_progress is not None:
                    on_progress(done + 1, len(formats))
            writer.finish()
            layers: dict[str, WeightFormat] = {
                name.removesuffix(".weight"): form for name, form in formats.items() if form != PLAIN
            }
            write_companions(source, folder, *declare(config, wanted, layers, _kept_modules(formats)))
        counts = {form: sum(value == form for value in formats.values()) for form in sorted(set(formats.values()))}
        before = sum(_num_bytes(reader, name) for name in formats)
    return QuantiseReport(target, counts, before, writer.num_bytes)


def _plan(reader: CheckpointReader, wanted: WeightFormat, recipe: Recipe) -> dict[str, WeightFormat]:
    """Return the format of every tensor, in the order of the files; all refusals that need no values are here."""
    formats: dict[str, WeightFormat] = {}
    for name in sorted(reader.names, key=lambda name: (str(reader.file(name)), name)):
        form = plan_format(name, wanted, recipe)
        if any(step in _FUSED for step in name.split(".")) or ".experts.down_proj" in name:
            raise CheckpointError(
                f"{reader.file(name)}: the tensor {name} holds fused projections; only checkpoints in the released "
                "layout (one tensor per projection and expert) are quantised: give such a one"
            )
        if form != PLAIN:
            _check_tensor(reader, name, form)
        formats[name] = form
    if all(form == PLAIN for form in formats.values()):
        raise CheckpointError(f"{reader.folder}: no tensor to quantise with recipe {recipe}; is it a checkpoint of M3?")
    return formats


def _check_tensor(reader: CheckpointReader, name: str, form: WeightFormat) -> None:
    find_format(reader, name)
    shape = reader.shape(name)
    size = mxfp8.GROUP_SIZE if form == MXFP8 else nvfp4.GROUP_SIZE
    if len(shape) != 2 or shape[1] % size:
        raise CheckpointError(
            f"{reader.file(name)}: the tensor {name} has shape {list(shape)}; {form} takes [out, in] with in a "
            f"multiple of {size}, so this checkpoint cannot be stored so. Another format or --recipe experts may fit"
        )
    last = name.split(".")[-2]
    if form not in (PLAIN, MXFP8) and last in _PARTNER and _partner(name) not in reader.names:
        raise CheckpointError(f"{reader.folder}: {_partner(name)} is missing, which shares its scale with {name}")


def _partner(name: str) -> str:
    stem, last, end = name.rsplit(".", 2)
    return f"{stem}.{_PARTNER[last]}.{end}"


def _convert(
    reader: CheckpointReader, name: str, form: WeightFormat, *, has_input_scale: bool
) -> Iterator[tuple[str, Tensor]]:
    """Yield what a tensor becomes: names and stored tensors."""
    weight = reader.read(name)
    if form == PLAIN:
        yield name, weight
        return
    if not bool(weight.isfinite().all()):
        raise CheckpointError(f"{reader.file(name)}: the tensor {name} holds NaN or infinity, which no format keeps")
    if form == MXFP8:
        values, codes = mxfp8.quantise_mxfp8(weight)
        yield name, values
        yield f"{name}{mxfp8.SCALE_SUFFIX}", codes
        return
    # INVARIANT: gate and up of an expert share the global scale; kernels that run both at once take one.
    shares = [weight, reader.read(_partner(name))] if name.split(".")[-2] in _PARTNER else [weight]
    factor = nvfp4.global_scale_nvfp4(*shares)
    stored_factor = factor
    if form == NVFP4_M31:
        stored_factor = (1 / factor).reshape(1)
        # Readers multiply by the inverse of what is stored, which rounding keeps from being the same number.
        factor = (1 / stored_factor).reshape(())
    packed, scales, _ = nvfp4.quantise_nvfp4(weight, float(factor))
    reading = nvfp4.Nvfp4(form)
    yield from zip(reading.stored_names(name), (packed, scales, stored_factor), strict=True)
    if has_input_scale:
        # A factor of one leaves activations as they are; readers that quantise activations ask for it.
        yield from ((unused, torch.ones_like(stored_factor)) for unused in reading.unused_names(name))


def _num_bytes(reader: CheckpointReader, name: str, form: WeightFormat = PLAIN) -> int:
    count = 1
    for size in reader.shape(name):
        count *= size
    if form == PLAIN:
        return count * (4 if reader.dtype(name) == "F32" else 2 if reader.dtype(name) in PLAIN_DTYPES else 8)
    return count + count // 32 if form == MXFP8 else count // 2 + count // 16 + 8


def _kept_modules(formats: dict[str, WeightFormat]) -> list[str]:
    modules = (name.removesuffix(".weight") for name, form in formats.items() if form == PLAIN)
    return sorted({_kept_name(module) for module in modules} - {""})


def _kept_name(module: str) -> str:
    """Return how a list names a module that is kept: other branches as a whole, norms and biases not at all."""
    steps = module.split(".")
    branch = next((step for step in steps if step in _OTHER_BRANCHES), None)
    if branch is not None:
        return branch
    return module if steps[-1] in (*PROJECTIONS, "gate", "lm_head", "embed_tokens") else ""
