"""Per-layer schedules of the family: which layers route experts, which attend sparsely and how.

Not here: sizes of the network; see `checkpoint`.
"""

from __future__ import annotations

from slipstream.base.errors import CheckpointError
from slipstream.config.fields import Fields
from slipstream.config.schema import SparseAttentionSpec

_MLP_TYPES = {"dense": False, "sparse": True}
_ATTENTION_TYPES = {"full_attention": False, "minimax_m3_sparse": True}
_FLAT_FIELDS = (
    "index_n_heads", "index_head_dim", "index_block_size", "index_topk_blocks", "index_init_blocks",
    "index_local_blocks",
)  # fmt: skip
_NESTED_FIELDS = (
    "sparse_attention_freq", "sparse_score_type", "sparse_disable_index_value", "sparse_block_size",
    "sparse_num_index_heads", "sparse_index_dim", "sparse_topk_blocks", "sparse_init_block", "sparse_init_tokens",
    "sparse_local_block", "sparse_local_tokens",
)  # fmt: skip


def read_moe_schedule(text: Fields, num_layers: int) -> tuple[bool, ...]:
    """Return, per layer, whether it routes experts: `moe_layer_freq` or `mlp_layer_types`.

    Raises:
        CheckpointError: both are missing, a length or a value is wrong, or they disagree.
    """
    found: dict[str, tuple[bool, ...]] = {}
    if text.has("moe_layer_freq"):
        found["moe_layer_freq"] = _zeros_and_ones(text, "moe_layer_freq", num_layers)
    if text.has("mlp_layer_types"):
        found["mlp_layer_types"] = _layer_types(text, "mlp_layer_types", _MLP_TYPES, num_layers)
    return _one_schedule(text, found, "moe_layer_freq (or mlp_layer_types)")


def read_sparse(text: Fields, num_layers: int) -> tuple[tuple[bool, ...], SparseAttentionSpec | None]:
    """Return, per layer, whether it attends sparsely, and how; the second is None when no layer does.

    Raises:
        CheckpointError: a field is missing or not supported, or two fields disagree.
    """
    nested = text.section("sparse_attention_config")
    found: dict[str, tuple[bool, ...]] = {}
    is_on = True
    if nested is not None:
        is_on = nested.flag("use_sparse_attention", True)
        if not is_on:
            found["use_sparse_attention"] = (False,) * num_layers
        elif nested.has("sparse_attention_freq"):
            found["sparse_attention_freq"] = _zeros_and_ones(nested, "sparse_attention_freq", num_layers)
    if text.has("layer_types") and is_on:
        types = text.texts("layer_types")
        # A tool that saves the file again may leave a list of another vocabulary; the family's own list decides then.
        if not found or set(types) <= set(_ATTENTION_TYPES):
            found["layer_types"] = _layer_types(text, "layer_types", _ATTENTION_TYPES, num_layers)
    text.ignore(("layer_types",))
    schedule = _one_schedule(text, found, "sparse_attention_config.sparse_attention_freq (or layer_types)")
    if not any(schedule):
        text.ignore(_FLAT_FIELDS)
        if nested is not None:
            nested.ignore(_NESTED_FIELDS)
        return schedule, None
    return schedule, _flat_spec(text) if nested is None else _nested_spec(nested, schedule)


def _one_schedule(text: Fields, found: dict[str, tuple[bool, ...]], wanted: str) -> tuple[bool, ...]:
    if not found:
        raise CheckpointError(f"{text.where}: the field {wanted} is missing")
    if len(set(found.values())) > 1:
        raise CheckpointError(f"{text.where}: {' and '.join(found)} disagree about the layers; remove the wrong one")
    return next(iter(found.values()))


def _zeros_and_ones(fields: Fields, name: str, num_layers: int) -> tuple[bool, ...]:
    values = fields.integers(name)
    if len(values) != num_layers or any(value > 1 for value in values):
        raise fields.fail(name, list(values), f"{num_layers} values, each 0 or 1 (num_hidden_layers={num_layers})")
    return tuple(bool(value) for value in values)


def _layer_types(fields: Fields, name: str, meaning: dict[str, bool], num_layers: int) -> tuple[bool, ...]:
    values = fields.texts(name)
    if len(values) != num_layers or any(value not in meaning for value in values):
        allowed = f"{num_layers} values of {', '.join(meaning)} (num_hidden_layers={num_layers})"
        raise fields.fail(name, list(values), allowed)
    return tuple(meaning[value] for value in values)


def _nested_spec(nested: Fields, schedule: tuple[bool, ...]) -> SparseAttentionSpec:
    nested.choice("sparse_score_type", ("max",), "max", why="the block score is its largest token score")
    if nested.has("sparse_disable_index_value"):
        disabled = nested.integers("sparse_disable_index_value")
        if len(disabled) != len(schedule) or any(on and not off for on, off in zip(schedule, disabled, strict=True)):
            raise nested.fail(
                "sparse_disable_index_value", list(disabled), "1 in every sparse layer; index values are not supported"
            )
    block_size = nested.integer("sparse_block_size", minimum=1)
    return SparseAttentionSpec(
        num_index_heads=nested.integer("sparse_num_index_heads", minimum=1),
        index_head_dim=nested.integer("sparse_index_dim", minimum=2),
        index_block_size=block_size,
        topk_blocks=nested.integer("sparse_topk_blocks", minimum=1),
        num_init_blocks=_blocks(nested, "sparse_init_block", "sparse_init_tokens", block_size, extra=0),
        num_local_blocks=_blocks(nested, "sparse_local_block", "sparse_local_tokens", block_size, extra=1),
    )


def _blocks(nested: Fields, name: str, token_name: str, block_size: int, *, extra: int) -> int:
    """Return a count of forced blocks, given in blocks or, in an older dialect, in tokens.

    A local window of n tokens may straddle one block more than it fills, hence `extra`.
    """
    if not nested.has(token_name):
        return nested.integer(name)
    tokens = nested.integer(token_name)
    blocks = -(-tokens // block_size) + extra
    if nested.has(name) and nested.integer(name) != blocks:
        raise CheckpointError(
            f"{nested.where}: {name}={nested.raw(name)} and {token_name}={tokens} disagree "
            f"({tokens} tokens are {blocks} blocks)"
        )
    return blocks


def _flat_spec(text: Fields) -> SparseAttentionSpec:
    return SparseAttentionSpec(
        num_index_heads=text.integer("index_n_heads", minimum=1),
        index_head_dim=text.integer("index_head_dim", minimum=2),
        index_block_size=text.integer("index_block_size", minimum=1),
        topk_blocks=text.integer("index_topk_blocks", minimum=1),
        num_init_blocks=text.integer("index_init_blocks", 0),
        num_local_blocks=text.integer("index_local_blocks"),
    )
