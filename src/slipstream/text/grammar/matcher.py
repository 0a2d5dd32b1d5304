"""Follow one answer through its grammar, and say which tokens may come at every row of a ladder.

A matcher is a value of one request: one thread at a time, no lock. Not here: compiling (compiler), the part of an
answer that no grammar binds (deferred).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol, TypeVar

import msgspec
import numpy as np
from llguidance import LLMatcher

from slipstream.base.errors import SlipstreamError
from slipstream.text.grammar.backend import explain_error
from slipstream.text.grammar.bitmask import ALLOW_ALL, Mask, check_rows, is_allowed
from slipstream.text.grammar.origin import GrammarOrigin, is_table_full

_Result = TypeVar("_Result")


class GrammarFault(SlipstreamError):
    """One request's grammar cannot go on: end that request with an error. The engine and other requests are fine."""


TOO_COMPLEX = (
    "the constraint has too many states to be followed along this text, as nested repetitions have: make it simpler"
)


class LadderMatcher(Protocol):
    """What a runner needs of a constraint. Every method raises GrammarFault once the matcher has failed."""

    def fill_masks(self, drafts: Sequence[int], out: Mask) -> int:
        """Write the allowed tokens of every ladder row; leaves the matcher where it was.

        Row j is for the token after drafts[0 .. j-1]. A draft that its row does not allow, NO_TOKEN included, can
        never be accepted; the rows after it are never read, and allow everything. If the library gives up somewhere
        behind an allowed draft, the rows from there on allow nothing, and the matcher is unharmed.

        Args:
            drafts: d1..dK; NO_TOKEN where there is no proposal.
            out: [len(drafts) + 1, num_words] int32.

        Returns:
            How many leading drafts are allowed.

        Raises:
            GrammarFault: the grammar cannot go on from where it is; `out` allows nothing.
        """
        ...

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens.

        Raises:
            GrammarFault: a token does not continue the text that the grammar describes.
        """
        ...

    def rollback(self, num_tokens: int) -> None:
        """Take back the last accepted tokens.

        Raises:
            GrammarFault: fewer were accepted.
        """
        ...

    @property
    def is_terminated(self) -> bool:
        """Whether an end token was accepted where the grammar may end."""
        ...


class MaskPlan(msgspec.Struct, frozen=True):
    """What all matchers of one grammar share.

    Args:
        vocab_size: width of the model's logits.
        eos_ids: ids that end the answer.
        ends: [num_words] int32; allows the end tokens only.
        candidates: [num_words] int32; tokens of text, and the control tokens that the grammar names.
    """

    vocab_size: int
    eos_ids: frozenset[int]
    ends: Mask
    candidates: Mask


class GrammarMatcher:
    """A grammar and the tokens accepted so far.

    End tokens are allowed exactly where the grammar may end; after the first one nothing else is. Tokens that spell
    a text differently from the tokenizer are accepted, though where the grammar leaves no choice of text the masks
    offer the tokenizer's own spelling only.

    Args:
        origin: where the library's state is copied from.
        plan: masks shared by the grammar's matchers.
    """

    def __init__(self, origin: GrammarOrigin, plan: MaskPlan) -> None:
        self._origin = origin
        self._plan = plan
        self._generation, self._state = origin.copy()
        self._tokens: list[int] = []
        self._num_ends = 0
        self._fault: str | None = None

    @property
    def is_terminated(self) -> bool:
        """Whether an end token was accepted where the grammar may end."""
        return self._num_ends > 0

    @property
    def num_accepted(self) -> int:
        """Tokens accepted so far, end tokens included."""
        return len(self._tokens) + self._num_ends

    def fill_masks(self, drafts: Sequence[int], out: Mask) -> int:
        """See LadderMatcher."""
        check_rows(out, len(drafts) + 1, len(self._plan.ends))
        is_ended = self.is_terminated
        taken: list[int] = []
        try:
            self._check_usable()
            self._fill_row(out[0], is_ended, taken)
        except GrammarFault:
            out[:] = 0
            raise
        row = 0
        # Costs microseconds, and keeps what only a draft ran into from ending the request.
        spare = self._generation, self._state.deep_copy() if drafts else self._state
        try:
            while row < len(drafts) and is_allowed(out[row], draft := drafts[row], self._plan.vocab_size):
                row += 1
                if draft in self._plan.eos_ids:
                    is_ended = True
                else:
                    self._take(draft, taken)
                self._fill_row(out[row], is_ended, taken)
        except GrammarFault:
            out[row:] = 0
            self._fault = None
            self._generation, self._state = spare
            return row
        out[row + 1 :] = ALLOW_ALL
        if taken and not self._state.rollback(len(taken)):
            self._generation, self._state = spare
        return row

    def accept(self, tokens: Sequence[int]) -> None:
        """See LadderMatcher. If one token is refused, none was accepted."""
        self._check_usable()
        taken: list[int] = []
        num_ends = 0
        for token in tokens:
            if token in self._plan.eos_ids:
                if not (self.is_terminated or num_ends or self._use(_is_complete, taken)):
                    self._fail(f"the end token {token} came where the text is not complete")
                num_ends += 1
            elif self.is_terminated or num_ends:
                self._fail(f"token {token} came after the end of the text")
            else:
                self._take(token, taken)
        self._tokens += taken
        self._num_ends += num_ends

    def rollback(self, num_tokens: int) -> None:
        """See LadderMatcher."""
        self._check_usable()
        if not 0 <= num_tokens <= self.num_accepted:
            self._fail(f"{num_tokens} tokens cannot be taken back: {self.num_accepted} were accepted")
        num_ends = min(num_tokens, self._num_ends)
        self._num_ends -= num_ends
        if num_tokens > num_ends:
            del self._tokens[num_ends - num_tokens :]
            if not self._state.rollback(num_tokens - num_ends):
                self._replay(*self._origin.copy(), ())

    def forced_tokens(self) -> list[int]:
        """Return the tokens that must come next, because the grammar leaves no choice of text. Often none."""
        self._check_usable()
        return [] if self.is_terminated else self._use(_find_forced, ())

    def _fill_row(self, mask: Mask, is_ended: bool, taken: Sequence[int]) -> None:
        if is_ended:
            mask[:] = self._plan.ends
            return
        pointer, num_bytes = mask.ctypes.data, mask.nbytes
        self._use(lambda state: state.unsafe_compute_mask_ptr(pointer, num_bytes), taken)
        np.bitwise_and(mask, self._plan.candidates, out=mask)
        if self._use(_is_complete, taken):
            np.bitwise_or(mask, self._plan.ends, out=mask)
        if not mask.any():
            self._fail("no token can follow the text so far")

    def _take(self, token: int, taken: list[int]) -> None:
        """Advance the library's state by one token of text and note it."""
        is_text = is_allowed(self._plan.candidates, token, self._plan.vocab_size)
        if not (is_text and self._use(lambda state: state.try_consume_tokens([token]), taken)):
            self._fail(f"token {token} does not continue the text")
        taken.append(token)

    def _use(self, call: Callable[[LLMatcher], _Result], taken: Sequence[int]) -> _Result:
        """Call the library; once more with empty tables if they were full.

        Args:
            call: what to do with the library's state.
            taken: tokens that the state has seen beyond the accepted ones.
        """
        result = call(self._state)
        if (error := explain_error(self._state)) is not None:
            if not is_table_full(error):
                self._fail(error)
            renewed = self._origin.renew(self._generation)
            if renewed is None:
                self._fail("its tables are full, and making them anew would hold up other requests; send it again")
            self._replay(*renewed, taken)
            result = call(self._state)
            if (error := explain_error(self._state)) is not None:
                self._fail(TOO_COMPLEX if is_table_full(error) else error)
        return result

    def _replay(self, generation: int, state: LLMatcher, taken: Sequence[int]) -> None:
        self._generation, self._state = generation, state
        if not state.consume_tokens([*self._tokens, *taken]):
            self._fail(explain_error(state) or "the text so far is refused")

    def _check_usable(self) -> None:
        if self._fault is not None:
            raise GrammarFault(self._fault)

    def _fail(self, reason: str) -> NoReturn:
        self._fault = f"structured output cannot go on: {reason}"
        raise GrammarFault(self._fault)


def _is_complete(state: LLMatcher) -> bool:
    return state.is_accepting()


def _find_forced(state: LLMatcher) -> list[int]:
    return list(state.compute_ff_tokens())
