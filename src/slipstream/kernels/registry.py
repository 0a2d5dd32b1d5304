"""What an implementation of an operation is. Not here: choosing one (`select`) or any arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kernel:
    """One loaded implementation of one operation.

    Args:
        operation: family and name, for example `norm/rms_norm`.
        implementation: module name inside the operation's folder, for example `reference`.
        function: takes the arguments of the operation's contract, already validated.
    """

    operation: str
    implementation: str
    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Implementation:
    """A rule that offers an implementation; the highest priority that fits is taken.

    Args:
        name: module name inside the folder of every operation that has it.
        priority: 0 is the reference, then portable, tuned and specialised code.
        device_types: `torch.device.type` values that it runs on.
        operations: the operations that have it; None means every operation.
    """

    name: str
    priority: int
    device_types: frozenset[str]
    operations: frozenset[str] | None = None

    def fits(self, operation: str, device_type: str) -> bool:
        """Return whether this rule offers `operation` on `device_type`."""
        return device_type in self.device_types and (self.operations is None or operation in self.operations)


# Every operation has a reference, and it is the definition. Further rules name their operations.
IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(name="reference", priority=0, device_types=frozenset({"cpu", "cuda"})),
    # What the host does better than a chain of small tensor calls; it reads values, which only a CPU allows.
    Implementation(
        name="cpu",
        priority=10,
        device_types=frozenset({"cpu"}),
        operations=frozenset({"attention/choose_blocks", "moe/route", "step/commit_rows"}),
    ),
    # One program per row or tile; the interpreter runs the same code on a CPU, for tests.
    Implementation(
        name="triton_impl",
        priority=20,
        device_types=frozenset({"cuda"}),
        operations=frozenset(
            {
                "attention/choose_blocks",
                "attention/dense_attend",
                "attention/index_score",
                "cache/place_heads",
                "attention/select_blocks",
                "attention/sparse_attend",
                "cache/write_kv",
                "draft/ngram_match",
                "draft/place_rows",
                "linear/matmul_mxfp8",
                "linear/sum_parts",
                "moe/experts",
                "moe/experts_nvfp4",
                "moe/route",
                "moe/sum_swiglu_oai",
                "moe/swiglu_oai",
                "norm/add_rms_norm",
                "norm/qk_norm_rope",
                "norm/rms_norm",
                "norm/sum_add_rms_norm",
                "sampling/bias_logits",
                "sampling/draw_tokens",
                "sampling/filter_logits",
                "sampling/forbid_sequences",
                "sampling/gumbel_noise",
                "sampling/mask_logits",
                "sampling/penalise_logits",
                "sampling/verify_chain",
                "sampling/verify_rejection",
                "step/commit_rows",
                "step/store_drafts",
            }
        ),
    ),
)
