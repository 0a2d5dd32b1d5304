"""Put together what one request returns: engine outputs to text, tokens and counts, cut at stop strings."""

from __future__ import annotations

import msgspec

from slipstream.text.detokenizer import IncrementalDetokenizer
from slipstream.text.stop import StopStrings
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.messages import FinishReason, RequestOutput
from slipstream.wire.request import Request
from slipstream.wire.step import Alternatives


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine output adds to a request.

    Args:
        text: new text; shorter than the tokens' while a stop string or a character may be incomplete.
        token_ids: new tokens, up to and including the one that completed a stop string.
        logprobs: one per token, or empty when not asked for.
        top_logprobs: the alternatives of each token, or empty when not asked for.
        prompt_logprobs, prompt_top_logprobs: of every prompt token but the first, in the first delta that has tokens.
        finish_reason: None while it runs.
        stop_reason: the stop string, or the stop token id other than the model's own end, that ended it.
        error: the message when finish_reason is `error`.
        num_accepted: how many of the first tokens were accepted drafts.
        pieces: the text by the token that made it certain, one per token, possibly empty; a last delta without a
            token may have one piece all the same.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: str | None = None
    top_logprobs: tuple[Alternatives, ...] = ()
    prompt_logprobs: tuple[float, ...] = ()
    prompt_top_logprobs: tuple[Alternatives, ...] = ()
    num_accepted: int = 0
    pieces: tuple[str, ...] = ()


class RequestStream:
    """The state of one request's answer.

    Counts are over returned tokens: when a stop string ends the text inside an accepted run, the tokens behind it
    are neither returned nor counted as accepted. `num_emitted` is how many of the returned tokens verify steps made;
    the first token of every prefill is not one of them.

    Args:
        request: what was asked.
        tokenizer: turns its tokens into text.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer) -> None:
        sampling = request.sampling
        self.request = request
        self.num_generated_tokens = 0
        self.num_verify_steps = 0
        self.num_draft_tokens = 0
        self.num_accepted = 0
        self.num_emitted = 0
        self.num_prefix_hit_tokens = 0
        self.finish_reason: FinishReason | None = None
        self._stop_ids = frozenset(request.stop_token_ids)
        self._shows_stop = sampling.include_stop_str_in_output
        self._detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=sampling.skip_special_tokens)
        self._stops = StopStrings(sampling.stop, include_in_output=sampling.include_stop_str_in_output)

    @property
    def is_cut(self) -> bool:
        """Whether a stop string ended the request, which the engine does not know of."""
        return self._stops.matched is not None

    def feed(self, output: RequestOutput) -> Delta:
        """Take one output of the engine; after the end there must be none.

        Args:
            output: of this request.
        """
        assert self.finish_reason is None, "an output after the end of the request"
        self.num_prefix_hit_tokens = max(self.num_prefix_hit_tokens, output.num_prefix_hit_tokens)
        pieces = self._read(output)
        num_kept = min(len(pieces), len(output.token_ids))
        stop_reason: int | str | None = output.stop_reason
        self.finish_reason = output.finish_reason
        if self.is_cut:
            self.finish_reason, stop_reason = "stop", self._stops.matched
        self._count(output, num_kept)
        return Delta(
            text="".join(pieces),
            pieces=tuple(pieces),
            num_accepted=min(output.num_accepted, num_kept),
            token_ids=output.token_ids[:num_kept],
            logprobs=output.logprobs[:num_kept],
            top_logprobs=output.top_logprobs[:num_kept],
            prompt_logprobs=output.prompt_logprobs,
            prompt_top_logprobs=output.prompt_top_logprobs,
            finish_reason=self.finish_reason,
            stop_reason=stop_reason,
            error=None if self.is_cut else output.error,
        )

    def _read(self, output: RequestOutput) -> list[str]:
        """Return the new text by the tokens of the output that belong to the result."""
        ids = output.token_ids
        # The token that ended the request is returned, but its text is not unless asked for.
        ends_at_id = output.finish_reason == "stop" and bool(ids) and ids[-1] in self._stop_ids
        is_hidden = ends_at_id and not self._shows_stop
        pieces = self._detokenizer.feed(ids[:-1] if is_hidden else ids)
        if is_hidden:
            pieces.append("")
        # Stop strings are looked for behind the first `min_tokens` tokens only.
        num_exempt = max(self.request.sampling.min_tokens - self.num_generated_tokens, 0)
        exempt, pieces = pieces[:num_exempt], pieces[num_exempt:]
        pieces = [*exempt, *self._stops.feed(pieces).pieces]
        if self.is_cut or output.finish_reason is None:
            return pieces
        tail = self._stops.feed([self._detokenizer.flush()]).text + self._stops.flush()
        if tail:
            pieces[-1:] = ["".join([*pieces[-1:], tail])]
        return pieces

    def _count(self, output: RequestOutput, num_kept: int) -> None:
        self.num_generated_tokens += num_kept
        if output.is_verify_step and num_kept:
            self.num_verify_steps += 1
            self.num_draft_tokens += output.num_draft_tokens
            self.num_accepted += min(output.num_accepted, num_kept)
            self.num_emitted += num_kept
