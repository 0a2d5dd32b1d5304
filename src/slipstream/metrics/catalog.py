"""Every metric as data: name, kind, labels, bounds, meaning, and where its value comes from.

Names, labels and bounds are those of vLLM 0.33 where it has the metric, so that existing dashboards work; what it
does not have is called `slipstream:…`. Counters get `_total` on the wire. Every metric also carries the labels
`model_name` and `engine`. A metric is listed only when its value is true today.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]
Group = Literal["always", "speculation", "alias"]

FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
"""Upper bounds in seconds; so are the two below."""

INTER_TOKEN_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
)  # fmt: skip
"""vLLM begins at 0.01; the three bounds in front resolve what a fast engine does, and quantile queries still work."""

LATENCY_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip

STEP_TOKENS = (1.0, 8.0, *(float(2**power) for power in range(4, 15)))
"""Tokens of one step: 1, 8, then powers of two from 16 to 16384."""

PREEMPTIONS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0)

ACCEPTANCE_LENGTH = (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0)

CONTEXT_TOKENS: tuple[float, ...] = ()
"""Stands for the 1-2-5 series up to the context length, which is known only when the engine is ready."""


@dataclass(frozen=True)
class Metric:
    """One metric.

    Args:
        name: as written here; counters get `_total` on the wire.
        kind: gauge, counter or histogram.
        meaning: one sentence; the HELP text.
        labels: beside `model_name` and `engine`.
        bounds: upper bounds of a histogram.
        source: the field of EngineStats that a gauge shows or a counter follows; None when code observes it.
        group: `speculation` only exists with a drafter; `alias` repeats another metric under a name that vLLM
            dropped and dashboards still query, and can be turned off.
    """

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    source: str | None = None
    group: Group = "always"


def context_bounds(max_model_len: int) -> tuple[float, ...]:
    """Return the 1-2-5 series up to `max_model_len`, as vLLM builds it for counts of tokens."""
    bounds = []
    scale = 1
    while True:
        for mantissa in (1, 2, 5):
            if mantissa * scale > max_model_len:
                return tuple(bounds)
            bounds.append(float(mantissa * scale))
        scale *= 10


CATALOG: tuple[Metric, ...] = (
    Metric("vllm:num_requests_running", "gauge", "Requests that own a row of the engine.", source="num_running"),
    Metric("vllm:num_requests_waiting", "gauge", "Requests queued for a row.", source="num_waiting"),
    Metric(
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        "Requests queued for a row, by what they wait for: a row or cache pages (capacity), or the compilation of "
        "their constraint (deferred).",
        ("reason",),
    ),
    Metric("vllm:kv_cache_usage_perc", "gauge", "Share of cache pages in use by requests, 0 to 1."),
    Metric(
        "vllm:gpu_cache_usage_perc",
        "gauge",
        "Former name of vllm:kv_cache_usage_perc.",
        group="alias",
    ),
    Metric(
        "vllm:cache_config_info",
        "gauge",
        "Geometry of the cache; always 1. Routers read block_size (tokens per page) and num_gpu_blocks (pages).",
        ("block_size", "num_gpu_blocks"),
    ),
    Metric("vllm:prompt_tokens", "counter", "Prompt tokens taken in.", source="num_prompt_tokens"),
    Metric("vllm:generation_tokens", "counter", "Tokens generated.", source="num_generated_tokens"),
    Metric("vllm:request_success", "counter", "Requests that ended, by reason.", ("finished_reason",)),
    Metric("vllm:num_preemptions", "counter", "Requests sent back to the queue.", source="num_preemptions"),
    Metric(
        "vllm:prefix_cache_queries",
        "counter",
        "Prompt tokens looked up in the prefix cache.",
        source="num_prefix_query_tokens",
    ),
    Metric(
        "vllm:prefix_cache_hits",
        "counter",
        "Prompt tokens found in the prefix cache.",
        source="num_prefix_hit_tokens",
    ),
    Metric(
        "vllm:prompt_tokens_cached",
        "counter",
        "Prompt tokens that did not have to be computed.",
        source="num_cached_prompt_tokens",
    ),
    Metric(
        "vllm:prompt_tokens_by_source",
        "counter",
        "Prompt tokens taken in, by where their keys and values came from.",
        ("source",),
    ),
    Metric(
        "vllm:corrupted_requests",
        "counter",
        "Requests that ended because their logits were not finite, or left no token to draw.",
        source="num_corrupted_requests",
    ),
    Metric("vllm:admission_rejections", "counter", "Requests turned away with 503, by reason.", ("reason",)),
    Metric(
        "vllm:spec_decode_num_drafts",
        "counter",
        "Verify steps of single requests in which a draft was proposed; without a proposal nothing is counted.",
        source="num_drafts",
        group="speculation",
    ),
    Metric(
        "vllm:spec_decode_num_draft_tokens",
        "counter",
        "Draft tokens verified.",
        source="num_draft_tokens",
        group="speculation",
    ),
    Metric(
        "vllm:spec_decode_num_accepted_tokens",
        "counter",
        "Draft tokens accepted, the target's own token not counted.",
        source="num_accepted_tokens",
        group="speculation",
    ),
    Metric(
        "vllm:spec_decode_num_accepted_tokens_per_pos",
        "counter",
        "Verify steps in which the draft token at this position was accepted.",
        ("position",),
        group="speculation",
    ),
    Metric(
        "vllm:time_to_first_token_seconds",
        "histogram",
        "Seconds from a request's arrival to its first token.",
        bounds=FIRST_TOKEN_S,
    ),
    Metric(
        "vllm:inter_token_latency_seconds",
        "histogram",
        "Seconds between two arrivals of tokens of one request; an accepted run arrives at once and counts once.",
        bounds=INTER_TOKEN_S,
    ),
    Metric(
        "vllm:time_per_output_token_seconds",
        "histogram",
        "Former name of vllm:inter_token_latency_seconds.",
        bounds=INTER_TOKEN_S,
        group="alias",
    ),
    Metric(
        "vllm:request_time_per_output_token_seconds",
        "histogram",
        "Seconds per returned token after the first, one mean per request.",
        bounds=INTER_TOKEN_S,
    ),
    Metric(
        "vllm:e2e_request_latency_seconds",
        "histogram",
        "Seconds from a request's arrival to its end.",
        bounds=LATENCY_S,
    ),
    Metric("vllm:request_queue_time_seconds", "histogram", "Seconds in the queue.", bounds=LATENCY_S),
    Metric(
        "vllm:request_prefill_time_seconds",
        "histogram",
        "Seconds from leaving the queue to the first token.",
        bounds=LATENCY_S,
    ),
    Metric(
        "vllm:request_decode_time_seconds",
        "histogram",
        "Seconds from the first token to the end.",
        bounds=LATENCY_S,
    ),
    Metric(
        "vllm:request_inference_time_seconds",
        "histogram",
        "Seconds from leaving the queue to the end.",
        bounds=LATENCY_S,
    ),
    Metric("vllm:request_prompt_tokens", "histogram", "Prompt tokens of a request.", bounds=CONTEXT_TOKENS),
    Metric("vllm:request_generation_tokens", "histogram", "Returned tokens of a request.", bounds=CONTEXT_TOKENS),
    Metric(
        "vllm:request_max_num_generation_tokens",
        "histogram",
        "Returned tokens of the longest choice; every request has one choice.",
        bounds=CONTEXT_TOKENS,
    ),
    Metric(
        "vllm:request_params_max_tokens",
        "histogram",
        "Most tokens that a request allowed, the context taken into account.",
        bounds=CONTEXT_TOKENS,
    ),
    Metric(
        "vllm:request_params_n",
        "histogram",
        "Choices of a request; always 1, because each choice is a request of its own.",
        bounds=(1.0, 2.0, 5.0, 10.0, 20.0),
    ),
    Metric(
        "vllm:request_prefill_kv_computed_tokens",
        "histogram",
        "Prompt tokens that had to be computed.",
        bounds=CONTEXT_TOKENS,
    ),
    Metric(
        "vllm:request_num_preemptions",
        "histogram",
        "Times that a request was sent back to the queue.",
        bounds=PREEMPTIONS,
    ),
    Metric(
        "vllm:iteration_tokens_total",
        "histogram",
        "Tokens per engine step. Steps that arrive in one report count with their mean.",
        bounds=STEP_TOKENS,
    ),
    Metric(
        "slipstream:request_acceptance_length",
        "histogram",
        "Mean tokens per verify step of a request, over its returned tokens.",
        bounds=ACCEPTANCE_LENGTH,
        group="speculation",
    ),
    Metric(
        "slipstream:late_compiles",
        "counter",
        "Kernels compiled after the engine was ready; each one made a request wait.",
        source="num_late_compiles",
    ),
    Metric("slipstream:steps", "counter", "Steps of the engine.", source="num_steps"),
    Metric("slipstream:step_tokens", "counter", "Tokens that those steps computed.", source="num_step_tokens"),
    Metric("slipstream:free_pages", "gauge", "Cache pages that hold nothing.", source="num_free_pages"),
    Metric(
        "slipstream:cached_pages",
        "gauge",
        "Cache pages kept for reuse by no running request; they can be taken at any time.",
        source="num_cached_pages",
    ),
    Metric("slipstream:max_rows", "gauge", "Rows of the engine: most requests that run at once."),
    Metric("slipstream:streams", "gauge", "Requests that a client is waiting for."),
)

KEPT_FOR_DASHBOARDS: dict[str, str] = {
    "vllm:gpu_cache_usage_perc": "name that vLLM dropped and dashboards still query",
    "vllm:time_per_output_token_seconds": "name that vLLM dropped and dashboards still query",
    "vllm:request_params_n": "panel of vLLM's own dashboard; constant, because each choice is a request of its own",
    "vllm:request_max_num_generation_tokens": "panel of vLLM's own dashboard; equals the generation histogram",
}
"""Metrics that say nothing of their own, and why they are emitted all the same."""
