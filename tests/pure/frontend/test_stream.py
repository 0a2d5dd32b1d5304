"""What a request returns is consistent: text, ids, log-probabilities and counts, however the engine cuts its runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.frontend.processor import Processor, TextParts
from slipstream.frontend.stream import RequestStream
from slipstream.harness.stats import acceptance_length
from slipstream.wire.messages import RequestOutput
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import fake_facts
from support.profiles import relaxed
from support.tiny_text import tiny_folder

TEXT = TextParts.load(tiny_folder())
TOKENIZER = TEXT.tokenizer
EOS = TOKENIZER.control_ids["[e~["]


def make_stream(**sampling) -> RequestStream:
    request = Processor(TEXT, fake_facts()).make_request("a", (1, 2), SamplingParams(max_tokens=None, **sampling))
    return RequestStream(request, TOKENIZER)


def make_outputs(ids, run_lens, finish_reason, stop_reason=None):
    """Cut ids into runs as speculation would: a run of n is n - 1 accepted drafts and the target's token."""
    outputs, start = [], 0
    lens = [1, *run_lens]
    while start < len(ids) or not outputs:
        length = lens[len(outputs) % len(lens)]
        run = tuple(ids[start : start + length])
        outputs.append(
            RequestOutput(
                request_id="a",
                token_ids=run,
                num_draft_tokens=4 if outputs else 0,
                num_accepted=min(length - 1, len(run)),
                is_verify_step=bool(outputs),
                logprobs=tuple(-0.25 * id_ for id_ in run),
            )
        )
        start += length
    last = outputs.pop()
    fields = {name: getattr(last, name) for name in last.__struct_fields__}
    return [*outputs, RequestOutput(**(fields | {"finish_reason": finish_reason, "stop_reason": stop_reason}))]


def play(stream, outputs):
    """Feed outputs until the request ends."""
    deltas = []
    for output in outputs:
        deltas.append(stream.feed(output))
        if deltas[-1].finish_reason is not None:
            break
    return deltas


texts = st.text(alphabet="ab \n<é🙂", max_size=40)
stops = st.lists(st.text(alphabet="ab <é", min_size=1, max_size=3), max_size=3)
run_lens = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@relaxed
@given(texts, stops, run_lens, st.sampled_from(["stop", "length"]), st.booleans())
def test_ids_text_logprobs_and_counts_agree_for_any_runs(text, stop, lens, ending, include):
    ids = [*TOKENIZER.encode(text), *([EOS] if ending == "stop" else [])]
    outputs = make_outputs(ids, lens, ending)
    stream = make_stream(stop=tuple(stop), include_stop_str_in_output=include)
    deltas = play(stream, outputs)
    shown = "".join(delta.text for delta in deltas)
    for delta, output in zip(deltas, outputs, strict=False):
        assert "".join(delta.pieces) == delta.text
        assert len(delta.pieces) == len(delta.token_ids) or not delta.token_ids
        assert delta.num_accepted == min(output.num_accepted, len(delta.token_ids))
    kept = [id_ for delta in deltas for id_ in delta.token_ids]
    logprobs = [value for delta in deltas for value in delta.logprobs]
    whole = play(make_stream(stop=tuple(stop), include_stop_str_in_output=include), make_outputs(ids, [1], ending))

    assert kept == ids[: len(kept)]
    assert logprobs == [-0.25 * id_ for id_ in kept]
    assert stream.num_generated_tokens == len(kept)
    assert shown == "".join(delta.text for delta in whole)
    assert deltas[-1].stop_reason == whole[-1].stop_reason
    if stream.is_cut:
        matched = deltas[-1].stop_reason
        assert deltas[-1].finish_reason == "stop"
        assert TOKENIZER.decode(kept).startswith(shown if include else shown + matched)
        assert matched not in TOKENIZER.decode(kept[:-1])
    else:
        assert deltas[-1].finish_reason == ending
        assert kept == ids
        assert shown == text

    assert stream.num_verify_steps == sum(1 for output in outputs[1 : len(deltas)] if output.token_ids)
    assert 0 <= stream.num_accepted <= stream.num_draft_tokens
    assert stream.num_accepted <= len(kept)
    assert stream.num_emitted == len(kept) - len(deltas[0].token_ids)


def test_a_stop_string_inside_a_run_cuts_ids_and_accepted_drafts():
    """The run has four accepted drafts; the stop string is completed by the second of them."""
    ids = TOKENIZER.encode_plain("ABCDEFG")
    stream = make_stream(stop=("C",), logprobs=0)
    outputs = make_outputs(ids, [5], "length")
    first, second = stream.feed(outputs[0]), stream.feed(outputs[1])
    assert (first.text, second.text) == ("A", "B")
    assert second.token_ids == tuple(ids[1:3])
    assert len(second.logprobs) == 2
    assert second.finish_reason == "stop"
    assert second.stop_reason == "C"
    assert (stream.num_verify_steps, stream.num_draft_tokens, stream.num_accepted) == (1, 4, 2)
    assert stream.num_emitted == 2, "the cut run gave its two accepted drafts and no token of the target's own"


def test_a_stop_token_that_is_the_last_accepted_draft_counts_once():
    """One prefill token, then one verify step that accepts two drafts, the second of which is the model's end."""
    first, second = TOKENIZER.encode_plain("AB")
    stream = make_stream()
    stream.feed(RequestOutput(request_id="a", token_ids=(first,)))
    end = RequestOutput(
        request_id="a",
        token_ids=(second, EOS),
        num_draft_tokens=3,
        num_accepted=2,
        is_verify_step=True,
        finish_reason="stop",
    )
    stream.feed(end)
    assert acceptance_length(stream.num_verify_steps, stream.num_emitted) == 2.0


def test_tokens_made_by_a_prefill_after_a_preemption_are_not_emitted_by_verify_steps():
    ids = TOKENIZER.encode_plain("ABCDE")
    stream = make_stream()
    stream.feed(RequestOutput(request_id="a", token_ids=(ids[0],)))
    stream.feed(
        RequestOutput(
            request_id="a", token_ids=(ids[1], ids[2]), num_draft_tokens=3, num_accepted=1, is_verify_step=True
        )
    )
    stream.feed(RequestOutput(request_id="a", token_ids=(ids[3],)))
    stream.feed(
        RequestOutput(
            request_id="a",
            token_ids=(ids[4],),
            num_draft_tokens=3,
            is_verify_step=True,
            finish_reason="length",
            num_preemptions=1,
        )
    )
    assert (stream.num_generated_tokens, stream.num_verify_steps, stream.num_emitted) == (5, 2, 3)


def test_a_stop_string_wins_over_a_length_limit_in_the_same_run():
    """An accepted run that crosses both: the earlier one, the stop string, is the reason."""
    ids = TOKENIZER.encode_plain("ABCDEFG")
    (delta,) = play(
        make_stream(stop=("BC",)), [RequestOutput(request_id="a", token_ids=tuple(ids), finish_reason="length")]
    )
    assert (delta.text, delta.finish_reason, delta.stop_reason) == ("A", "stop", "BC")
    assert len(delta.token_ids) == 3


def test_the_models_own_end_is_returned_as_a_token_and_not_as_text():
    ids = [*TOKENIZER.encode("hi"), EOS]
    (delta,) = play(make_stream(), [RequestOutput(request_id="a", token_ids=tuple(ids), finish_reason="stop")])
    assert (delta.text, delta.token_ids, delta.stop_reason) == ("hi", tuple(ids), None)


@pytest.mark.parametrize(("include", "text"), [(False, "h"), (True, "hi")])
def test_a_stop_token_shows_only_when_asked_for(include, text):
    h, i = TOKENIZER.encode_plain("h") + TOKENIZER.encode_plain("i")
    output = RequestOutput(request_id="a", token_ids=(h, i), finish_reason="stop", stop_reason=i)
    stream = make_stream(stop_token_ids=(i,), include_stop_str_in_output=include)
    (delta,) = play(stream, [output])
    assert (delta.text, delta.token_ids, delta.stop_reason) == (text, (h, i), i)


@pytest.mark.parametrize(("skip", "text"), [(True, "ab"), (False, "a]~b]b")])
def test_special_tokens_are_shown_only_when_asked_for(skip, text):
    ids = TOKENIZER.encode("a]~b]b")
    output = RequestOutput(request_id="a", token_ids=tuple(ids), finish_reason="length")
    assert play(make_stream(skip_special_tokens=skip), [output])[0].text == text


def test_text_held_back_comes_with_the_end():
    ids = TOKENIZER.encode_plain("xab")
    stream = make_stream(stop=("abc",))
    deltas = play(stream, make_outputs(ids, [1], "length"))
    assert [delta.text for delta in deltas] == ["x", "", "ab"]


def test_an_unfinished_character_at_the_end_is_shown():
    first_byte = TOKENIZER.encode_plain("é")[0]
    output = RequestOutput(request_id="a", token_ids=(first_byte,), finish_reason="length")
    assert play(make_stream(), [output])[0].text == "\ufffd"


def test_errors_and_prefix_hits_are_passed_on():
    stream = make_stream()
    stream.feed(RequestOutput(request_id="a", token_ids=(1,), num_prefix_hit_tokens=8))
    delta = stream.feed(RequestOutput(request_id="a", finish_reason="error", error="NaN"))
    assert (delta.finish_reason, delta.error, stream.num_prefix_hit_tokens) == ("error", "NaN", 8)
    with pytest.raises(AssertionError, match="after the end"):
        stream.feed(RequestOutput(request_id="a"))


def test_alternatives_are_cut_with_the_tokens_and_the_prompt_is_handed_on_once():
    ids = TOKENIZER.encode_plain("ABCD")
    tops = tuple(((id_, -0.5),) for id_ in ids)
    stream = make_stream(stop=("C",), logprobs=1, prompt_logprobs=1)
    output = RequestOutput(
        request_id="a",
        token_ids=tuple(ids),
        logprobs=(-0.5,) * 4,
        top_logprobs=tops,
        prompt_logprobs=(-3.0,),
        prompt_top_logprobs=(((9, -3.0),),),
    )
    delta = stream.feed(output)
    assert delta.token_ids == tuple(ids[:3])
    assert delta.top_logprobs == tops[:3]
    assert (delta.prompt_logprobs, delta.prompt_top_logprobs) == ((-3.0,), (((9, -3.0),),))


@pytest.mark.parametrize("run_lens", [[1], [2], [5], [7]])
@pytest.mark.parametrize("min_tokens", range(8))
def test_stop_strings_are_looked_for_behind_the_first_tokens_only(min_tokens: int, run_lens: list[int]):
    """One token per letter; the stop string occurs twice."""
    ids = TOKENIZER.encode_plain("ABABXYZ")
    assert len(ids) == 7
    stream = make_stream(stop=("AB",), min_tokens=min_tokens)
    deltas = play(stream, make_outputs(ids, run_lens, "length"))
    shown = "".join(delta.text for delta in deltas)
    kept = [id_ for delta in deltas for id_ in delta.token_ids]
    if min_tokens == 0:
        assert (shown, kept) == ("", ids[:2])
    elif min_tokens <= 2:
        assert (shown, kept) == ("AB", ids[:4]), "a stop string begins behind the exempt tokens"
    else:
        assert (shown, kept) == ("ABABXYZ", ids)
        assert stream.finish_reason == "length"


def test_text_is_told_by_the_token_that_made_it_certain():
    """Bytes of one character in two tokens, the head of a stop string, and the model's end without text."""
    ids = [*TOKENIZER.encode_plain("aé"), *TOKENIZER.encode_plain("x"), EOS]
    assert len(ids) == 5
    output = RequestOutput(request_id="a", token_ids=tuple(ids), num_accepted=4, finish_reason="stop")
    (delta,) = play(make_stream(stop=("xyz",)), [output])
    assert delta.pieces == ("a", "", "é", "", "x")
    assert (delta.text, delta.num_accepted) == ("aéx", 4)


def test_text_that_was_withheld_comes_with_an_end_that_has_no_token():
    ids = TOKENIZER.encode_plain("ab")
    stream = make_stream(stop=("abc",))
    stream.feed(RequestOutput(request_id="a", token_ids=tuple(ids)))
    delta = stream.feed(RequestOutput(request_id="a", finish_reason="length"))
    assert (delta.text, delta.pieces, delta.token_ids, delta.num_accepted) == ("ab", ("ab",), (), 0)
