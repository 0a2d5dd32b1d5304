"""Which requests get pages and rows: the size check at submit, admission from the queue, and preemption.

Requests are served in order of age. Every running request is older than every waiting one, and pages go to the
oldest first; so the oldest request always moves, and each becomes the oldest in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.base.errors import ContextLengthError, RequestError
from slipstream.cache.logical.manager import PrefixHit
from slipstream.scheduler.budget import share_prefill_budget
from slipstream.scheduler.lifecycle import Decoding, Prefilling
from slipstream.scheduler.state import SchedulerState
from slipstream.wire.request import Request
from slipstream.wire.step import RowStart


def check_request(state: SchedulerState, request: Request) -> None:
    """Refuse a request that this engine could never serve.

    Raises:
        RequestError: no prompt, or an id that is in use.
        ContextLengthError: too long for max_model_len or for the whole cache.
    """
    config, cache = state.config, state.cache
    num_prompt_tokens = len(request.prompt_token_ids)
    if not num_prompt_tokens:
        raise RequestError("the prompt has no tokens: give at least 1", param="prompt")
    if is_live(state, request.request_id):
        raise RequestError(f"request_id={request.request_id!r} is in flight: give an id of its own", param="request_id")
    if not num_prompt_tokens < request.max_seq_len <= config.max_model_len:
        raise ContextLengthError(
            f"the prompt has {num_prompt_tokens} tokens and the request may grow to {request.max_seq_len}: the "
            f"context holds {config.max_model_len}, of which at least 1 is for the answer; shorten the prompt or "
            "max_tokens",
            param="max_tokens",
        )
    num_pages = cache.pages_for(request.max_seq_len)
    if num_pages > cache.num_pages:
        raise ContextLengthError(
            f"the request may grow to {request.max_seq_len} tokens, which is {num_pages} pages of "
            f"{cache.page_size}: the cache has {cache.num_pages}; lower max_tokens or start with more cache",
            param="max_tokens",
        )


def is_live(state: SchedulerState, request_id: str) -> bool:
    """Return whether a request waits or runs."""
    return request_id in state.queue or any(
        running.ledger.request_id == request_id for running in state.running.values()
    )


def admit_waiting(state: SchedulerState) -> list[RowStart]:
    """Move requests from the head of the queue into rows, as far as rows, pages and this step's budget reach.

    A request gets the pages of all its known tokens at once, so a prefill never runs out of pages midway. One page
    per decoding row is left free, so that a newcomer is not preempted by the next step.
    """
    starts: list[RowStart] = []
    while state.rows.num_free and (waiting := state.queue.head) is not None:
        ledger, cache = waiting.ledger, state.cache
        if state.running and state.stalled_on == (ledger.request_id, cache.num_available):
            break
        # Log-probabilities of a prompt need the logits of all of it: one token never matches a page.
        known_tokens = ledger.tokens if ledger.num_prompt_logprobs is None else ledger.tokens[:1]
        found = _find_prefix(state, ledger.request_id, known_tokens)
        if not _gets_budget(state, len(ledger.tokens) - found.num_tokens, starts):
            state.stalled_on = None
            break
        hit = cache.match(known_tokens, found)
        num_needed = min(len(ledger.tokens) + state.config.draft_len, ledger.max_seq_len)
        num_fresh = cache.pages_for(num_needed) - len(hit.bundles)
        num_spared = sum(isinstance(running, Decoding) for running in state.running.values())
        if num_fresh + num_spared > cache.num_available:
            cache.unpin(hit)
            state.stalled_on = (ledger.request_id, cache.num_available)
            break
        state.queue.pop()
        ledger.forget_prompt()
        row = state.rows.take()
        cache.attach(row, hit)
        is_given = cache.ensure(row, num_needed)
        assert is_given
        state.running[row] = waiting.start(row, hit.num_tokens, state.next_step)
        if ledger.first_scheduled_s is None:
            ledger.first_scheduled_s = state.clock()
            ledger.num_prefix_hit_tokens = hit.num_tokens
            state.tally.num_prefix_query_tokens += len(ledger.tokens)
            state.tally.num_prefix_hit_tokens += hit.num_tokens
        starts.append(
            RowStart(
                row=row,
                token_ids=tuple(ledger.tokens),
                num_computed_tokens=hit.num_tokens,
                max_seq_len=ledger.max_seq_len,
                sampling=ledger.request.sampling,
                seed=ledger.request.seed,
                verification=ledger.request.verification,
                num_prompt_tokens=len(ledger.request.prompt_token_ids),
                stop_token_ids=ledger.request.stop_token_ids,
                bad_token_ids=ledger.request.bad_token_ids,
                num_prompt_logprobs=ledger.num_prompt_logprobs,
                grammar_id=None if ledger.request.sampling.grammar is None else ledger.request_id,
            )
        )
    return starts


def _find_prefix(state: SchedulerState, request_id: str, token_ids: Sequence[int]) -> PrefixHit:
    """Return the stored prefix of the head of the queue, hashing only what an earlier try has not found."""
    known = state.found_prefix[1] if state.found_prefix is not None and state.found_prefix[0] == request_id else None
    hit = state.cache.find(token_ids, known)
    state.found_prefix = (request_id, hit)
    return hit


def _gets_budget(state: SchedulerState, num_remaining: int, starts: list[RowStart]) -> bool:
    """Return whether a newcomer would be computed in this step, without pushing out one started in it.

    A request is admitted no earlier than it is computed: by then others may have published its prefix.
    """
    prompts = prefilling_by_age(state)
    grants = share_prefill_budget(
        [*(prompt.num_remaining_tokens for prompt in prompts), num_remaining], state.config.prefill_chunk_tokens
    )
    return all(grants[len(prompts) - len(starts) :])


def prefilling_by_age(state: SchedulerState) -> list[Prefilling]:
    """Return the rows with prompt tokens to plan, oldest first."""
    return [item for item in state.by_age() if isinstance(item, Prefilling) and not item.is_leaving]


def make_room(state: SchedulerState, needy: Decoding, num_missing: int) -> bool:
    """Preempt younger requests, youngest first, until num_missing bundles are available.

    A victim with a result in flight is not planned any more and ends when that result is committed: nothing it
    emitted is lost. Until then the needy row waits; it also waits for pages that are given up already, and, being
    the youngest itself, for older ones to end.

    Returns:
        Whether the bundles are there now.
    """
    cache = state.cache
    while num_missing > cache.num_available:
        others = state.by_age()
        if any(running.is_leaving for running in others) or num_missing <= cache.num_available + cache.num_deferred:
            return False
        victim = others[-1]
        if victim.ledger.order <= needy.ledger.order:
            return False
        if victim.flights:
            victim.is_leaving = True
        else:
            state.preempt(victim)
    return True
