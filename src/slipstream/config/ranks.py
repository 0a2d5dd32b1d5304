"""Which tensor-parallel widths a target and its drafter allow. Not here: what a rank holds; see `parallel.mesh`."""

from __future__ import annotations

from slipstream.base.errors import ConfigError
from slipstream.config.options import OPTION_BY_NAME
from slipstream.config.schema import Eagle3Spec, TargetSpec


def check_width(target: TargetSpec, eagle3: Eagle3Spec | None, tp_size: int) -> None:
    """Refuse a width that some axis does not allow, naming the axis and the widths that all axes allow.

    Args:
        target: the target network.
        eagle3: the EAGLE-3 head, or None.
        tp_size: ranks asked for.

    Raises:
        ConfigError: an axis does not divide among so many ranks.
    """
    obstacle = find_obstacle(target, eagle3, tp_size)
    if obstacle is not None:
        widest = int(OPTION_BY_NAME["tp"].maximum or 1)
        allowed = [width for width in range(1, widest + 1) if find_obstacle(target, eagle3, width) is None]
        raise ConfigError(
            f"tp={tp_size}: {obstacle}; this checkpoint allows tp of {', '.join(str(width) for width in allowed)}"
        )


def find_obstacle(target: TargetSpec, eagle3: Eagle3Spec | None, tp_size: int) -> str | None:
    """Return what stands against so many ranks, or None.

    Key-value heads are replicated when there are more ranks than heads; every other axis is cut into equal shares.
    """
    axes = {
        "vocab_size": target.vocab_size,
        "num_heads": target.num_heads,
        "dense_intermediate_size": target.dense_intermediate_size if not all(target.is_moe_layer) else 0,
        "expert_intermediate_size": target.expert_intermediate_size if any(target.is_moe_layer) else 0,
        "shared_intermediate_size": target.shared_intermediate_size if any(target.is_moe_layer) else 0,
    }
    kv_heads = {"num_kv_heads": target.num_kv_heads}
    if eagle3 is not None:
        axes |= {
            "vocab_size of the head": eagle3.vocab_size,
            "draft_vocab_size of the head": eagle3.draft_vocab_size,
            "num_heads of the head": eagle3.num_heads,
            "intermediate_size of the head": eagle3.intermediate_size,
        }
        kv_heads["num_kv_heads of the head"] = eagle3.num_kv_heads
    for axis, size in axes.items():
        if size % tp_size:
            return f"{axis}={size} does not divide among {tp_size} ranks"
    for axis, heads in kv_heads.items():
        if heads % tp_size and tp_size % heads:
            return f"{axis}={heads} neither divides among {tp_size} ranks nor divides {tp_size}"
    return None
