"""Names of an EAGLE-3 head in the field's checkpoints, and which tables it shares with the target.

Two spellings of the layer (`midlayer.*`, `layers.0.*`) and of the tap norms (`fc_norm.{i}`, and for three taps
`aux_norm_low/mid/high`) are in use. A tensor that nothing here names stops the load.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from slipstream.base.errors import CheckpointError
from slipstream.config.schema import Eagle3Spec
from slipstream.layers.parts import part_named
from slipstream.models.eagle3.model import Eagle3Model
from slipstream.parallel.group import TensorParallelGroup
from slipstream.weights.loader import LoadReport, OnProgress, load_weights
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import IgnoreRule, WeightRule

EMBEDDING = "embed_tokens.weight"
LM_HEAD = "lm_head.weight"
VOCAB_OFFSETS = "d2t"
_LAYER_SPELLINGS = ("midlayer", "layers.0")
_LEGACY_TAP_NORMS = ("aux_norm_low", "aux_norm_mid", "aux_norm_high")
_CHUNK = 64
"""Rows compared at a time: with a vocabulary of 200k a chunk of logits takes about 50 MB."""

_IGNORED = (
    IgnoreRule("t2d", "a mask over the target's vocabulary; only training needs it"),
    IgnoreRule("d2t", "read as token ids, not as a weight"),
)
_SAME_AS_TARGET = "equal to the target's table, which serves both"


class TokenTables(Protocol):
    """The target's embedding and output head, as any target network offers them."""

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return [n, hidden_size] embeddings."""
        ...

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Return [n, vocab_size] float32 logits."""
        ...


def load_eagle3(
    folder: Path,
    spec: Eagle3Spec,
    target: TokenTables,
    *,
    group: TensorParallelGroup,
    dtype: torch.dtype,
    device: torch.device | str,
    max_positions: int,
    on_progress: OnProgress | None = None,
) -> tuple[Eagle3Model, LoadReport]:
    """Build a head and fill it from its checkpoint.

    A table that the checkpoint lacks, or that equals the target's, is not held: the target's serves.

    Args:
        folder: the head's checkpoint.
        spec: its configuration.
        target: the network whose tables may be shared.
        group: the ranks that share the head.
        dtype: of weights and activations.
        device: where the head lives.
        max_positions: longest position + 1 that will be rotated.
        on_progress: called with (bytes done, bytes in all).

    Returns:
        The network and what was loaded.

    Raises:
        CheckpointError: a tensor that is missing, unknown or of another shape; a vocabulary map that does not fit;
            a table that can be neither read nor shared.
    """
    with CheckpointReader(folder) as reader:
        target_ids = _read_target_ids(reader, spec)
        ignored = list(_IGNORED)
        has_embedding = _keeps_embedding(reader, spec, target, dtype, device)
        has_lm_head = _keeps_lm_head(reader, spec, target, dtype, device)
        for name, is_kept in ((EMBEDDING, has_embedding), (LM_HEAD, has_lm_head)):
            if name in reader.names and not is_kept:
                ignored.append(IgnoreRule(name.replace(".", r"\."), _SAME_AS_TARGET))
        model = Eagle3Model(
            spec,
            group=group,
            dtype=dtype,
            device=device,
            max_positions=max_positions,
            has_embedding=has_embedding,
            has_lm_head=has_lm_head,
            has_vocab_map=target_ids is not None,
        )
        if target_ids is not None and model.target_ids is not None:
            model.target_ids.copy_(target_ids)
        parameters = {name: parameter.data for name, parameter in model.named_parameters()}
        report = load_weights(
            parameters, weight_rules(model, reader.names), reader, ignored=ignored, on_progress=on_progress
        )
    return model, report


def weight_rules(model: Eagle3Model, names: frozenset[str]) -> list[WeightRule]:
    """Return a rule for every piece of every parameter.

    Args:
        model: the network.
        names: the checkpoint's tensors; they decide between spellings.
    """
    spec = model.spec
    num_taps = len(spec.aux_layer_ids)
    layer = next((s for s in _LAYER_SPELLINGS if any(n.startswith(f"{s}.") for n in names)), _LAYER_SPELLINGS[0])
    rules: list[WeightRule] = []

    def add(parameter_of: str, tensor: str, shape: tuple[int, ...], part: str = "") -> None:
        rules.append(_rule(model, parameter_of, tensor, shape, part))

    hidden, inter = spec.hidden_size, spec.intermediate_size
    fused = num_taps * spec.target_hidden_size
    if model.embedding is not None:
        add("embedding", EMBEDDING, (spec.vocab_size, hidden))
    if model.lm_head is not None:
        add("lm_head", LM_HEAD, (spec.draft_vocab_size, hidden))
    if spec.norm_before_fc:
        add("input_norm", "input_norm.weight", (fused,))
    for tap, name in enumerate(_tap_norm_names(num_taps, names) if spec.fc_norm else ()):
        add(f"fc_norm.{tap}", f"{name}.weight", (spec.target_hidden_size,))
    add("fc", "fc.weight", (hidden, fused))
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        add(name, f"{layer}.{name}.weight", (hidden,))
    q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    for part, rows in (("q", q_size), ("k", kv_size), ("v", kv_size)):
        add("attention.qkv_proj", f"{layer}.self_attn.{part}_proj.weight", (rows, 2 * hidden), part)
    add("attention.o_proj", f"{layer}.self_attn.o_proj.weight", (hidden, q_size))
    for part in ("gate", "up"):
        add("mlp.gate_up_proj", f"{layer}.mlp.{part}_proj.weight", (inter, hidden), part)
    add("mlp.down_proj", f"{layer}.mlp.down_proj.weight", (hidden, inter))
    add("norm", "norm.weight", (hidden,))
    return rules


def _rule(model: nn.Module, owner: str, tensor: str, shape: tuple[int, ...], part_name: str) -> WeightRule:
    module = model.get_submodule(owner)
    part = part_named(module.parts, part_name)  # type: ignore[arg-type]
    return WeightRule(f"{owner}.{part.parameter}", tensor, shape, part.source, part.target)


def _tap_norm_names(num_taps: int, names: frozenset[str]) -> tuple[str, ...]:
    if num_taps == len(_LEGACY_TAP_NORMS) and f"{_LEGACY_TAP_NORMS[0]}.weight" in names:
        return _LEGACY_TAP_NORMS
    return tuple(f"fc_norm.{tap}" for tap in range(num_taps))


def _read_target_ids(reader: CheckpointReader, spec: Eagle3Spec) -> Tensor | None:
    """Return the target id of each of the head's rows, or None when the two vocabularies are one."""
    if VOCAB_OFFSETS not in reader.names:
        if spec.draft_vocab_size != spec.vocab_size:
            raise CheckpointError(
                f"{reader.folder}: draft_vocab_size={spec.draft_vocab_size} differs from vocab_size="
                f"{spec.vocab_size}, but there is no tensor {VOCAB_OFFSETS} that maps one to the other; "
                "copy the complete checkpoint"
            )
        return None
    offsets = reader.read(VOCAB_OFFSETS)
    if offsets.is_floating_point() or tuple(offsets.shape) != (spec.draft_vocab_size,):
        raise CheckpointError(
            f"{reader.file(VOCAB_OFFSETS)}: the tensor {VOCAB_OFFSETS} is {list(offsets.shape)} {offsets.dtype}, "
            f"expected [{spec.draft_vocab_size}] integers; config.json and weights are not of the same head"
        )
    target_ids = offsets.long() + torch.arange(spec.draft_vocab_size)
    if int(target_ids.min()) < 0 or int(target_ids.max()) >= spec.vocab_size:
        raise CheckpointError(
            f"{reader.file(VOCAB_OFFSETS)}: the tensor {VOCAB_OFFSETS} points at token ids {int(target_ids.min())} to "
            f"{int(target_ids.max())}, allowed is 0 to {spec.vocab_size - 1}; it holds offsets (target id - draft id)"
        )
    return target_ids


def _keeps_embedding(
    reader: CheckpointReader, spec: Eagle3Spec, target: TokenTables, dtype: torch.dtype, device: torch.device | str
) -> bool:
    """Return whether the head holds an embedding of its own; compares it with the target's, a chunk at a time."""
    is_shareable = spec.hidden_size == spec.target_hidden_size
    if EMBEDDING not in reader.names:
        _require_shareable(reader, EMBEDDING, is_shareable, spec)
        return False
    if not is_shareable or reader.shape(EMBEDDING) != (spec.vocab_size, spec.hidden_size):
        return True
    for start in range(0, spec.vocab_size, _CHUNK):
        stop = min(start + _CHUNK, spec.vocab_size)
        own = reader.read(EMBEDDING, (slice(start, stop),)).to(device=device, dtype=dtype)
        if not torch.equal(own, target.embed(torch.arange(start, stop, device=device))):
            return True
    return False


def _keeps_lm_head(
    reader: CheckpointReader, spec: Eagle3Spec, target: TokenTables, dtype: torch.dtype, device: torch.device | str
) -> bool:
    """Return whether the head holds an output head of its own.

    The target's is compared through its logits: those of unit vectors are its columns, exactly.
    """
    is_shareable = spec.hidden_size == spec.target_hidden_size and spec.draft_vocab_size == spec.vocab_size
    if LM_HEAD not in reader.names:
        _require_shareable(reader, LM_HEAD, is_shareable, spec)
        return False
    if not is_shareable or reader.shape(LM_HEAD) != (spec.vocab_size, spec.hidden_size):
        return True
    for start in range(0, spec.hidden_size, _CHUNK):
        stop = min(start + _CHUNK, spec.hidden_size)
        own = reader.read(LM_HEAD, (slice(None), slice(start, stop))).to(device=device, dtype=dtype)
        units = torch.zeros(stop - start, spec.hidden_size, dtype=dtype, device=device)
        units[:, start:stop].fill_diagonal_(1.0)
        if not torch.equal(own.T.float(), target.compute_logits(units)):
            return True
    return False


def _require_shareable(reader: CheckpointReader, name: str, is_shareable: bool, spec: Eagle3Spec) -> None:
    if not is_shareable:
        raise CheckpointError(
            f"{reader.folder}: there is no tensor {name}, and the target's cannot serve a head of hidden_size="
            f"{spec.hidden_size} (target {spec.target_hidden_size}) and draft_vocab_size={spec.draft_vocab_size} "
            f"(target {spec.vocab_size}); copy the complete checkpoint"
        )
