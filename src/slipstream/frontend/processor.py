"""Turn what a caller asks for into a `wire.Request`: tokens, resolved limits, resolved seed. Or say why not."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from slipstream.base.errors import CheckpointError, ContextLengthError, RequestError, UnsupportedFeature
from slipstream.frontend.bad_words import bad_token_ids
from slipstream.frontend.chat import ChatAsk, PreparedChat, render_kwargs, sampling_for
from slipstream.text.chat_template import ChatTemplate, strings_of
from slipstream.text.reasoning.mode import initial_state, pin_mode, thinking_mode
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.messages import EngineFacts
from slipstream.wire.request import Request, RowVerification
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import NO_TOKEN_CODE

Prompt = str | Sequence[int]
"""Text, in which strings of control tokens are control tokens, or token ids."""

CONTEXT_CODE = "context_length_exceeded"
_SEED_BITS = 63
_MAX_SHOWN_BITS = 2000
_MAX_CHARACTER_BYTES = 4
"""Bytes of the longest character in UTF-8."""


class TextParts:
    """The tokenizer and the chat template of a checkpoint.

    Args:
        tokenizer: of the checkpoint.
        template: None when the checkpoint has none; conversations are then refused.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self.tokenizer = tokenizer
        self.template = template

    @classmethod
    def load(cls, folder: Path | str) -> TextParts:
        """Load both from a checkpoint folder.

        Raises:
            CheckpointError: a file is missing or broken.
        """
        tokenizer = Tokenizer.load(folder)
        return cls(tokenizer, ChatTemplate.find(folder, tokenizer))


class Processor:
    """Build requests for one engine.

    Args:
        text: tokenizer and template.
        facts: limits of the engine.
        clock: the engine's monotonic clock, in seconds.

    Raises:
        CheckpointError: the tokenizer has more tokens than the model.
    """

    def __init__(self, text: TextParts, facts: EngineFacts, *, clock: Callable[[], float] = time.monotonic) -> None:
        if text.tokenizer.vocab_size > facts.vocab_size:
            raise CheckpointError(
                f"the tokenizer has {text.tokenizer.vocab_size} tokens, the model only {facts.vocab_size}: "
                "take both from one checkpoint"
            )
        self.tokenizer = text.tokenizer
        self.facts = facts
        self._template = text.template
        self._clock = clock
        self._eos_token_ids = facts.eos_token_ids or text.tokenizer.eos_token_ids

    def tokenize(self, prompt: Prompt, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Return the token ids of a prompt.

        Args:
            prompt: text or token ids.
            add_special_tokens: apply the tokenizer's own prefix to text, if it has one.

        Raises:
            RequestError: it is empty, of another type, or holds an id outside the vocabulary.
            ContextLengthError: it is so long that it need not be looked at.
        """
        if isinstance(prompt, str):
            self.check_text((prompt,), "prompt")
            ids = self.tokenizer.encode(prompt, add_special_tokens=add_special_tokens)
        elif isinstance(prompt, Sequence) and len(prompt) > self.facts.max_model_len:
            raise self._prompt_too_long(len(prompt))
        elif isinstance(prompt, Sequence) and all(type(id_) is int for id_ in prompt):
            ids = prompt
        else:
            raise RequestError(f"prompt is {type(prompt).__name__}: give text or a list of token ids", param="prompt")
        self.check_ids(ids, "prompt")
        if not ids:
            raise RequestError("prompt is empty: give at least one token", param="prompt")
        return tuple(ids)

    @property
    def template_variables(self) -> frozenset[str]:
        """Names that the chat template reads; none without a template."""
        return frozenset() if self._template is None else self._template.variables

    def prepare_chat(self, ask: ChatAsk, sampling: SamplingParams, *, num_contexts: int = 1) -> PreparedChat:
        """Render a conversation, and settle what its answer starts in and whether it must be a call.

        A constrained answer needs a certain start: a thinking mode that leaves it to the model becomes `disabled`.

        Args:
            ask: the conversation.
            sampling: the caller's parameters.
            num_contexts: how many context lengths the texts may fill; see `check_text`.

        Raises:
            RequestError: there is no template, it refuses the conversation, or the choices contradict each other.
            UnsupportedFeature: the template shows no tools, or a call cannot be forced.
            ContextLengthError: the texts are so long that they need not be rendered.
        """
        if self._template is None:
            raise RequestError(
                "this checkpoint has no chat template: send a rendered prompt to /v1/completions", param="messages"
            )
        tools = [tool.for_template() for tool in ask.tools.tools]
        if tools and "tools" not in self._template.variables:
            raise UnsupportedFeature("this checkpoint's chat template shows no tools: leave tools out", param="tools")
        self.check_text(strings_of([*ask.messages, *tools, ask.template_kwargs]), "messages", num_contexts=num_contexts)
        sampling = sampling_for(ask, sampling, self.tokenizer)
        mode = pin_mode(thinking_mode(ask.template_kwargs), is_constrained=sampling.grammar is not None)
        rendered = self._template.encode_for_answer(
            ask.messages,
            add_generation_prompt=ask.add_generation_prompt,
            template_kwargs=render_kwargs(ask.template_kwargs, mode, self._template.variables),
            tools=tools,
        )
        if not rendered.token_ids:
            raise RequestError("the chat template rendered these messages to nothing", param="messages")
        starts_in = initial_state(mode, rendered.tail)
        if sampling.grammar is not None and starts_in == "undecided":
            starts_in = "content"
        is_parsed = bool(tools) and ask.tool_choice.mode != "none"
        return PreparedChat(
            prompt_token_ids=tuple(rendered.token_ids),
            sampling=sampling,
            starts_in=starts_in,
            parameters=ask.tools.parameters if is_parsed else None,
            max_calls=None if ask.parallel_tool_calls else 1,
        )

    def tokenize_chat(self, ask: ChatAsk, *, num_contexts: int = 1) -> tuple[int, ...]:
        """Return the token ids of a conversation, as `prepare_chat`."""
        return self.prepare_chat(ask, SamplingParams(), num_contexts=num_contexts).prompt_token_ids

    def make_request(
        self,
        request_id: str,
        prompt_token_ids: tuple[int, ...],
        sampling: SamplingParams,
        *,
        starts_in_reasoning: bool = False,
    ) -> Request:
        """Resolve limits, end tokens, seed and verification.

        Args:
            request_id: unique among the requests in flight.
            prompt_token_ids: as `tokenize` or `tokenize_chat` returned them.
            sampling: the caller's parameters.
            starts_in_reasoning: the answer begins inside reasoning, which a constraint leaves free.

        Raises:
            ContextLengthError: the prompt, or the prompt and max_tokens, cannot fit the context or the cache.
            RequestError: a token id is outside the vocabulary.
            UnsupportedFeature: more than one answer, or words that cannot be looked for.
        """
        if sampling.n != 1:
            raise UnsupportedFeature(
                f"n={sampling.n}: one request has one answer; send it {sampling.n} times, with a seed each", param="n"
            )
        self.check_ids(sampling.stop_token_ids, "stop_token_ids")
        self.check_ids(tuple(token for token, _ in sampling.logit_bias), "logit_bias")
        self.check_ids(sampling.allowed_token_ids or (), "allowed_token_ids")
        if sampling.top_k >= self.facts.vocab_size:
            # Keeping every token is no filter, and a number without bound does not fit the wire.
            sampling = msgspec.structs.replace(sampling, top_k=0)
        eos = () if sampling.ignore_eos else self._eos_token_ids
        stop_token_ids = tuple(dict.fromkeys((*eos, *sampling.stop_token_ids)))
        forbidden = bad_token_ids(sampling.bad_words, self.tokenizer)
        _check_a_token_is_left(sampling, forbidden, stop_token_ids)
        return Request(
            request_id=request_id,
            prompt_token_ids=prompt_token_ids,
            sampling=sampling,
            seed=secrets.randbits(_SEED_BITS) if sampling.seed is None else sampling.seed,
            max_seq_len=self._resolve_max_seq_len(len(prompt_token_ids), sampling.max_tokens),
            stop_token_ids=stop_token_ids,
            eos_token_ids=eos,
            arrival_s=self._clock(),
            verification=self._verification_of(sampling),
            bad_token_ids=forbidden,
            grammar_starts="after_reasoning" if starts_in_reasoning else "answer",
        )

    def _verification_of(self, sampling: SamplingParams) -> RowVerification:
        """Return how drafts are judged: as the engine was told, or by whether the caller gave a seed."""
        if self.facts.verification == "auto":
            return "rejection" if sampling.seed is None else "coupled"
        return "rejection" if self.facts.verification == "rejection" else "coupled"

    def check_text(self, texts: Sequence[str], param: str, *, num_contexts: int = 1) -> None:
        """Refuse texts that would not fit even if every token were the longest one; nothing is tokenised for it.

        Args:
            texts: what would be tokenised.
            param: the field that they came in.
            num_contexts: how many context lengths they may fill.

        Raises:
            ContextLengthError: they are longer.
        """
        limit = num_contexts * self.facts.max_model_len * self.tokenizer.max_token_bytes
        num_bytes = sum(map(len, texts))
        if num_bytes * _MAX_CHARACTER_BYTES > limit:
            num_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        if num_bytes > limit:
            raise ContextLengthError(
                f"{param} holds {num_bytes} bytes of text; a token has at most {self.tokenizer.max_token_bytes}, so "
                f"{num_contexts * self.facts.max_model_len} tokens hold {limit} at most: shorten the text",
                param=param,
                code=CONTEXT_CODE,
            )

    def check_ids(self, ids: Sequence[int], param: str) -> None:
        """Refuse token ids outside the vocabulary.

        Args:
            ids: token ids.
            param: the field that they came in.

        Raises:
            RequestError: it names the first id outside.
        """
        if ids and not 0 <= min(ids) <= max(ids) < self.facts.vocab_size:
            outside = next(id_ for id_ in ids if not 0 <= id_ < self.facts.vocab_size)
            shown = outside if outside.bit_length() <= _MAX_SHOWN_BITS else "of many digits"
            raise RequestError(
                f"{param} holds token id {shown}; ids run from 0 to {self.facts.vocab_size - 1}", param=param
            )

    def _prompt_too_long(self, prompt_len: int) -> ContextLengthError:
        context = self.facts.max_model_len
        return ContextLengthError(
            f"the prompt has {prompt_len} tokens, and the context holds {context} with at least one to return: "
            f"shorten the prompt to {context - 1} tokens",
            param="prompt",
            code=CONTEXT_CODE,
        )

    def _resolve_max_seq_len(self, prompt_len: int, max_tokens: int | None) -> int:
        context, cache = self.facts.max_model_len, self.facts.num_cache_tokens
        if prompt_len > context - 1:
            raise self._prompt_too_long(prompt_len)
        if prompt_len > cache - 1:
            raise ContextLengthError(
                f"the prompt has {prompt_len} tokens, and this engine's cache holds {cache} with at least one to "
                f"return: shorten the prompt to {cache - 1} tokens, or start the engine with more cache",
                param="prompt",
                code=CONTEXT_CODE,
            )
        if max_tokens is None:
            return min(context, cache)
        seq_len = prompt_len + max_tokens
        for limit, what in ((context, "the context"), (cache, "this engine's cache")):
            if seq_len > limit:
                raise ContextLengthError(
                    f"the prompt has {prompt_len} tokens and max_tokens is {max_tokens}, which is {seq_len} together; "
                    f"{what} holds {limit}: lower max_tokens to {limit - prompt_len}, or shorten the prompt",
                    param="max_tokens",
                    code=CONTEXT_CODE,
                )
        return seq_len


def _check_a_token_is_left(
    sampling: SamplingParams, forbidden: tuple[tuple[int, ...], ...], stop_token_ids: tuple[int, ...]
) -> None:
    """Refuse a request whose allowed tokens are all forbidden at its first place by what else it asks for."""
    if sampling.allowed_token_ids is None:
        return
    taken = {sequence[0] for sequence in forbidden if len(sequence) == 1}
    taken |= set(stop_token_ids) if sampling.min_tokens else set()
    if set(sampling.allowed_token_ids) <= taken:
        raise RequestError(
            "no token may come first: bad_words, or min_tokens with end tokens, forbid everything that "
            "allowed_token_ids allows: allow more, or loosen them",
            param="allowed_token_ids",
            code=NO_TOKEN_CODE,
        )
