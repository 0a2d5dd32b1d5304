"""An engine owes news while requests run; only waits in vain count as silence."""

from __future__ import annotations

from slipstream.engine.client import SilenceWatch
from slipstream.wire.messages import EngineStats, Outputs, Progress, RequestOutput


def news(request_id: str, finish_reason=None) -> Outputs:
    return Outputs(outputs=(RequestOutput(request_id=request_id, finish_reason=finish_reason),), stats=EngineStats())


def test_an_idle_engine_may_be_silent() -> None:
    watch = SilenceWatch(1.0)
    assert not any(watch.is_over(0.5) for _ in range(10))


def test_silence_is_over_at_the_limit_and_words_begin_it_anew() -> None:
    watch = SilenceWatch(1.0)
    watch.begin("a")
    assert not watch.is_over(0.5)
    watch.hear(news("a"))
    assert not watch.is_over(0.5)
    assert watch.is_over(0.5)
    assert "7 hangs" in watch.describe(7)
    assert "1 s although a request runs" in watch.describe(7)


def test_a_request_that_ended_owes_nothing_and_others_still_do() -> None:
    watch = SilenceWatch(1.0)
    watch.begin("a")
    watch.begin("b")
    watch.hear(news("a", "stop"))
    assert watch.is_over(1.0)
    assert "a request runs" in watch.describe(7)
    watch.hear(news("b", "abort"))
    assert not watch.is_over(9.0)


def test_silence_before_a_request_does_not_count_against_it() -> None:
    watch = SilenceWatch(1.0)
    watch.begin("a")
    watch.is_over(0.9)
    watch.hear(news("a", "stop"))
    watch.is_over(0.9)
    watch.begin("b")
    assert not watch.is_over(0.9)
    watch.begin("c")
    assert watch.is_over(0.1), "another request does not begin the silence anew"


def test_any_message_breaks_the_silence_and_zero_waits_for_ever() -> None:
    watch = SilenceWatch(1.0)
    watch.begin("a")
    watch.is_over(0.9)
    watch.hear(Progress(stage="x", done=0, total=1))
    assert not watch.is_over(0.9)
    patient = SilenceWatch(0.0)
    patient.begin("a")
    assert not patient.is_over(1e9)
