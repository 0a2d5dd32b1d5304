"""Serve many requests at once from asyncio, over an engine elsewhere.

One task reads the engine's messages and turns them into deltas; callers only wait. Not here: HTTP.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn, TypeVar

import msgspec

from slipstream.base.errors import EngineError, OverloadedError, RequestError, SlipstreamError
from slipstream.engine.client import ProcessClient
from slipstream.engine.interface import AsyncEngineClient
from slipstream.engine.spawn import start_process
from slipstream.frontend.call import Call
from slipstream.frontend.chat import ChatAsk, PreparedChat
from slipstream.frontend.generation import Generation
from slipstream.frontend.in_flight import InFlight
from slipstream.frontend.processor import Processor, Prompt, TextParts
from slipstream.frontend.status import State, Status, error_of
from slipstream.frontend.stream import Delta, RequestStream
from slipstream.frontend.text_threads import LONG_TEXT_CHARS, TextThreads
from slipstream.metrics.instruments import Instruments, Rejection
from slipstream.wire.messages import EngineFacts, Failed, Outputs, Progress, Ready, Stopped, ToFrontend
from slipstream.wire.sampling_params import SamplingParams

_Result = TypeVar("_Result")

RETRY_AFTER_S = 1
MAX_TEXT_WORK = 64
"""Most texts that wait or are worked on for other purposes than a request."""


class AsyncLLM:
    """The asyncio front end of one engine. Make it inside a running event loop, and close it there.

    Args:
        client: reaches the engine; closed with this object.
        load_text: loads tokenizer and template; called once, in a thread.
        model_name: the name that requests ask for.
        max_queue: most requests in flight beyond the engine's rows; more are turned away.
        on_progress: told of loading and warm-up.
    """

    def __init__(
        self,
        client: AsyncEngineClient,
        load_text: Callable[[], TextParts],
        *,
        model_name: str,
        max_queue: int,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.model_name = model_name
        self._client = client
        self._load_text = load_text
        self._max_queue = max_queue
        self._on_progress = on_progress
        self._state: State = "loading"
        self._progress: Progress | None = None
        self._failure: SlipstreamError | None = None
        self._processor: Processor | None = None
        self._live = InFlight()
        self._opening = TextThreads()
        self._text_work = TextThreads()
        self._settled = asyncio.Event()
        self._dead = asyncio.Event()
        self._reader = asyncio.create_task(self._read_engine(), name="engine-reader")

    @classmethod
    def launch(cls, config: Any, *, on_progress: Callable[[Progress], None] | None = None) -> AsyncLLM:
        """Start an engine process and a front end for it; requests are accepted once it is ready.

        Args:
            config: the EngineConfig.
            on_progress: told of loading and warm-up.
        """
        # The engine checks no keys, and its configuration lies in a file.
        server = msgspec.structs.replace(config.server, api_keys=())
        process = start_process(msgspec.structs.replace(config, server=server))
        return cls(
            ProcessClient(process, max_silence_s=config.server.engine_timeout_s),
            lambda: TextParts.load(config.model.path),
            model_name=config.server.served_model_name,
            max_queue=config.server.max_queue,
            on_progress=on_progress,
        )

    @property
    def status(self) -> Status:
        """How the engine is, now."""
        return Status(
            state=self._state,
            reason=str(self._failure or ""),
            progress=self._progress,
            num_streams=len(self._live),
        )

    @property
    def facts(self) -> EngineFacts | None:
        """Facts of the engine; None before it is ready."""
        return None if self._processor is None else self._processor.facts

    @property
    def max_in_flight(self) -> int:
        """Most requests in flight at once: the engine's rows and the queue."""
        return self.processor.facts.max_num_seqs + self._max_queue

    @property
    def processor(self) -> Processor:
        """Tokenizer and limits.

        Raises:
            OverloadedError: the engine is still loading.
            EngineError: it died while loading.
        """
        if self._processor is None:
            self._refuse()
        return self._processor

    async def wait_ready(self) -> None:
        """Wait until the engine is ready.

        Raises:
            SlipstreamError: it could not start; the class is the one that the engine reported.
        """
        await self._settled.wait()
        if self._failure is not None:
            raise self._failure

    async def wait_dead(self) -> EngineError:
        """Wait until the engine is gone, whether it died or was closed, and return why."""
        await self._dead.wait()
        return EngineError(f"the engine died: {self._failure}")

    async def open(
        self,
        prompt: Prompt,
        sampling: SamplingParams,
        *,
        request_id: str | None = None,
        add_special_tokens: bool = True,
        call: Call | None = None,
    ) -> Generation:
        """Submit one request.

        Args:
            prompt: text or token ids.
            sampling: the caller's parameters.
            request_id: unique among the requests in flight; drawn if None.
            add_special_tokens: apply the tokenizer's own prefix to text, if it has one.
            call: whose request it is; names it if `request_id` is None.

        Raises:
            RequestError: the request cannot be served as asked, for example its constraint.
            OverloadedError: the queue is full, or the engine is loading or draining.
            EngineError: the engine is dead.
        """
        self._check_room()
        processor = self.processor
        # Other streams would stand still while a long text is tokenised here.
        if isinstance(prompt, str) and len(prompt) > LONG_TEXT_CHARS:
            processor.check_text((prompt,), "prompt")
            ids = await self._opening.run(
                lambda: processor.tokenize(prompt, add_special_tokens=add_special_tokens), len(prompt)
            )
        else:
            ids = processor.tokenize(prompt, add_special_tokens=add_special_tokens)
        return await self._submit(ids, sampling, request_id, call).accepted()

    async def open_chat(
        self,
        ask: ChatAsk,
        sampling: SamplingParams,
        *,
        request_id: str | None = None,
        call: Call | None = None,
    ) -> Generation:
        """Submit one conversation; see `open`.

        Args:
            ask: the conversation, with messages as `text.messages.parse_messages` returns them.
            sampling: the caller's parameters.
            request_id: unique among the requests in flight; drawn if None.
            call: whose request it is; names it if `request_id` is None.
        """
        self._check_room()
        prepared = await self._prepare_chat(ask, sampling)
        ids, sampling = prepared.prompt_token_ids, prepared.sampling
        return await self._submit(ids, sampling, request_id, call, chat=prepared).accepted()

    async def open_chat_choices(
        self, ask: ChatAsk, sampling: SamplingParams, *, call: Call | None = None
    ) -> list[Generation]:
        """Submit one conversation as often as `sampling.n` says, all or none; it is rendered once.

        Args:
            ask: the conversation.
            sampling: the caller's parameters.
            call: whose requests they are.
        """
        self._check_room(sampling.n)
        prepared = await self._prepare_chat(ask, sampling)
        ids, generations = prepared.prompt_token_ids, list[Generation]()
        self._check_room(sampling.n)
        try:
            for index in range(sampling.n):
                one = self._submit(ids, prepared.sampling.for_choice(index), None, call, chat=prepared)
                generations.append(one)
            for generation in generations:
                await generation.accepted()
        except BaseException:
            for generation in generations:
                generation.close()
            raise
        return generations

    async def count_chat_tokens(self, ask: ChatAsk, *, num_contexts: int = 1) -> int:
        """Return how many tokens a conversation has as a prompt.

        Args:
            ask: the conversation.
            num_contexts: how many context lengths its texts may fill.
        """
        processor = self.processor
        return await self.work_on_text(
            lambda: len(processor.tokenize_chat(ask, num_contexts=num_contexts)), ask.num_chars
        )

    async def _prepare_chat(self, ask: ChatAsk, sampling: SamplingParams) -> PreparedChat:
        processor = self.processor
        return await self._opening.run(lambda: processor.prepare_chat(ask, sampling), ask.num_chars)

    async def work_on_text(self, work: Callable[[], _Result], num_chars: int) -> _Result:
        """Return what the work returns; it is called in a thread and belongs to no request.

        Args:
            work: reads a text.
            num_chars: length of the text.

        Raises:
            OverloadedError: too many texts are worked on.
        """
        if self._text_work.num_held >= MAX_TEXT_WORK:
            self._reject("queue_full", f"{MAX_TEXT_WORK} texts are worked on, which is all that this server takes")
        return await self._text_work.run(work, num_chars)

    async def generate(
        self, prompt: Prompt, sampling: SamplingParams, *, request_id: str | None = None
    ) -> AsyncIterator[Delta]:
        """Yield the deltas of one request; leaving the iteration early ends the request.

        Args:
            prompt: text or token ids.
            sampling: the caller's parameters.
            request_id: unique among the requests in flight; drawn if None.
        """
        generation = await self.open(prompt, sampling, request_id=request_id)
        try:
            async for delta in generation:
                yield delta
        finally:
            generation.close()

    async def drain(self, timeout_s: float) -> bool:
        """Refuse new requests and wait for those in flight; cut off what runs longer.

        Args:
            timeout_s: seconds to wait.

        Returns:
            Whether all of them ended by themselves.
        """
        if self._state in ("ready", "loading"):
            self._state = "draining"
        self._live.idle.clear()
        if not self._live:
            return True
        try:
            await asyncio.wait_for(self._live.idle.wait(), timeout_s)
        except TimeoutError:
            for request_id in self._live.request_ids:
                self._client.abort(request_id)
            self._live.fail_all(
                OverloadedError(f"the server is shutting down and gave this request {timeout_s:g} s more")
            )
            return False
        return True

    async def close(self) -> None:
        """End the engine. Requests in flight get an error. May be called twice."""
        self._end(EngineError("the engine was closed"))
        self._opening.close()
        self._text_work.close()
        await self._client.close()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    def render_metrics(self) -> bytes:
        """Return the metrics as text; empty before the engine is ready."""
        return b"" if self._live.instruments is None else self._live.instruments.render()

    def _check_room(self, num_requests: int = 1) -> None:
        if self._state != "ready" or self._processor is None:
            self._refuse()
        if num_requests > self.max_in_flight:
            raise RequestError(
                f"n={num_requests}: this server takes {self.max_in_flight} requests at once: ask for fewer answers",
                param="n",
            )
        if len(self._live) + self._opening.num_held + num_requests > self.max_in_flight:
            they = "1 request runs or waits" if (most := self.max_in_flight) == 1 else f"{most} requests run or wait"
            self._reject("queue_full", f"{they}, which is all that this server takes")

    def _refuse(self) -> NoReturn:
        if self._state == "loading":
            raise OverloadedError("the engine is loading: try again when /health says ok", retry_after_s=RETRY_AFTER_S)
        if self._state == "draining":
            self._reject("draining", "the server is shutting down and takes no new requests")
        raise EngineError(f"the engine is not running: {self._failure}")

    def _reject(self, reason: Rejection, message: str) -> NoReturn:
        if self._live.instruments is not None:
            self._live.instruments.count_rejection(reason)
        raise OverloadedError(f"{message}: try again later", retry_after_s=RETRY_AFTER_S)

    def _submit(
        self,
        ids: tuple[int, ...],
        sampling: SamplingParams,
        request_id: str | None,
        call: Call | None = None,
        *,
        chat: PreparedChat | None = None,
    ) -> Generation:
        if self._state != "ready" or self._processor is None:
            self._refuse()
        drawn = uuid.uuid4().hex if call is None else self._live.name_for(call)
        is_reasoning = chat is not None and chat.starts_in == "reasoning"
        request = self._processor.make_request(request_id or drawn, ids, sampling, starts_in_reasoning=is_reasoning)
        if request.request_id in self._live:
            raise RequestError(f"request_id={request.request_id!r} is in flight: give another", param="request_id")
        stream = RequestStream(request, self._processor.tokenizer)
        answer = None if chat is None else chat.answer_stream()
        generation = Generation(stream, lambda: self._abandon(request.request_id), answer)
        self._live.add(generation, call)
        self._client.submit(request)
        return generation

    def _abandon(self, request_id: str) -> None:
        self._client.abort(request_id)
        self._live.retire(request_id, "abort", None)

    async def _read_engine(self) -> None:
        try:
            text = await asyncio.to_thread(self._load_text)
            while self._state != "dead":
                self._take(await self._client.receive(), text)
        except SlipstreamError as error:
            self._end(error)
        except Exception as error:
            self._end(EngineError(f"the front end failed: {type(error).__name__}: {error}"))
            raise

    def _take(self, message: ToFrontend, text: TextParts) -> None:
        if isinstance(message, Outputs):
            if self._live.instruments is not None:
                self._live.instruments.follow(message.stats)
            for output in message.outputs:
                if self._live.take(output):
                    self._client.abort(output.request_id)
        elif isinstance(message, Progress):
            self._progress = message
            if self._on_progress is not None:
                self._on_progress(message)
        elif isinstance(message, Ready):
            self._processor = Processor(text, message.facts)
            self._live.instruments = Instruments(self.model_name, message.facts)
            if self._state == "loading":
                self._state = "ready"
            self._settled.set()
        elif isinstance(message, Failed):
            self._end(error_of(message))
        elif isinstance(message, Stopped):
            self._end(EngineError("the engine stopped"))

    def _end(self, error: SlipstreamError) -> None:
        """The engine is gone, for good: one error for every request in flight."""
        if self._state == "dead":
            return
        self._state = "dead"
        self._failure = error
        self._settled.set()
        self._dead.set()
        self._live.fail_all(EngineError(f"the engine died while this request ran: {error}"))
        self._live.expect_no_more()
