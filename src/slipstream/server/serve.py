"""Run the server: bind, start the engine, serve, drain, end.

The port is bound before the engine is started: a taken port is reported at once, and while the model loads /health
answers 503 with the stage, so that a load balancer sees a server that is not ready instead of none.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
import uvloop

from slipstream.base.errors import ConfigError
from slipstream.base.log import log_fields
from slipstream.frontend.async_llm import AsyncLLM
from slipstream.server.app import create_app
from slipstream.server.edge.connection import DEFAULT_LIMITS, Connection, ConnectionLimits
from slipstream.wire.messages import Progress

_LOG = logging.getLogger("slipstream.server")
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
FLUSH_S = 5
"""Seconds that a client gets to read the end of an answer that is already complete, and, when the engine has died,
that /health goes on saying so before the server ends."""

MAX_CONNECTIONS = 4096
"""Most connections at once; a further one is answered 503."""

_KEEP_ALIVE_S = 75


def serve(
    config: Any,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    on_listening: Callable[[str], None] | None = None,
    on_ready: Callable[[str], None] | None = None,
    launch: Callable[..., AsyncLLM] = AsyncLLM.launch,
) -> None:
    """Serve until a stop signal; then drain and return.

    SIGTERM or SIGINT: new requests are answered 503, those in flight get `config.server.drain_s` seconds. A second
    signal ends at once. When the engine dies, requests in flight get their error, everything is answered 503 for a
    moment, and the server ends with the engine's error.

    Args:
        config: the EngineConfig.
        on_progress: told of loading and warm-up.
        on_listening: told the URL once the port is bound.
        on_ready: told the URL once requests are accepted.
        launch: starts the front end; tests put another engine behind it.

    Raises:
        ConfigError: more than one rank, or the address cannot be bound.
        SlipstreamError: the engine could not start.
        EngineError: it died.
    """
    _check_ranks(config.parallel.tp_size)
    logging.getLogger("uvicorn.error").addFilter(_is_untold)
    listener = bind(config.server.host, config.server.port)
    url = _url(config.server.host, listener)
    with contextlib.closing(listener), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if on_listening is not None:
            on_listening(url)
        runner.run(_serve(config, listener, on_progress, lambda: on_ready(url) if on_ready else None, launch))


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Args:
        host: name or address.
        port: 0 takes a free one.

    Raises:
        ConfigError: the address is unknown, taken or not allowed.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"host {host!r} cannot be resolved: {error}") from error
    family, _, _, _, address = found[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} on {host} is taken: end the process that holds it, or choose another with --port"
            ) from error
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def http_config(
    app: Any, *, max_connections: int = MAX_CONNECTIONS, limits: ConnectionLimits = DEFAULT_LIMITS
) -> uvicorn.Config:
    """Return how HTTP is spoken.

    Args:
        app: the ASGI application.
        max_connections: most connections at once.
        limits: of each of them.
    """
    return uvicorn.Config(
        app,
        # uvicorn makes connections by calling this with its settings.
        http=functools.partial(Connection, limits=limits),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=FLUSH_S,
        # The server counts the connection that it is about to answer too, and refuses at the limit.
        limit_concurrency=max_connections + 1,
    )


def _check_ranks(tp_size: int) -> None:
    if tp_size > 1:
        raise ConfigError(
            f"tp={tp_size}: a server runs one rank, because ranks are not supervised yet: one that is lost ends the "
            "engine, and nothing starts it again; allowed: 1 (a Python program may use LLM(..., tp=2))"
        )


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: ours drain first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Stopper:
    """Reacts to stop signals: the first drains, the second ends at once."""

    def __init__(self, llm: AsyncLLM, server: _Server, drain_s: float) -> None:
        self._llm = llm
        self._server = server
        self._drain_s = drain_s
        self._draining: asyncio.Task[None] | None = None

    def on_signal(self) -> None:
        """Take one stop signal."""
        if self._draining is None:
            num_streams = self._llm.status.num_streams
            if num_streams:
                log_fields(
                    _LOG, logging.INFO, "stopping: requests in flight may end", num=num_streams, within_s=self._drain_s
                )
            else:
                log_fields(_LOG, logging.INFO, "stopping: no request is in flight")
            self._draining = asyncio.create_task(self._drain())
        else:
            self._server.force_exit = self._server.should_exit = True

    async def _drain(self) -> None:
        await self._llm.drain(self._drain_s)
        self._server.should_exit = True


async def _serve(
    config: Any,
    listener: socket.socket,
    on_progress: Callable[[Progress], None] | None,
    on_ready: Callable[[], None],
    launch: Callable[..., AsyncLLM],
) -> None:
    llm = launch(config, on_progress=on_progress)
    try:
        app = create_app(llm, api_keys=config.server.api_keys)
        server = _Server(http_config(app))
        loop = asyncio.get_running_loop()
        stopper = _Stopper(llm, server, config.server.drain_s)
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, stopper.on_signal)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        starting = asyncio.create_task(llm.wait_ready())
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
        elif starting.exception() is None:
            on_ready()
            await _serve_while_alive(server, serving, llm)
        else:
            server.should_exit = True
        await serving
        if starting.done() and not starting.cancelled():
            starting.result()
    finally:
        await llm.close()


async def _serve_while_alive(server: _Server, serving: asyncio.Task[None], llm: AsyncLLM) -> None:
    """Wait for the end of the server; end it when the engine dies.

    Raises:
        EngineError: the engine died.
    """
    dying = asyncio.create_task(llm.wait_dead())
    await asyncio.wait({serving, dying}, return_when=asyncio.FIRST_COMPLETED)
    if not dying.done():
        dying.cancel()
        return
    await asyncio.wait({serving}, timeout=FLUSH_S)
    server.should_exit = True
    await serving
    raise dying.result()


def _is_untold(record: logging.LogRecord) -> bool:
    """Leave out uvicorn's line about a failed handler, which quotes the exception; `RequestLog` has told of it."""
    return record.exc_info is None


def _url(host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"
