"""One streamed request over HTTP, timed as a user's client would see it.

Speaks the OpenAI dialect, so any engine that serves it can be measured. Not here: who asks what and when (load).
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx
import msgspec

Clock = Callable[[], float]
_DATA = "data:"
_DONE = "[DONE]"


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one request did.

    Args:
        domain: of the work item.
        start_s: when it was sent, on the run's clock.
        arrivals_s: when each piece of text arrived, from `start_s`; one piece may hold several tokens.
        end_s: when the stream ended, from `start_s`.
        num_prompt_tokens, num_output_tokens: from the server's usage; the pieces when it reports none.
        num_verify_steps, num_draft_tokens, num_accepted, num_emitted: from the server's usage, 0 when it reports none.
        finish_reason: as reported, or None.
        error: what went wrong, or None.
    """

    domain: str
    start_s: float
    arrivals_s: tuple[float, ...] = ()
    end_s: float = 0.0
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_verify_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted: int = 0
    num_emitted: int = 0
    finish_reason: str | None = None
    error: str | None = None

    @property
    def ttft_s(self) -> float | None:
        """Seconds from sending to the first text, or None when none came."""
        return self.arrivals_s[0] if self.arrivals_s else None

    @property
    def time_per_output_token_s(self) -> float | None:
        """Mean seconds per token after the first, or None with fewer than two tokens."""
        if self.num_output_tokens < 2 or not self.arrivals_s:
            return None
        return (self.arrivals_s[-1] - self.arrivals_s[0]) / (self.num_output_tokens - 1)

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """Seconds between pieces: what a reader sees as jerks."""
        return tuple(later - earlier for earlier, later in zip(self.arrivals_s, self.arrivals_s[1:], strict=False))


async def iterate_events(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON objects of a server-sent-event stream until its end mark.

    Comments and other fields are skipped. Every event of this dialect is one `data:` line.
    """
    async for line in lines:
        if not line.startswith(_DATA):
            continue
        payload = line.removeprefix(_DATA).strip()
        if payload == _DONE:
            return
        yield json.loads(payload)


class _Recorder:
    """Gathers what the events of one stream say."""

    def __init__(self, domain: str, start_s: float, clock: Clock) -> None:
        self._domain = domain
        self._start_s = start_s
        self._clock = clock
        self._arrivals_s: list[float] = []
        self._usage: Mapping[str, Any] = {}
        self._finish_reason: str | None = None
        self._error: str | None = None

    def add(self, event: Mapping[str, Any]) -> None:
        now = self._clock() - self._start_s
        if event.get("error"):
            self.fail(_error_text(event))
        for choice in event.get("choices") or ():
            if _has_text(choice):
                self._arrivals_s.append(now)
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
        self._usage = event.get("usage") or self._usage

    def fail(self, error: str) -> None:
        self._error = error

    def build(self) -> RequestRecord:
        speculation = read_speculation(self._usage)
        return RequestRecord(
            domain=self._domain,
            start_s=self._start_s,
            arrivals_s=tuple(self._arrivals_s),
            end_s=self._clock() - self._start_s,
            num_prompt_tokens=_count(self._usage, "prompt_tokens"),
            num_output_tokens=_count(self._usage, "completion_tokens") or len(self._arrivals_s),
            num_verify_steps=speculation[0],
            num_draft_tokens=speculation[1],
            num_accepted=speculation[2],
            num_emitted=speculation[3],
            finish_reason=self._finish_reason,
            error=self._error,
        )


def read_speculation(usage: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Return (verify steps, drafts, accepted, tokens that verify steps emitted); zeros where usage does not tell."""
    counts = usage.get("speculation") or {}
    return (
        _count(counts, "num_verify_steps"),
        _count(counts, "num_draft_tokens"),
        _count(counts, "num_accepted"),
        _count(counts, "num_emitted"),
    )


def _count(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _has_text(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    pieces = (choice.get("text"), delta.get("content"), delta.get("reasoning_content"), delta.get("reasoning"))
    return any(pieces) or bool(delta.get("tool_calls"))


def _error_text(body: object) -> str:
    error = body.get("error") if isinstance(body, Mapping) else None
    if isinstance(error, Mapping):
        return str(error.get("message") or error)
    return str(error or body)


class HttpClient:
    """Sends streamed requests to one server.

    Args:
        base_url: scheme, host and port, with or without `/v1`.
        api_key: sent as a bearer token when given.
        timeout_s: longest silence that is waited for.
        max_connections: requests that may be open at a time.
        clock: seconds, monotonic; injected by tests.
        transport: replaces the network in tests.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        max_connections: int = 1024,
        clock: Clock = time.perf_counter,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._clock = clock
        self._client = httpx.AsyncClient(
            base_url=base_url.rstrip("/").removesuffix("/v1"),
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
            timeout=httpx.Timeout(timeout_s, connect=10.0),
            limits=httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections),
            transport=transport,
            trust_env=False,
        )

    async def __aenter__(self) -> HttpClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def list_models(self) -> tuple[str, ...]:
        """Return the names of the models that the server lists, at least one.

        Raises:
            httpx.HTTPError: the server cannot be reached or refuses.
            IndexError: it lists none.
        """
        answer = await self._client.get("/v1/models")
        answer.raise_for_status()
        names = tuple(str(model["id"]) for model in answer.json()["data"])
        if not names:
            raise IndexError("the list is empty")
        return names

    async def send(self, path: str, body: Mapping[str, Any], *, domain: str = "") -> RequestRecord:
        """Send one streamed request and return what it did; failures are recorded, never raised."""
        recorder = _Recorder(domain, self._clock(), self._clock)
        payload = {**body, "stream": True, "stream_options": {"include_usage": True}}
        try:
            async with self._client.stream("POST", path, json=payload) as answer:
                if answer.status_code != httpx.codes.OK:
                    recorder.fail(f"HTTP {answer.status_code}: {_body_text(await answer.aread())}")
                else:
                    async for event in iterate_events(answer.aiter_lines()):
                        recorder.add(event)
        except (httpx.HTTPError, json.JSONDecodeError) as error:
            recorder.fail(f"{type(error).__name__}: {error}")
        return recorder.build()


def _body_text(body: bytes) -> str:
    try:
        return _error_text(json.loads(body))
    except ValueError:
        return body.decode("utf-8", errors="replace")[:200]
