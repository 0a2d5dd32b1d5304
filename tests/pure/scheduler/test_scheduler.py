from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError, ContextLengthError, RequestError
from slipstream.cache.logical.manager import CacheManager
from slipstream.cache.logical.pages import GroupSpec
from slipstream.scheduler.budget import SchedulerConfig
from slipstream.scheduler.scheduler import Scheduler
from support.fake_runner import EngineLoop, FakeClock, expected_stream, make_request


def test_scheduler_and_cache_must_agree_about_the_page_size():
    config = SchedulerConfig(max_num_seqs=1, prefill_chunk_tokens=8, page_size=8, max_model_len=16)
    with pytest.raises(ConfigError, match="8 in the scheduler, 4 in the cache"):
        Scheduler(config, CacheManager((GroupSpec("target", 8),), 4), FakeClock())


def test_an_idle_scheduler_has_no_plan_and_no_work():
    loop = EngineLoop()
    assert loop.scheduler.plan() is None
    assert not loop.scheduler.has_work
    assert loop.scheduler.draft_len == 3
    loop.assert_idle()


def test_work_includes_a_step_whose_requests_are_gone():
    loop = EngineLoop(is_overlapped=True)
    loop.submit(make_request("a", range(5)))
    loop.turn()
    loop.abort("a")
    assert loop.scheduler.has_work
    assert loop.scheduler.num_steps_in_flight == 1
    assert loop.cache.counts.num_used > 0
    loop.run()
    loop.assert_idle()


def test_abort_ends_a_request_wherever_it_is_and_unknown_ids_are_ignored():
    loop = EngineLoop(max_num_seqs=1, prefill_chunk_tokens=4)
    requests = [make_request(name, range(number, number + 6), max_tokens=40) for number, name in enumerate("abc")]
    loop.submit(*requests)
    loop.clock.now_s = 4.0
    assert loop.scheduler.request_ids == ("a", "b", "c")
    output = loop.scheduler.abort("b")
    assert output is not None
    assert (output.finish_reason, output.token_ids, output.queue_s) == ("abort", (), 4.0)
    loop.turn()
    assert loop.scheduler.abort("a") is not None  # in prefill
    loop.turn()
    loop.turn()
    loop.turn()
    assert loop.scheduler.request_ids == ("c",)
    assert loop.scheduler.abort("c") is not None  # in decode
    assert loop.scheduler.abort("c") is None
    assert loop.scheduler.abort("never") is None
    loop.assert_idle()


def test_nothing_of_an_aborted_request_reaches_the_next_owner_of_its_row():
    loop = EngineLoop(max_num_seqs=1, is_overlapped=True, prefill_chunk_tokens=64)
    loop.submit(make_request("a", range(6), max_tokens=40))
    for _ in range(3):
        loop.turn()
    loop.abort("a")
    request = make_request("a", range(40, 46), max_tokens=10)  # even the id may come again
    loop.outputs.clear()
    loop.submit(request)
    loop.run()
    loop.assert_finished(request)
    loop.assert_idle()


def test_a_stop_found_late_ends_the_request_and_frees_nothing_a_step_still_uses():
    request = make_request("a", range(6), max_tokens=40, seed=5)
    stream, _ = expected_stream(request)
    stopped = make_request("a", range(6), max_tokens=40, seed=5, eos=[stream[7]])
    loop = EngineLoop(is_overlapped=True, prefill_chunk_tokens=64, enable_prefix=False)
    loop.submit(stopped)
    while not loop.outputs["a"] or loop.outputs["a"][-1].finish_reason is None:
        loop.turn()
    assert loop.runner.pending  # planned before the stop was known
    assert loop.cache.counts.num_used > 0
    assert loop.scheduler.num_running == 0
    loop.assert_finished(stopped)
    assert loop.outputs["a"][-1].stop_reason is None
    loop.run()
    loop.assert_idle()


def test_stats_are_gauges_and_counters():
    loop = EngineLoop(max_num_seqs=1, prefill_chunk_tokens=64, draft_len=2, num_pages=20)
    loop.submit(make_request("a", range(9), max_tokens=8), make_request("b", range(20, 29), max_tokens=8))
    loop.turn()
    stats = loop.scheduler.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_pages) == (1, 1, 20)
    assert stats.num_free_pages == 20 - loop.cache.counts.num_used
    assert (stats.num_steps, stats.num_step_tokens, stats.num_generated_tokens) == (1, 9, 1)
    loop.run()
    stats = loop.scheduler.stats()
    news = [output for outputs in loop.outputs.values() for output in outputs]
    assert stats.num_generated_tokens == sum(len(output.token_ids) for output in news) == 16
    assert stats.num_draft_tokens == sum(output.num_draft_tokens for output in news)
    assert stats.num_accepted_tokens == sum(output.num_accepted for output in news)
    assert sum(stats.num_accepted_per_position) == stats.num_accepted_tokens
    assert stats.num_steps == len(loop.runner.plans)
    assert stats.num_prompt_tokens == stats.num_prefix_query_tokens == 18


def test_a_check_refuses_what_a_submit_would_and_queues_nothing():
    loop = EngineLoop(num_pages=8, page_size=4, max_model_len=64)
    fits, large = make_request("fits", range(5)), make_request("large", range(60), max_tokens=5)
    loop.scheduler.check(fits)
    loop.scheduler.check(fits)
    with pytest.raises(ContextLengthError):
        loop.scheduler.check(large)
    assert not loop.scheduler.has_work
    loop.scheduler.submit(fits)
    with pytest.raises(RequestError, match="in flight"):
        loop.scheduler.check(fits)
