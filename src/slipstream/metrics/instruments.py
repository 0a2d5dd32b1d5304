"""Keep the values of the catalogue and write them out: the one door to prometheus_client.

Counters of the engine follow its snapshots by difference; what only a front end sees (latencies, ends of requests) is
observed here directly. The exposition is always the plain text format 0.0.4: in the newer one the library rewrites
`vllm:x` to `vllm_x`, which no dashboard looks for.
"""

from __future__ import annotations

from typing import Literal, TypeVar, get_args

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest

from slipstream.metrics.catalog import CATALOG, CONTEXT_TOKENS, Metric, context_bounds
from slipstream.wire.messages import EngineFacts, EngineStats, FinishReason

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Rejection = Literal["queue_full", "draining"]
REJECTIONS: tuple[Rejection, ...] = get_args(Rejection)

_ENGINE = "0"
_COMMON_LABELS = ("model_name", "engine")
_Instrument = TypeVar("_Instrument", Gauge, Counter, Histogram)


class Phases(msgspec.Struct, frozen=True):
    """Where a request's time went, as the engine measured it, in seconds; None for what it did not reach."""

    queue_s: float
    prefill_s: float | None
    decode_s: float | None


class RequestEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A request that ended.

    Args:
        finish_reason: how.
        num_prompt_tokens, num_generated_tokens: of the prompt, and returned.
        num_prefix_hit_tokens: prompt tokens that were not computed.
        max_tokens: most tokens it could have returned.
        e2e_s: seconds from arrival to the end.
        after_first_token_s: seconds from the first token to the last.
        first_token_s: seconds from arrival to the first token; None without one.
        num_verify_steps, num_emitted: over the returned tokens; emitted are those that verify steps made.
        phases: None when the engine did not say.
        num_preemptions: times it was sent back to the queue; None when the engine did not say.
    """

    finish_reason: FinishReason
    num_prompt_tokens: int
    num_generated_tokens: int
    num_prefix_hit_tokens: int
    max_tokens: int
    e2e_s: float
    after_first_token_s: float
    num_verify_steps: int
    num_emitted: int
    phases: Phases | None = None
    num_preemptions: int | None = None
    first_token_s: float | None = None


class Instruments:
    """The metrics of one ready engine.

    Args:
        model_name: value of the label `model_name`; the name that requests ask for.
        facts: of the engine; decide the bounds of token counts and whether speculation has metrics.
        emit_aliases: also emit the former names of two metrics.
    """

    def __init__(self, model_name: str, facts: EngineFacts, *, emit_aliases: bool = True) -> None:
        disable_created_metrics()
        self._registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self._registry)
        self._labels = {"model_name": model_name, "engine": _ENGINE}
        groups = {"always"} | ({"alias"} if emit_aliases else set())
        groups |= {"speculation"} if facts.drafter != "none" else set()
        self._context_bounds = context_bounds(facts.max_model_len)
        self._metrics = tuple(metric for metric in CATALOG if metric.group in groups)
        self._gauges = {m.name: self._make(Gauge, m) for m in self._metrics if m.kind == "gauge"}
        self._counters = {m.name: self._make(Counter, m) for m in self._metrics if m.kind == "counter"}
        self._histograms = {m.name: self._make_histogram(m) for m in self._metrics if m.kind == "histogram"}
        self._last = EngineStats()
        self._set("slipstream:max_rows", facts.max_num_seqs)
        self._gauges["vllm:cache_config_info"].labels(
            **self._labels, block_size=str(facts.page_size), num_gpu_blocks=str(facts.num_pages)
        ).set(1)
        # A series that begins at zero shows its first event in a rate; one that begins with the event does not.
        for reason in get_args(FinishReason):
            self._count("vllm:request_success", 0, finished_reason=reason)
        for reason in REJECTIONS:
            self._count("vllm:admission_rejections", 0, reason=reason)
        for position in range(facts.draft_len):
            self._count("vllm:spec_decode_num_accepted_tokens_per_pos", 0, position=str(position))
        for histogram in self._histograms.values():
            histogram.labels(**self._labels)
        self.set_streams(0)
        self.follow(EngineStats(num_pages=max(facts.num_pages - 1, 1), num_free_pages=max(facts.num_pages - 1, 1)))

    def follow(self, stats: EngineStats) -> None:
        """Take a snapshot of the engine: gauges become its values, counters grow by what it grew."""
        last, self._last = self._last, stats
        for metric in self._metrics:
            if metric.source is None:
                continue
            value = getattr(stats, metric.source)
            if metric.kind == "gauge":
                self._set(metric.name, value)
            else:
                self._count(metric.name, value - getattr(last, metric.source))
        usage = 0.0
        if stats.num_pages:
            usage = (stats.num_pages - stats.num_free_pages - stats.num_cached_pages) / stats.num_pages
        self._set("vllm:kv_cache_usage_perc", usage)
        self._set("vllm:gpu_cache_usage_perc", usage)
        num_for_room = stats.num_waiting - stats.num_deferred
        self._set("vllm:num_requests_waiting_by_reason", num_for_room, reason="capacity")
        self._set("vllm:num_requests_waiting_by_reason", stats.num_deferred, reason="deferred")
        num_cached = stats.num_cached_prompt_tokens - last.num_cached_prompt_tokens
        num_taken_in = stats.num_prompt_tokens - last.num_prompt_tokens
        self._count("vllm:prompt_tokens_by_source", num_cached, source="local_cache_hit")
        self._count("vllm:prompt_tokens_by_source", num_taken_in - num_cached, source="local_compute")
        before = last.num_accepted_per_position
        for position, value in enumerate(stats.num_accepted_per_position):
            grown = value - (before[position] if position < len(before) else 0)
            self._count("vllm:spec_decode_num_accepted_tokens_per_pos", grown, position=str(position))
        num_steps = stats.num_steps - last.num_steps
        mean = (stats.num_step_tokens - last.num_step_tokens) / max(num_steps, 1)
        for _ in range(num_steps):
            self._observe("vllm:iteration_tokens_total", mean)

    def observe_first_token(self, seconds: float) -> None:
        """Note the time from a request's arrival to its first token."""
        self._observe("vllm:time_to_first_token_seconds", seconds)

    def observe_gap(self, seconds: float) -> None:
        """Note the time between two arrivals of tokens of one request."""
        self._observe("vllm:inter_token_latency_seconds", seconds)
        self._observe("vllm:time_per_output_token_seconds", seconds)

    def observe_end(self, end: RequestEnd) -> None:
        """Note that a request ended."""
        self._count("vllm:request_success", 1, finished_reason=end.finish_reason)
        self._observe("vllm:e2e_request_latency_seconds", end.e2e_s)
        self._observe("vllm:request_prompt_tokens", end.num_prompt_tokens)
        self._observe("vllm:request_generation_tokens", end.num_generated_tokens)
        self._observe("vllm:request_max_num_generation_tokens", end.num_generated_tokens)
        self._observe("vllm:request_params_max_tokens", end.max_tokens)
        self._observe("vllm:request_params_n", 1)
        if end.num_generated_tokens:
            num_computed = end.num_prompt_tokens - end.num_prefix_hit_tokens
            self._observe("vllm:request_prefill_kv_computed_tokens", num_computed)
        if end.num_generated_tokens > 1:
            per_token = end.after_first_token_s / (end.num_generated_tokens - 1)
            self._observe("vllm:request_time_per_output_token_seconds", per_token)
        if end.num_verify_steps:
            self._observe("slipstream:request_acceptance_length", end.num_emitted / end.num_verify_steps)
        if end.phases is not None:
            self._observe_phases(end.phases)
        if end.num_preemptions is not None:
            self._observe("vllm:request_num_preemptions", end.num_preemptions)

    def count_rejection(self, reason: Rejection) -> None:
        """Note that a request was turned away."""
        self._count("vllm:admission_rejections", 1, reason=reason)

    def set_streams(self, num_streams: int) -> None:
        """Note how many requests clients are waiting for."""
        self._set("slipstream:streams", num_streams)

    def render(self) -> bytes:
        """Return the exposition, of type `CONTENT_TYPE`."""
        return generate_latest(self._registry)

    def _make(self, kind: type[_Instrument], metric: Metric) -> _Instrument:
        return kind(metric.name, metric.meaning, (*_COMMON_LABELS, *metric.labels), registry=self._registry)

    def _make_histogram(self, metric: Metric) -> Histogram:
        bounds = self._context_bounds if metric.bounds == CONTEXT_TOKENS else metric.bounds
        labels = (*_COMMON_LABELS, *metric.labels)
        return Histogram(metric.name, metric.meaning, labels, registry=self._registry, buckets=bounds)

    def _observe_phases(self, phases: Phases) -> None:
        self._observe("vllm:request_queue_time_seconds", phases.queue_s)
        if phases.prefill_s is None:
            return
        self._observe("vllm:request_prefill_time_seconds", phases.prefill_s)
        self._observe("vllm:request_inference_time_seconds", phases.prefill_s + (phases.decode_s or 0.0))
        if phases.decode_s is not None:
            self._observe("vllm:request_decode_time_seconds", phases.decode_s)

    # An alias that is turned off, or speculation without a drafter, has no instrument: nothing to note then.

    def _set(self, name: str, value: float, **labels: str) -> None:
        if name in self._gauges:
            self._gauges[name].labels(**self._labels, **labels).set(value)

    def _count(self, name: str, amount: float, **labels: str) -> None:
        if name in self._counters:
            self._counters[name].labels(**self._labels, **labels).inc(max(amount, 0))

    def _observe(self, name: str, value: float) -> None:
        if name in self._histograms:
            self._histograms[name].labels(**self._labels).observe(value)
