"""Log lines: one per event, in either format, without secrets and without what an exception quotes."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from slipstream.base.log import HIDDEN, log_fields, set_up_logging

LOG = logging.getLogger("slipstream.test")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("slipstream")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def written(log_format: str, *, level: str = "info", secrets: tuple[str, ...] = ()) -> io.StringIO:
    stream = io.StringIO()
    set_up_logging(log_format, level, process="server", secrets=secrets, stream=stream)  # type: ignore[arg-type]
    return stream


def test_json_is_one_object_per_line_with_the_fields_in_it() -> None:
    stream = written("json")
    log_fields(LOG, logging.INFO, "request ended", request_id="a\nb", status=200, gone=False, ttft_s=0.12345678, x=None)
    LOG.warning("two %s", "lines\nhere")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info",
        "process": "server",
        "logger": "slipstream.test",
        "message": "request ended",
        "request_id": "a\nb",
        "status": 200,
        "gone": False,
        "ttft_s": 0.123457,
    }
    assert second["message"] == "two lines\nhere"


def test_text_is_one_line_whatever_a_value_holds() -> None:
    stream = written("text")
    log_fields(LOG, logging.INFO, "ended", path='/a b"c\n2026 INFO forged:', status=200, gone=True, empty="")
    LOG.info("forged\r\nline")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].partition(" ")[2] == (
        r'INFO server:slipstream.test: ended path="/a b\"c\n2026 INFO forged:" status=200 gone=true empty=""'
    )
    assert lines[1].endswith(r"forged\r\nline")


def test_the_level_is_ours_and_others_only_warn() -> None:
    for level, shown in (("debug", 4), ("info", 3), ("warning", 2), ("error", 1)):
        stream = written("text", level=level)
        for name in ("debug", "info", "warning", "error"):
            getattr(LOG, name)("x")
        assert len(stream.getvalue().splitlines()) == shown
    logging.getLogger("uvicorn.error").info("x")
    assert len(stream.getvalue().splitlines()) == 1


def test_setting_up_again_replaces() -> None:
    first, second = written("text"), written("json")
    LOG.info("once")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_secret_is_blotted_out_wherever_it_stands(log_format: str) -> None:
    stream = written(log_format, secrets=("key-long-as-can-be", "key-long", "k"))
    LOG.error("got %s", "key-long")
    log_fields(LOG, logging.INFO, "ended", path="/v1/key-long-as-can-be", number=5)
    text = stream.getvalue()
    assert "key-long" not in text
    assert text.count(HIDDEN) == 2
    assert "as-can-be" not in text, "the longest is blotted out first"
    assert "slipstream.test" in text
    assert "server" in text, "a very short secret would make the log unreadable"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_exception_shows_its_class_and_places_and_not_its_message(log_format: str) -> None:
    stream = written(log_format)

    def break_it() -> None:
        raise ValueError("my private prompt")

    try:
        break_it()
    except ValueError:
        LOG.exception("it broke")
    text = stream.getvalue()
    assert "private" not in text
    assert "ValueError" in text
    assert "break_it" in text
    assert "test_log.py" in text


class ClosedPipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_log_that_nobody_reads_stops_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (ClosedPipe(), closed):
        set_up_logging("text", "info", process="server", stream=stream)
        LOG.info("x")
    assert capsys.readouterr().err == ""


def test_a_line_that_cannot_be_written_for_another_reason_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    written("text")
    LOG.info("%d", "no number")
    assert "no number" in capsys.readouterr().err
