"""What crosses the process boundary between the front end and the engine. msgspec msgpack, no pickle."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipstream.wire.request import Request
from slipstream.wire.step import Alternatives

FinishReason = Literal["stop", "length", "abort", "error"]


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Queue a request."""

    request: Request


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """End a request now; unknown ids are ignored (it may just have finished)."""

    request_id: str


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """End the engine. With `drain`, finish what is running first; otherwise abort it."""

    drain: bool


ToEngine = Submit | Abort | Shutdown


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the front end must know of a ready engine."""

    model_name: str
    vocab_size: int
    max_model_len: int
    max_num_seqs: int
    page_size: int
    num_pages: int
    num_cache_tokens: int
    drafter: str
    draft_len: int
    verification: str
    device: str
    dtype: str
    eos_token_ids: tuple[int, ...]


class RequestOutput(msgspec.Struct, frozen=True, kw_only=True):
    """News of one request after one step.

    Args:
        request_id: whose.
        token_ids: new tokens, already cut at stop token ids and at the length limit.
        num_draft_tokens: drafts verified in the step that made them (0 for the token after a prefill).
        num_accepted: accepted drafts among `token_ids`.
        is_verify_step: whether a ladder was verified (False for the token after a prefill).
        logprobs: one per token, or empty.
        top_logprobs: the alternatives of each token, or empty.
        prompt_logprobs, prompt_top_logprobs: of every prompt token but the first; set on the first output.
        finish_reason: None while it runs. `error` carries `error`.
        stop_reason: the stop token id that ended it, if it was not the model's own end token.
        error: the message of a failed request.
        num_prefix_hit_tokens: tokens of the prompt found in the cache; set on the first output.
        queue_s, prefill_s, decode_s: seconds from arrival to first scheduled, to first token, to the end;
            set on the last output (0 before).
        num_preemptions: times the request was preempted; set on the last output.
        is_accepted: the constraint of the request is compiled and the request is queued; said once, in an output
            without tokens, and never for a request without a constraint.
        error_kind: class name of the error that refused the request, as in `Failed`, or that ended it later if the
            request itself is at fault; else None when it failed later.
        error_code: the error's short word, if it has one; `NO_TOKEN_CODE` when it ran before.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    num_draft_tokens: int = 0
    num_accepted: int = 0
    is_verify_step: bool = False
    logprobs: tuple[float, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None
    error: str | None = None
    num_prefix_hit_tokens: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    num_preemptions: int = 0
    top_logprobs: tuple[Alternatives, ...] = ()
    prompt_logprobs: tuple[float, ...] = ()
    prompt_top_logprobs: tuple[Alternatives, ...] = ()
    is_accepted: bool = False
    error_kind: str | None = None
    error_code: str | None = None


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot: gauges as they are, counters since the engine started.

    `num_cached_prompt_tokens` are those of `num_prompt_tokens` that were found in the cache; `num_prefix_hit_tokens`
    also counts prompts that have no first token yet. `num_deferred` are those of `num_waiting` whose constraint is
    being compiled. `num_corrupted_requests` ended because of their logits.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_deferred: int = 0
    num_free_pages: int = 0
    num_cached_pages: int = 0
    num_pages: int = 0
    num_prefix_query_tokens: int = 0
    num_prefix_hit_tokens: int = 0
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    num_preemptions: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_per_position: tuple[int, ...] = ()
    num_steps: int = 0
    num_step_tokens: int = 0
    num_late_compiles: int = 0
    num_corrupted_requests: int = 0
    num_cached_prompt_tokens: int = 0


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """Loading and warm-up, for a progress bar: `done` of `total` units of `stage`."""

    stage: str
    done: int
    total: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The engine accepts requests."""

    facts: EngineFacts


class Outputs(msgspec.Struct, frozen=True, tag="outputs"):
    """News of some requests, and a snapshot of the engine."""

    outputs: tuple[RequestOutput, ...]
    stats: EngineStats


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The engine ended. Every request in flight has failed. `kind` is the error's class name."""

    kind: str
    reason: str


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """The engine ended on request."""


ToFrontend = Progress | Ready | Outputs | Failed | Stopped
