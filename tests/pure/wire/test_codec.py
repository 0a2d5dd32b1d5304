"""Every message survives the wire; bytes that are no message are one clear error."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.base.errors import EngineError
from slipstream.wire.codec import decode_to_engine, decode_to_frontend, encode
from slipstream.wire.messages import (
    Abort,
    EngineFacts,
    EngineStats,
    Failed,
    Outputs,
    Progress,
    Ready,
    RequestOutput,
    Shutdown,
    Stopped,
    Submit,
)
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams
from support.profiles import relaxed

int64 = st.integers(-(2**63), 2**63 - 1)
ids = st.lists(st.integers(0, 2**31), max_size=5).map(tuple)
text = st.text(max_size=8)
floats = st.floats(allow_nan=False)

samplings = st.builds(
    SamplingParams,
    temperature=st.floats(0, 100),
    top_k=st.integers(-1, 2**31),
    top_p=st.floats(0, 1, exclude_min=True),
    min_p=st.floats(0, 1),
    seed=st.one_of(st.none(), int64),
    max_tokens=st.one_of(st.none(), st.integers(1, 2**31)),
    stop=st.lists(st.text(min_size=1, max_size=5), max_size=3).map(tuple),
    stop_token_ids=ids,
    ignore_eos=st.booleans(),
    logprobs=st.sampled_from([None, 0, 20]),
    repetition_penalty=st.floats(0.01, 100),
    presence_penalty=st.floats(-2, 2),
    logit_bias=st.dictionaries(st.integers(0, 2**31), st.floats(-100, 100), max_size=3),
    allowed_token_ids=st.one_of(st.none(), st.lists(st.integers(0, 2**31), min_size=1, max_size=3)),
    bad_words=st.lists(st.text(min_size=1, max_size=5), max_size=3).map(tuple),
    prompt_logprobs=st.sampled_from([None, 0, 20]),
)
sequences = st.lists(ids, max_size=3).map(tuple)
alternatives = st.lists(st.lists(st.tuples(st.integers(0, 9), floats), max_size=3).map(tuple), max_size=3).map(tuple)
requests = st.builds(
    Request,
    request_id=text,
    prompt_token_ids=ids,
    sampling=samplings,
    seed=int64,
    max_seq_len=st.integers(1, 2**31),
    stop_token_ids=ids,
    eos_token_ids=ids,
    arrival_s=floats,
    verification=st.sampled_from(["coupled", "rejection"]),
    bad_token_ids=sequences,
)
outputs = st.builds(
    RequestOutput,
    request_id=text,
    token_ids=ids,
    num_draft_tokens=st.integers(0, 16),
    num_accepted=st.integers(0, 16),
    is_verify_step=st.booleans(),
    logprobs=st.lists(st.floats(), max_size=3).map(tuple),
    finish_reason=st.sampled_from([None, "stop", "length", "abort", "error"]),
    stop_reason=st.one_of(st.none(), st.integers(0, 2**31)),
    error=st.one_of(st.none(), text),
    top_logprobs=alternatives,
    prompt_logprobs=st.lists(st.floats(), max_size=3).map(tuple),
    prompt_top_logprobs=alternatives,
)
stats = st.builds(EngineStats, num_running=st.integers(0, 99), num_accepted_per_position=ids)
count = st.integers(0, 2**40)
facts = st.builds(
    EngineFacts,
    **dict.fromkeys(("model_name", "drafter", "verification", "device", "dtype"), text),
    **dict.fromkeys(("vocab_size", "max_model_len", "max_num_seqs", "page_size", "num_pages"), count),
    num_cache_tokens=count,
    draft_len=count,
    eos_token_ids=ids,
)
to_engine = st.one_of(
    st.builds(Submit, requests), st.builds(Abort, request_id=text), st.builds(Shutdown, drain=st.booleans())
)
to_frontend = st.one_of(
    st.builds(Progress, stage=text, done=st.integers(0, 9), total=st.integers(0, 9)),
    st.builds(Ready, facts=facts),
    st.builds(Outputs, outputs=st.lists(outputs, max_size=3).map(tuple), stats=stats),
    st.builds(Failed, kind=text, reason=text),
    st.just(Stopped()),
)


def same(left, right):
    """Equality under which NaN equals itself."""
    return repr(left) == repr(right) and type(left) is type(right)


@relaxed
@given(to_engine)
def test_messages_to_the_engine_survive(message):
    assert same(decode_to_engine(encode(message)), message)


@relaxed
@given(to_frontend)
def test_messages_to_the_front_end_survive(message):
    assert same(decode_to_frontend(encode(message)), message)


@relaxed
@given(st.binary(max_size=60))
def test_random_bytes_are_a_message_or_one_kind_of_error(frame):
    for decode in (decode_to_engine, decode_to_frontend):
        with contextlib.suppress(EngineError):
            decode(frame)


def test_the_error_says_how_long_the_frame_was():
    for decode in (decode_to_engine, decode_to_frontend):
        with pytest.raises(EngineError, match="3 bytes"):
            decode(b"abc")


@relaxed
@given(st.one_of(to_engine, to_frontend), st.data())
def test_a_damaged_frame_never_escapes_as_another_error(message, data):
    frame = bytearray(encode(message))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    for decode in (decode_to_engine, decode_to_frontend):
        with contextlib.suppress(EngineError):
            decode(bytes(frame[: data.draw(st.integers(0, len(frame)))]))


def test_directions_are_not_mixed_up():
    with pytest.raises(EngineError):
        decode_to_engine(encode(Stopped()))
    with pytest.raises(EngineError):
        decode_to_frontend(encode(Abort(request_id="a")))


def test_parameters_are_checked_on_arrival():
    frame = msgspec.msgpack.encode(
        {
            "type": "submit",
            "request": {
                "request_id": "a",
                "prompt_token_ids": [1],
                "sampling": {"top_p": 7.0},
                "seed": 1,
                "max_seq_len": 2,
            },
        }
    )
    with pytest.raises(EngineError, match="top_p"):
        decode_to_engine(frame)
