"""One API call's work, as the engine sees it: tokens, resolved limits, resolved seed."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipstream.wire.sampling_params import SamplingParams

RowVerification = Literal["coupled", "rejection"]
"""How one request's drafts are judged; without noise (greedy) both are the same comparison."""

GrammarStart = Literal["answer", "after_reasoning"]
"""Where a constraint begins: with the answer's first token, or behind the end of reasoning."""


MAX_BAD_SEQUENCES = 64
"""Most sequences of two tokens or more that one request may forbid; single tokens are not limited."""

MAX_BAD_SEQUENCE_LEN = 16
"""Most tokens of one of them."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose open choices are resolved; built by the front end, queued by the scheduler.

    Args:
        request_id: unique among the requests in flight.
        prompt_token_ids: at least one token, each below the vocabulary size.
        sampling: the caller's parameters. The engine reads `seed`, `max_seq_len` and `stop_token_ids` below
            instead of the fields of the same meaning here.
        seed: 64-bit key of the noise; drawn by the front end when the caller gave none.
        max_seq_len: prompt plus returned tokens never exceed this many; at least prompt + 1.
        stop_token_ids: every id that ends the request: the model's end tokens (unless ignored) and the caller's.
        verification: how this request's drafts are judged; a request with a seed of its own is coupled unless the
            engine was told otherwise.
        bad_token_ids: the tokens of `sampling.bad_words`, one sequence or more per word; each has at least 1 token.
        eos_token_ids: the subset that is the model's own end; a stop at any other id is reported as stop_reason.
        arrival_s: time of arrival on the engine's monotonic clock, in seconds.
        grammar_starts: where `sampling.grammar`, if there is one, begins; `after_reasoning` means that the answer
            begins inside reasoning.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    seed: int
    max_seq_len: int
    stop_token_ids: tuple[int, ...] = ()
    eos_token_ids: tuple[int, ...] = ()
    arrival_s: float = 0.0
    verification: RowVerification = "coupled"
    bad_token_ids: tuple[tuple[int, ...], ...] = ()
    grammar_starts: GrammarStart = "answer"
