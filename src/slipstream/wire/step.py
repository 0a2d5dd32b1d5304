"""What the scheduler hands to the runner for one step, and what comes back. Integers and strings only."""

from __future__ import annotations

import msgspec

from slipstream.wire.request import RowVerification
from slipstream.wire.sampling_params import SamplingParams

Alternatives = tuple[tuple[int, float], ...]
"""The most likely tokens of one position and their raw log-probabilities, best first, ties in order of token id."""


class RowStart(msgspec.Struct, frozen=True, kw_only=True):
    """A row begins a request's life in this step; it overwrites everything the row held before.

    Args:
        row: the row, 0 <= row < max_rows.
        token_ids: every token known so far: the prompt, and after a preemption also what was emitted.
        num_computed_tokens: tokens found by prefix; a multiple of page_size and below len(token_ids).
        max_seq_len: positions at or past this are never written.
        sampling: everything about one token is read; seed, n, max_tokens and what acts on text are not.
        seed: 64-bit key of the request's noise.
        verification: how the row's drafts are judged.
        num_prompt_tokens: how many of token_ids are the prompt; the rest was returned before a preemption.
        stop_token_ids: what `sampling.min_tokens` forbids until so many tokens were returned.
        bad_token_ids: sequences that the returned tokens may not contain.
        num_prompt_logprobs: as `sampling.prompt_logprobs`, or None when they were returned before.
        grammar_id: the request's id when its text is constrained: what the compiled grammar is found by. None leaves
            the row free.
    """

    row: int
    token_ids: tuple[int, ...]
    num_computed_tokens: int
    max_seq_len: int
    sampling: SamplingParams
    seed: int
    verification: RowVerification = "coupled"
    num_prompt_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    bad_token_ids: tuple[tuple[int, ...], ...] = ()
    num_prompt_logprobs: int | None = None
    grammar_id: str | None = None


class PageEdit(msgspec.Struct, frozen=True, kw_only=True):
    """Entries [first, first + len(pages)) of one row's page table in one cache group become `pages`."""

    group: str
    row: int
    first: int
    pages: tuple[int, ...]


class PrefillChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Compute tokens [start, end) of a row's known tokens; the last chunk also draws the first new token."""

    row: int
    start: int
    end: int
    is_last: bool


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One step. Nothing in it depends on what the previous step accepted.

    Order of execution: starts, page edits, decode rows (as one ladder batch), prefill chunks.

    Args:
        step_id: counts up by one.
        starts: rows that begin a request's life.
        page_edits: page-table entries to write; a row's entries past its pages are the null page. A RowStart
            clears the row's tables first.
        decode_rows: rows that verify their drafts and emit 1 to draft_len + 1 tokens; ascending, unique.
        chunks: prompt pieces to prefill, at most one per row, never a row of decode_rows.
        draft_len: K of this step; 0 is plain decoding.
    """

    step_id: int
    starts: tuple[RowStart, ...] = ()
    page_edits: tuple[PageEdit, ...] = ()
    decode_rows: tuple[int, ...] = ()
    chunks: tuple[PrefillChunk, ...] = ()
    draft_len: int = 0


NO_TOKEN_CODE = "no_token_left"
"""The short word of the error of a request whose own wishes leave no token at some place."""


class TokenRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one row emitted in one step.

    Args:
        row: the row.
        token_ids: num_accepted + 1 tokens in order; the scheduler cuts them at a stop or a limit.
        num_draft_tokens: drafts that were verified (placeholders not counted); 0 after a last chunk.
        num_accepted: accepted drafts, without the target's own token.
        logprobs: raw log-probability of each emitted token, or empty when nobody asked.
        top_logprobs: the alternatives of each emitted token, or empty when nobody asked.
        is_finite: False when the row's logits held NaN or +infinity, or allowed no token; the request ends with an
            error. A logit of -infinity is a token that may not be drawn.
        error: why the row's constraint cannot go on; the request ends with it. Then `is_finite` is False too.
        error_code: with `error`, a short word if the request itself is at fault, as `RequestError` has it.
    """

    row: int
    token_ids: tuple[int, ...]
    num_draft_tokens: int
    num_accepted: int
    logprobs: tuple[float, ...] = ()
    is_finite: bool = True
    top_logprobs: tuple[Alternatives, ...] = ()
    error: str | None = None
    error_code: str | None = None


class PromptRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk says of the prompt tokens that follow its own: one entry per position from `first` on.

    Args:
        row: the row.
        first: position of the first token described; at least 1.
        logprobs: raw log-probability of each of these prompt tokens.
        top_logprobs: the alternatives of each, or empty when only the chosen token was asked for.
    """

    row: int
    first: int
    logprobs: tuple[float, ...]
    top_logprobs: tuple[Alternatives, ...] = ()


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one step: one per decode row and one per last chunk, in plan order.

    `prompt_runs` has one entry per chunk of a row that asked for the log-probabilities of its prompt.
    """

    step_id: int
    runs: tuple[TokenRun, ...]
    prompt_runs: tuple[PromptRun, ...] = ()
