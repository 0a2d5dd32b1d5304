"""Strict reading of the family's config.json into a `TargetSpec`, whatever dialect wrote it.

Three dialects: the released one (`text_config` with a nested `sparse_attention_config`), the same fields flat at the
top, and the one that transformers 5 writes when it saves again (`layer_types`, `mlp_layer_types`, `rope_parameters`,
`index_*`). Not here: drafters (`drafter`), how weights are stored (`quantization`), tokenizers.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Literal

import msgspec

from slipstream.base.errors import CheckpointError
from slipstream.config.fields import Fields, read_json
from slipstream.config.quantization.read import find_quantization
from slipstream.config.quantization.spec import Quantization
from slipstream.config.schedules import read_moe_schedule, read_sparse
from slipstream.config.schema import SparseAttentionSpec, TargetSpec

_log = logging.getLogger(__name__)

Dialect = Literal["released", "flat", "resaved"]
CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
STORED_DTYPES = ("bfloat16", "float16", "float32")

# Understood, and without a part in inference of text.
_IGNORED = (
    "architectures", "model_type", "auto_map", "transformers_version", "vision_config",
    "image_token_index", "video_token_index", "image_token_id", "video_token_id", "image_seq_length",
    "process_image_mode", "projector_hidden_act", "projector_hidden_size", "multimodal_projector_bias",
    "merged_hidden_size", "vision_feature_layer", "vision_feature_select_strategy", "img_token_compression_config",
    "image_grid_pinpoints", "num_reward_heads", "bos_token_id", "pad_token_id", "initializer_range", "use_cache",
    "attention_dropout", "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "num_mtp_modules",
    "num_nextn_predict_layers", "chunk_size_feed_forward", "return_dict", "output_attentions",
    "output_hidden_states", "is_encoder_decoder", "id2label", "label2id", "problem_type",
)  # fmt: skip


class CheckpointFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What config.json says.

    Args:
        target: the normalised network.
        stored_dtype: dtype that config.json names, or None.
        dialect: who wrote the file.
        quantization: how it says that the weights are stored.
        unknown_fields: fields that nothing reads, `section.name`, sorted; logged once.
    """

    target: TargetSpec
    stored_dtype: str | None
    dialect: Dialect
    quantization: Quantization
    unknown_fields: tuple[str, ...]


def read_target(folder: Path) -> TargetSpec:
    """Return the target of a checkpoint folder; see `read_checkpoint`."""
    return read_checkpoint(folder).target


def read_checkpoint(folder: Path) -> CheckpointFacts:
    """Read config.json (and the end tokens of generation_config.json) of a checkpoint folder.

    Args:
        folder: the checkpoint.

    Returns:
        The facts.

    Raises:
        CheckpointError: a file, a field, a value or a combination that is not supported; the message names it.
    """
    path = folder / CONFIG_FILE
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder}: no such folder. Give a local folder with {CONFIG_FILE} and safetensors files, or demo; "
            "names of a model hub are not downloaded"
        )
    top = Fields(read_json(path, purpose="the model's configuration"), str(path))
    _check_family(top)
    text = top.section("text_config") or top
    is_nested = text is not top
    text.ignore(_IGNORED)
    top.ignore(_IGNORED)
    dialect = _dialect(text, is_nested)
    quantization = find_quantization(top, text, folder)
    stored_dtype = _stored_dtype(top, text)
    target = _target(top, text, dialect, folder)
    unknown = top.unknown()
    if unknown:
        _log.warning("%s: fields that are not read: %s", path, ", ".join(unknown))
    return CheckpointFacts(
        target=target, stored_dtype=stored_dtype, dialect=dialect, quantization=quantization, unknown_fields=unknown
    )


def _check_family(top: Fields) -> None:
    model_type = top.raw("model_type", "")
    architectures = top.texts("architectures", ())
    is_family = isinstance(model_type, str) and model_type.startswith("minimax_m3")
    if not is_family and not any(name.startswith("MiniMaxM3") for name in architectures):
        raise CheckpointError(
            f"{top.where}: model_type={model_type!r}, architectures={list(architectures)!r} is not of the "
            "MiniMax-M3 family; allowed: a model_type that starts with minimax_m3"
        )


def _dialect(text: Fields, is_nested: bool) -> Dialect:
    if text.has("mlp_layer_types") or text.has("index_n_heads"):
        return "resaved"
    return "released" if is_nested else "flat"


def _stored_dtype(top: Fields, text: Fields) -> str | None:
    found: dict[str, Any] = {}
    for fields in (top, text):
        for name in ("dtype", "torch_dtype"):
            if fields.has(name):
                found[f"{fields.where}.{name}"] = fields.choice(name, STORED_DTYPES)
            fields.ignore((name,))
    if len(set(found.values())) > 1:
        raise CheckpointError("fields disagree: " + ", ".join(f"{key}={value}" for key, value in found.items()))
    return next(iter(found.values()), None)


def _check_switches(text: Fields, dialect: Dialect) -> None:
    only = "no other variant of the network is implemented"
    acts = ("swigluoai", "silu") if dialect == "resaved" else ("swigluoai",)
    text.choice("hidden_act", acts, why="clamped SwiGLU with +1; transformers writes silu for it when it saves again")
    text.choice("scoring_func", ("sigmoid",), "sigmoid", why=only)
    text.choice("use_gemma_norm", (True,), True, why=only)
    text.choice("attention_output_gate", (False,), False, why=only)
    text.choice("use_qk_norm", (True,), True, why=only)
    text.choice("qk_norm_type", ("per_head",), "per_head", why=only)
    text.choice("norm_topk_prob", (True,), True, why=only)
    text.choice("n_shared_experts", (1,), 1, why=only)
    for name in ("attention_bias", "mlp_bias", "attention_sinks"):
        text.choice(name, (False,), False, why=only)
    for name in ("sliding_window", "final_logit_softcapping"):
        if text.raw(name) is not None:
            raise text.fail(name, text.raw(name), f"null; {only}")


def read_rope(fields: Fields, head_dim: int, *, default_factor: float | None) -> tuple[float, int]:
    """Return (theta, rotary_dim) from `rope_theta`, `rope_parameters`, `rotary_dim` and `partial_rotary_factor`.

    Args:
        fields: the object that holds them.
        head_dim: width of a head.
        default_factor: rotated share when no field says; None makes a field mandatory.

    Raises:
        CheckpointError: a field is missing, scaling is asked for, or two fields disagree.
    """
    scaling = fields.section("rope_scaling")
    parameters = fields.section("rope_parameters")
    for section in (scaling, parameters):
        if section is not None:
            for key in ("rope_type", "type"):
                section.choice(key, ("default",), "default", why="rope scaling is not supported yet")
    nested = parameters if parameters is not None else Fields({}, f"{fields.where}.rope_parameters")
    theta = _agree(fields, nested, "rope_theta")
    if theta is None:
        raise CheckpointError(f"{fields.where}: the field rope_theta is missing (also in rope_parameters)")
    factor = _agree(fields, nested, "partial_rotary_factor")
    rotary_dim = fields.integer("rotary_dim", minimum=2) if fields.has("rotary_dim") else None
    fields.ignore(("rotary_dim",))
    if factor is None and rotary_dim is None:
        if default_factor is None:
            raise CheckpointError(
                f"{fields.where}: rotary_dim and partial_rotary_factor are both missing; one is needed"
            )
        factor = default_factor
    from_factor = None if factor is None else round(head_dim * factor)
    if rotary_dim is not None and from_factor is not None and rotary_dim != from_factor:
        raise CheckpointError(
            f"{fields.where}: rotary_dim={rotary_dim} and partial_rotary_factor={factor} disagree: "
            f"head_dim {head_dim} x {factor} = {from_factor}"
        )
    rotated = rotary_dim if rotary_dim is not None else from_factor
    if rotated is None or rotated % 2 or not 2 <= rotated <= head_dim:
        raise fields.fail("rotary_dim", rotated, f"an even number from 2 to head_dim={head_dim}")
    return theta, rotated


def _agree(fields: Fields, nested: Fields, name: str) -> float | None:
    values = [part.number(name) for part in (fields, nested) if part.has(name)]
    fields.ignore((name,))
    if len(set(values)) > 1:
        raise CheckpointError(f"{fields.where}: {name} is {values[0]} and {values[1]} in rope_parameters; they differ")
    return values[0] if values else None


def _target(top: Fields, text: Fields, dialect: Dialect, folder: Path) -> TargetSpec:
    _check_switches(text, dialect)
    num_layers = text.integer("num_hidden_layers", minimum=1)
    num_heads = text.integer("num_attention_heads", minimum=1)
    num_kv_heads = text.integer("num_key_value_heads", minimum=1)
    head_dim = text.integer("head_dim", minimum=2)
    if num_heads % num_kv_heads:
        raise text.fail("num_attention_heads", num_heads, f"a multiple of num_key_value_heads={num_kv_heads}")
    num_experts = text.integer("num_local_experts", minimum=1)
    topk_experts = text.integer("num_experts_per_tok", minimum=1)
    if topk_experts > num_experts:
        raise text.fail("num_experts_per_tok", topk_experts, f"1 to num_local_experts={num_experts}")
    rope_theta, rotary_dim = read_rope(text, head_dim, default_factor=None)
    vocab_size = text.integer("vocab_size", minimum=1)
    is_sparse_layer, sparse = read_sparse(text, num_layers)
    _check_sparse(text, sparse, num_kv_heads, head_dim)
    ties = [fields.flag("tie_word_embeddings", False) for fields in (top, text)]
    return TargetSpec(
        hidden_size=text.integer("hidden_size", minimum=1),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        rope_theta=rope_theta,
        rms_norm_eps=text.number("rms_norm_eps"),
        vocab_size=vocab_size,
        max_position_embeddings=text.integer("max_position_embeddings", minimum=1),
        tie_word_embeddings=any(ties),
        dense_intermediate_size=text.integer("dense_intermediate_size", minimum=1),
        expert_intermediate_size=text.integer("intermediate_size", minimum=1),
        shared_intermediate_size=text.integer("shared_intermediate_size", minimum=1),
        num_experts=num_experts,
        topk_experts=topk_experts,
        num_shared_experts=1,
        routed_scaling_factor=text.number("routed_scaling_factor"),
        has_routing_bias=text.flag("use_routing_bias", True),
        swiglu_alpha=text.number("swiglu_alpha"),
        swiglu_limit=text.number("swiglu_limit"),
        is_moe_layer=read_moe_schedule(text, num_layers),
        is_sparse_layer=is_sparse_layer,
        sparse=sparse,
        eos_token_ids=_eos_token_ids(top, text, folder, vocab_size),
    )


def _check_sparse(text: Fields, sparse: SparseAttentionSpec | None, num_kv_heads: int, head_dim: int) -> None:
    if sparse is None:
        return
    if sparse.num_index_heads != num_kv_heads:
        raise CheckpointError(
            f"{text.where}: {sparse.num_index_heads} index heads and num_key_value_heads={num_kv_heads}; they must "
            "be equal: one selection per KV head"
        )
    if sparse.index_head_dim != head_dim:
        raise CheckpointError(
            f"{text.where}: index head width {sparse.index_head_dim} and head_dim={head_dim}; they must be equal, "
            "as in every released checkpoint"
        )
    forced = sparse.num_init_blocks + sparse.num_local_blocks
    if forced > sparse.topk_blocks:
        raise CheckpointError(
            f"{text.where}: {sparse.num_init_blocks} initial and {sparse.num_local_blocks} local blocks are forced "
            f"into a selection of {sparse.topk_blocks}; allowed: at most {sparse.topk_blocks} together"
        )


def _eos_token_ids(top: Fields, text: Fields, folder: Path, vocab_size: int) -> tuple[int, ...]:
    found: tuple[int, ...] = ()
    sources = [text, top]
    path = folder / GENERATION_FILE
    if path.exists():
        sources.insert(0, Fields(read_json(path, purpose="the model's end tokens"), str(path)))
    for fields in sources:
        value = fields.raw("eos_token_id")
        if value is None or found:
            continue
        found = fields.integers("eos_token_id") if isinstance(value, list) else (fields.integer("eos_token_id"),)
        beyond = [token for token in found if token >= vocab_size]
        if beyond:
            raise fields.fail("eos_token_id", value, f"token ids below vocab_size={vocab_size}")
    if not found:
        raise CheckpointError(
            f"{folder}: eos_token_id is missing in {GENERATION_FILE} and {CONFIG_FILE}; without it no answer ends"
        )
    return tuple(dict.fromkeys(found))
