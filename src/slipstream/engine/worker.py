"""A rank other than the first: `python -m slipstream.engine.worker --config FILE --address ADDR`.

It connects a PAIR socket to rank 0, says what it runs on, meets the other ranks, loads, and then runs every step that
rank 0 runs. It decides nothing and its results are read by nobody. It ends when it is told to, when its parent is gone
(`watch`), or with one `RankFailed` message when something inside breaks.
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq

from slipstream.base.errors import EngineError, SlipstreamError
from slipstream.config.schema import EngineConfig
from slipstream.engine.rank_setup import WorkerOrder, identity_of
from slipstream.parallel.group import TensorParallelGroup, connect
from slipstream.parallel.mesh import Mesh
from slipstream.runner.agreement import probe_step, read_probe
from slipstream.runner.build import BuiltRunner, build_runner
from slipstream.wire.codec import decode_to_worker, encode
from slipstream.wire.messages import Progress
from slipstream.wire.ranks import Hello, Leave, Loaded, Meet, RankFailed, RunStep, StepAgreement, ToWorker, WarmUp

LAST_WORDS_MS = 2000
"""How long the process waits, when it ends, for its last message to be taken."""

Build = Callable[[EngineConfig, Callable[[Progress], None], TensorParallelGroup], BuiltRunner]


def main(arguments: list[str] | None = None, *, build: Build = build_runner) -> int:
    """Run one rank and return its exit code.

    Args:
        arguments: of the command line; None takes this process's.
        build: makes the rank's runner; tests put another one in its place.
    """
    parser = argparse.ArgumentParser(prog="slipstream.engine.worker", description=__doc__)
    parser.add_argument("--config", required=True, help="file holding the WorkerOrder as JSON")
    parser.add_argument("--address", required=True, help="address of rank 0's PAIR socket")
    options = parser.parse_args(arguments)
    # Rank 0 decides when to end: an interrupt at the terminal reaches it too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    socket = zmq.Context.instance().socket(zmq.PAIR)
    socket.set(zmq.SNDHWM, 0)
    socket.set(zmq.RCVHWM, 0)
    socket.set(zmq.LINGER, LAST_WORDS_MS)
    socket.connect(options.address)
    order = msgspec.json.decode(Path(options.config).read_bytes(), type=WorkerOrder)
    try:
        _work(order, socket, build)
    except SlipstreamError as error:
        socket.send(encode(RankFailed(rank=order.rank, kind=type(error).__name__, reason=str(error))))
        return 1
    except Exception as error:  # noqa: BLE001 - the boundary of the process: anything becomes one report
        traceback.print_exc(file=sys.stderr)
        reason = f"{type(error).__name__}: {error}"
        socket.send(encode(RankFailed(rank=order.rank, kind=EngineError.__name__, reason=reason)))
        return 1
    finally:
        socket.close()
    return 0


def _work(order: WorkerOrder, socket: zmq.Socket[bytes], build: Build) -> None:
    config = order.config
    socket.send(encode(Hello(rank=order.rank, identity=identity_of(config))))
    meet = _next(socket)
    if not isinstance(meet, Meet):
        return
    mesh = Mesh(config.parallel.tp_size, order.rank)
    group = connect(mesh, init_method=meet.init_method, backend="gloo", timeout_s=order.timeout_s)
    try:
        built = build(config, _ignore, group)
        socket.send(encode(Loaded(rank=order.rank)))
        while not isinstance(message := _next(socket), Leave):
            agreement = _obey(message, built, order)
            if agreement is not None:
                socket.send(encode(agreement))
    finally:
        # HAZARD: ranks that wait for this one in a collective see it leave only when its connections close.
        group.close()


def _obey(message: ToWorker, built: BuiltRunner, order: WorkerOrder) -> StepAgreement | None:
    if isinstance(message, WarmUp):
        built.runner.warm_up()
        return None
    if not isinstance(message, RunStep):
        raise EngineError(f"rank {order.rank} was told {type(message).__name__} while it was running")
    handle = built.runner.submit(message.plan)
    if not order.config.parallel.check_ranks:
        return None
    rows = read_probe(probe_step(built.rows, message.plan, handle))
    return StepAgreement(rank=order.rank, step_id=message.plan.step_id, rows=rows)


def _next(socket: zmq.Socket[bytes]) -> ToWorker:
    return decode_to_worker(socket.recv())


def _ignore(progress: Progress) -> None:
    del progress


if __name__ == "__main__":
    sys.exit(main())
