"""Coverage of a checkpoint: every tensor is used, or ignored for a stated reason, or the load stops.

Checked on names, shapes and dtypes before a single value is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.base.errors import CheckpointError
from slipstream.config.quantization.spec import NOT_QUANTIZED, Quantization
from slipstream.weights.formats.find import find_format, has_stored
from slipstream.weights.formats.interface import Format
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import IgnoreRule, WeightRule

MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class Manifest:
    """What will be read.

    Args:
        rules: the rules whose tensor exists, in the order of the files.
        formats: format of each logical tensor.
        ignored: (name, reason) of every tensor left out.
        absent: optional tensors that the checkpoint does not have.
    """

    rules: tuple[WeightRule, ...]
    formats: dict[str, Format]
    ignored: tuple[tuple[str, str], ...]
    absent: tuple[str, ...]


def build_manifest(
    reader: CheckpointReader,
    rules: Sequence[WeightRule],
    ignored: Sequence[IgnoreRule],
    quantization: Quantization = NOT_QUANTIZED,
) -> Manifest:
    """Match rules and tensors.

    Args:
        reader: the checkpoint.
        rules: what the network wants.
        ignored: what may be left out.
        quantization: how the checkpoint says that weights are stored.

    Returns:
        The matched rules.

    Raises:
        CheckpointError: a missing tensor, a shape that disagrees, an unsupported format, or a tensor that neither a
            rule nor an ignore rule names.
    """
    formats: dict[str, Format] = {}
    absent: list[str] = []
    missing: list[WeightRule] = []
    for rule in rules:
        if rule.tensor in formats:
            continue
        if rule.optional and not has_stored(reader, rule.tensor):
            absent.append(rule.tensor)
        elif not has_stored(reader, rule.tensor):
            missing.append(rule)
        else:
            formats[rule.tensor] = find_format(reader, rule.tensor, quantization)
    if missing:
        raise CheckpointError(_missing_message(reader, missing))
    present = [rule for rule in rules if rule.tensor in formats]
    for rule in present:
        found = formats[rule.tensor].shape(reader, rule.tensor)
        if found != rule.shape:
            raise CheckpointError(
                f"{_file(reader, formats, rule)}: the tensor {rule.tensor} has shape {list(found)}, expected "
                f"{list(rule.shape)}; config.json and weights are not of the same model"
            )
    used = {stored for name, form in formats.items() for stored in form.stored_names(name)}
    unused = {stored: reason for name, form in formats.items() for stored, reason in form.unused_names(name).items()}
    left_out = _leftovers(reader, used, ignored, unused)
    in_order = sorted(present, key=lambda rule: (_file(reader, formats, rule), rule.tensor))
    return Manifest(tuple(in_order), formats, left_out, tuple(sorted(set(absent))))


def _file(reader: CheckpointReader, formats: dict[str, Format], rule: WeightRule) -> str:
    return str(reader.file(formats[rule.tensor].stored_names(rule.tensor)[0]))


def _missing_message(reader: CheckpointReader, missing: list[WeightRule]) -> str:
    named = ", ".join(f"{rule.tensor} {list(rule.shape)}" for rule in missing[:MAX_NAMED])
    more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    return (
        f"{reader.folder}: tensors are missing: {named}{more}. Either files are missing, or config.json is of "
        "another model"
    )


def _leftovers(
    reader: CheckpointReader, used: set[str], ignored: Sequence[IgnoreRule], unused: dict[str, str]
) -> tuple[tuple[str, str], ...]:
    left_out: list[tuple[str, str]] = []
    unknown: list[str] = []
    for name in sorted(reader.names - used):
        reason = unused.get(name) or next((rule.reason for rule in ignored if rule.matches(name)), None)
        if reason is None:
            unknown.append(name)
        else:
            left_out.append((name, reason))
    if unknown:
        named = ", ".join(f"{name} (in {reader.file(name).name})" for name in unknown[:MAX_NAMED])
        more = f" and {len(unknown) - MAX_NAMED} more" if len(unknown) > MAX_NAMED else ""
        raise CheckpointError(
            f"{reader.folder}: tensors that nothing uses: {named}{more}. The network would run without them and be "
            "wrong, so the load stops; check that config.json belongs to these weights"
        )
    return tuple(left_out)
