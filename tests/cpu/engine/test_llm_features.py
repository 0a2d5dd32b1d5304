"""`LLM.generate` with everything that a request can ask of its tokens, on a tiny model with a tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.frontend.llm import LLM
from slipstream.wire.sampling_params import SamplingParams
from support.tiny_llm import make_tiny_llm

PROMPT = "the quick brown fox"


@pytest.fixture(scope="module", params=["none", "ngram"])
def llm(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest):
    folder: Path = make_tiny_llm(tmp_path_factory.mktemp("tiny-llm") / "model")
    with LLM(str(folder), drafter=request.param, threads=1) as made:
        yield made


def generate(llm: LLM, **wishes: object):
    (completion,) = llm.generate(PROMPT, SamplingParams(**{"temperature": 0.0, "max_tokens": 12, **wishes}))
    assert completion.error is None
    return completion


def test_wishes_change_the_text_as_they_say(llm: LLM) -> None:
    plain = generate(llm, ignore_eos=True)
    first = plain.token_ids[0]
    assert first not in generate(llm, ignore_eos=True, logit_bias={first: -100}).token_ids
    forced = generate(llm, ignore_eos=True, logit_bias={9: 100})
    assert set(forced.token_ids) == {9}
    allowed = generate(llm, ignore_eos=True, allowed_token_ids=[7, 9, 11], presence_penalty=2.0)
    assert set(allowed.token_ids) <= {7, 9, 11}
    assert len(set(generate(llm, ignore_eos=True, frequency_penalty=2.0, repetition_penalty=100).token_ids)) == 12


def test_an_end_comes_no_earlier_than_allowed(llm: LLM) -> None:
    for minimum in (0, 1, 5):
        stopped = generate(llm, stop_token_ids=[9], logit_bias={9: 100}, min_tokens=minimum)
        assert (len(stopped.token_ids), stopped.finish_reason) == (minimum + 1, "stop")


def test_bad_words_do_not_appear(llm: LLM) -> None:
    letters = generate(llm, ignore_eos=True, allowed_token_ids=ids_of(llm, "ABC"), logit_bias={ids_of(llm, "B")[0]: 9})
    assert "B" in letters.text
    for word in ("B", "BB", "AB"):
        wish = {"allowed_token_ids": ids_of(llm, "ABC"), "logit_bias": {ids_of(llm, "B")[0]: 9}}
        found = generate(llm, ignore_eos=True, bad_words=[word], presence_penalty=-1.0, **wish)
        assert word not in found.text
        assert set(found.text) <= set("ABC")


def ids_of(llm: LLM, letters: str) -> list[int]:
    ids = [llm._processor.tokenizer.encode(letter, add_special_tokens=False) for letter in letters]
    assert all(len(one) == 1 for one in ids)
    return [one[0] for one in ids]


def test_log_probabilities_of_answer_and_prompt(llm: LLM) -> None:
    found = generate(llm, logprobs=3, prompt_logprobs=2, ignore_eos=True)
    assert len(found.logprobs) == len(found.top_logprobs) == len(found.token_ids) == 12
    for token, value, top in zip(found.token_ids, found.logprobs, found.top_logprobs, strict=True):
        assert top[0] == (token, pytest.approx(value)), "greedy: the chosen token is the most likely one"
        assert len(top) == 3
    count = len(found.prompt_token_ids) - 1
    assert len(found.prompt_logprobs) == len(found.prompt_top_logprobs) == count
    for token, value, top in zip(
        found.prompt_token_ids[1:], found.prompt_logprobs, found.prompt_top_logprobs, strict=True
    ):
        assert value == pytest.approx(dict(top).get(token, value))
        assert value <= top[0][1] + 1e-6
    again = generate(llm, logprobs=3, prompt_logprobs=2, ignore_eos=True)
    assert again.prompt_logprobs == pytest.approx(found.prompt_logprobs, abs=1e-5)
    assert again.num_prefix_hit_tokens == 0


def test_seeded_requests_repeat_and_unseeded_ones_are_independent(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=10, seed=3, ignore_eos=True)
    first, second = llm.generate([PROMPT, PROMPT], params)
    assert first.token_ids == second.token_ids
    free = llm.generate([PROMPT] * 4, SamplingParams(temperature=1.0, max_tokens=10, ignore_eos=True))
    assert len({completion.token_ids for completion in free}) > 1


@pytest.mark.parametrize(
    ("wish", "error", "param"),
    [
        ({"n": 2}, UnsupportedFeature, "n"),
        ({"logit_bias": {10**6: 1}}, RequestError, "logit_bias"),
        ({"allowed_token_ids": [10**6]}, RequestError, "allowed_token_ids"),
        ({"bad_words": ["Q" * 40]}, UnsupportedFeature, "bad_words"),
    ],
)
def test_what_cannot_be_honoured_is_refused(llm: LLM, wish: dict[str, object], error: type, param: str) -> None:
    with pytest.raises(error) as caught:
        llm.generate(PROMPT, SamplingParams(**wish))
    assert caught.value.param == param
