"""Requests are resolved completely, and limits are exact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.base.errors import CheckpointError, ContextLengthError, RequestError, UnsupportedFeature
from slipstream.frontend.chat import ChatAsk
from slipstream.frontend.processor import Processor, TextParts
from slipstream.wire.codec import decode_to_engine, encode
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.messages import Submit
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import fake_facts
from support.profiles import relaxed
from support.tiny_text import tiny_folder, write_tiny_text

TEXT = TextParts.load(tiny_folder())
EOS = TEXT.tokenizer.control_ids["[e~["]


def processor(**facts) -> Processor:
    return Processor(TEXT, fake_facts(**facts), clock=lambda: 12.5)


def make(prompt_len: int = 3, sampling: SamplingParams | None = None, **facts):
    return processor(**facts).make_request("a", (1,) * prompt_len, sampling or SamplingParams())


def test_a_request_is_resolved():
    request = make(3, SamplingParams(max_tokens=5, seed=-7, stop_token_ids=(9, EOS)))
    assert request.max_seq_len == 8
    assert request.seed == -7
    assert request.stop_token_ids == (EOS, 9)
    assert request.eos_token_ids == (EOS,)
    assert request.arrival_s == 12.5


def test_the_engines_end_tokens_win_and_may_be_ignored():
    assert make(eos_token_ids=(5, 6)).stop_token_ids == (5, 6)
    request = make(3, SamplingParams(ignore_eos=True, stop_token_ids=(EOS,)))
    assert (request.stop_token_ids, request.eos_token_ids) == ((EOS,), ())


def test_seeds_are_drawn_when_not_given():
    seeds = {make().seed for _ in range(20)}
    assert len(seeds) == 20
    assert all(0 <= seed < 2**63 for seed in seeds)


@relaxed
@given(st.integers(1, 40), st.one_of(st.none(), st.integers(1, 40)), st.integers(2, 40), st.integers(2, 40))
def test_limits_are_exact(prompt_len, max_tokens, context, cache):
    """Accepted exactly when prompt and answer fit context and cache, with at least one token to return."""
    limit = min(context, cache)
    fits = prompt_len + (max_tokens or 1) <= limit
    sampling = SamplingParams(max_tokens=max_tokens)
    if not fits:
        with pytest.raises(ContextLengthError, match=str(prompt_len)) as caught:
            make(prompt_len, sampling, max_model_len=context, num_cache_tokens=cache)
        assert caught.value.code == "context_length_exceeded"
        assert str(context) in str(caught.value) or str(cache) in str(caught.value)
        return
    request = make(prompt_len, sampling, max_model_len=context, num_cache_tokens=cache)
    assert request.max_seq_len == (limit if max_tokens is None else prompt_len + max_tokens)


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens", "cache", "says", "param"),
    [
        (20, None, 1024, "shorten the prompt to 19", "prompt"),
        (18, None, 16, "cache holds 16", "prompt"),
        (15, 6, 1024, "lower max_tokens to 5", "max_tokens"),
        (10, 7, 16, "this engine's cache holds 16", "max_tokens"),
    ],
)
def test_what_does_not_fit_says_both_numbers_and_the_remedy(prompt_len, max_tokens, cache, says, param):
    sampling = SamplingParams(max_tokens=max_tokens)
    with pytest.raises(ContextLengthError, match=says) as caught:
        make(prompt_len, sampling, max_model_len=20, num_cache_tokens=cache)
    assert caught.value.param == param


def test_prompts_are_text_or_ids():
    p = processor()
    assert p.tokenize("hi]~b]") == (*TEXT.tokenizer.encode_plain("hi"), TEXT.tokenizer.control_ids["]~b]"])
    assert p.tokenize([1, 2]) == (1, 2)
    assert p.tokenize((399,)) == (399,)


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("", "empty"),
        ([], "empty"),
        ([400], "token id 400; ids run from 0 to 399"),
        ([3, -1], "token id -1"),
        ([10**30], "token id 1000"),
        ([10**5000], "token id of many digits"),
        ([1.0], "give text or"),
        ([True], "give text or"),
        (["a", 1], "give text or"),
        (5, "give text or"),
        (None, "give text or"),
        ("\ud800", "surrogate"),
    ],
)
def test_other_prompts_are_refused(prompt, says):
    with pytest.raises(RequestError, match=says):
        processor().tokenize(prompt)


class Unusable:
    """A tokenizer that fails the test when it is asked to encode."""

    def __getattr__(self, name):
        assert "encode" not in name, "a text that can never fit was tokenised"
        return getattr(TEXT.tokenizer, name)


LONGEST = TEXT.tokenizer.max_token_bytes


def unusable(max_model_len: int) -> Processor:
    parts = TextParts(Unusable(), TEXT.template)
    return Processor(parts, fake_facts(max_model_len=max_model_len))


@pytest.mark.parametrize(("letter", "num_bytes"), [("a", 1), ("é", 2), ("語", 3), ("🙂", 4), ("\ud800", 3)])
def test_a_text_that_can_never_fit_is_refused_before_it_is_tokenised(letter, num_bytes):
    """The limit is one of bytes, whatever the characters, and exact."""
    limit = 12 * LONGEST
    text = letter * (limit // num_bytes)
    unusable(12).check_text((text,), "prompt")
    for too_long in (text + "ab" * num_bytes, text * 100):
        with pytest.raises(ContextLengthError, match=f"12 tokens hold {limit} at most") as caught:
            unusable(12).tokenize(too_long)
        assert (caught.value.param, caught.value.code) == ("prompt", "context_length_exceeded")
    unusable(6).check_text((text,), "prompt", num_contexts=2)


def test_the_texts_of_a_conversation_are_refused_by_their_sum():
    half = "a" * (6 * LONGEST)
    with pytest.raises(ContextLengthError, match="12 tokens hold") as caught:
        unusable(12).tokenize_chat(
            ChatAsk(messages=[{"role": "user", "content": half}, {"role": "user", "content": half, "name": "n"}])
        )
    assert (caught.value.param, caught.value.code) == ("messages", "context_length_exceeded")
    with pytest.raises(ContextLengthError, match="12 tokens hold"):
        unusable(12).tokenize_chat(
            ChatAsk(messages=[{"role": "user", "content": half}], template_kwargs={"more": [half + "a"]})
        )


def test_a_long_list_of_ids_is_refused_by_its_length():
    class Unread(list):
        def __iter__(self):
            raise AssertionError("the ids of a prompt that can never fit were looked at")

    with pytest.raises(ContextLengthError, match="the prompt has 13 tokens"):
        unusable(12).tokenize(Unread([1] * 13))


def test_stop_token_ids_must_be_in_the_vocabulary():
    with pytest.raises(RequestError, match="stop_token_ids holds token id 400") as caught:
        make(3, SamplingParams(stop_token_ids=(400,)))
    assert caught.value.param == "stop_token_ids"


@pytest.mark.parametrize("top_k", [400, 10**30])
def test_a_top_k_that_keeps_everything_is_off_and_fits_the_wire(top_k):
    request = make(3, SamplingParams(top_k=top_k))
    assert request.sampling.top_k == 0
    assert decode_to_engine(encode(Submit(request=request))).request == request
    assert make(3, SamplingParams(top_k=399)).sampling.top_k == 399


def test_a_tokenizer_larger_than_the_model_is_refused():
    with pytest.raises(CheckpointError, match="the model only 300"):
        processor(vocab_size=300)


def test_conversations_need_a_template(tmp_path):
    messages = [{"role": "user", "content": "hi"}]
    ask = ChatAsk(messages=messages)
    without = ChatAsk(messages=messages, add_generation_prompt=False)
    assert processor().tokenize_chat(ask)[-1] != processor().tokenize_chat(without)[-2]
    bare = Processor(TextParts.load(write_tiny_text(tmp_path / "bare", template=None)), fake_facts())
    with pytest.raises(RequestError, match="no chat template"):
        bare.tokenize_chat(ask)
    empty = Processor(TextParts.load(write_tiny_text(tmp_path / "empty", template="{# nothing #}")), fake_facts())
    with pytest.raises(RequestError, match="to nothing"):
        empty.tokenize_chat(ask)


@pytest.mark.parametrize(
    ("engine", "seed", "verification"),
    [
        ("auto", 5, "coupled"),
        ("auto", 0, "coupled"),
        ("auto", None, "rejection"),
        ("coupled", None, "coupled"),
        ("coupled", 5, "coupled"),
        ("rejection", None, "rejection"),
        ("rejection", 5, "rejection"),
    ],
)
def test_a_seed_asks_for_the_same_text_unless_the_engine_was_told(engine: str, seed: int | None, verification: str):
    assert make(3, SamplingParams(seed=seed), verification=engine).verification == verification


def test_token_ids_of_every_wish_must_exist():
    size = fake_facts().vocab_size
    make(3, SamplingParams(logit_bias={size - 1: 1.0}, allowed_token_ids=[size - 1]))
    for wish in ({"logit_bias": {size: 1.0}}, {"allowed_token_ids": [1, size]}):
        with pytest.raises(RequestError, match=f"token id {size}") as caught:
            make(3, SamplingParams(**wish))
        assert caught.value.param == next(iter(wish))


@pytest.mark.parametrize(
    "wish",
    [
        {"allowed_token_ids": list(TEXT.tokenizer.encode("A")), "bad_words": ["A"]},
        {"allowed_token_ids": list(TEXT.tokenizer.eos_token_ids), "min_tokens": 1},
        {"allowed_token_ids": [7], "stop_token_ids": [7], "min_tokens": 1},
    ],
)
def test_wishes_that_leave_no_first_token_are_refused(wish):
    with pytest.raises(RequestError, match="no token may come first") as caught:
        make(3, SamplingParams(**wish, max_tokens=4))
    assert (caught.value.param, caught.value.code) == ("allowed_token_ids", "no_token_left")
    make(3, SamplingParams(**wish | {"allowed_token_ids": [*wish["allowed_token_ids"], 9]}, max_tokens=4))
    make(3, SamplingParams(allowed_token_ids=wish["allowed_token_ids"], max_tokens=4))


def test_bad_words_become_tokens():
    request = make(3, SamplingParams(bad_words=["A"]))
    assert request.bad_token_ids == (tuple(TEXT.tokenizer.encode("A", add_special_tokens=False)),)


def test_more_than_one_answer_is_more_than_one_request():
    with pytest.raises(UnsupportedFeature, match="n=2") as caught:
        make(3, SamplingParams(n=2))
    assert caught.value.param == "n"


@pytest.mark.parametrize(("is_reasoning", "starts"), [(False, "answer"), (True, "after_reasoning")])
def test_a_constraint_goes_along_and_begins_where_the_answer_does(is_reasoning: bool, starts: str):
    grammar = GrammarSpec.json_object()
    processor = Processor(TEXT, fake_facts())
    request = processor.make_request("r", (1,), SamplingParams(grammar=grammar), starts_in_reasoning=is_reasoning)
    assert (request.sampling.grammar, request.grammar_starts) == (grammar, starts)
    assert request.eos_token_ids, "the text must be able to end"
    assert decode_to_engine(encode(Submit(request))) == Submit(request)
