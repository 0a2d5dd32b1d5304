"""Properties of scheduler and cache together, on a device of integers that raises at any wrong read or write."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.cache.logical.manager import CacheManager
from slipstream.wire.request import Request
from support.fake_runner import (
    VOCAB_SIZE,
    DeviceFault,
    EngineLoop,
    accept_pattern,
    accept_randomly,
    expected_stream,
    make_request,
    random_prompt,
)


def random_requests(rng: random.Random, count: int, max_prompt: int, max_tokens: int) -> list[Request]:
    return [
        make_request(
            f"r{number}",
            random_prompt(rng, max_prompt),
            max_tokens=rng.randint(1, max_tokens),
            seed=rng.randrange(4),
            stop=[rng.randrange(VOCAB_SIZE)] if rng.random() < 0.5 else [],
        )
        for number in range(count)
    ]


def random_loop(rng: random.Random, **options) -> EngineLoop:
    """Return a loop of random limits that holds requests of up to 48 tokens, often barely."""
    choices = {
        "num_pages": rng.randint(12, 30),
        "page_size": 4,
        "max_num_seqs": rng.randint(1, 6),
        "prefill_chunk_tokens": rng.randint(1, 24),
        "max_model_len": 48,
        "draft_len": rng.choice([0, 1, 3, 7, 9]),
        "is_overlapped": rng.random() < 0.6,
        "is_split": rng.random() < 0.5,
        "accept": accept_randomly(rng.randrange(1000)),
    }
    return EngineLoop(**{**choices, **options})


def serve(loop: EngineLoop, requests: list[Request], arrivals: list[int]) -> None:
    """Submit request i before turn arrivals[i], and run to the end."""
    for request, gap in zip(requests, arrivals, strict=True):
        for _ in range(gap):
            loop.turn()
        loop.submit(request)
    loop.run()


@settings(deadline=None, max_examples=80, database=None)
@given(seed=st.integers(0, 10_000), arrivals=st.lists(st.integers(0, 9), min_size=1, max_size=10))
def test_every_admitted_request_finishes_under_any_arrival_order(seed, arrivals):
    rng = random.Random(seed)
    loop = random_loop(rng)
    requests = random_requests(rng, len(arrivals), max_prompt=24, max_tokens=24)
    serve(loop, requests, arrivals)
    loop.assert_finished(*requests)
    loop.assert_idle()


@pytest.mark.parametrize("seed", range(4))
def test_a_long_day_keeps_every_property(seed):
    """Budgets, one writer, right reads and right streams, over some hundred requests on a tight cache."""
    rng = random.Random(seed)
    loop = random_loop(rng, num_pages=13, max_num_seqs=5, draft_len=[0, 3, 7, 9][seed], is_overlapped=seed > 0)
    requests = random_requests(rng, 150, max_prompt=24, max_tokens=24)
    serve(loop, requests, [rng.randint(0, 2) for _ in requests])
    loop.assert_finished(*requests)
    loop.assert_idle()
    stats = loop.scheduler.stats()
    assert stats.num_preemptions > 5
    assert stats.num_prefix_hit_tokens > 50


@pytest.mark.parametrize("draft_len", [0, 3, 9])
@pytest.mark.parametrize("num_pages", [14, 60])
def test_overlap_on_and_off_give_the_same_streams(draft_len, num_pages):
    streams = []
    for is_overlapped in (False, True):
        rng = random.Random(draft_len)
        requests = random_requests(rng, 30, max_prompt=24, max_tokens=24)
        loop = random_loop(rng, num_pages=num_pages, draft_len=draft_len, is_overlapped=is_overlapped, max_num_seqs=4)
        serve(loop, requests, [1] * len(requests))
        loop.assert_finished(*requests)
        streams.append({request.request_id: loop.tokens(request.request_id) for request in requests})
    assert streams[0] == streams[1]


@pytest.mark.parametrize("is_overlapped", [False, True])
def test_preempt_and_resume_give_the_same_stream(is_overlapped):
    rng = random.Random(3)
    requests = random_requests(rng, 24, max_prompt=20, max_tokens=28)
    roomy = random_loop(rng, num_pages=200, draft_len=3, max_num_seqs=6, is_overlapped=is_overlapped)
    tight = random_loop(rng, num_pages=13, draft_len=3, max_num_seqs=6, is_overlapped=is_overlapped)
    for loop in (roomy, tight):
        serve(loop, requests, [0] * len(requests))
        loop.assert_finished(*requests)
    assert roomy.scheduler.stats().num_preemptions == 0
    assert tight.scheduler.stats().num_preemptions > 3
    assert all(roomy.tokens(request.request_id) == tight.tokens(request.request_id) for request in requests)


@pytest.mark.parametrize("pattern", [[0], [9], [0, 9], [9, 0, 1, 8], [3, 0, 5]])
@pytest.mark.parametrize("is_overlapped", [False, True])
def test_page_boundaries_with_ladders_longer_than_two_pages(pattern, is_overlapped):
    """Page size 4, K 9: every prompt length over two pages, every limit near a boundary."""
    for num_prompt in range(1, 10):
        requests = [
            make_request(f"r{max_tokens}", range(num_prompt), max_tokens=max_tokens, seed=max_tokens)
            for max_tokens in (1, 2, 3, 4, 5, 11, 12, 13)
        ]
        loop = EngineLoop(
            num_pages=30, draft_len=9, is_overlapped=is_overlapped, accept=accept_pattern(pattern), max_num_seqs=3
        )
        loop.submit(*requests)
        loop.run()
        loop.assert_finished(*requests)
        loop.assert_idle()


@pytest.mark.parametrize("is_overlapped", [False, True])
def test_a_thousand_random_aborts_leave_nothing_behind(is_overlapped):
    rng = random.Random(11)
    loop = random_loop(rng, num_pages=24, max_num_seqs=5, draft_len=3, is_overlapped=is_overlapped)
    requests: dict[str, Request] = {}
    aborted: set[str] = set()
    while len(aborted) < 1000:
        while loop.scheduler.num_waiting < 4:
            name = f"r{len(requests)}"
            requests[name] = make_request(name, random_prompt(rng, 24), max_tokens=rng.randint(1, 24))
            loop.submit(requests[name])
        for _ in range(rng.randint(0, 3)):
            loop.turn()
        for request_id in rng.sample(loop.scheduler.request_ids, k=rng.randint(0, loop.scheduler.num_running)):
            output = loop.scheduler.abort(request_id)
            assert output is not None
            assert output.finish_reason == "abort"
            aborted.add(request_id)
    for request_id in loop.scheduler.request_ids:
        loop.abort(request_id)
        aborted.add(request_id)
    while loop.runner.pending:
        loop.commit_one()
    assert not loop.scheduler.has_work
    loop.assert_idle()
    assert len(requests) > len(aborted)
    loop.assert_finished(*(request for name, request in requests.items() if name not in aborted))
    for name in aborted:
        tokens = loop.tokens(name)
        assert tokens == expected_stream(requests[name])[0][: len(tokens)]


def test_a_thousand_short_requests_give_every_page_back():
    rng = random.Random(5)
    loop = random_loop(rng, num_pages=20, max_num_seqs=6, draft_len=7, is_overlapped=True, enable_prefix=False)
    requests = [
        make_request(f"r{number}", random_prompt(rng, 9), max_tokens=rng.randint(1, 6)) for number in range(1000)
    ]
    serve(loop, requests, [0] * len(requests))
    loop.assert_finished(*requests)
    assert loop.cache.counts.num_free == loop.cache.num_pages


@pytest.mark.parametrize("is_overlapped", [False, True])
def test_the_oldest_request_always_makes_progress(is_overlapped):
    """Under constant preemption by pressure, the oldest running request is never the victim and never stands still."""
    rng = random.Random(8)
    loop = random_loop(rng, num_pages=13, max_num_seqs=6, draft_len=3, is_overlapped=is_overlapped)
    requests = random_requests(rng, 40, max_prompt=20, max_tokens=28)
    loop.submit(*requests)
    oldest, num_still, num_seen = "", 0, -1
    while loop.scheduler.has_work:
        loop.turn()
        head = next(iter(loop.scheduler.request_ids), "")
        computed = sum(running.num_computed_tokens for running in loop.scheduler._state.by_age()[:1])
        if head == oldest and computed == num_seen:
            num_still += 1
            assert num_still <= 2, f"{head} stands still"
        else:
            num_still = 0
        assert head != oldest or computed >= num_seen, "the oldest was sent back"
        oldest, num_seen = head, computed
    loop.assert_finished(*requests)
    assert loop.scheduler.stats().num_preemptions > 3


@pytest.mark.parametrize("enable_prefix", [False, True])
def test_prefix_reuse_changes_no_stream(enable_prefix):
    rng = random.Random(21)
    requests = random_requests(rng, 40, max_prompt=24, max_tokens=20)
    loop = random_loop(rng, num_pages=40, draft_len=3, max_num_seqs=4, enable_prefix=enable_prefix)
    serve(loop, requests, [2] * len(requests))
    loop.assert_finished(*requests)
    assert (loop.scheduler.stats().num_prefix_hit_tokens > 0) is enable_prefix
    assert (loop.cache.counts.num_cached > 0) is enable_prefix


class EagerCache(CacheManager):
    """A mutant: released and trimmed pages are free at once, whatever is in flight."""

    def release(self, row, retire_step=-1):
        super().release(row)

    def trim(self, row, num_tokens, retire_step=-1):
        return super().trim(row, num_tokens)


class HastyCache(CacheManager):
    """A mutant: a prompt's pages are findable before they are written."""

    def ensure(self, row, num_tokens):
        is_given = super().ensure(row, num_tokens)
        table = self._tables[row]
        if is_given and num_tokens < self.page_size * len(table.bundles):
            self.publish(row, self.prompts[row], len(self.prompts[row]))
        return is_given

    def find(self, token_ids, known=None):
        self.latest = list(token_ids)
        return super().find(token_ids, known)

    def attach(self, row, hit):
        self.__dict__.setdefault("prompts", {})[row] = self.latest
        super().attach(row, hit)


class ShortCache(CacheManager):
    """A mutant: one page too few for the drafts after a ladder."""

    def num_missing(self, row, num_tokens):
        return super().num_missing(row, max(num_tokens - 1, 1))

    def ensure(self, row, num_tokens):
        return super().ensure(row, max(num_tokens - 1, 1))


class StaleTables(CacheManager):
    """A mutant: entries that went away stay in the device's table."""

    def take_edits(self):
        return tuple(edit for edit in super().take_edits() if any(edit.pages))


def serve_on(mutant: type[CacheManager]) -> None:
    for seed in range(30):
        rng = random.Random(seed)
        loop = random_loop(rng, is_overlapped=True, draft_len=3)
        loop.cache.__class__ = mutant
        requests = random_requests(rng, 30, max_prompt=24, max_tokens=24)
        serve(loop, requests, [1] * len(requests))
        loop.assert_finished(*requests)


@pytest.mark.parametrize("mutant", [EagerCache, HastyCache, ShortCache, StaleTables])
def test_the_fake_device_catches_a_cache_that_is_wrong(mutant):
    serve_on(CacheManager)
    with pytest.raises(DeviceFault):
        serve_on(mutant)
