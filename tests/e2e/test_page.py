"""The page at /, in Chromium, over the bundled model: what a visitor sees, and what never leaves the server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Route

from support.browser import Visit, open_browser, visit
from support.live_server import LiveServer, live_server

pytestmark = [pytest.mark.xdist_group("e2e"), pytest.mark.timeout(300)]

MODELS = "**/v1/models"
CHAT = "**/v1/chat/completions"
KEY = "geheim"
RUNNING = "vllm:num_requests_running"


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo") as one:
        yield one


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as one:
        yield one


@pytest.fixture
def seen(server: LiveServer, browser: Browser) -> Iterator[Visit]:
    """The page, ready. After every test nothing may have gone wrong on it or have been asked of others."""
    with visit(browser, server.base_url) as one:
        one.page.locator("#lamp.good").wait_for()
        yield one
        assert one.faults == []
        assert [url for url in one.urls if not url.startswith(server.base_url + "/")] == []


def refuse_with(status: int, message: str, code: str | None = None):
    body = json.dumps({"error": {"message": message, "code": code}})
    return lambda route: route.fulfill(status=status, body=body, content_type="application/json")


def test_a_sample_is_answered_and_measured(seen, server):
    bodies = []

    def watch(route: Route) -> None:
        bodies.append(json.loads(route.request.post_data or ""))
        route.continue_()

    seen.page.route(CHAT, watch)
    seen.page.get_by_role("button", name="A word problem").click()
    seen.wait_answered()
    answer = seen.page.locator(".theirs .content").text_content()
    assert "8 * 9 = 72, 72 - 4 = 68" in answer
    shown = {kind: seen.page.locator(f".theirs .token.{kind}").all_text_contents() for kind in ("draft", "target")}
    assert len("".join(shown["draft"] + shown["target"])) == len(answer)

    # The same request by another client: greedy, so the same answer, origins and counts.
    whole = {name: value for name, value in bodies[0].items() if name not in ("stream", "stream_options")}
    reply = httpx.post(f"{server.base_url}/v1/chat/completions", json=whole, timeout=60).json()
    counts, choice = reply["usage"]["speculation"], reply["choices"][0]
    assert choice["message"]["content"] == answer
    assert shown["draft"] == [token["text"] for token in choice["token_origins"] if token["is_draft"]]
    assert seen.number("#acceptance") == pytest.approx(counts["num_emitted"] / counts["num_verify_steps"], abs=0.006)
    assert counts["num_emitted"] > counts["num_verify_steps"]
    assert seen.text("#accepted") == f"{counts['num_accepted']} of {counts['num_draft_tokens']}"
    assert seen.number("#tokens") == reply["usage"]["completion_tokens"]
    assert seen.number("#speed") > 0
    assert re.fullmatch(r"\d+ ms", seen.text("#first"))
    assert re.search(r"[1-9]\d* steps, on average \d", seen.page.locator("#chart").get_attribute("aria-label") or "")


def test_the_engine_is_described(seen):
    assert re.match(r"demo · cpu, float32 · drafter eagle3, 3 drafts per step · verif", seen.text("#engine-text"))


def test_reasoning_is_apart_and_goes_back_with_the_next_message(seen):
    seen.page.get_by_role("button", name="The same, thinking first").click()
    seen.wait_answered()
    reasoning = seen.page.locator(".theirs .reasoning .text").text_content()
    answer = seen.page.locator(".theirs > .content").text_content()
    assert "72 - 4 = 68" in reasoning
    assert "72" not in answer
    assert "68 stamps" in answer
    with seen.page.expect_request(CHAT) as sent:
        seen.send("And now?")
    messages = sent.value.post_data_json["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"].strip() == answer
    assert messages[1]["reasoning_content"].strip() == reasoning.strip()
    seen.wait_answered(2)


def test_stop_ends_the_request_on_the_server_and_keeps_what_was_said(seen, server):
    seen.page.get_by_label("Temperature").fill("50")
    seen.page.get_by_label("Most tokens").fill("1900")
    seen.send("Go on and on.")
    seen.page.locator(".theirs .token").nth(5).wait_for()
    assert server.metric(RUNNING) == 1
    seen.page.get_by_role("button", name="Stop").click()
    seen.wait_answered()
    assert "stopped" in seen.text(".theirs .foot")
    deadline = time.monotonic() + 5
    while server.metric(RUNNING) != 0:
        assert time.monotonic() < deadline, "the server still works on it"
    aborts = [value for name, value in server.metrics().items() if "request_success" in name and '"abort"' in name]
    assert aborts == [1.0]
    assert seen.page.locator(".theirs .token").count() < 1800
    seen.page.get_by_label("Temperature").fill("0")
    seen.send("How are you?")
    seen.wait_answered(2)


def test_markup_is_shown_as_text(seen):
    evil = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"
    chunk = {"choices": [{"index": 0, "delta": {"content": evil}, "finish_reason": "stop"}]}
    seen.page.route(
        CHAT,
        lambda route: route.fulfill(
            body=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", content_type="text/event-stream"
        ),
    )
    seen.send(evil)
    seen.wait_answered()
    assert seen.page.locator(".mine .text").text_content() == evil
    assert seen.page.locator(".theirs .content").text_content() == evil
    assert seen.page.locator(".log script, .log .turn img").count() == 0
    assert seen.page.title() == "Slipstream"


def test_an_error_is_shown_and_the_message_can_be_sent_again(seen):
    seen.page.get_by_label("Most tokens").fill("1000000")
    seen.send("How are you?")
    problem = seen.page.locator("#problem")
    problem.wait_for()
    assert "1000000" in problem.inner_text()
    assert seen.page.get_by_label("Message", exact=True).input_value() == "How are you?"
    # What the browser itself says of a refused request is no fault of the page.
    assert [fault for fault in seen.faults if "400 (Bad Request)" not in fault] == []
    seen.faults.clear()
    seen.page.get_by_label("Most tokens").fill("32")
    seen.page.get_by_role("button", name="Send").click()
    seen.wait_answered()
    assert problem.is_hidden()
    assert seen.page.locator(".turn").count() == 2


def test_a_full_context_says_how_to_begin_anew(seen):
    problem = seen.page.locator("#problem")
    seen.page.route(CHAT, refuse_with(400, "the prompt has 3000 tokens", "context_length_exceeded"))
    seen.send("A long story")
    problem.wait_for()
    assert problem.inner_text() == "the prompt has 3000 tokens"
    seen.page.unroute(CHAT)
    seen.send("How are you?")
    seen.wait_answered()
    seen.page.route(CHAT, refuse_with(400, "the prompt has 3000 tokens", "context_length_exceeded"))
    seen.send("And now?")
    problem.wait_for()
    assert problem.inner_text() == "the prompt has 3000 tokens. New chat begins anew."
    seen.page.get_by_role("button", name="New chat").click()
    assert problem.is_hidden()
    seen.faults.clear()


def test_settings_are_a_form_that_goes_nowhere(seen):
    """Browsers complain of a password field without a form or without a user's name beside it."""
    form = "document.getElementById('key').form"
    assert seen.page.evaluate(f"{form} !== null && {form}.querySelector('[autocomplete=username]').hidden")
    seen.page.get_by_label("Most tokens").fill("9")
    num_asked = len([url for url in seen.urls if url.endswith("/static/page.js")])
    seen.page.get_by_label("Most tokens").press("Enter")
    seen.page.get_by_label("API key").press("Enter")
    seen.send("How are you?")
    seen.wait_answered()
    assert seen.page.get_by_label("Most tokens").input_value() == "9"
    assert "?" not in seen.page.url
    assert len([url for url in seen.urls if url.endswith("/static/page.js")]) == num_asked


def test_a_stream_that_breaks_is_an_error(seen):
    chunk = json.dumps({"choices": [{"index": 0, "delta": {"content": "Half"}, "finish_reason": None}]})
    seen.page.route(CHAT, lambda route: route.fulfill(body=f"data: {chunk}\n\n", content_type="text/event-stream"))
    seen.send("hi")
    seen.page.locator("#problem").wait_for()
    assert "ended before the answer did" in seen.text("#problem")


def test_a_key_is_asked_for_and_kept_in_memory(browser):
    with live_server("demo", "--api-key", KEY) as server, visit(browser, server.base_url) as seen:
        seen.page.locator("#lamp.bad").wait_for()
        assert "asks for an API key" in seen.text("#engine-text")
        seen.page.get_by_label("API key").fill(KEY)
        seen.page.get_by_label("API key").press("Tab")
        seen.page.locator("#lamp.good").wait_for()
        seen.send("How are you?")
        seen.wait_answered()
        stored = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
        assert KEY not in seen.page.evaluate(stored)
        assert [url for url in seen.urls if KEY in url] == []


def test_it_fits_a_phone_and_colours_can_be_switched_off(browser, server):
    with visit(browser, server.base_url, viewport={"width": 360, "height": 640}, color_scheme="dark") as seen:
        seen.page.get_by_role("button", name="A word problem").click()
        seen.wait_answered()
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 360
        ground = "getComputedStyle(document.querySelector('.log .turn .draft')).backgroundColor"
        assert seen.page.evaluate(ground) != "rgba(0, 0, 0, 0)"
        seen.page.get_by_text("Settings", exact=True).click()
        seen.page.get_by_label("Show where tokens come from").uncheck()
        assert seen.page.evaluate(ground) == "rgba(0, 0, 0, 0)"
        assert seen.faults == []
