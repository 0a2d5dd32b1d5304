"""Closed-loop load: a fixed number of users, each sending its next request when the last one has ended.

Not here: open-loop arrivals. A closed loop cannot overload a server, so its latencies are those of `concurrency` users.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from slipstream.harness.client import Clock, HttpClient, RequestRecord
from slipstream.harness.stats import Summary, acceptance_length, draft_acceptance_rate, summarize
from slipstream.harness.workload import WorkItem

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"


class LoadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the requests of a run are made.

    Args:
        model: name the server knows the model by.
        concurrency: users at a time, at least 1.
        max_tokens: most tokens per answer.
        temperature: 0 is greedy.
        seed: of request i is seed + i, so that a run can be repeated.
        ignore_eos: always produce max_tokens tokens.
    """

    model: str
    concurrency: int
    max_tokens: int
    temperature: float
    seed: int
    ignore_eos: bool = False


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of `num_requests` requests measured; latencies are of requests that did not fail.

    Args:
        output_tokens_per_s: over the whole run, all users together.
        ttft_ms: from sending to the first text.
        time_per_output_token_ms: mean per request, after the first token.
        gap_ms: between pieces of text; a piece of a verify step holds all its tokens.
        acceptance_length: mean tokens per verify step, None without a drafter.
    """

    num_requests: int
    num_failed: int
    duration_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    output_tokens_per_s: float
    requests_per_s: float
    ttft_ms: Summary | None
    time_per_output_token_ms: Summary | None
    gap_ms: Summary | None
    latency_ms: Summary | None
    acceptance_length: float | None
    draft_acceptance_rate: float | None
    first_error: str | None = None


def build_request(item: WorkItem, settings: LoadSettings, index: int) -> tuple[str, dict[str, Any]]:
    """Return (path, body) of one request: a chat for messages, a completion for a bare prompt."""
    body: dict[str, Any] = {
        "model": settings.model,
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "seed": settings.seed + index,
    }
    if settings.ignore_eos:
        body["ignore_eos"] = True
    if item.prompt is not None:
        return COMPLETIONS_PATH, {**body, "prompt": item.prompt}
    if item.template_kwargs:
        body["chat_template_kwargs"] = item.template_kwargs
    return CHAT_PATH, {**body, "messages": item.as_chat()}


async def run_load(
    client: HttpClient,
    items: Sequence[WorkItem],
    settings: LoadSettings,
    *,
    on_done: Callable[[RequestRecord], None] = lambda record: None,
    clock: Clock = time.perf_counter,
) -> tuple[tuple[RequestRecord, ...], float]:
    """Send one request per item and return (records in order of items, duration in seconds)."""
    records: dict[int, RequestRecord] = {}
    waiting = iter(enumerate(items))
    started = clock()

    async def be_one_user() -> None:
        for index, item in waiting:
            path, body = build_request(item, settings, index)
            records[index] = await client.send(path, body, domain=item.domain)
            on_done(records[index])

    await asyncio.gather(*(be_one_user() for _ in range(min(settings.concurrency, len(items)))))
    return tuple(records[index] for index in range(len(items))), clock() - started


def report_load(records: Sequence[RequestRecord], duration_s: float) -> LoadReport:
    """Return the statistics of a run."""
    good = [record for record in records if record.error is None]
    tokens = sum(record.num_output_tokens for record in good)
    steps = sum(record.num_verify_steps for record in good)
    drafts = sum(record.num_draft_tokens for record in good)
    accepted = sum(record.num_accepted for record in good)
    emitted = sum(record.num_emitted for record in good)
    in_ms = lambda values: summarize(value * 1e3 for value in values if value is not None)  # noqa: E731
    return LoadReport(
        num_requests=len(records),
        num_failed=len(records) - len(good),
        duration_s=duration_s,
        num_prompt_tokens=sum(record.num_prompt_tokens for record in good),
        num_output_tokens=tokens,
        output_tokens_per_s=tokens / duration_s if duration_s > 0 else 0.0,
        requests_per_s=len(good) / duration_s if duration_s > 0 else 0.0,
        ttft_ms=in_ms(record.ttft_s for record in good),
        time_per_output_token_ms=in_ms(record.time_per_output_token_s for record in good),
        gap_ms=in_ms(gap for record in good for gap in record.gaps_s),
        latency_ms=in_ms(record.end_s for record in good),
        acceptance_length=acceptance_length(steps, emitted),
        draft_acceptance_rate=draft_acceptance_rate(drafts, accepted),
        first_error=next((record.error for record in records if record.error is not None), None),
    )


def report_by_domain(records: Sequence[RequestRecord], duration_s: float) -> dict[str, LoadReport]:
    """Return domain -> statistics; rates are each domain's share of the whole run's duration."""
    domains = dict.fromkeys(record.domain for record in records)
    return {
        domain: report_load([record for record in records if record.domain == domain], duration_s) for domain in domains
    }
