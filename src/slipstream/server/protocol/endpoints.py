"""Every endpoint with its tables: what the reference page of the HTTP interface is made of."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from slipstream.server.protocol.fields import (
    CHAT_REFUSED,
    COMPLETION_REFUSED,
    IGNORED,
    REFUSED,
    TOKENIZE_REFUSED,
    Ignored,
    Refused,
)
from slipstream.server.protocol.requests import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest


@dataclass(frozen=True)
class Endpoint:
    """One endpoint.

    Args:
        method: GET or POST.
        path: of the URL.
        purpose: in a few words.
        accepts: the request model whose fields are accepted; None for GET.
        ignored, refused: see `fields`.
    """

    method: str
    path: str
    purpose: str
    accepts: type[BaseModel] | None = None
    ignored: tuple[Ignored, ...] = ()
    refused: tuple[Refused, ...] = ()


MAX_CONTEXTS = 2
"""How many context lengths /tokenize and /detokenize take: more than one, to see by how much a text is too long."""

CHAT = Endpoint(
    "POST", "/v1/chat/completions", "answer a conversation", ChatRequest, IGNORED, (*REFUSED, *CHAT_REFUSED)
)
COMPLETIONS = Endpoint(
    "POST", "/v1/completions", "continue prompts", CompletionRequest, IGNORED, (*REFUSED, *COMPLETION_REFUSED)
)
TOKENIZE = Endpoint("POST", "/tokenize", "text or messages to token ids", TokenizeRequest, (), TOKENIZE_REFUSED)
DETOKENIZE = Endpoint("POST", "/detokenize", "token ids to text", DetokenizeRequest)

ENDPOINTS: tuple[Endpoint, ...] = (
    CHAT,
    COMPLETIONS,
    Endpoint("GET", "/v1/models", "the served model"),
    Endpoint("GET", "/v1/models/{model}", "the served model, by name"),
    TOKENIZE,
    DETOKENIZE,
    Endpoint("GET", "/health", "200 when requests are accepted, else 503 with the state and the reason"),
    Endpoint("GET", "/metrics", "metrics in Prometheus text format 0.0.4"),
    Endpoint("GET", "/version", "version of the server"),
)
