"""What the engine runs on: every choice made, nothing optional. Built by `config.resolve`, never assigned later.

A constructor receives its section, not the whole. All values are plain, so that the configuration crosses
processes as JSON and has a digest.
"""

from __future__ import annotations

from typing import Literal

import msgspec

DType = Literal["float32", "bfloat16"]
CacheDType = Literal["float32", "bfloat16", "float8_e4m3"]
Device = Literal["cpu", "cuda"]
DrafterKind = Literal["none", "ngram", "eagle3"]
LogFormat = Literal["text", "json"]
Verification = Literal["auto", "coupled", "rejection"]
"""`auto` is a rule for each request: with a seed coupled, without one rejection."""


class SparseAttentionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Block-sparse attention of the checkpoint (`sparse_attention_config`)."""

    num_index_heads: int
    index_head_dim: int
    index_block_size: int
    topk_blocks: int
    num_init_blocks: int
    num_local_blocks: int


class TargetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The target network, normalised from any dialect of the family's config.json.

    Args:
        is_moe_layer: per layer, routed experts instead of the dense MLP.
        is_sparse_layer: per layer, block-sparse attention with an index branch.
        sparse: None when no layer is sparse.
        swiglu_alpha, swiglu_limit: (up + 1) * gate * sigmoid(alpha * gate), gate clamped from above, up on both sides.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    rms_norm_eps: float
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    dense_intermediate_size: int
    expert_intermediate_size: int
    shared_intermediate_size: int
    num_experts: int
    topk_experts: int
    num_shared_experts: int
    routed_scaling_factor: float
    has_routing_bias: bool
    swiglu_alpha: float
    swiglu_limit: float
    is_moe_layer: tuple[bool, ...]
    is_sparse_layer: tuple[bool, ...]
    sparse: SparseAttentionSpec | None
    eos_token_ids: tuple[int, ...]


class Eagle3Spec(msgspec.Struct, frozen=True, kw_only=True):
    """An EAGLE-3 head, normalised from any dialect of its config.json.

    Args:
        aux_layer_ids: zero-based target layers whose OUTPUT (residual stream) is tapped, ascending: post(x).
        draft_vocab_size: rows of the head; equal to the target's vocabulary when there is no d2t table.
        norm_before_fc: RMSNorm over the concatenated taps before fc.
        fc_norm: RMSNorm on each tap before fc.
        norm_output: the state fed to the next draft step is the normed one.
        norm_before_residual: the residual starts from the normed state.
    """

    hidden_size: int
    target_hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    rms_norm_eps: float
    intermediate_size: int
    vocab_size: int
    draft_vocab_size: int
    max_position_embeddings: int
    aux_layer_ids: tuple[int, ...]
    hidden_act: Literal["silu"]
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool
    norm_before_residual: bool


class ModelSection(msgspec.Struct, frozen=True, kw_only=True):
    """Which checkpoint, in which arithmetic.

    Args:
        weight_formats: quantised formats in which the checkpoint stores weights; they are held in `dtype`.
    """

    path: str
    name: str
    target: TargetSpec
    dtype: DType
    device: Device
    seed: int
    weight_formats: tuple[str, ...]


class ParallelSection(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that share every layer. With `check_ranks` they compare their decisions after every step."""

    tp_size: int
    check_ranks: bool


class CacheSection(msgspec.Struct, frozen=True, kw_only=True):
    """Paged cache. `num_pages` counts the null page; page_size is in tokens.

    `kv_dtype` is that of the target's keys, values and index keys; what a drafter keeps has the model's dtype.
    """

    kv_dtype: CacheDType
    page_size: int
    num_pages: int
    enable_prefix: bool
    poison_freed_pages: bool


class SchedulerSection(msgspec.Struct, frozen=True, kw_only=True):
    """Budgets of one step and of the queue."""

    max_model_len: int
    max_num_seqs: int
    prefill_chunk_tokens: int
    overlap: bool


class SpeculationSection(msgspec.Struct, frozen=True, kw_only=True):
    """The drafter, its length and how drafts are verified."""

    drafter: DrafterKind
    drafter_path: str | None
    eagle3: Eagle3Spec | None
    draft_len: int
    verification: Verification
    ngram_max: int
    ngram_min: int

    @property
    def keeps_draft_probs(self) -> bool:
        """Whether rows keep what drafts were drawn from: a drafter that draws, and requests verified by rejection."""
        return self.eagle3 is not None and self.verification != "coupled"


class ServerSection(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP front door, and the log of all processes. `engine_timeout_s` 0 waits for ever."""

    host: str
    port: int
    served_model_name: str
    api_keys: tuple[str, ...]
    max_queue: int
    drain_s: float
    engine_timeout_s: float
    log_format: LogFormat
    log_level: str


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the engine runs on.

    Args:
        origins: (dotted field, origin) pairs; origin is default, option, checkpoint, hardware, switch or derived.
        notes: (dotted field, reason in words) pairs, for `explain`.
    """

    model: ModelSection
    parallel: ParallelSection
    cache: CacheSection
    scheduler: SchedulerSection
    speculation: SpeculationSection
    server: ServerSection
    cuda_graphs: bool
    late_compile_ends: bool
    num_threads: int
    origins: tuple[tuple[str, str], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
