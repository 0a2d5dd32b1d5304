"""The engine process: `python -m slipstream.engine.main --config FILE --address ADDR`.

It connects a PAIR socket to the front end, tells of its loading, then turns the loop and speaks `wire.messages`. It
ends on Shutdown, when its parent is gone, or with one `Failed` message when something inside breaks.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from pathlib import Path

import msgspec
import zmq

from slipstream.base.errors import SlipstreamError
from slipstream.config.schema import EngineConfig
from slipstream.engine.core import EngineCore
from slipstream.wire.codec import decode_to_engine, encode
from slipstream.wire.messages import (
    Abort,
    Failed,
    Outputs,
    Progress,
    Ready,
    RequestOutput,
    Shutdown,
    Stopped,
    Submit,
)
from slipstream.wire.request import Request

LAST_WORDS_MS = 2000
"""How long the process waits, when it ends, for its last message to be taken."""

IDLE_POLL_MS = 200
"""How often an idle engine looks whether its parent still lives."""


def main(arguments: list[str] | None = None) -> int:
    """Run the engine process and return its exit code."""
    parser = argparse.ArgumentParser(prog="slipstream.engine.main", description=__doc__)
    parser.add_argument("--config", required=True, help="file holding the EngineConfig as JSON")
    parser.add_argument("--address", required=True, help="address of the front end's PAIR socket")
    options = parser.parse_args(arguments)
    # The front end decides when to end: an interrupt at the terminal reaches it too, and it drains.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    socket = zmq.Context.instance().socket(zmq.PAIR)
    # News must never be dropped or make the loop wait for a slow reader; the front end bounds what can queue up.
    socket.set(zmq.SNDHWM, 0)
    socket.set(zmq.RCVHWM, 0)
    socket.set(zmq.LINGER, LAST_WORDS_MS)
    socket.connect(options.address)
    parent = os.getppid()
    try:
        config = msgspec.json.decode(Path(options.config).read_bytes(), type=EngineConfig)
        return _serve(config, socket, parent)
    except SlipstreamError as error:
        socket.send(encode(Failed(kind=type(error).__name__, reason=str(error))))
        return 1
    except Exception as error:  # noqa: BLE001 - the boundary of the process: anything becomes one report
        traceback.print_exc(file=sys.stderr)
        socket.send(encode(Failed(kind="EngineError", reason=f"{type(error).__name__}: {error}")))
        return 1
    finally:
        socket.close()


def _serve(config: EngineConfig, socket: zmq.Socket[bytes], parent: int) -> int:
    # Imported here so that a bad configuration is reported before torch is loaded.
    from slipstream.engine.assemble import assemble

    def tell(progress: Progress) -> None:
        socket.send(encode(progress))

    core, facts = assemble(config, tell)
    socket.send(encode(Ready(facts=facts)))
    try:
        return _turn_until_told(core, socket, parent)
    finally:
        core.close()


def _turn_until_told(core: EngineCore, socket: zmq.Socket[bytes], parent: int) -> int:
    is_draining = False
    told = core.stats()
    while True:
        shutdown, news = _receive(core, socket, wait=not core.has_work)
        if shutdown is not None:
            is_draining = True
            if not shutdown.drain:
                break
        if core.has_work:
            news.extend(core.turn())
        stats = core.stats()
        if news or stats != told:
            told = stats
            socket.send(encode(Outputs(outputs=tuple(news), stats=stats)))
        if is_draining and not core.has_work:
            break
        if os.getppid() != parent:
            return 1
    socket.send(encode(Stopped()))
    return 0


def _receive(core: EngineCore, socket: zmq.Socket[bytes], *, wait: bool) -> tuple[Shutdown | None, list[RequestOutput]]:
    """Take every message that is there; while idle, wait for the first one for a moment."""
    news: list[RequestOutput] = []
    if wait and not socket.poll(IDLE_POLL_MS):
        return None, news
    while socket.poll(0):
        message = decode_to_engine(socket.recv())
        if isinstance(message, Shutdown):
            return message, news
        answer = _take(core, message)
        if answer is not None:
            news.append(answer)
    return None, news


def _take(core: EngineCore, message: Submit | Abort) -> RequestOutput | None:
    if isinstance(message, Abort):
        return core.abort(message.request_id)
    request: Request = message.request
    return core.submit(request)


if __name__ == "__main__":
    sys.exit(main())
