"""Names under which the network's tensors are stored: the released layout, and the fused one of transformers.

Not here: slices and ranks; see `weights`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from slipstream.base.errors import CheckpointError
from slipstream.config.schema import TargetSpec
from slipstream.weights.rules import IgnoreRule

_EMBEDDING = "embed_tokens.weight"
_BODIES = {
    "language_model.model.": "language_model.lm_head.weight",
    "model.language_model.": "lm_head.weight",
    "model.": "lm_head.weight",
}
_FUSED_MARKS = (".mlp.experts.gate_up_proj", ".mlp.gate_up_proj.weight")

IGNORED: tuple[IgnoreRule, ...] = (
    IgnoreRule(r"(model\.)?vision_tower\..*", "images are not served yet"),
    IgnoreRule(r"(model\.)?(multi_modal_projector|patch_merge_mlp)\..*", "images are not served yet"),
    IgnoreRule(r"(.*\.)?mtp\..*", "multi-token prediction layers are not used as a drafter"),
    IgnoreRule(r"(.*\.)?dspark\..*", "a bundled dspark drafter is not supported yet"),
    IgnoreRule(r".*rotary_emb\.inv_freq", "computed from the configuration"),
)


@dataclass(frozen=True, slots=True)
class Names:
    """The layout of one checkpoint.

    Args:
        body: prefix of the decoder's tensors.
        head: name of the output head.
        is_fused: gate and up, and all experts of a layer, are stored as one tensor each.
    """

    body: str
    head: str
    is_fused: bool


@dataclass(frozen=True, slots=True)
class Stored:
    """One stored tensor that holds a part of a parameter.

    Args:
        tensor: its name.
        shape: its full shape.
        first_row: row at which the part begins, for fused tensors.
        expert: which expert's matrix it is, or None.
        is_stacked: axis 0 is the expert.
    """

    tensor: str
    shape: tuple[int, ...]
    first_row: int = 0
    expert: int | None = None
    is_stacked: bool = False


def find_names(tensors: Collection[str], where: str) -> Names:
    """Return the layout that a checkpoint's tensor names show.

    Args:
        tensors: all names.
        where: the folder, for the message.

    Raises:
        CheckpointError: no embedding under a known name.
    """
    for body, head in _BODIES.items():
        if f"{body}{_EMBEDDING}" in tensors:
            is_fused = any(name.endswith(_FUSED_MARKS) for name in tensors)
            return Names(body, head, is_fused)
    known = ", ".join(f"{body}{_EMBEDDING}" for body in _BODIES)
    raise CheckpointError(f"{where}: no token embedding; allowed names: {known}. The weights are of another family")


def layer_tensors(spec: TargetSpec, names: Names, layer: int, module: str, part: str) -> tuple[Stored, ...]:
    """Return where a part of a layer's module is stored; several tensors for experts that are stored one by one.

    Args:
        spec: the network.
        names: the layout.
        layer: zero-based index.
        module: path inside the layer, e.g. `attention.qkv_proj`.
        part: name of the part, empty for the module's only one.
    """
    prefix = f"{names.body}layers.{layer}."
    if module in ("input_norm", "post_attention_norm"):
        stem = "input_layernorm" if module == "input_norm" else "post_attention_layernorm"
        return (Stored(f"{prefix}{stem}.weight", (spec.hidden_size,)),)
    if module.startswith("attention."):
        return (_attention(spec, names, f"{prefix}self_attn.", module.removeprefix("attention."), part),)
    if spec.is_moe_layer[layer]:
        block = "mlp." if names.is_fused else "block_sparse_moe."
        return _mixture(spec, names, prefix + block, module.removeprefix("mlp."), part)
    return (_gated(spec.dense_intermediate_size, spec, names, f"{prefix}mlp.", part),)


def _attention(spec: TargetSpec, names: Names, prefix: str, module: str, part: str) -> Stored:
    query_width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    if module == "o_proj":
        return Stored(f"{prefix}o_proj.weight", (spec.hidden_size, query_width))
    index = spec.sparse
    index_dim = index.index_head_dim if index else 0
    widths = {"q": query_width, "k": kv_width, "v": kv_width, "index_k": index_dim}
    widths["index_q"] = index.num_index_heads * index_dim if index else 0
    kind = "norm" if module == "qk_norm" else "proj"
    stem = f"{part}_{kind}"
    if names.is_fused and part.startswith("index_"):
        stem = f"indexer.{part.removeprefix('index_')}_{kind}"
    if kind == "norm":
        return Stored(f"{prefix}{stem}.weight", (index_dim if part.startswith("index_") else spec.head_dim,))
    return Stored(f"{prefix}{stem}.weight", (widths[part], spec.hidden_size))


def _gated(width: int, spec: TargetSpec, names: Names, prefix: str, part: str) -> Stored:
    """Return where gate, up or down (the empty part) of a dense MLP is stored."""
    if part in ("", "down"):
        return Stored(f"{prefix}down_proj.weight", (spec.hidden_size, width))
    if names.is_fused:
        shape = (2 * width, spec.hidden_size)
        return Stored(f"{prefix}gate_up_proj.weight", shape, first_row=width if part == "up" else 0)
    return Stored(f"{prefix}{part}_proj.weight", (width, spec.hidden_size))


def _mixture(spec: TargetSpec, names: Names, prefix: str, module: str, part: str) -> tuple[Stored, ...]:
    width, hidden = spec.expert_intermediate_size, spec.hidden_size
    if module == "router":
        if part == "bias":
            owner = "gate." if names.is_fused else ""
            return (Stored(f"{prefix}{owner}e_score_correction_bias", (spec.num_experts,)),)
        return (Stored(f"{prefix}gate.weight", (spec.num_experts, hidden)),)
    if module.startswith("shared."):
        shared_width = spec.num_shared_experts * spec.shared_intermediate_size
        return (_gated(shared_width, spec, names, f"{prefix}shared_experts.", part),)
    if names.is_fused and part == "down":
        shape = (spec.num_experts, hidden, width)
        return (Stored(f"{prefix}experts.down_proj", shape, is_stacked=True),)
    if names.is_fused:
        shape, first_row = (spec.num_experts, 2 * width, hidden), width if part == "up" else 0
        return (Stored(f"{prefix}experts.gate_up_proj", shape, first_row=first_row, is_stacked=True),)
    stem, shape = {"gate": ("w1", (width, hidden)), "up": ("w3", (width, hidden)), "down": ("w2", (hidden, width))}[
        part
    ]
    return tuple(
        Stored(f"{prefix}experts.{expert}.{stem}.weight", shape, expert=expert) for expert in range(spec.num_experts)
    )
