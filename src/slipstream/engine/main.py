"""The engine process: `python -m slipstream.engine.main --config FILE --address ADDR`.

It connects a PAIR socket to the front end, tells of its loading, then turns the loop and speaks `wire.messages`. It
ends on Shutdown, when its parent is gone, or with one `Failed` message when something inside breaks.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import zmq

from slipstream.base.errors import ContextLengthError, RequestError, SlipstreamError, UnsupportedFeature
from slipstream.base.log import log_fields, set_up_logging
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

_LOG = logging.getLogger("slipstream.engine")
LAST_WORDS_MS = 2000
"""How long the process waits, when it ends, for its last message to be taken."""

IDLE_POLL_MS = 200
"""How often an idle engine looks whether its parent still lives."""

HEARTBEAT_S = 1.0
"""How often an engine that only waits for compilations speaks: its silence would be taken for a hang."""

CALLERS_FAULTS = frozenset(kind.__name__ for kind in (RequestError, ContextLengthError, UnsupportedFeature))
"""Errors whose message may quote a request."""


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
        set_up_logging(config.server.log_format, config.server.log_level, process="engine")
        return _serve(config, socket, parent)
    except SlipstreamError as error:
        socket.send(encode(Failed(kind=type(error).__name__, reason=str(error))))
        return 1
    except Exception as error:  # noqa: BLE001 - the boundary of the process: anything becomes one report
        _LOG.exception("the engine failed")
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
    core.prepare()
    try:
        return _turn_until_told(core, socket, parent)
    finally:
        core.close()


def _turn_until_told(core: EngineCore, socket: zmq.Socket[bytes], parent: int) -> int:
    is_draining = False
    told, spoken_s = core.stats(), time.monotonic()
    while True:
        shutdown, news = _receive(core, socket, wait=not core.can_turn)
        if shutdown is not None:
            is_draining = True
            if not shutdown.drain:
                break
        if core.can_turn:
            news.extend(core.turn())
        stats = core.stats()
        is_quiet = core.has_work and not core.can_turn and time.monotonic() - spoken_s >= HEARTBEAT_S
        if news or stats != told or is_quiet:
            told, spoken_s = stats, time.monotonic()
            log_ends(news)
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
    if wait:
        _wait(core, socket)
    while socket.poll(0):
        message = decode_to_engine(socket.recv())
        if isinstance(message, Shutdown):
            return message, news
        answer = _take(core, message)
        if answer is not None:
            news.append(answer)
    return None, news


def _wait(core: EngineCore, socket: zmq.Socket[bytes]) -> None:
    """Wait for a message or for the end of a compilation, for a moment."""
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    wake = core.wake
    if wake is not None:
        poller.register(wake, zmq.POLLIN)
    poller.poll(IDLE_POLL_MS)
    if wake is not None:
        # Before the next look at compilations: what ends from here on sounds again.
        wake.reset()


def _take(core: EngineCore, message: Submit | Abort) -> RequestOutput | None:
    if isinstance(message, Abort):
        return core.abort(message.request_id)
    request: Request = message.request
    log_begin(request)
    return core.submit(request)


def log_begin(request: Request) -> None:
    """Write, for debugging, that a request was taken in: its sizes, nothing of its text."""
    if _LOG.isEnabledFor(logging.DEBUG):
        log_fields(
            _LOG,
            logging.DEBUG,
            "request queued",
            request_id=request.request_id,
            prompt_tokens=len(request.prompt_token_ids),
            max_seq_len=request.max_seq_len,
            verification=request.verification,
        )


def log_ends(outputs: Sequence[RequestOutput]) -> None:
    """Write how requests ended: a warning for one that failed, and for debugging any other.

    Args:
        outputs: news of one step.
    """
    for output in outputs:
        if output.finish_reason is None:
            continue
        if output.finish_reason == "error":
            # What is wrong with a request may quote it, and what people send is not logged.
            is_callers = output.error_kind in CALLERS_FAULTS
            reason = {"kind": output.error_kind, "code": output.error_code} if is_callers else {"reason": output.error}
            log_fields(_LOG, logging.WARNING, "request failed", request_id=output.request_id, **reason)
        elif _LOG.isEnabledFor(logging.DEBUG):
            log_fields(
                _LOG,
                logging.DEBUG,
                "request ended",
                request_id=output.request_id,
                finish_reason=output.finish_reason,
                queue_s=output.queue_s,
                prefill_s=output.prefill_s,
                decode_s=output.decode_s,
                num_preemptions=output.num_preemptions,
            )


if __name__ == "__main__":
    sys.exit(main())
