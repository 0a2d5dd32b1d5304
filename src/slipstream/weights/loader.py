"""Stream a checkpoint into parameters, one piece at a time; peak memory is one piece beside the parameters.

Not here: names and slices (`rules`, given by the network), coverage (`manifest`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.base.errors import EngineError
from slipstream.config.quantization.spec import NOT_QUANTIZED, Quantization
from slipstream.weights.manifest import build_manifest
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import IgnoreRule, WeightRule

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did.

    Args:
        num_tensors: checkpoint tensors that were used.
        num_bytes: bytes written into parameters.
        ignored: (name, reason) of every tensor left out.
        absent: optional tensors that the checkpoint does not have.
    """

    num_tensors: int
    num_bytes: int
    ignored: tuple[tuple[str, str], ...]
    absent: tuple[str, ...]


def load_weights(
    parameters: Mapping[str, Tensor],
    rules: Sequence[WeightRule],
    reader: CheckpointReader,
    *,
    ignored: Sequence[IgnoreRule] = (),
    quantization: Quantization = NOT_QUANTIZED,
    on_progress: OnProgress | None = None,
) -> LoadReport:
    """Fill parameters from a checkpoint, casting each piece to its parameter's own dtype.

    Args:
        parameters: by name; written in place.
        rules: every piece of every parameter.
        reader: the open checkpoint.
        ignored: tensors that may be left out.
        quantization: how the checkpoint says that weights are stored; each piece is dequantised as it is read.
        on_progress: called with (bytes done, bytes in all) after each piece.

    Returns:
        A report.

    Raises:
        CheckpointError: see build_manifest; nothing has been written then.
        EngineError: rules that leave a part of a parameter unfilled, a fault of the network's table.
    """
    manifest = build_manifest(reader, rules, ignored, quantization)
    _check_complete(parameters, rules)
    total = sum(rule.num_elements * parameters[rule.parameter].element_size() for rule in manifest.rules)
    done = 0
    with torch.no_grad():
        for rule in manifest.rules:
            parameter = parameters[rule.parameter]
            values = manifest.formats[rule.tensor].read(reader, rule.tensor, rule.source)
            piece = parameter[rule.target] if rule.target else parameter
            piece.copy_(values)
            done += rule.num_elements * parameter.element_size()
            if on_progress is not None:
                on_progress(done, total)
    return LoadReport(len(manifest.formats), total, manifest.ignored, manifest.absent)


def _check_complete(parameters: Mapping[str, Tensor], rules: Sequence[WeightRule]) -> None:
    filled: dict[str, int] = dict.fromkeys(parameters, 0)
    for rule in rules:
        if rule.parameter not in filled:
            raise EngineError(f"a weight rule fills {rule.parameter}, which the network does not have")
        filled[rule.parameter] += rule.num_elements
    for name, count in filled.items():
        if count != parameters[name].numel():
            raise EngineError(f"weight rules fill {count} of {parameters[name].numel()} elements of {name}")
