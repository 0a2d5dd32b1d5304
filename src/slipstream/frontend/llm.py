"""The engine in a Python program: prompts in, completions out, in this process.

Not here: streams and many callers at once (async_llm), HTTP.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import msgspec

from slipstream.base.errors import EngineError, RequestError, SlipstreamError
from slipstream.base.switches import environment_switches
from slipstream.config.hardware import probe_hardware
from slipstream.config.options import read_options
from slipstream.config.resolve import resolve
from slipstream.engine.interface import SyncEngine
from slipstream.engine.spawn import start_inline
from slipstream.frontend.answer_stream import AnswerEnd, AnswerStream, join_answer
from slipstream.frontend.chat import ChatAsk, PreparedChat, check_variables
from slipstream.frontend.feed import Feed
from slipstream.frontend.processor import Processor, Prompt, TextParts
from slipstream.frontend.status import error_of_output
from slipstream.frontend.stream import Delta, RequestStream
from slipstream.text.messages import parse_messages
from slipstream.text.tools.parser import ToolCall
from slipstream.text.tools.schema import parse_tool_choice, parse_tools
from slipstream.wire.messages import EngineFacts, Failed, Outputs, Progress, Ready, Stopped
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import NO_TOKEN_CODE, Alternatives

_POLL_S = 0.5


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What one prompt was answered with.

    Args:
        request_id: of this request.
        prompt_token_ids: the prompt as the model saw it.
        token_ids: returned tokens; one that ended the request is the last of them.
        text: their text, without what ended it unless asked for.
        reasoning, content, tool_calls: what the text is, for a conversation; else all of it is content.
        finish_reason: `stop`, `length`, `tool_calls` (a stop with complete calls) or `error`.
        stop_reason: the stop string, or the stop token id other than the model's own end, that ended it.
        logprobs: one per token, or empty when not asked for.
        top_logprobs: per token its most likely alternatives, as (token id, log-probability); empty when not asked for.
        prompt_logprobs, prompt_top_logprobs: the same of every prompt token but the first.
        num_verify_steps, num_draft_tokens, num_accepted: speculation over the returned tokens.
        num_emitted: returned tokens that verify steps made; num_emitted / num_verify_steps is the acceptance length.
        num_prefix_hit_tokens: prompt tokens found in the cache.
        error: the message when finish_reason is `error`.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    finish_reason: AnswerEnd | None
    stop_reason: int | str | None = None
    logprobs: tuple[float, ...] = ()
    num_verify_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted: int = 0
    num_emitted: int = 0
    num_prefix_hit_tokens: int = 0
    error: str | None = None
    top_logprobs: tuple[Alternatives, ...] = ()
    prompt_logprobs: tuple[float, ...] = ()
    prompt_top_logprobs: tuple[Alternatives, ...] = ()
    reasoning: str = ""
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


class LLM:
    """An engine with its tokenizer. Use it from one thread; close it, or use it as a context manager.

    Args:
        model: `demo`, or a checkpoint folder.
        drafter: `auto`, `none`, `ngram`, `eagle3`, or a drafter's folder.
        draft_len: drafts per step, or `auto`.
        verification: how drafts are accepted.
        device: where the engine runs.
        on_progress: told of loading and warm-up.
        options: any other option of the option table, by name. With `tp=2` another process holds the second rank.

    Raises:
        ConfigError: an option, a combination of options or a switch of the environment that cannot be resolved.
        CheckpointError: the checkpoint cannot be loaded.
        CapacityError: it does not fit.
    """

    def __init__(
        self,
        model: str = "demo",
        *,
        drafter: str = "auto",
        draft_len: int | str = "auto",
        verification: str = "auto",
        device: str = "auto",
        on_progress: Callable[[Progress], None] | None = None,
        **options: Any,
    ) -> None:
        chosen = {
            "model": model,
            "drafter": drafter,
            "draft_len": draft_len,
            "verification": verification,
            "device": device,
        }
        config = resolve(read_options(chosen | options), probe_hardware(), environment_switches())
        text = TextParts.load(config.model.path)
        self._attach(start_inline(config, on_progress), text)

    @classmethod
    def over(cls, engine: SyncEngine, text: TextParts) -> LLM:
        """Return an LLM over an engine that runs already; closing the LLM closes the engine.

        Args:
            engine: its next message is Ready.
            text: tokenizer and template of its checkpoint.
        """
        llm = cls.__new__(cls)
        llm._attach(engine, text)
        return llm

    @property
    def facts(self) -> EngineFacts:
        """Facts of the engine."""
        return self._processor.facts

    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """Answer prompts together; they run side by side.

        Args:
            prompts: a text, a list of token ids, or a list of either.
            params: for all of them, or one per prompt; None takes the defaults.

        Returns:
            One completion per prompt, in the order of the prompts.

        Raises:
            RequestError: a prompt or a parameter is not allowed; then nothing has run. Or a constraint cannot be
                compiled; then the other prompts are given up, and this LLM goes on.
            EngineError: the engine died, or this LLM is closed. Whatever ends a call in the middle, Ctrl-C too,
                closes the LLM.
        """
        many = _as_prompts(prompts)
        return self._run([self._processor.tokenize(prompt) for prompt in many], params)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
    ) -> list[Completion]:
        """Answer conversations together; see `generate`.

        Args:
            messages: one conversation, or a list of them; each message has `role` and `content`, an answer that called
                tools `tool_calls`, and the result of a call role `tool` and `tool_call_id`.
            params: for all of them, or one per conversation.
            add_generation_prompt: end with the opening of the assistant's turn.
            chat_template_kwargs: further variables of the chat template; `thinking_mode` is enabled, disabled or
                adaptive.
            tools: what the model may call, in OpenAI's form.
            tool_choice: `auto`, `none`, `required`, or `{"type": "function", "function": {"name": …}}`; None is auto
                with tools.
            parallel_tool_calls: whether an answer may call more than once.
        """
        check_variables(chat_template_kwargs or {}, self._processor.template_variables)
        is_one = not messages or isinstance(messages[0], Mapping)
        conversations = [messages] if is_one else messages
        tool_set = parse_tools(None if tools is None else list(tools))
        choice = parse_tool_choice(tool_choice, tool_set)
        asks = [
            ChatAsk(
                messages=parse_messages(_as_lists(conversation)),
                tools=tool_set,
                tool_choice=choice,
                template_kwargs=chat_template_kwargs or {},
                add_generation_prompt=add_generation_prompt,
                parallel_tool_calls=parallel_tool_calls,
            )
            for conversation in conversations
        ]
        samplings = _as_params(params, len(asks))
        chats = [self._processor.prepare_chat(ask, one) for ask, one in zip(asks, samplings, strict=True)]
        return self._run([chat.prompt_token_ids for chat in chats], [chat.sampling for chat in chats], chats)

    def close(self) -> None:
        """End the engine. May be called twice."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _attach(self, engine: SyncEngine, text: TextParts) -> None:
        self._engine: SyncEngine | None = engine
        self._closed_by = ""
        try:
            while True:
                for message in engine.poll(_POLL_S):
                    if isinstance(message, Ready):
                        self._processor = Processor(text, message.facts)
                        return
                    _raise_if_gone(message)
        except BaseException:
            self.close()
            raise

    def _close_after(self, error: BaseException) -> None:
        """End the engine because of an error, and add what became of it to one that is raised as it is."""
        self._closed_by = f" since {_name(error)} ended a call in the middle"
        if not isinstance(error, Exception):
            error.add_note("slipstream: this LLM is closed and its running requests are lost; make a new one")
        # A broken engine may fail to close too; the first error is the one that matters.
        with contextlib.suppress(Exception):
            self.close()

    def _run(
        self,
        prompts: list[tuple[int, ...]],
        params: SamplingParams | Sequence[SamplingParams] | None,
        chats: Sequence[PreparedChat] | None = None,
    ) -> list[Completion]:
        samplings = _as_params(params, len(prompts))
        plain = [AnswerStream("content", None) for _ in prompts]
        readers = plain if chats is None else [chat.answer_stream() for chat in chats]
        in_reasoning = [chats is not None and chats[place].starts_in == "reasoning" for place in range(len(prompts))]
        requests = [
            self._processor.make_request(uuid.uuid4().hex, ids, sampling, starts_in_reasoning=is_reasoning)
            for ids, sampling, is_reasoning in zip(prompts, samplings, in_reasoning, strict=True)
        ]
        answers = [_Answer(request, self._processor, reader) for request, reader in zip(requests, readers, strict=True)]
        engine = self._engine
        if engine is None:
            raise EngineError(f"this LLM is closed{self._closed_by}: make a new one")
        running = {answer.stream.request.request_id: answer for answer in answers}
        feed, refusal = Feed(engine, requests), None
        try:
            while running and refusal is None:
                feed.submit()
                for message in engine.poll(_POLL_S):
                    if isinstance(message, Outputs):
                        feed.follow(message)
                        refusal = refusal or _take(message, running, engine)
                    else:
                        _raise_if_gone(message)
            for request_id in running:
                engine.abort(request_id)
        except BaseException as error:
            # A step that was left in the middle leaves a state that nobody knows; nothing can go on from there.
            self._close_after(error)
            if isinstance(error, EngineError) or not isinstance(error, Exception):
                raise
            raise EngineError(
                f"the engine failed ({_name(error)}): this LLM is closed and its running requests are lost; make a "
                "new one"
            ) from error
        if refusal is not None:
            raise refusal
        return [answer.completion() for answer in answers]


def _name(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class _Answer:
    """Collects the deltas of one request."""

    def __init__(self, request: Request, processor: Processor, reader: AnswerStream) -> None:
        self.stream = RequestStream(request, processor.tokenizer)
        self.deltas: list[Delta] = []
        self._reader = reader

    def completion(self) -> Completion:
        stream, last = self.stream, self.deltas[-1]
        answer = join_answer([self._reader.feed(delta) for delta in self.deltas])
        return Completion(
            request_id=stream.request.request_id,
            prompt_token_ids=stream.request.prompt_token_ids,
            token_ids=tuple(id_ for delta in self.deltas for id_ in delta.token_ids),
            text="".join(delta.text for delta in self.deltas),
            reasoning=answer.reasoning,
            content=answer.content,
            tool_calls=answer.calls,
            finish_reason=answer.finish_reason,
            stop_reason=last.stop_reason,
            logprobs=tuple(value for delta in self.deltas for value in delta.logprobs),
            top_logprobs=tuple(one for delta in self.deltas for one in delta.top_logprobs),
            prompt_logprobs=tuple(value for delta in self.deltas for value in delta.prompt_logprobs),
            prompt_top_logprobs=tuple(one for delta in self.deltas for one in delta.prompt_top_logprobs),
            num_verify_steps=stream.num_verify_steps,
            num_draft_tokens=stream.num_draft_tokens,
            num_accepted=stream.num_accepted,
            num_emitted=stream.num_emitted,
            num_prefix_hit_tokens=stream.num_prefix_hit_tokens,
            error=last.error,
        )


def _take(outputs: Outputs, running: dict[str, _Answer], engine: SyncEngine) -> SlipstreamError | None:
    """Take in news of running requests; return why the engine refused one of them, if it did."""
    for output in outputs.outputs:
        answer = running.get(output.request_id)
        if answer is None or output.is_accepted:
            continue
        if output.error_kind is not None and output.error_code != NO_TOKEN_CODE:
            return error_of_output(output)
        delta = answer.stream.feed(output)
        answer.deltas.append(delta)
        if delta.finish_reason is not None:
            del running[output.request_id]
            if output.finish_reason is None:
                engine.abort(output.request_id)
    return None


def _raise_if_gone(message: object) -> None:
    if isinstance(message, Failed):
        raise EngineError(f"the engine died: {message.reason}")
    if isinstance(message, Stopped):
        raise EngineError("the engine stopped")


def _as_prompts(prompts: object) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise RequestError(
            f"prompts is {type(prompts).__name__}: give a text, token ids, or a list of either", param="prompts"
        )
    if prompts and all(type(item) is int for item in prompts):
        return [prompts]
    return list(prompts)


def _as_params(params: object, num_prompts: int) -> list[SamplingParams]:
    if params is None:
        params = SamplingParams()
    if isinstance(params, SamplingParams):
        return [params] * num_prompts
    if not isinstance(params, Sequence) or not all(isinstance(item, SamplingParams) for item in params):
        raise RequestError(
            f"params is {type(params).__name__}: give SamplingParams, or one per prompt in a list", param="params"
        )
    if len(params) != num_prompts:
        raise RequestError(f"{num_prompts} prompts and {len(params)} params: give one per prompt", param="params")
    return list(params)


def _as_lists(conversation: object) -> object:
    if isinstance(conversation, Sequence) and not isinstance(conversation, str):
        return [dict(message) if isinstance(message, Mapping) else message for message in conversation]
    return conversation
