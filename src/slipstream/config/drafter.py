"""Reading a drafter's config.json: EAGLE-3 heads of every dialect, checked against the target they must fit.

Tap ids have two meanings in the field and one here. `eagle_aux_hidden_state_layer_ids` names the layer that the tapped
state ENTERS, `target_layer_ids` the layer that it LEAVES; `Eagle3Spec.aux_layer_ids` is always the latter, post(x).

`norm_output` is read as serving engines mean it: the state fed to the next draft step is the normed one. One public
trainer writes the same word for something else (whether the final norm precedes its head, always true) and feeds the
un-normed state back; a head from there must carry `norm_output: false` to be served as it was trained.

Not here: DSpark and DFlash drafters, which are recognised and refused.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from slipstream.base.errors import CheckpointError, ConfigError
from slipstream.config.checkpoint import CONFIG_FILE, STORED_DTYPES, read_rope
from slipstream.config.fields import Fields, read_json
from slipstream.config.schema import Eagle3Spec, TargetSpec

_log = logging.getLogger(__name__)

PRE_IDS = "eagle_aux_hidden_state_layer_ids"
POST_IDS = "target_layer_ids"
_DEFAULT_NUM_TAPS = 3
_BLOCK_MARKS = (
    "dflash_config", "dspark_config", "dspark_block_size", "dspark_noise_token_id", "dspark_target_layer_ids",
    "markov_rank", "dspark_markov_rank",
)  # fmt: skip
_IGNORED = (
    "architectures", "model_type", "auto_map", "transformers_version", "bos_token_id", "eos_token_id", "pad_token_id",
    "initializer_range", "use_cache", "attention_dropout", "tie_word_embeddings", "dtype", "torch_dtype",
    "pretraining_tp", "num_target_layers", "draft_model_type", "chunk_size_feed_forward", "return_dict",
    "output_attentions", "output_hidden_states", "is_encoder_decoder", "id2label", "label2id", "problem_type",
)  # fmt: skip


class Eagle3Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What an EAGLE-3 head's config.json says.

    Args:
        spec: the normalised head.
        tap_origin: where the tap ids come from, in words; logged when they are a default.
        notes: facts worth showing, in words.
        unknown_fields: fields that nothing reads, sorted; logged once.
    """

    spec: Eagle3Spec
    tap_origin: str
    notes: tuple[str, ...]
    unknown_fields: tuple[str, ...]


def read_eagle3(folder: Path, target: TargetSpec) -> Eagle3Facts:
    """Read an EAGLE-3 head's config.json and check that it fits the target.

    Args:
        folder: the drafter's checkpoint.
        target: the network that it drafts for.

    Returns:
        The facts.

    Raises:
        ConfigError: the drafter is of a kind that is not supported yet.
        CheckpointError: a file, a field or a value is not supported, or head and target do not fit.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder. Give a local folder with {CONFIG_FILE} and safetensors files")
    path = folder / CONFIG_FILE
    fields = Fields(read_json(path, purpose="the drafter's configuration"), str(path))
    _check_kind(fields)
    fields.ignore(_IGNORED)
    eagle = fields.section("eagle_config") or Fields({}, f"{path}.eagle_config")
    eagle.ignore(("use_aux_hidden_state",))
    notes: list[str] = []
    taps, tap_origin = _read_taps(fields, eagle, target)
    spec = _read_spec(fields, eagle, taps)
    _check_fit(fields.where, spec, target)
    if spec.max_position_embeddings < target.max_position_embeddings:
        notes.append(
            f"the head was made for {spec.max_position_embeddings} positions, the target for "
            f"{target.max_position_embeddings}; beyond them drafts may be poor, never wrong"
        )
    unknown = fields.unknown()
    if unknown:
        _log.warning("%s: fields that are not read: %s", path, ", ".join(unknown))
    return Eagle3Facts(spec=spec, tap_origin=tap_origin, notes=tuple(notes), unknown_fields=unknown)


def block_drafter_kind(values: dict[str, object]) -> str | None:
    """Return `dspark` or `dflash` when a drafter's config.json is of that kind, else None."""
    names = values.get("architectures")
    text = " ".join(str(name) for name in names) if isinstance(names, list) else ""
    nested = values.get("dflash_config")
    text += f" {values.get('model_type', '')} {nested.get('projector_type', '') if isinstance(nested, dict) else ''}"
    text = text.lower()
    has_markov = any("markov" in name or "dspark" in name for name in values)
    if "dspark" in text or has_markov:
        return "dspark"
    if "dflash" in text or any(mark in values for mark in _BLOCK_MARKS):
        return "dflash"
    return None


def _check_kind(fields: Fields) -> None:
    kind = block_drafter_kind(fields.values)
    if kind is not None:
        raise ConfigError(
            f"{fields.where}: this is a {kind} drafter, which is not supported yet (block drafting is not part of "
            "this release); allowed: an EAGLE-3 head, ngram or none"
        )
    if fields.has("speculators_model_type") or fields.has("speculators_config"):
        raise CheckpointError(
            f"{fields.where}: written in the speculators layout, which is not read; allowed: the plain EAGLE-3 layout "
            "(LlamaForCausalLMEagle3)"
        )
    architectures = fields.texts("architectures", ())
    if not any("eagle3" in name.lower() for name in architectures) and not fields.has("eagle_config"):
        raise CheckpointError(
            f"{fields.where}: architectures={list(architectures)!r} is not an EAGLE-3 head; allowed: a name that "
            "contains Eagle3, such as LlamaForCausalLMEagle3"
        )
    for name in ("quantization_config", "compression_config"):
        if fields.has(name):
            raise CheckpointError(
                f"{fields.where}.{name}: quantised drafters are not supported yet; allowed: "
                f"{', '.join(STORED_DTYPES)} weights"
            )


def _tap_list(fields: Fields, eagle: Fields, name: str) -> tuple[int, ...] | None:
    found = [part.integers(name) for part in (eagle, fields) if part.has(name)]
    if len(set(found)) > 1:
        raise CheckpointError(
            f"{fields.where}: {name} is {list(found[0])} in eagle_config and {list(found[1])} above it"
        )
    return found[0] if found else None


def _read_taps(fields: Fields, eagle: Fields, target: TargetSpec) -> tuple[tuple[int, ...], str]:
    """Return the taps as post(x), ascending, and where they come from."""
    entered, left = _tap_list(fields, eagle, PRE_IDS), _tap_list(fields, eagle, POST_IDS)
    num_taps = fields.integer("num_aux_hidden_states", minimum=1) if fields.has("num_aux_hidden_states") else None
    if entered is not None:
        taps, origin = [layer - 1 for layer in entered], f"{PRE_IDS} (layer entered) less one"
        if left is not None and sorted(left) != sorted(taps):
            raise CheckpointError(
                f"{fields.where}: {PRE_IDS}={list(entered)} means the outputs of layers {taps}, but "
                f"{POST_IDS}={list(left)}; remove the wrong one"
            )
    elif left is not None:
        taps, origin = list(left), f"{POST_IDS} (layer left)"
    else:
        depth = target.num_layers
        taps = [1, depth // 2 - 1, depth - 4]
        origin = f"default for {depth} layers, because the head names none: the states entering 2, n//2 and n-3"
        wanted = num_taps or _DEFAULT_NUM_TAPS
        if wanted != len(taps) or min(taps) < 0 or len(set(taps)) != len(taps):
            raise CheckpointError(
                f"{fields.where}: names no tap layers, and the default (outputs of {taps}) does not give {wanted} "
                f"different layers of {depth}; add {PRE_IDS} to the head's config.json"
            )
        _log.warning("%s: taps are the outputs of layers %s, %s", fields.where, taps, origin)
    if num_taps is not None and num_taps != len(taps):
        raise CheckpointError(
            f"{fields.where}: num_aux_hidden_states={num_taps}, but {len(taps)} tap layers are named ({taps})"
        )
    bad = [layer for layer in taps if not 0 <= layer < target.num_layers]
    if bad or len(set(taps)) != len(taps) or not taps:
        raise CheckpointError(
            f"{fields.where}: taps the outputs of layers {taps} (from {origin}); the target has layers 0 to "
            f"{target.num_layers - 1}, and each may be tapped once"
        )
    return tuple(sorted(taps)), origin


def _nested_flag(fields: Fields, eagle: Fields, name: str) -> bool:
    """Return a switch that the field keeps in eagle_config or, failing that, at the top."""
    top = fields.flag(name, False)
    return eagle.flag(name, top)


def _read_spec(fields: Fields, eagle: Fields, taps: tuple[int, ...]) -> Eagle3Spec:
    hidden_size = fields.integer("hidden_size", minimum=1)
    num_heads = fields.integer("num_attention_heads", minimum=1)
    num_kv_heads = fields.integer("num_key_value_heads", num_heads, minimum=1)
    if num_heads % num_kv_heads:
        raise fields.fail("num_attention_heads", num_heads, f"a multiple of num_key_value_heads={num_kv_heads}")
    head_dim = fields.integer("head_dim", hidden_size // num_heads, minimum=2)
    fields.choice("num_hidden_layers", (1,), 1, why="heads of more than one layer are not supported yet")
    for name in ("attention_bias", "mlp_bias"):
        fields.choice(name, (False,), False, why="biases are not supported")
    if fields.raw("sliding_window") is not None:
        raise fields.fail("sliding_window", fields.raw("sliding_window"), "null")
    vocab_size = fields.integer("vocab_size", minimum=1)
    norm_before_fc = _nested_flag(fields, eagle, "norm_before_fc")
    fc_norm = fields.flag("fc_norm", False) or fields.flag("use_aux_norm", False)
    fields.ignore(("use_aux_norm",))
    if norm_before_fc and fc_norm:
        raise CheckpointError(
            f"{fields.where}: norm_before_fc and fc_norm are both on; they are two ways of normalising the same "
            "taps, allowed: one of them"
        )
    rope_theta, rotary_dim = read_rope(fields, head_dim, default_factor=1.0)
    return Eagle3Spec(
        hidden_size=hidden_size,
        target_hidden_size=fields.integer("target_hidden_size", hidden_size, minimum=1),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        rope_theta=rope_theta,
        rms_norm_eps=fields.number("rms_norm_eps"),
        intermediate_size=fields.integer("intermediate_size", minimum=1),
        vocab_size=vocab_size,
        draft_vocab_size=fields.integer("draft_vocab_size", vocab_size, minimum=1),
        max_position_embeddings=fields.integer("max_position_embeddings", minimum=1),
        aux_layer_ids=taps,
        hidden_act=fields.choice("hidden_act", ("silu",), why="no other activation is implemented in heads"),
        norm_before_fc=norm_before_fc,
        fc_norm=fc_norm,
        norm_output=fields.flag("norm_output", False),
        norm_before_residual=_nested_flag(fields, eagle, "norm_before_residual"),
    )


def _check_fit(where: str, spec: Eagle3Spec, target: TargetSpec) -> None:
    pairs = (
        ("vocab_size", spec.vocab_size, "vocab_size", target.vocab_size),
        ("target_hidden_size", spec.target_hidden_size, "hidden_size", target.hidden_size),
    )
    for name, drafter_value, target_name, target_value in pairs:
        if drafter_value != target_value:
            raise CheckpointError(
                f"{where}: the head's {name}={drafter_value} does not fit the target's {target_name}={target_value}; "
                "the head was trained for another model"
            )
    if spec.draft_vocab_size > spec.vocab_size:
        raise CheckpointError(
            f"{where}: draft_vocab_size={spec.draft_vocab_size} is larger than vocab_size={spec.vocab_size}"
        )
