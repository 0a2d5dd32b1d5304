"""Messages as bytes and back: msgpack, typed, no pickle."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from slipstream.base.errors import EngineError, SlipstreamError
from slipstream.wire.messages import ToEngine, ToFrontend

_encoder = msgspec.msgpack.Encoder()
_to_engine: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
_to_frontend: msgspec.msgpack.Decoder[ToFrontend] = msgspec.msgpack.Decoder(ToFrontend)


def encode(message: ToEngine | ToFrontend) -> bytes:
    """Return one message as bytes."""
    return _encoder.encode(message)


def decode_to_engine(frame: bytes) -> ToEngine:
    """Return the message that the front end sent.

    Raises:
        EngineError: the bytes are not such a message.
    """
    return _decode(_to_engine, frame)


def decode_to_frontend(frame: bytes) -> ToFrontend:
    """Return the message that the engine sent.

    Raises:
        EngineError: the bytes are not such a message.
    """
    return _decode(_to_frontend, frame)


_Message = TypeVar("_Message")


def _decode(decoder: msgspec.msgpack.Decoder[_Message], frame: bytes) -> _Message:
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, SlipstreamError, RecursionError) as error:
        raise EngineError(f"a message of {len(frame)} bytes cannot be read: {error}") from error
