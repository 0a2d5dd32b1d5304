from __future__ import annotations

import asyncio

import pytest

from slipstream.harness.client import RequestRecord
from slipstream.harness.load import LoadSettings, build_request, report_by_domain, report_load, run_load
from slipstream.harness.workload import WorkItem

SETTINGS = LoadSettings(model="m", concurrency=2, max_tokens=7, temperature=0.5, seed=10)
ITEMS = [WorkItem(domain="ab"[i % 2], prompt=str(i)) for i in range(6)]


class CountingClient:
    """Stands for an HttpClient: answers after a turn of the loop and counts who is inside."""

    def __init__(self):
        self.inside = 0
        self.most = 0
        self.bodies = []

    async def send(self, path, body, *, domain=""):
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.bodies.append((path, body))
        for _ in range(3):
            await asyncio.sleep(0)
        self.inside -= 1
        return RequestRecord(domain=domain, start_s=0.0, num_output_tokens=int(body["prompt"]))


@pytest.mark.parametrize("concurrency", [1, 2, 4, 50])
def test_users_send_every_item_once_and_never_exceed_their_number(concurrency):
    client = CountingClient()
    done = []
    settings = LoadSettings(model="m", concurrency=concurrency, max_tokens=7, temperature=0.0, seed=0)
    records, duration_s = asyncio.run(run_load(client, ITEMS, settings, on_done=done.append))
    assert [record.num_output_tokens for record in records] == list(range(6))
    assert client.most == min(concurrency, 6)
    assert len(done) == 6
    assert duration_s >= 0


def test_requests_are_made_of_items_and_settings():
    path, body = build_request(WorkItem(domain="d", prompt="x"), SETTINGS, 3)
    assert path == "/v1/completions"
    assert body == {"model": "m", "max_tokens": 7, "temperature": 0.5, "seed": 13, "prompt": "x"}
    path, body = build_request(WorkItem(domain="d", messages=(("user", "x"),)), SETTINGS, 0)
    assert path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "x"}]
    assert "chat_template_kwargs" not in body
    plain = WorkItem(domain="d", messages=(("user", "x"),), thinking_mode="disabled")
    assert build_request(plain, SETTINGS, 0)[1]["chat_template_kwargs"] == {"thinking_mode": "disabled"}
    forced = LoadSettings(model="m", concurrency=1, max_tokens=7, temperature=0.0, seed=0, ignore_eos=True)
    assert build_request(WorkItem(domain="d", prompt="x"), forced, 0)[1]["ignore_eos"] is True


def record(domain, *, error=None, accepted=4):
    return RequestRecord(
        domain=domain,
        start_s=0.0,
        arrivals_s=(0.1, 0.2, 0.4),
        end_s=0.5,
        num_prompt_tokens=3,
        num_output_tokens=11,
        num_verify_steps=4,
        num_draft_tokens=8,
        num_accepted=accepted,
        num_emitted=accepted + 3,
        error=error,
    )


def test_statistics_leave_failed_requests_out_and_count_them():
    report = report_load([record("a"), record("b", accepted=8), record("a", error="boom")], 2.0)
    assert (report.num_requests, report.num_failed, report.first_error) == (3, 1, "boom")
    assert report.num_output_tokens == 22
    assert report.output_tokens_per_s == 11.0
    assert report.acceptance_length == (7 + 11) / 8
    assert report.draft_acceptance_rate == 12 / 16
    assert report.ttft_ms is not None
    assert report.ttft_ms.p50 == pytest.approx(100.0)
    assert report.time_per_output_token_ms is not None
    assert report.time_per_output_token_ms.p50 == pytest.approx(30.0)
    assert report.gap_ms is not None
    assert report.gap_ms.count == 4


def test_domains_are_reported_apart():
    reports = report_by_domain([record("a"), record("b", accepted=8)], 1.0)
    assert {domain: report.acceptance_length for domain, report in reports.items()} == {"a": 7 / 4, "b": 11 / 4}


def test_a_run_without_results_has_no_statistics():
    report = report_load([record("a", error="x")], 0.0)
    assert report.ttft_ms is None
    assert report.acceptance_length is None
    assert report.output_tokens_per_s == 0.0
