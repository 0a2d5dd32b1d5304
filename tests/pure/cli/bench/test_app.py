from __future__ import annotations

import tomllib

import httpx
import pytest

from slipstream.base.switches import API_KEY
from slipstream.cli.bench import app as bench
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
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "m"}]})
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


def keyed(request):
    if request.headers.get("Authorization") != "Bearer k":
        return httpx.Response(401, json={"error": {"message": "no key"}})
    return serve_events(request)


def test_a_server_with_a_key_says_so_in_one_sentence(monkeypatch, capsys, prompts):
    monkeypatch.delenv(API_KEY, raising=False)
    use_server(monkeypatch, keyed)
    for more in ((), ("--model", "demo")):
        assert run("serve", "--prompts", prompts, *more) == 2
        shown = capsys.readouterr().err
        assert f"the server asks for an API key: give it with --api-key, or in {API_KEY}" in shown
        assert shown.count("\n") == 1


def test_the_key_is_typed_or_of_the_environment(monkeypatch, prompts):
    use_server(monkeypatch, keyed)
    monkeypatch.setenv(API_KEY, "k")
    assert run("serve", "--prompts", prompts, "--requests", "1") == 0
    monkeypatch.setenv(API_KEY, "other")
    assert run("serve", "--prompts", prompts, "--requests", "1", "--api-key", "k") == 0
    assert run("serve", "--prompts", prompts, "--requests", "1") == 2


def test_a_wrong_model_name_stops_before_measuring(monkeypatch, capsys, prompts):
    paths = []

    def watch(request):
        paths.append(request.url.path)
        return serve_events(request)

    use_server(monkeypatch, watch)
    assert run("serve", "--model", "demi", "--prompts", prompts) == 2
    assert "--model demi is not served" in (shown := capsys.readouterr().err)
    assert "give one of demo" in shown
    assert paths == ["/v1/models"]


@pytest.mark.parametrize(("status", "code"), [(404, 1), (500, 2)])
def test_a_server_without_a_list_is_measured_by_name(monkeypatch, capsys, prompts, status, code):
    use_server(monkeypatch, lambda request: httpx.Response(status, json={"error": {"message": "no"}}))
    assert run("serve", "--model", "m", "--prompts", prompts, "--requests", "1") == code
    assert ("1 of 1 requests failed" in (shown := capsys.readouterr().err)) == (code == 1)
    assert str(status) in shown
    assert run("serve", "--prompts", prompts) == 2


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
    assert shown.splitlines()[0].split()[4:6] == ["over", "off"]
    assert "no drafter" not in shown


def test_with_a_peer_the_table_has_a_second_speedup():
    trials = (trial("transformers", 4.0, 0), trial("no drafter", 2.0, 0), trial("ngram, 3 drafts", 1.0, 6))
    result = Comparison(trials=trials, differing=())
    shown = bench.format_scores(score(result), result)
    assert "over transformers  over no drafter" in shown
    speedups = [line.split()[-4:-2] for line in shown.splitlines() if line.startswith("all")]
    assert speedups == [["1.00", "0.50"], ["2.00", "1.00"], ["4.00", "2.00"]]


def test_a_run_without_text_still_has_a_table():
    assert "0 failed" in bench.format_load(report_load([], 1.0), {})
