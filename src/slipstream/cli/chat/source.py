"""Where answers come from: one small interface over an engine of this program and a server elsewhere.

Not here: what is shown (screen) and what the user may say (dialogue).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from slipstream.wire.sampling_params import SamplingParams

Part = Literal["reasoning", "content", "call"]
Thinking = Literal["auto", "on", "off"]
THINKING: dict[str, Thinking] = {"auto": "auto", "on": "on", "off": "off"}
_MODES: dict[Thinking, str] = {"on": "enabled", "off": "disabled"}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to answer.

    Args:
        temperature: 0 is greedy.
        seed: the same seed gives the same text; None draws one.
        max_tokens: most tokens of an answer; None means the rest of the context.
        thinking: on or off; auto leaves it to the checkpoint's template.
    """

    temperature: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    thinking: Thinking = "auto"

    @property
    def template_kwargs(self) -> dict[str, Any]:
        """Variables of the chat template."""
        mode = _MODES.get(self.thinking)
        return {} if mode is None else {"thinking_mode": mode}

    def sampling(self) -> SamplingParams:
        """Return the sampling parameters.

        Raises:
            RequestError: one of them is not allowed.
        """
        return SamplingParams(temperature=self.temperature, seed=self.seed, max_tokens=self.max_tokens)


class Piece(msgspec.Struct, frozen=True):
    """Text that became certain with one token.

    Args:
        text: may be empty, for a token that ends the answer or opens a character.
        is_draft: the token was an accepted draft; None when the server does not tell.
        part: of the answer.
    """

    text: str
    is_draft: bool | None
    part: Part = "content"


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an answer, with the engine's own counts."""

    finish_reason: str
    num_prompt_tokens: int
    num_output_tokens: int
    num_verify_steps: int
    num_draft_tokens: int
    num_accepted: int
    num_emitted: int


ChatEvent = Piece | Ended
"""An answer is any number of pieces, then its end; one that is left early has no end."""


class ChatSource(Protocol):
    """Answers conversations, one at a time."""

    def describe(self) -> str:
        """Return what answers, in a few words."""
        ...

    def answer(self, messages: Sequence[Mapping[str, Any]], settings: Settings) -> AsyncGenerator[ChatEvent, None]:
        """Yield the answer; closing the generator early ends the request.

        Args:
            messages: of the conversation, in the shape of the OpenAI API.
            settings: how to answer.

        Raises:
            SlipstreamError: it cannot be answered; the message says why.
        """
        ...

    async def close(self) -> None:
        """Let go of what answers. May be called twice."""
        ...
