"""The states of a request: Waiting → Prefilling → Decoding → Finished, and back to Waiting by preemption.

Each state is a type of its own and holds only what that state may touch; what lives as long as the request is its
`Ledger`. A transition makes the next object and empties the old one, so that a stale reference finds no row.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from slipstream.base.errors import RequestError
from slipstream.wire.ids import NO_ROW, RowId
from slipstream.wire.messages import FinishReason, RequestOutput
from slipstream.wire.request import Request
from slipstream.wire.step import Alternatives, PromptRun


class PromptNews(NamedTuple):
    """Log-probabilities of a prompt's tokens but the first."""

    logprobs: tuple[float, ...] = ()
    top_logprobs: tuple[Alternatives, ...] = ()


@dataclass(slots=True, eq=False)
class Ledger:
    """What is known of a request in every state.

    Args:
        request: as it was submitted.
        order: place in the order of submission; kept through preemption.
        tokens: prompt and returned tokens.
        stop_token_ids: ids that end the request.
        first_scheduled_s, first_token_s: times on the scheduler's clock, None before.
        num_prefix_hit_tokens: prompt tokens found in the cache at the first admission.
        num_preemptions: times it was sent back to the queue.
        has_output: whether an output was made.
        prompt_logprobs, prompt_top_logprobs: of prompt tokens 1, 2, .., as chunks bring them; returned with the first
            output.
    """

    request: Request
    order: int
    tokens: list[int]
    stop_token_ids: frozenset[int]
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    num_prefix_hit_tokens: int = 0
    num_preemptions: int = 0
    has_output: bool = False
    prompt_logprobs: list[float] = field(default_factory=list[float])
    prompt_top_logprobs: list[Alternatives] = field(default_factory=list[Alternatives])

    @classmethod
    def open(cls, request: Request, order: int) -> Ledger:
        """Return the ledger of a new request."""
        return cls(request, order, list(request.prompt_token_ids), frozenset(request.stop_token_ids))

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def max_seq_len(self) -> int:
        """Prompt plus returned tokens never exceed this."""
        return self.request.max_seq_len

    @property
    def num_prompt_logprobs(self) -> int | None:
        """Alternatives wanted per prompt token; None when none are wanted, or they were returned before."""
        return None if self.has_output else self.request.sampling.prompt_logprobs

    def note_prompt(self, run: PromptRun) -> None:
        """Keep what a chunk says of the prompt."""
        assert run.first == len(self.prompt_logprobs) + 1, "chunks arrive in order"
        self.prompt_logprobs.extend(run.logprobs)
        self.prompt_top_logprobs.extend(run.top_logprobs)

    def forget_prompt(self) -> None:
        """Drop what chunks said of the prompt: it is computed again from its start."""
        self.prompt_logprobs.clear()
        self.prompt_top_logprobs.clear()

    @property
    def prompt_news(self) -> PromptNews:
        """What the first output says of the prompt; nothing before the prompt is complete, or afterwards."""
        if self.has_output or len(self.prompt_logprobs) < len(self.request.prompt_token_ids) - 1:
            return PromptNews()
        return PromptNews(tuple(self.prompt_logprobs), tuple(self.prompt_top_logprobs))


@dataclass(slots=True, eq=False)
class Flight:
    """One row's share of a step that was planned and has not retired.

    Args:
        step_id: the step.
        chunk_end: tokens computed after it, for a chunk; None for a ladder.
        max_emitted: most tokens that it may emit: 0 for a chunk, 1 for a last chunk, K + 1 for a ladder.
    """

    step_id: int
    chunk_end: int | None
    max_emitted: int


@dataclass(slots=True, eq=False)
class Waiting:
    """Queued, without a row: new, or preempted."""

    ledger: Ledger

    def start(self, row: RowId, num_computed_tokens: int, step_id: int) -> Prefilling:
        """Return the running state on `row`, with the tokens that a prefix hit covers."""
        return Prefilling(
            ledger=self.ledger,
            row=row,
            num_computed_tokens=num_computed_tokens,
            last_step=step_id,
            num_planned_tokens=num_computed_tokens,
        )


def _new_flights() -> deque[Flight]:
    return deque()


@dataclass(slots=True, eq=False, kw_only=True)
class Running:
    """What Prefilling and Decoding share: a row.

    Args:
        ledger: the request.
        row: owned until the end; NO_ROW after a transition.
        num_computed_tokens: tokens whose keys and values retired steps have written.
        flights: this row's shares of steps in flight, oldest first.
        last_step: the last step planned with the row.
        is_leaving: chosen for preemption; ends when its last flight has retired.
    """

    ledger: Ledger
    row: RowId
    num_computed_tokens: int
    last_step: int
    flights: deque[Flight] = field(default_factory=_new_flights)
    is_leaving: bool = False

    def give_up_row(self) -> Ledger:
        """Empty this state at the end of its row's life and return the ledger."""
        self.row = NO_ROW
        self.flights.clear()
        return self.ledger

    def to_waiting(self) -> Waiting:
        """Preempt: the next prefill computes prompt and returned tokens alike."""
        return Waiting(self.give_up_row())


@dataclass(slots=True, eq=False, kw_only=True)
class Prefilling(Running):
    """Has known tokens that no step was planned for.

    Args:
        num_planned_tokens: tokens in retired or planned chunks, or found by prefix.
    """

    num_planned_tokens: int

    @property
    def num_remaining_tokens(self) -> int:
        """Known tokens to plan for; at least 1."""
        return len(self.ledger.tokens) - self.num_planned_tokens

    def to_decoding(self) -> Decoding:
        """Return the next state, once the last chunk is planned; its result need not be known."""
        decoding = Decoding(
            ledger=self.ledger,
            row=self.row,
            num_computed_tokens=self.num_computed_tokens,
            last_step=self.last_step,
            flights=deque(self.flights),
        )
        self.give_up_row()
        return decoding


@dataclass(slots=True, eq=False, kw_only=True)
class Decoding(Running):
    """Every known token is computed or planned: from here on its row verifies ladders.

    The bounds assume that every flight emits all it may. With L known tokens after the last retired step, the row's
    last token lies at most at position L + (sum of max_emitted) - 1.
    """

    @property
    def can_advance(self) -> bool:
        """Whether a further step can emit a token that the request may still return."""
        num_emitting = sum(flight.max_emitted > 0 for flight in self.flights)
        return len(self.ledger.tokens) + num_emitting < self.ledger.max_seq_len

    def num_reserved_tokens(self, draft_len: int, num_more_steps: int = 0) -> int:
        """Return the tokens that need pages: steps in flight, more ladders, and the drafts made after them.

        Args:
            draft_len: K.
            num_more_steps: ladders to plan on top of the steps in flight.
        """
        num_emitted_bound = sum(flight.max_emitted for flight in self.flights) + num_more_steps * (draft_len + 1)
        num_computed_bound = len(self.ledger.tokens) + num_emitted_bound - 1
        return min(num_computed_bound + draft_len, self.ledger.max_seq_len)


@dataclass(slots=True, eq=False)
class Finished:
    """Ended: holds nothing but the reason."""

    ledger: Ledger
    finish_reason: FinishReason
    stop_reason: int | None = None
    error: str | None = None
    error_code: str | None = None

    def final_output(
        self,
        now_s: float,
        *,
        token_ids: tuple[int, ...] = (),
        num_draft_tokens: int = 0,
        num_accepted: int = 0,
        is_verify_step: bool = False,
        logprobs: tuple[float, ...] = (),
        top_logprobs: tuple[Alternatives, ...] = (),
    ) -> RequestOutput:
        """Return the last output of the request, with its times."""
        ledger = self.ledger
        scheduled_s = now_s if ledger.first_scheduled_s is None else ledger.first_scheduled_s
        first_token_s = now_s if ledger.first_token_s is None else ledger.first_token_s
        return RequestOutput(
            request_id=ledger.request_id,
            token_ids=token_ids,
            num_draft_tokens=num_draft_tokens,
            num_accepted=num_accepted,
            is_verify_step=is_verify_step,
            logprobs=logprobs,
            top_logprobs=top_logprobs,
            prompt_logprobs=ledger.prompt_news.logprobs,
            prompt_top_logprobs=ledger.prompt_news.top_logprobs,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            error=self.error,
            # Only the request's own faults have a code.
            error_kind=None if self.error_code is None else RequestError.__name__,
            error_code=self.error_code,
            num_prefix_hit_tokens=0 if ledger.has_output else ledger.num_prefix_hit_tokens,
            queue_s=max(scheduled_s - ledger.request.arrival_s, 0.0),
            prefill_s=first_token_s - scheduled_s,
            decode_s=now_s - first_token_s,
            num_preemptions=ledger.num_preemptions,
        )
