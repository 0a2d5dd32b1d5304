"""An engine without a model: it echoes prompts in scripted runs and speaks the wire protocol.

`ScriptedEngine` is the machine; `FakeSyncEngine`, `FakeClient` and `python -m support.fake_engine` (a process) put it
behind the three doors of a front end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import zmq

from slipstream.wire.codec import decode_to_engine, encode
from slipstream.wire.messages import (
    Abort,
    EngineFacts,
    EngineStats,
    Failed,
    Outputs,
    Progress,
    Ready,
    RequestOutput,
    Shutdown,
    Stopped,
    Submit,
    ToFrontend,
)
from slipstream.wire.request import Request
from slipstream.wire.step import Alternatives

Script = Callable[[Request], Sequence[int]]


def fake_facts(**changes: Any) -> EngineFacts:
    """Return facts that fit the tiny tokenizer."""
    fields: dict[str, Any] = {
        "model_name": "tiny",
        "vocab_size": 400,
        "max_model_len": 512,
        "max_num_seqs": 4,
        "page_size": 8,
        "num_pages": 129,
        "num_cache_tokens": 1024,
        "drafter": "ngram",
        "draft_len": 3,
        "verification": "coupled",
        "device": "cpu",
        "dtype": "float32",
        "eos_token_ids": (),
    }
    return EngineFacts(**(fields | changes))


def echo(request: Request) -> list[int]:
    """Answer with the prompt, then the model's own end."""
    return [*request.prompt_token_ids, *request.eos_token_ids[:1]]


class ScriptedEngine:
    """Emits scripted tokens: one after the prefill, then runs of 1 to draft_len + 1 in turn.

    A constrained request is accepted first; one whose constraint reads `bad` is refused, and one that reads `slow`
    waits until `is_slow` is off.

    Args:
        facts: what it says of itself.
        script: the tokens it would like to answer with; repeated when they run out before the limit.
    """

    def __init__(self, facts: EngineFacts, script: Script = echo) -> None:
        self.facts = facts
        self.script = script
        self.running: dict[str, tuple[Request, list[int]]] = {}
        self.stats = EngineStats(num_pages=facts.num_pages - 1, num_free_pages=facts.num_pages - 1)
        self.submitted: list[Request] = []
        self.num_aborts = 0
        self.is_slow = True
        self.compiling: dict[str, Request] = {}
        self._news: list[RequestOutput] = []

    def submit(self, request: Request) -> None:
        self.submitted.append(request)
        if request.sampling.grammar is None:
            self._begin(request)
        else:
            self.compiling[request.request_id] = request

    def _compile(self) -> None:
        for request_id, request in list(self.compiling.items()):
            text = request.sampling.grammar.text if request.sampling.grammar is not None else ""
            if text == "slow" and self.is_slow:
                continue
            del self.compiling[request_id]
            if text in ("bad", "many"):
                kind = "RequestError" if text == "bad" else "OverloadedError"
                code = "invalid_grammar" if text == "bad" else None
                reason = f"the constraint cannot be used: {text}"
                self._news.append(
                    RequestOutput(
                        request_id=request_id, finish_reason="error", error=reason, error_kind=kind, error_code=code
                    )
                )
            else:
                self._news.append(RequestOutput(request_id=request_id, is_accepted=True))
                self._begin(request)

    def _begin(self, request: Request) -> None:
        self.running[request.request_id] = (request, [])
        self._count(num_prompt_tokens=len(request.prompt_token_ids))

    def abort(self, request_id: str) -> None:
        if self.running.pop(request_id, None) is not None or self.compiling.pop(request_id, None) is not None:
            self.num_aborts += 1
            times = {"queue_s": 0.001, "prefill_s": 0.002, "decode_s": 0.003}
            self._news.append(RequestOutput(request_id=request_id, finish_reason="abort", **times))

    def step(self) -> Outputs | None:
        self._compile()
        outputs, self._news = self._news, []
        for request_id, (request, emitted) in list(self.running.items()):
            outputs.append(self._advance(request_id, request, emitted))
        if not outputs:
            return None
        num_tokens = sum(len(output.token_ids) for output in outputs)
        self._count(num_generated_tokens=num_tokens, num_steps=1, num_step_tokens=num_tokens)
        self.stats = msgspec.structs.replace(self.stats, num_running=len(self.running))
        return Outputs(outputs=tuple(outputs), stats=self.stats)

    def _advance(self, request_id: str, request: Request, emitted: list[int]) -> RequestOutput:
        script = list(self.script(request)) or [0]
        is_first = not emitted
        num_drafts = 0 if is_first else self.facts.draft_len
        num_accepted = 0 if is_first else (len(emitted) + len(request.prompt_token_ids)) % (num_drafts + 1)
        run: list[int] = []
        reason = None
        for _ in range(num_accepted + 1):
            run.append(script[(len(emitted) + len(run)) % len(script)])
            if run[-1] in request.stop_token_ids:
                reason = "stop"
            elif len(request.prompt_token_ids) + len(emitted) + len(run) >= request.max_seq_len:
                reason = "length"
            if reason:
                break
        emitted.extend(run)
        if not is_first:
            accepted = min(num_accepted, len(run))
            self._count(num_drafts=1, num_draft_tokens=num_drafts, num_accepted_tokens=accepted)
        times = {}
        if reason:
            del self.running[request_id]
            times = {"queue_s": 0.001, "prefill_s": 0.002, "decode_s": 0.003}
        stopped_at = run[-1] if reason == "stop" and run[-1] not in request.eos_token_ids else None
        logprobs = ()
        if request.sampling.logprobs is not None:
            logprobs = tuple(-0.5 * (place + 1) for place in range(len(run)))
        prompt = request.prompt_token_ids[1:]
        has_prompt = is_first and request.sampling.prompt_logprobs is not None
        return RequestOutput(
            request_id=request_id,
            token_ids=tuple(run),
            num_draft_tokens=num_drafts,
            num_accepted=min(num_accepted, len(run)),
            is_verify_step=not is_first,
            logprobs=logprobs,
            top_logprobs=_alternatives(run, request.sampling.logprobs),
            prompt_logprobs=tuple(-0.25 * (place + 1) for place in range(len(prompt))) if has_prompt else (),
            prompt_top_logprobs=_alternatives(prompt, request.sampling.prompt_logprobs) if has_prompt else (),
            finish_reason=reason,
            stop_reason=stopped_at,
            **times,
        )

    def _count(self, **grown: int) -> None:
        changes = {name: getattr(self.stats, name) + value for name, value in grown.items()}
        self.stats = msgspec.structs.replace(self.stats, **changes)


def _alternatives(token_ids: Sequence[int], num_top: int | None) -> tuple[Alternatives, ...]:
    """Return, for each token, the ids that follow it and the id itself in third place."""
    if not num_top:
        return ()
    return tuple(
        tuple((id_, -0.125 * (place + 1)) for place, id_ in enumerate([id_ + 1, id_ + 2, id_, *range(20)][:num_top]))
        for id_ in token_ids
    )


class FakeSyncEngine:
    """A `SyncEngine` over a scripted one. `dies_after` polls with work it reports a failure."""

    def __init__(self, engine: ScriptedEngine, *, dies_after: int | None = None) -> None:
        self.engine = engine
        self.is_closed = False
        self._is_ready_told = False
        self._left = dies_after

    def submit(self, request: Request) -> None:
        self.engine.submit(request)

    def abort(self, request_id: str) -> None:
        self.engine.abort(request_id)

    def poll(self, timeout_s: float) -> list[ToFrontend]:
        del timeout_s
        if not self._is_ready_told:
            self._is_ready_told = True
            return [Ready(facts=self.engine.facts)]
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                return [Failed(kind="EngineError", reason="told to die")]
        news = self.engine.step()
        return [] if news is None else [news]

    def close(self) -> None:
        self.is_closed = True


class FakeClient:
    """An `AsyncEngineClient` over a scripted engine, stepped by `receive`.

    Args:
        engine: the machine.
        step_s: seconds per step.
        loading: Progress messages before Ready; `ready` releases Ready itself.
    """

    def __init__(
        self, engine: ScriptedEngine, *, step_s: float = 0.0, loading: Sequence[Progress] = (), is_held: bool = False
    ) -> None:
        self.engine = engine
        self.step_s = step_s
        self.num_closes = 0
        self.ready = asyncio.Event()
        if not is_held:
            self.ready.set()
        self._messages: deque[ToFrontend] = deque(loading)
        self._is_ready_told = False
        self._work = asyncio.Event()

    def submit(self, request: Request) -> None:
        self.engine.submit(request)
        self._work.set()

    def abort(self, request_id: str) -> None:
        self.engine.abort(request_id)
        self._work.set()

    def tell(self, message: ToFrontend) -> None:
        """Send a message now, out of turn."""
        self._messages.append(message)
        self.ready.set()
        self._work.set()

    async def receive(self) -> ToFrontend:
        while True:
            if self._messages:
                return self._messages.popleft()
            if not self._is_ready_told:
                await self.ready.wait()
                if self._messages:
                    continue
                self._is_ready_told = True
                return Ready(facts=self.engine.facts)
            news = self.engine.step()
            if news is None:
                self._work.clear()
                await self._work.wait()
                continue
            await asyncio.sleep(self.step_s)
            return news

    async def close(self) -> None:
        self.num_closes += 1
        self.tell(Stopped())


class FakeServerSection(msgspec.Struct, frozen=True, kw_only=True):
    host: str = "127.0.0.1"
    port: int = 0
    served_model_name: str = "tiny"
    api_keys: tuple[str, ...] = ()
    max_queue: int = 8
    drain_s: float = 5.0
    engine_timeout_s: float = 120.0
    log_format: str = "text"
    log_level: str = "info"


class FakeParallelSection(msgspec.Struct, frozen=True, kw_only=True):
    tp_size: int = 1


class FakeModelSection(msgspec.Struct, frozen=True, kw_only=True):
    path: str


class FakeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a fake engine process is told; `model` and `server` are what a front end reads.

    Args:
        load_s: seconds of loading.
        step_s: seconds per step.
        fail: end with this reason instead of becoming ready.
        fail_kind: class name of that failure.
        exit_code: end with this exit code, without a word, after `load_s`.
        child_file: start a child process that sleeps, and write its process id here.
        ignores_shutdown: do not end when asked.
    """

    model: FakeModelSection
    server: FakeServerSection = FakeServerSection()
    parallel: FakeParallelSection = FakeParallelSection()
    load_s: float = 0.0
    step_s: float = 0.0
    fail: str | None = None
    fail_kind: str = "CheckpointError"
    exit_code: int | None = None
    child_file: str | None = None
    ignores_shutdown: bool = False


def main() -> int:
    """Run the fake engine process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--address", required=True)
    options = parser.parse_args()
    config = msgspec.json.decode(Path(options.config).read_bytes(), type=FakeConfig)
    socket = zmq.Context.instance().socket(zmq.PAIR)
    socket.setsockopt(zmq.LINGER, 1000)
    socket.connect(options.address)
    if config.child_file is not None:
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        Path(config.child_file).write_text(str(child))
    socket.send(encode(Progress(stage="weights", done=1, total=2)))
    time.sleep(config.load_s)
    if config.exit_code is not None:
        os._exit(config.exit_code)
    if config.fail is not None:
        socket.send(encode(Failed(kind=config.fail_kind, reason=config.fail)))
        socket.close()
        zmq.Context.instance().term()
        return 1
    return _turn(socket, config)


def _turn(socket: zmq.Socket[bytes], config: FakeConfig) -> int:
    engine = ScriptedEngine(fake_facts())
    socket.send(encode(Ready(facts=engine.facts)))
    while True:
        while socket.poll(0 if engine.running else 50):
            message = decode_to_engine(socket.recv())
            if isinstance(message, Submit):
                engine.submit(message.request)
            elif isinstance(message, Abort):
                engine.abort(message.request_id)
            elif isinstance(message, Shutdown) and not config.ignores_shutdown:
                socket.send(encode(Stopped()))
                return 0
        time.sleep(config.step_s)
        news = engine.step()
        if news is not None:
            socket.send(encode(news))


if __name__ == "__main__":
    raise SystemExit(main())
