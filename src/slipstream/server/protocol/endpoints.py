"""Every endpoint with its tables: what the reference page of the HTTP interface is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import BaseModel

from slipstream.server.protocol.chat_requests import ChatRequest
from slipstream.server.protocol.chat_responses import ChatChunk, ChatCompletion
from slipstream.server.protocol.fields import (
    CHAT_REFUSED,
    COMPLETION_IGNORED,
    COMPLETION_REFUSED,
    IGNORED,
    REFUSED,
    TOKENIZE_REFUSED,
    Ignored,
    Refused,
)
from slipstream.server.protocol.messages.errors import MessagesErrorBody
from slipstream.server.protocol.messages.requests import (
    MESSAGES_IGNORED,
    MESSAGES_REFUSED,
    CountTokensRequest,
    MessagesRequest,
)
from slipstream.server.protocol.messages.responses import Message, MessagesEvent, TokenCount
from slipstream.server.protocol.requests import CompletionRequest, DetokenizeRequest, TokenizeRequest
from slipstream.server.protocol.response_api.requests import RESPONSES_IGNORED, RESPONSES_REFUSED, ResponseRequest
from slipstream.server.protocol.response_api.responses import ResponseBody, ResponseEvent
from slipstream.server.protocol.responses import (
    Completion,
    CompletionChunk,
    Detokenized,
    ErrorBody,
    Health,
    Model,
    ModelList,
    Tokenized,
    Version,
)


@dataclass(frozen=True)
class Endpoint:
    """One endpoint.

    Args:
        method: GET or POST.
        path: of the URL.
        purpose: in a few words.
        accepts: the request model whose fields are accepted; None for GET.
        ignored, refused: see `fields`.
        answers: the struct that a 200 carries as JSON; None for an answer in another media type.
        events: the struct, or union of structs, in the data of each event of a stream; None where nothing streams.
        error: the struct of every error.
        unready: the struct of a 503 that is no error.
        media_type: of an answer that no struct describes.
    """

    method: str
    path: str
    purpose: str
    accepts: type[BaseModel] | None = None
    ignored: tuple[Ignored, ...] = ()
    refused: tuple[Refused, ...] = ()
    answers: Any = None
    events: Any = None
    error: type[msgspec.Struct] = ErrorBody
    unready: type[msgspec.Struct] | None = None
    media_type: str = "application/json"


MAX_CONTEXTS = 2
"""How many context lengths /tokenize and /detokenize take: more than one, to see by how much a text is too long."""

CHAT = Endpoint(
    "POST",
    "/v1/chat/completions",
    "answer a conversation",
    ChatRequest,
    IGNORED,
    (*REFUSED, *CHAT_REFUSED),
    answers=ChatCompletion,
    events=ChatChunk,
)
COMPLETIONS = Endpoint(
    "POST",
    "/v1/completions",
    "continue prompts",
    CompletionRequest,
    (*IGNORED, *COMPLETION_IGNORED),
    (*REFUSED, *COMPLETION_REFUSED),
    answers=Completion,
    events=CompletionChunk,
)
MESSAGES = Endpoint(
    "POST",
    "/v1/messages",
    "answer a conversation, in the shapes of the Anthropic Messages API",
    MessagesRequest,
    MESSAGES_IGNORED,
    MESSAGES_REFUSED,
    answers=Message,
    events=MessagesEvent,
    error=MessagesErrorBody,
)
COUNT_TOKENS = Endpoint(
    "POST",
    "/v1/messages/count_tokens",
    "tokens of a conversation as /v1/messages would prompt with it",
    CountTokensRequest,
    MESSAGES_IGNORED,
    MESSAGES_REFUSED,
    answers=TokenCount,
    error=MessagesErrorBody,
)
RESPONSES = Endpoint(
    "POST",
    "/v1/responses",
    "answer a conversation, in the shapes of the OpenAI Responses API",
    ResponseRequest,
    RESPONSES_IGNORED,
    RESPONSES_REFUSED,
    answers=ResponseBody,
    events=ResponseEvent,
)
TOKENIZE = Endpoint(
    "POST", "/tokenize", "text or messages to token ids", TokenizeRequest, (), TOKENIZE_REFUSED, answers=Tokenized
)
DETOKENIZE = Endpoint("POST", "/detokenize", "token ids to text", DetokenizeRequest, answers=Detokenized)
OPENAPI = Endpoint("GET", "/openapi.json", "this interface as an OpenAPI 3.1 document", answers=dict[str, Any])

ENDPOINTS: tuple[Endpoint, ...] = (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    COUNT_TOKENS,
    RESPONSES,
    Endpoint("GET", "/v1/models", "the served model", answers=ModelList),
    Endpoint("GET", "/v1/models/{model}", "the served model, by name", answers=Model),
    TOKENIZE,
    DETOKENIZE,
    Endpoint(
        "GET",
        "/health",
        "200 when requests are accepted, else 503 with the state and the reason",
        answers=Health,
        unready=Health,
    ),
    Endpoint("GET", "/metrics", "metrics in Prometheus text format 0.0.4", media_type="text/plain"),
    Endpoint("GET", "/version", "version of the server", answers=Version),
    OPENAPI,
)
