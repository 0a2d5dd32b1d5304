"""Weight rules of the network: which stored tensor fills which part of which parameter, on this rank.

The modules know their parts (`layers.parts`), `names` knows the stored names; here they meet.
"""

from __future__ import annotations

from pathlib import Path

from slipstream.config.quantization.read import read_quantization
from slipstream.layers.parts import WHOLE, WeightPart
from slipstream.models.m3.model import M3Model
from slipstream.models.m3.names import IGNORED, Names, Stored, find_names, layer_tensors
from slipstream.weights.loader import LoadReport, OnProgress, load_weights
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import IgnoreRule, WeightRule


def m3_rules(model: M3Model, names: Names) -> tuple[WeightRule, ...]:
    """Return the rule of every piece of every parameter of one rank's network.

    Args:
        model: the network.
        names: the checkpoint's layout.
    """
    rules: list[WeightRule] = []
    for path, module in model.named_modules():
        for part in getattr(module, "parts", ()):
            if path == "lm_head" and model.spec.tie_word_embeddings:
                continue
            for stored in _stored(model, names, path, part):
                rules.append(_rule(f"{path}.{part.parameter}", part, stored))
    return tuple(rules)


def ignored_tensors(model: M3Model, names: Names) -> tuple[IgnoreRule, ...]:
    """Return what a checkpoint of this network may hold beside the rules' tensors."""
    if model.spec.tie_word_embeddings:
        return (*IGNORED, IgnoreRule(names.head.replace(".", r"\."), "the head is the embedding (tie_word_embeddings)"))
    return IGNORED


def load_m3(model: M3Model, folder: Path, on_progress: OnProgress | None = None) -> LoadReport:
    """Fill the network from a checkpoint folder.

    Args:
        model: the network of one rank, on its device.
        folder: the checkpoint.
        on_progress: called with (bytes done, bytes in all).

    Returns:
        What was read and what was left out.

    Raises:
        CheckpointError: files or tensors are missing, misshaped, superfluous or of an unsupported format.
    """
    with CheckpointReader(folder) as reader:
        names = find_names(reader.names, str(folder))
        rules = m3_rules(model, names)
        parameters = dict(model.named_parameters())
        filled = {rule.parameter for rule in rules}
        return load_weights(
            {name: parameters[name] for name in parameters if name in filled},
            rules,
            reader,
            ignored=ignored_tensors(model, names),
            quantization=read_quantization(folder),
            on_progress=on_progress,
        )


def _stored(model: M3Model, names: Names, path: str, part: WeightPart) -> tuple[Stored, ...]:
    spec = model.spec
    if path == "embed_tokens":
        return (Stored(f"{names.body}embed_tokens.weight", (spec.vocab_size, spec.hidden_size)),)
    if path == "lm_head":
        return (Stored(names.head, (spec.vocab_size, spec.hidden_size)),)
    if path == "norm":
        return (Stored(f"{names.body}norm.weight", (spec.hidden_size,)),)
    _, number, module = path.split(".", 2)
    return layer_tensors(spec, names, int(number), module, part.name)


def _rule(parameter: str, part: WeightPart, stored: Stored) -> WeightRule:
    source, target = part.source, part.target
    if stored.first_row:
        rows = range(stored.shape[1] if stored.is_stacked else stored.shape[0])[stored.first_row :][source[0]]
        source = (slice(rows.start, rows.stop), *source[1:])
    if stored.is_stacked:
        source, target = (WHOLE, *source), (WHOLE, *target)
    if stored.expert is not None:
        target = (stored.expert, *target)
    return WeightRule(parameter=parameter, tensor=stored.tensor, shape=stored.shape, source=source, target=target)
