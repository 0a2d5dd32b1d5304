"""Messages as bytes and back: msgpack, typed, no pickle."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from slipstream.base.errors import EngineError, SlipstreamError
from slipstream.wire.messages import ToEngine, ToFrontend
from slipstream.wire.ranks import ToLeader, ToWorker

_encoder = msgspec.msgpack.Encoder()
_to_engine: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
_to_frontend: msgspec.msgpack.Decoder[ToFrontend] = msgspec.msgpack.Decoder(ToFrontend)
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_to_leader: msgspec.msgpack.Decoder[ToLeader] = msgspec.msgpack.Decoder(ToLeader)


def encode(message: ToEngine | ToFrontend | ToWorker | ToLeader) -> bytes:
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


def decode_to_worker(frame: bytes) -> ToWorker:
    """Return the message that rank 0 sent to another rank.

    Raises:
        EngineError: the bytes are not such a message.
    """
    return _decode(_to_worker, frame)


def decode_to_leader(frame: bytes) -> ToLeader:
    """Return the message that another rank sent to rank 0.

    Raises:
        EngineError: the bytes are not such a message.
    """
    return _decode(_to_leader, frame)


_Message = TypeVar("_Message")


def _decode(decoder: msgspec.msgpack.Decoder[_Message], frame: bytes) -> _Message:
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, SlipstreamError, RecursionError) as error:
        raise EngineError(f"a message of {len(frame)} bytes cannot be read: {error}") from error
