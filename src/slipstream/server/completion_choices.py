"""The choices of /v1/completions: what one request of the engine returns, as a whole or piece by piece."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from slipstream.frontend.stream import Delta
from slipstream.server.answer import finite, prompt_logprobs_of, token_name
from slipstream.server.protocol.responses import (
    UNSET,
    CompletionChoice,
    CompletionLogprobs,
    PromptLogprob,
    RunningUsage,
)
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.step import Alternatives


@dataclass(frozen=True)
class Shown:
    """What the choices of one call show.

    Args:
        num_logprobs: alternatives per token; None shows no log-probabilities.
        num_prompt_logprobs: alternatives per token of the prompt; None shows none.
        echo: the text begins with the prompt.
        is_prompt_only: nothing that was generated is shown.
        has_ids: token ids of the prompt and the answer are shown.
        as_ids: tokens are written as `token_id:N`.
        skips_special: special tokens are left out of the text.
    """

    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None
    echo: bool = False
    is_prompt_only: bool = False
    has_ids: bool = False
    as_ids: bool = False
    skips_special: bool = True


class PromptText:
    """The text of a prompt, and where in it its tokens begin.

    Args:
        tokenizer: of the model.
        token_ids: the prompt as the model sees it.
        given: its text as the caller gave it; None when the caller gave token ids.
    """

    def __init__(self, tokenizer: Tokenizer, token_ids: Sequence[int], given: str | None = None) -> None:
        self.token_ids = token_ids
        self._tokenizer = tokenizer
        self._given = given

    @cached_property
    def text(self) -> str:
        """What an echo repeats: the caller's own text, else that of the tokens, control tokens included."""
        return self._decoded if self._given is None else self._given

    @cached_property
    def offsets(self) -> list[int]:
        """Place of each token in the text. A prefix that the tokenizer adds has no place of its own."""
        # A prefix of the tokenizer is among the tokens, and not in the caller's text.
        num_added = len(self._decoded) - len(self.text) if self._decoded.endswith(self.text) else 0
        places = _Places(self._tokenizer, -num_added)
        return [max(places.pass_token(id_), 0) for id_ in self.token_ids]

    @cached_property
    def _decoded(self) -> str:
        return self._tokenizer.decode(self.token_ids, skip_special_tokens=False)


class ChoiceWriter:
    """Writes the pieces of one choice.

    Args:
        tokenizer: of the model.
        shown: what is shown.
        index: of the choice.
        prompt: which it answers.
    """

    def __init__(self, tokenizer: Tokenizer, shown: Shown, index: int, prompt: PromptText) -> None:
        self._tokenizer = tokenizer
        self._shown = shown
        self._index = index
        self._prompt = prompt
        self._num_tokens = 0
        self._has_begun = False

    @property
    def usage(self) -> RunningUsage:
        """What the pieces so far have cost."""
        num_prompt_tokens = len(self._prompt.token_ids)
        return RunningUsage(
            prompt_tokens=num_prompt_tokens,
            completion_tokens=self._num_tokens,
            total_tokens=num_prompt_tokens + self._num_tokens,
        )

    def num_entries(self, delta: Delta) -> int:
        """Return how many log-probabilities and echoed tokens a piece holds, by which its work grows."""
        tops = (*delta.top_logprobs[:1], *delta.prompt_top_logprobs[:1])
        num_logprobs = (len(delta.logprobs) + len(delta.prompt_logprobs)) * (1 + max(map(len, tops), default=0))
        return num_logprobs + (len(self._prompt.token_ids) if self._shown.echo and not self._has_begun else 0)

    def write(self, delta: Delta) -> CompletionChoice:
        """Return the next piece.

        Args:
            delta: what the request has returned since the last piece, or all of it.
        """
        shown, is_first = self._shown, not self._has_begun
        self._has_begun = True
        is_echo = shown.echo and is_first
        text, token_ids, finish_reason, stop_reason = (
            delta.text,
            delta.token_ids,
            delta.finish_reason,
            delta.stop_reason,
        )
        if shown.is_prompt_only:
            text, token_ids, stop_reason = "", (), None
            finish_reason = None if finish_reason is None else "length"
        self._num_tokens += len(token_ids)
        return CompletionChoice(
            index=self._index,
            text=self._prompt.text + text if is_echo else text,
            finish_reason=finish_reason,
            stop_reason=stop_reason,
            logprobs=self._logprobs(delta, token_ids, is_echo),
            prompt_logprobs=self._prompt_logprobs(delta)
            if is_first and shown.num_prompt_logprobs is not None
            else UNSET,
            prompt_token_ids=list(self._prompt.token_ids) if is_first and shown.has_ids else UNSET,
            token_ids=list(token_ids) if shown.has_ids else UNSET,
        )

    @cached_property
    def _places(self) -> _Places:
        skipped = self._tokenizer.special_ids if self._shown.skips_special else frozenset[int]()
        return _Places(self._tokenizer, len(self._prompt.text) if self._shown.echo else 0, skipped)

    def _logprobs(self, delta: Delta, token_ids: Sequence[int], is_echo: bool) -> CompletionLogprobs | None:
        num_top = self._shown.num_logprobs
        if num_top is None:
            return None
        tokens: list[str] = []
        values: list[float | None] = []
        offsets: list[int] = []
        tops: list[dict[str, float] | None] = []
        if is_echo:
            prompt_ids = self._prompt.token_ids
            tokens.append(self._name(prompt_ids[0]))
            values.append(None)
            tops.append(None)
            offsets += self._prompt.offsets
            for id_, value, top in _rows(prompt_ids[1:], delta.prompt_logprobs, delta.prompt_top_logprobs):
                tokens.append(self._name(id_))
                values.append(finite(value))
                tops.append(self._top(id_, value, top[:num_top]))
        if token_ids:
            for id_, value, top in _rows(token_ids, delta.logprobs, delta.top_logprobs):
                tokens.append(self._name(id_))
                values.append(finite(value))
                offsets.append(self._places.pass_token(id_))
                tops.append(self._top(id_, value, top))
        return CompletionLogprobs(tokens=tokens, token_logprobs=values, text_offset=offsets, top_logprobs=tops)

    def _top(self, token_id: int, value: float, top: Alternatives) -> dict[str, float]:
        """Return a token and its alternatives by text; of equal texts the likeliest counts."""
        best: dict[str, float] = {}
        for id_, logprob in ((token_id, value), *top):
            name = self._name(id_)
            best[name] = max(finite(logprob), best.get(name, finite(logprob)))
        return best

    def _prompt_logprobs(self, delta: Delta) -> list[dict[str, PromptLogprob] | None]:
        num_top = self._shown.num_prompt_logprobs
        tops = [top[:num_top] for top in delta.prompt_top_logprobs]
        return prompt_logprobs_of(self._tokenizer, self._prompt.token_ids, delta.prompt_logprobs, tops)

    def _name(self, token_id: int) -> str:
        return token_name(self._tokenizer, token_id, as_ids=self._shown.as_ids)


class _Places:
    """Where in a text each token begins; a token inside a character begins where the character does.

    Args:
        tokenizer: gives the bytes of tokens.
        start: place of the first one.
        skipped: tokens that leave no text.
    """

    def __init__(self, tokenizer: Tokenizer, start: int, skipped: frozenset[int] = frozenset()) -> None:
        self._tokenizer = tokenizer
        self._place = start
        self._skipped = skipped
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def pass_token(self, token_id: int) -> int:
        """Return where a token begins, and go on behind it."""
        place = self._place
        if token_id not in self._skipped:
            self._place += len(self._decoder.decode(self._tokenizer.token_bytes(token_id)))
        return place


def _rows(
    token_ids: Sequence[int], logprobs: Sequence[float], top_logprobs: Sequence[Alternatives]
) -> Iterator[tuple[int, float, Alternatives]]:
    return zip(token_ids, logprobs, top_logprobs or ((),) * len(logprobs), strict=True)
