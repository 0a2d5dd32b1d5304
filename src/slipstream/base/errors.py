"""The error tree of the project. Every message says what was given, what is allowed and what to do.

SlipstreamError
├─ RequestError            the caller's request is at fault (HTTP 400)
│  ├─ UnsupportedFeature   understood, but not served yet (HTTP 400, with the reason)
│  └─ ContextLengthError   prompt or prompt + max_tokens cannot fit (HTTP 400)
├─ OverloadedError         the queue is full or the server is draining (HTTP 503, Retry-After)
├─ ConfigError             an option or a combination of options (exit code 2)
├─ CheckpointError         files of a model: config fields, missing or misshaped tensors
├─ CapacityError           not enough memory; carries the exact numbers
├─ KernelError             a contract was violated, or no implementation accepts the formats
│  └─ ShapeError
└─ EngineError             an internal fault; the engine reports it and ends cleanly
"""

from __future__ import annotations


class SlipstreamError(Exception):
    """Base of all errors that this project raises on purpose."""


class RequestError(SlipstreamError):
    """A request that cannot be served as asked.

    Args:
        message: what was given, what is allowed, what to do.
        param: the request field at fault, or None.
        code: a short machine-readable word, or None.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class UnsupportedFeature(RequestError):
    """A known request field whose value is not served yet; the message carries the reason."""


class ContextLengthError(RequestError):
    """A prompt, or a prompt with its max_tokens, that cannot fit the context or the cache."""


class OverloadedError(SlipstreamError):
    """The queue is full or the server is draining; retry after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ConfigError(SlipstreamError):
    """An option, or a combination of options, that cannot be resolved."""


class CheckpointError(SlipstreamError):
    """A checkpoint that cannot be read as a whole: the message names the field, tensor or file."""


class CapacityError(SlipstreamError):
    """Not enough memory for what was asked; the message carries needed and available bytes."""


class KernelError(SlipstreamError):
    """A kernel contract was violated, or no implementation accepts the formats."""


class ShapeError(KernelError):
    """An axis or dtype disagrees with a kernel contract."""


class EngineError(SlipstreamError):
    """An internal fault. Requests in flight get one terminal error each."""
