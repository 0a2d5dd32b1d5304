"""The shape of a new head, from the target that it is to draft for."""

from __future__ import annotations

from slipstream.base.errors import ConfigError
from slipstream.config.schema import Eagle3Spec, TargetSpec

_DEEP = 12
"""From this depth on, the taps are those of the field's heads."""


def choose_taps(asked: tuple[int, ...], num_layers: int) -> tuple[int, ...]:
    """Return the layers whose output is tapped, ascending.

    Args:
        asked: empty takes a low, a middle and a high one: 1, n/2 - 1 and n - 4 of a deep target.
        num_layers: of the target.

    Raises:
        ConfigError: a layer that the target does not have, or one named twice.
    """
    if asked:
        taps = tuple(sorted(asked))
        if len(set(taps)) != len(taps) or not all(0 <= layer < num_layers for layer in taps):
            raise ConfigError(f"--taps {list(asked)}: give different layers from 0 to {num_layers - 1}")
        return taps
    middle = num_layers // 2
    if num_layers >= _DEEP:
        return 1, middle - 1, num_layers - 4
    if num_layers >= 6:
        return 1, middle, num_layers - 2
    return tuple(sorted({0, middle, num_layers - 1}))


def design_head(target: TargetSpec, taps: tuple[int, ...], draft_vocab_size: int) -> Eagle3Spec:
    """Return a head as wide as its target, with the norms of an EAGLE-3.1 head.

    Args:
        target: the network.
        taps: see `choose_taps`.
        draft_vocab_size: tokens that it can draft.
    """
    return Eagle3Spec(
        hidden_size=target.hidden_size,
        target_hidden_size=target.hidden_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        rotary_dim=target.head_dim,
        rope_theta=target.rope_theta,
        rms_norm_eps=target.rms_norm_eps,
        intermediate_size=target.dense_intermediate_size,
        vocab_size=target.vocab_size,
        draft_vocab_size=draft_vocab_size,
        max_position_embeddings=target.max_position_embeddings,
        aux_layer_ids=taps,
        hidden_act="silu",
        norm_before_fc=False,
        fc_norm=True,
        norm_output=True,
        norm_before_residual=False,
    )
