"""Values follow the engine's snapshots, and the exposition is what scrapers of vLLM expect."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slipstream.metrics.catalog import CATALOG
from slipstream.metrics.instruments import CONTENT_TYPE, Instruments, Phases, RequestEnd
from slipstream.wire.messages import EngineStats
from support.fake_engine import fake_facts


def samples(instruments: Instruments) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return every sample by name and own labels; checks the two that all carry."""
    found = {}
    for family in text_string_to_metric_families(instruments.render().decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            if not sample.name.startswith("process_"):
                assert labels.pop("model_name") == "tiny"
                assert labels.pop("engine") == "0"
            found[sample.name, tuple(sorted(labels.items()))] = sample.value
    return found


def make(**facts) -> Instruments:
    return Instruments("tiny", fake_facts(**facts))


def end(**changes) -> RequestEnd:
    fields = {
        "finish_reason": "stop",
        "num_prompt_tokens": 7,
        "num_generated_tokens": 5,
        "num_prefix_hit_tokens": 2,
        "max_tokens": 9,
        "e2e_s": 2.0,
        "after_first_token_s": 1.0,
        "num_verify_steps": 2,
        "num_emitted": 3,
    }
    return RequestEnd(**(fields | changes))


def test_names_keep_their_colon_and_the_type_is_plain_text():
    text = make().render().decode()
    assert "vllm:num_requests_running{" in text
    assert "vllm_num" not in text
    assert "_created" not in text
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


def test_every_metric_of_the_catalogue_is_emitted_from_the_start():
    text = make().render().decode()
    for metric in CATALOG:
        suffix = {"counter": "_total", "histogram": "_count", "gauge": ""}[metric.kind]
        assert f"\n{metric.name}{suffix}{{" in text, metric.name


def test_counters_grow_by_difference_and_gauges_are_as_they_are():
    instruments = make()
    instruments.follow(EngineStats(num_running=3, num_prompt_tokens=10, num_pages=100, num_free_pages=60))
    instruments.follow(
        EngineStats(num_running=1, num_prompt_tokens=25, num_pages=100, num_free_pages=20, num_cached_pages=30)
    )
    found = samples(instruments)
    assert found["vllm:num_requests_running", ()] == 1
    assert found["vllm:prompt_tokens_total", ()] == 25
    assert found["vllm:kv_cache_usage_perc", ()] == pytest.approx(0.5)
    assert found["vllm:gpu_cache_usage_perc", ()] == pytest.approx(0.5)
    assert found["slipstream:cached_pages", ()] == 30


def test_accepted_tokens_are_counted_per_position():
    instruments = make()
    instruments.follow(EngineStats(num_accepted_per_position=(4, 2, 0)))
    instruments.follow(EngineStats(num_accepted_per_position=(9, 3, 1)))
    found = samples(instruments)
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    assert [found[name, (("position", str(place)),)] for place in range(3)] == [9, 3, 1]


def test_step_tokens_keep_their_sum_and_count():
    instruments = make()
    instruments.follow(EngineStats(num_steps=1, num_step_tokens=4))
    instruments.follow(EngineStats(num_steps=4, num_step_tokens=34))
    found = samples(instruments)
    assert found["vllm:iteration_tokens_total_count", ()] == 4
    assert found["vllm:iteration_tokens_total_sum", ()] == 34


def test_the_end_of_a_request_is_observed():
    instruments = make()
    instruments.observe_end(end(phases=Phases(0.5, 0.25, 1.25)))
    found = samples(instruments)
    sums = {
        "vllm:e2e_request_latency_seconds": 2.0,
        "vllm:request_prompt_tokens": 7,
        "vllm:request_generation_tokens": 5,
        "vllm:request_params_max_tokens": 9,
        "vllm:request_prefill_kv_computed_tokens": 5,
        "vllm:request_time_per_output_token_seconds": 0.25,
        "vllm:request_queue_time_seconds": 0.5,
        "vllm:request_prefill_time_seconds": 0.25,
        "vllm:request_decode_time_seconds": 1.25,
        "vllm:request_inference_time_seconds": 1.5,
        "slipstream:request_acceptance_length": 1.5,
    }
    assert {name: found[f"{name}_sum", ()] for name in sums} == pytest.approx(sums)
    assert found["vllm:request_success_total", (("finished_reason", "stop"),)] == 1
    assert found["vllm:request_success_total", (("finished_reason", "length"),)] == 0


def test_what_a_request_did_not_reach_is_not_observed():
    instruments = make()
    instruments.observe_end(end(finish_reason="abort", num_generated_tokens=0, num_verify_steps=0, num_emitted=0))
    found = samples(instruments)
    assert found["vllm:request_success_total", (("finished_reason", "abort"),)] == 1
    for name in ("request_queue_time_seconds", "request_time_per_output_token_seconds"):
        assert found[f"vllm:{name}_count", ()] == 0
    assert found["slipstream:request_acceptance_length_count", ()] == 0


@pytest.mark.parametrize(
    ("phases", "counts"),
    [
        (Phases(0.5, None, None), (1, 0, 0, 0)),
        (Phases(0.5, 0.25, None), (1, 1, 1, 0)),
        (Phases(1, 2, 0.0), (1, 1, 1, 1)),
    ],
)
def test_a_phase_that_was_not_reached_is_not_observed_as_zero(phases, counts):
    instruments = make()
    instruments.observe_end(end(finish_reason="abort", num_generated_tokens=0, phases=phases))
    found = samples(instruments)
    names = ("queue", "prefill", "inference", "decode")
    assert tuple(found[f"vllm:request_{name}_time_seconds_count", ()] for name in names) == counts


def test_preemptions_are_observed_per_request():
    instruments = make()
    instruments.observe_end(end(num_preemptions=3))
    instruments.observe_end(end(num_preemptions=0))
    instruments.observe_end(end())
    found = samples(instruments)
    assert found["vllm:request_num_preemptions_sum", ()] == 3
    assert found["vllm:request_num_preemptions_count", ()] == 2
    assert found["vllm:request_num_preemptions_bucket", (("le", "0.0"),)] == 1


def test_prompt_tokens_by_source_add_up():
    instruments = make()
    instruments.follow(EngineStats(num_prompt_tokens=10, num_cached_prompt_tokens=4, num_prefix_hit_tokens=9))
    instruments.follow(EngineStats(num_prompt_tokens=30, num_cached_prompt_tokens=9, num_prefix_hit_tokens=9))
    found = samples(instruments)
    by_source = {
        source: found["vllm:prompt_tokens_by_source_total", (("source", source),)]
        for source in ("local_compute", "local_cache_hit")
    }
    assert by_source == {"local_compute": 21, "local_cache_hit": 9}
    assert sum(by_source.values()) == found["vllm:prompt_tokens_total", ()]
    assert found["vllm:prompt_tokens_cached_total", ()] == 9


def test_corrupted_and_waiting_requests():
    instruments = make()
    instruments.follow(EngineStats(num_corrupted_requests=2, num_waiting=7, num_deferred=2))
    found = samples(instruments)
    assert found["vllm:corrupted_requests_total", ()] == 2
    assert found["vllm:num_requests_waiting_by_reason", (("reason", "capacity"),)] == 5
    assert found["vllm:num_requests_waiting_by_reason", (("reason", "deferred"),)] == 2


def test_latencies_are_observed_under_both_names():
    instruments = make()
    instruments.observe_first_token(0.2)
    instruments.observe_gap(0.004)
    found = samples(instruments)
    assert found["vllm:time_to_first_token_seconds_sum", ()] == pytest.approx(0.2)
    for name in ("inter_token_latency_seconds", "time_per_output_token_seconds"):
        assert found[f"vllm:{name}_bucket", (("le", "0.005"),)] == 1
        assert found[f"vllm:{name}_bucket", (("le", "0.0025"),)] == 0


def test_rejections_and_streams():
    instruments = make()
    instruments.count_rejection("queue_full")
    instruments.set_streams(3)
    found = samples(instruments)
    assert found["vllm:admission_rejections_total", (("reason", "queue_full"),)] == 1
    assert found["vllm:admission_rejections_total", (("reason", "draining"),)] == 0
    assert found["slipstream:streams", ()] == 3


def test_without_a_drafter_there_is_nothing_about_drafts():
    instruments = make(drafter="none", draft_len=0)
    instruments.follow(EngineStats(num_accepted_per_position=()))
    instruments.observe_end(end(num_verify_steps=3))
    text = instruments.render().decode()
    assert "spec_decode" not in text
    assert "acceptance" not in text


def test_aliases_can_be_turned_off():
    instruments = Instruments("tiny", fake_facts(), emit_aliases=False)
    instruments.observe_gap(0.1)
    text = instruments.render().decode()
    assert "gpu_cache_usage_perc" not in text
    assert "time_per_output_token_seconds_count{" in text
    assert "vllm:time_per_output_token_seconds" not in text


def test_the_cache_geometry_is_a_label_set():
    labels = (("block_size", "8"), ("num_gpu_blocks", "129"))
    assert samples(make())["vllm:cache_config_info", labels] == 1
