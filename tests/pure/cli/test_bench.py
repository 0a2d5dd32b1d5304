from __future__ import annotations

import tomllib

import httpx
import pytest

from slipstream.cli import bench
from slipstream.cli.main import main
from slipstream.harness.compare import Comparison, Trial, score
from slipstream.harness.load import report_load

PROMPTS = '{"domain": "code", "prompt": "x"}\n{"domain": "text", "messages": [{"role": "user", "content": "y"}]}\n'


def serve_events(request):
    if request.url.path == "/v1/models":
        return httpx.Response(200, json={"data": [{"id": "demo"}]})
    body = (
        'data: {"choices": [{"text": "a", "delta": {"content": "a"}}]}\n\n'
        'data: {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 4, "speculation": '
        '{"num_verify_steps": 2, "num_draft_tokens": 6, "num_accepted": 2, "num_emitted": 3}}}\n\ndata: [DONE]\n\n'
    )
    return httpx.Response(200, text=body)


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(PROMPTS, encoding="utf-8")
    return str(path)


def use_server(monkeypatch, handler):
    class Client(bench.HttpClient):
        def __init__(self, url, **options):
            super().__init__(url, transport=httpx.MockTransport(handler), **options)

    monkeypatch.setattr(bench, "HttpClient", Client)


def run(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["bench", *arguments])
    return stopped.value.code


def test_serve_measures_and_writes_a_result(monkeypatch, capsys, prompts, tmp_path):
    use_server(monkeypatch, serve_events)
    out = tmp_path / "r.toml"
    assert run("serve", "--prompts", prompts, "--requests", "6", "--concurrency", "2", "--out", str(out)) == 0
    shown = capsys.readouterr().out
    assert "6 requests" in shown
    assert "acceptance length" in shown
    result = tomllib.loads(out.read_text(encoding="utf-8"))
    assert result["all"]["num_output_tokens"] == 24
    assert result["all"]["acceptance_length"] == 1.5
    assert set(result["domains"]) == {"code", "text"}
    assert result["settings"]["model"] == "demo"
    assert result["provenance"]["python"]


def test_failed_requests_give_exit_code_1(monkeypatch, capsys, prompts):
    def refuse(request):
        return httpx.Response(503, json={"error": {"message": "full"}})

    use_server(monkeypatch, refuse)
    assert run("serve", "--model", "m", "--prompts", prompts, "--requests", "2") == 1
    assert "2 of 2 requests failed: HTTP 503: full" in capsys.readouterr().err


def test_an_absent_server_is_one_line(monkeypatch, capsys, prompts):
    def unreachable(request):
        raise httpx.ConnectError("refused", request=request)

    use_server(monkeypatch, unreachable)
    assert run("serve", "--prompts", prompts) == 2
    assert "is the server running?" in capsys.readouterr().err


def trial(contender, seconds, accepted):
    return Trial(
        contender=contender,
        domain="code",
        repetition=0,
        seconds=seconds,
        num_prompt_tokens=3,
        num_output_tokens=8,
        num_verify_steps=4 if accepted else 0,
        num_draft_tokens=12 if accepted else 0,
        num_accepted=accepted,
        num_emitted=accepted + 3 if accepted else 0,
    )


def test_scores_are_shown_with_disagreements():
    result = Comparison(trials=(trial("off", 2.0, 0), trial("on", 1.0, 6)), differing=(("on", 1),))
    shown = bench.format_scores(score(result), result)
    assert "on: other tokens than the first contender on 1 prompts" in shown
    row = next(line for line in shown.splitlines() if line.startswith("all") and " on " in line)
    assert row.split()[2:] == ["8.00", "8.0-8.0", "2.00", "2.25", "0.50"]


def test_a_run_without_text_still_has_a_table():
    assert "0 failed" in bench.format_load(report_load([], 1.0), {})
