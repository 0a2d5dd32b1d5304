"""A model in a process of its own, started and ended with the conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from slipstream.base.errors import EngineError
from slipstream.cli.chat.source import ChatEvent, Ended, Piece, Settings
from slipstream.cli.console import ProgressDisplay
from slipstream.config.schema import EngineConfig
from slipstream.frontend.async_llm import AsyncLLM
from slipstream.frontend.chat import ChatAsk
from slipstream.frontend.stream import RequestStream
from slipstream.text.messages import parse_messages


class LocalSource:
    """Answers from an engine of this program.

    Args:
        llm: ready; closed with this object.
    """

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm

    @classmethod
    async def start(cls, config: EngineConfig) -> LocalSource:
        """Start an engine and wait until it is ready, showing progress.

        Args:
            config: what it runs on.

        Raises:
            SlipstreamError: it could not start.
        """
        with ProgressDisplay() as display:
            llm = AsyncLLM.launch(config, on_progress=display)
            try:
                await llm.wait_ready()
            except BaseException:
                await llm.close()
                raise
        return cls(llm)

    def describe(self) -> str:
        """Return what answers, in a few words."""
        facts = self._llm.facts
        return self._llm.model_name if facts is None else describe_engine(self._llm.model_name, facts)

    async def answer(
        self, messages: Sequence[Mapping[str, Any]], settings: Settings
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield the answer; see `ChatSource`."""
        ask = ChatAsk(
            messages=parse_messages([dict(message) for message in messages]), template_kwargs=settings.template_kwargs
        )
        generation = await self._llm.open_chat(ask, settings.sampling())
        finish_reason = None
        try:
            async for delta in generation:
                news = generation.answer.feed(delta)
                for token in news.tokens:
                    yield Piece(token.text, token.is_draft, token.part)
                finish_reason = news.finish_reason or finish_reason
        finally:
            generation.close()
        if finish_reason is None:
            raise EngineError("the engine ended the answer without saying why")
        yield ended_of(generation.stream, finish_reason)

    async def close(self) -> None:
        """End the engine. May be called twice."""
        await self._llm.close()


def describe_engine(name: str, facts: Any) -> str:
    """Return a model and what runs it, in a few words.

    Args:
        name: of the model.
        facts: has `device`, `dtype`, `drafter`, `draft_len` and `verification`.
    """
    drafter = f"drafter {facts.drafter}"
    if facts.draft_len:
        drafter += f" with {facts.draft_len} drafts per step, verification {facts.verification}"
    return f"{name} on {facts.device} in {facts.dtype}, {drafter}"


def ended_of(stream: RequestStream, finish_reason: str) -> Ended:
    """Return the counts of a request that has ended."""
    return Ended(
        finish_reason=finish_reason,
        num_prompt_tokens=len(stream.request.prompt_token_ids),
        num_output_tokens=stream.num_generated_tokens,
        num_verify_steps=stream.num_verify_steps,
        num_draft_tokens=stream.num_draft_tokens,
        num_accepted=stream.num_accepted,
        num_emitted=stream.num_emitted,
    )
