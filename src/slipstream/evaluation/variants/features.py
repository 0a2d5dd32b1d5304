"""The features that are switched off one at a time, each as a change of config.json, of stored tensors, or of both.

The engine has no switch for any of them: what runs is the ordinary network on a checkpoint that expresses the change.
Not here: reading and writing checkpoints (copies).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from slipstream.config.schema import TargetSpec
from slipstream.evaluation.changes import Change
from slipstream.evaluation.findings import Selection
from slipstream.evaluation.variants.tensors import Tensors, fill, find, scale_by_power_of_two, shift, shuffle, zero

UNCHANGED = "nothing"
_QK_EXPONENT = -20
_NO_LIMIT = 1e9
_NORMS = r"(?:\w*layernorm|norm|\w*[qk]_norm)[.]weight"
_HEAD_NORMS = r"\w*[qk]_norm[.]weight"
_HEAD_PROJECTIONS = r"self_attn[.](?:indexer[.])?(?:index_)?[qk]_proj[.]weight"
_INDEX_PROJECTIONS = r"self_attn[.](?:indexer[.]|index_)[qk]_proj[.]weight"

EditConfig = Callable[[dict[str, Any], TargetSpec], bool]
EditTensors = Callable[[Tensors, TargetSpec, torch.Generator], bool]


class Feature:
    """A change and how it is made.

    Args:
        feature, means, selection: see `Change`.
        edit_config: changes the text section of config.json; returns whether the feature was there.
        edit_tensors: changes stored tensors; returns whether the feature was there.
    """

    def __init__(
        self,
        feature: str,
        means: str,
        *,
        selection: Selection | None = None,
        edit_config: EditConfig | None = None,
        edit_tensors: EditTensors | None = None,
    ) -> None:
        self.change = Change(feature=feature, means=means, selection=selection, needs_copy=edit_tensors is not None)
        self.edit_config = edit_config
        self.edit_tensors = edit_tensors


def _set_number(name: str, value: float) -> EditConfig:
    def edit(text: dict[str, Any], spec: TargetSpec) -> bool:
        del spec
        is_there = text.get(name) is not None and text[name] != value
        text[name] = value
        return is_there

    return edit


def _rotate_all(text: dict[str, Any], spec: TargetSpec) -> bool:
    text["rotary_dim"] = spec.head_dim
    for holder in (text, text.get("rope_parameters") or {}):
        if "partial_rotary_factor" in holder:
            holder["partial_rotary_factor"] = 1.0
    return spec.rotary_dim != spec.head_dim


def _select_all(text: dict[str, Any], spec: TargetSpec) -> bool:
    if spec.sparse is None:
        return False
    num_blocks = math.ceil(spec.max_position_embeddings / spec.sparse.index_block_size)
    _set_sparse(text, "topk_blocks", num_blocks)
    return num_blocks > spec.sparse.topk_blocks


def _select_last(text: dict[str, Any], spec: TargetSpec) -> bool:
    if spec.sparse is None:
        return False
    num_local = spec.sparse.topk_blocks - spec.sparse.num_init_blocks
    _set_sparse(text, "local_block", num_local)
    return num_local != spec.sparse.num_local_blocks


def _set_sparse(text: dict[str, Any], name: str, value: int) -> None:
    nested = text.get("sparse_attention_config")
    if nested is None:
        # The flat dialect says local blocks in the plural.
        text[f"index_{name}" if name == "topk_blocks" else f"index_{name}s"] = value
        return
    if name == "local_block":
        # An older dialect gives them in tokens, too; both would have to agree.
        nested.pop("sparse_local_tokens", None)
    nested[f"sparse_{name}"] = value


def _select_randomly(tensors: Tensors, spec: TargetSpec, generator: torch.Generator) -> bool:
    names = list(find(tensors, _INDEX_PROJECTIONS))
    for name in names:
        shuffle(tensors, name, generator)
    return spec.sparse is not None and bool(names)


def _drop_gain_offset(tensors: Tensors, spec: TargetSpec, generator: torch.Generator) -> bool:
    del spec, generator
    names = list(find(tensors, _NORMS))
    for name in names:
        shift(tensors, name, -1.0)
    return bool(names)


def _drop_head_norms(tensors: Tensors, spec: TargetSpec, generator: torch.Generator) -> bool:
    """Make the norm of queries and keys the identity: tiny projections vanish beside its epsilon."""
    del generator
    names = list(find(tensors, _HEAD_NORMS))
    for name in find(tensors, _HEAD_PROJECTIONS):
        scale_by_power_of_two(tensors, name, _QK_EXPONENT)
    for name in names:
        fill(tensors, name, math.sqrt(spec.rms_norm_eps) * 2.0**-_QK_EXPONENT - 1.0)
    return bool(names)


def _zero_all(pattern: str) -> EditTensors:
    def edit(tensors: Tensors, spec: TargetSpec, generator: torch.Generator) -> bool:
        del spec, generator
        names = list(find(tensors, pattern))
        for name in names:
            zero(tensors, name)
        return bool(names)

    return edit


FEATURES = (
    Feature("norm gain 1 + weight", "the gain of every norm is its weight alone", edit_tensors=_drop_gain_offset),
    Feature("query and key norm", "queries and keys enter as projected", edit_tensors=_drop_head_norms),
    Feature("partial rotary embedding", "the whole head is rotated", edit_config=_rotate_all),
    Feature("activation clamp", "no limit", edit_config=_set_number("swiglu_limit", _NO_LIMIT)),
    Feature("activation alpha", "alpha is 1", edit_config=_set_number("swiglu_alpha", 1.0)),
    Feature(
        "shared expert",
        "its output is zero",
        edit_tensors=_zero_all(r"shared_experts[.]down_proj[.]weight(?:_packed)?"),
    ),
    Feature("expert selection bias", "the bias is zero", edit_tensors=_zero_all(r"e_score_correction_bias")),
    Feature("routed scaling factor", "the factor is 1", edit_config=_set_number("routed_scaling_factor", 1.0)),
    Feature(
        "block selection: local", "the last blocks, as many as are chosen", selection="local", edit_config=_select_last
    ),
    Feature(
        "block selection: random",
        "index projections in random order",
        selection="random",
        edit_tensors=_select_randomly,
    ),
    Feature("block selection: full", "every block is chosen", selection="full", edit_config=_select_all),
)
