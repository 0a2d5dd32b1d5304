"""A server elsewhere, over /v1/chat/completions. Any server of the OpenAI dialect answers; ours also tells origins."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

import httpx

from slipstream.base.errors import ConfigError, EngineError, RequestError, SlipstreamError
from slipstream.cli.chat.source import ChatEvent, Ended, Part, Piece, Settings
from slipstream.cli.client_key import KEY_REMEDY
from slipstream.harness.client import iterate_events, read_speculation

_CONNECT_S = 10.0
_SILENCE_S = 600.0
_MAX_SHOWN = 200
_PARTS: dict[str, Part] = {"reasoning": "reasoning", "content": "content", "call": "call"}


class RemoteSource:
    """Answers from a server.

    Args:
        base_url: scheme, host and port, with or without `/v1`.
        api_key: sent as a bearer token when given.
        transport: replaces the network in tests.

    Raises:
        ConfigError: it is not the URL of a server.
    """

    def __init__(
        self, base_url: str, *, api_key: str | None = None, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._url = base_url.rstrip("/").removesuffix("/v1")
        if not self._url.startswith(("http://", "https://")):
            raise ConfigError(f"--url {base_url[:_MAX_SHOWN]}: give http://HOST:PORT or https://HOST")
        try:
            self._client = httpx.AsyncClient(
                base_url=self._url,
                headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
                timeout=httpx.Timeout(_SILENCE_S, connect=_CONNECT_S),
                transport=transport,
                trust_env=False,
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise ConfigError(f"--url {base_url[:_MAX_SHOWN]} or its key cannot be sent: {error}") from None
        self._model = ""
        self._engine: Mapping[str, Any] = {}

    async def find_model(self) -> None:
        """Ask what is served there.

        Raises:
            SlipstreamError: nothing can be asked there; the message says why.
        """
        try:
            answer = await self._client.get("/v1/models")
            if answer.status_code != httpx.codes.OK:
                raise _refusal(answer.status_code, answer.content)
            model = answer.json()["data"][0]
            self._model = str(model["id"])
            self._engine = model.get("engine") or {}
        except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise self._unreachable(error) from None

    def describe(self) -> str:
        """Return what answers, in a few words."""
        words = [f"{name} {value}" for name, value in self._engine.items() if isinstance(value, str | int)]
        return ", ".join([f"{self._model} at {self._url}", *words])

    async def answer(
        self, messages: Sequence[Mapping[str, Any]], settings: Settings
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield the answer; see `ChatSource`."""
        settings.sampling()
        fields = {
            "temperature": settings.temperature,
            "seed": settings.seed,
            "max_tokens": settings.max_tokens,
            "chat_template_kwargs": settings.template_kwargs or None,
        }
        body = {
            "model": self._model,
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_origins": True,
            **{name: value for name, value in fields.items() if value is not None},
        }
        finish_reason, usage = None, {}
        async with contextlib.aclosing(self._events(body)) as events:
            async for event in events:
                for choice in event.get("choices") or ():
                    for piece in read_pieces(choice):
                        yield piece
                    finish_reason = choice.get("finish_reason") or finish_reason
                usage = event.get("usage") or usage
        if finish_reason is None:
            raise EngineError("the server closed the stream before the end of the answer")
        yield _ended(finish_reason, usage)

    async def close(self) -> None:
        """Close the connections. May be called twice."""
        await self._client.aclose()

    async def _events(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        try:
            async with self._client.stream("POST", "/v1/chat/completions", json=body) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise _refusal(answer.status_code, await answer.aread())
                async for event in iterate_events(answer.aiter_lines()):
                    if event.get("error"):
                        raise EngineError(_message_of(event))
                    yield event
        except (httpx.HTTPError, json.JSONDecodeError) as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> SlipstreamError:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return EngineError(f"{self._url} cannot be reached ({error}): is the server running there?")
        said = f"{type(error).__name__}: {error}"[:_MAX_SHOWN]
        return EngineError(f"{self._url} did not answer as a server of this kind does ({said})")


def read_pieces(choice: Mapping[str, Any]) -> Iterator[Piece]:
    """Yield the pieces of one choice of a chunk; without origins they are whole texts whose origin is unknown."""
    tokens = choice.get("token_origins")
    if tokens:
        for token in tokens:
            yield Piece(str(token["text"]), bool(token["is_draft"]), _PARTS.get(token.get("part"), "content"))
        return
    delta = choice.get("delta") or {}
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    if reasoning:
        yield Piece(str(reasoning), None, "reasoning")
    if delta.get("content"):
        yield Piece(str(delta["content"]), None)


def _ended(finish_reason: str, usage: Mapping[str, Any]) -> Ended:
    num_verify_steps, num_draft_tokens, num_accepted, num_emitted = read_speculation(usage)
    return Ended(
        finish_reason=finish_reason,
        num_prompt_tokens=int(usage.get("prompt_tokens") or 0),
        num_output_tokens=int(usage.get("completion_tokens") or 0),
        num_verify_steps=num_verify_steps,
        num_draft_tokens=num_draft_tokens,
        num_accepted=num_accepted,
        num_emitted=num_emitted,
    )


def _refusal(status: int, body: bytes) -> SlipstreamError:
    code = None
    try:
        said = json.loads(body)
        message, code = _message_of(said), _code_of(said)
    except ValueError:
        message = body.decode("utf-8", errors="replace")[:_MAX_SHOWN]
    if status == httpx.codes.UNAUTHORIZED:
        return RequestError(f"{message} ({KEY_REMEDY})")
    text = f"the server answered {status}: {message}"
    return RequestError(text, code=code) if status < httpx.codes.INTERNAL_SERVER_ERROR else EngineError(text)


def _code_of(body: Any) -> str | None:
    error = body.get("error") if isinstance(body, Mapping) else None
    code = error.get("code") if isinstance(error, Mapping) else None
    return code if isinstance(code, str) else None


def _message_of(body: Any) -> str:
    error = body.get("error") if isinstance(body, Mapping) else None
    return str(error.get("message") or error) if isinstance(error, Mapping) else str(error or body)[:_MAX_SHOWN]
