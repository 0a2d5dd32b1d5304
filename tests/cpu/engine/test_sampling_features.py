"""Penalties, biases, bans, minimum lengths and log-probabilities in whole engines: with any drafter what a naive loop
over whole forward passes gives, at every ladder position, in any company, through preemption and prefix hits."""

from __future__ import annotations

import msgspec
import pytest
import torch

from slipstream.wire.messages import RequestOutput
from support.engines import Knobs, Outcome, make_request, tokens_of
from support.feature_world import MAX_NEW, NUM_TOP, FeatureSet, FeatureWorld
from support.no_host_read import NoHostRead

MODES = ["greedy", "coupled"]
DRAFTERS = ["none", "ngram", "eagle3", "oracle", "right_then_wrong", "forbidden"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> FeatureWorld:
    return FeatureWorld(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def sets(world: FeatureWorld) -> dict[str, FeatureSet]:
    return {mode: FeatureSet(world, mode) for mode in MODES}


def run(world: FeatureWorld, chosen: FeatureSet, drafter: str, knobs: Knobs, **more: object) -> dict[str, Outcome]:
    return world.engine(drafter, knobs, streams=chosen.texts, **more).run(chosen.all())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("overlap", [False, True])
def test_any_drafter_gives_the_text_of_a_naive_loop(
    world: FeatureWorld, sets: dict[str, FeatureSet], drafter: str, mode: str, overlap: bool
) -> None:
    chosen = sets[mode]
    outcomes = run(world, chosen, drafter, Knobs(max_num_seqs=12, overlap=overlap))
    assert tokens_of(outcomes) == chosen.tokens
    assert {name: one.finish_reason for name, one in outcomes.items()} == {
        name: one.finish_reason for name, one in chosen.expected.items()
    }


@pytest.mark.parametrize("mode", MODES)
def test_an_oracle_is_accepted_under_every_feature(world: FeatureWorld, sets: dict[str, FeatureSet], mode: str) -> None:
    """Had the drafts of a ladder not counted as text for the rows behind them, some would be refused."""
    chosen = sets[mode]
    streams = [[*r.prompt_token_ids, *chosen.expected[name].token_ids] for name, r in chosen.requests.items()]
    outcomes = world.engine("oracle", Knobs(max_num_seqs=12), streams=streams).run(chosen.all())
    for name, outcome in outcomes.items():
        for one in outcome.runs:
            assert one.num_accepted == min(len(one.token_ids), one.num_draft_tokens), name


@pytest.mark.parametrize("mode", MODES)
def test_alone_equals_in_company(world: FeatureWorld, sets: dict[str, FeatureSet], mode: str) -> None:
    """The host picks what to compute by the batch: nobody's text may depend on that."""
    chosen = sets[mode]
    for name, request in chosen.requests.items():
        for drafter in ("eagle3", "oracle"):
            engine = world.engine(drafter, Knobs(), streams=chosen.texts)
            assert engine.run([request])[name].token_ids == chosen.tokens[name], (name, drafter)
            needs = engine.runner._parts.edits
            assert needs.is_allocated == (name != "plain"), "room is made when somebody asks, and only then"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("drafter", ["eagle3", "oracle"])
def test_preemption_keeps_counts(
    world: FeatureWorld, sets: dict[str, FeatureSet], mode: str, overlap: bool, drafter: str
) -> None:
    """What was returned before a preemption is still returned text, not prompt."""
    chosen = sets[mode]
    longest = max(len(text) for text in chosen.texts)
    knobs = Knobs(num_pages=-(-longest // world.page_size) + 3, max_num_seqs=4, overlap=overlap)
    engine = world.engine(drafter, knobs, streams=chosen.texts)
    assert tokens_of(engine.run(chosen.all())) == chosen.tokens
    assert engine.core.stats().num_preemptions > 0, "the pool was large enough: the test would prove nothing"


@pytest.mark.parametrize("mode", MODES)
def test_one_row_serves_every_request_in_turn(world: FeatureWorld, sets: dict[str, FeatureSet], mode: str) -> None:
    """Nothing that a former tenant asked for may show, nor for a request without wishes after one with all of them."""
    chosen = sets[mode]
    outcomes = run(world, chosen, "eagle3", Knobs(max_num_seqs=1))
    assert tokens_of(outcomes) == chosen.tokens
    engine = world.engine("eagle3", Knobs(max_num_seqs=1), streams=chosen.texts)
    engine.run(list(reversed(chosen.all())))
    assert tokens_of(engine.outcomes) == chosen.tokens


def test_features_read_the_device_in_the_handoff_only(world: FeatureWorld, sets: dict[str, FeatureSet]) -> None:
    chosen = sets["coupled"]
    requests = chosen.all()
    warm = [msgspec.structs.replace(r, request_id=f"{r.request_id}-r", verification="rejection") for r in requests]
    asked = [with_prompt_logprobs(one, NUM_TOP) for one in requests]
    engine = world.engine("eagle3", Knobs(max_num_seqs=8, overlap=True, poison=False), streams=chosen.texts)
    with NoHostRead():
        outcomes = engine.run([*asked, *warm])
    assert {name: outcomes[name].token_ids for name in chosen.tokens} == chosen.tokens


@pytest.mark.parametrize("mode", MODES)
def test_rejection_rows_leave_their_company_alone(world: FeatureWorld, sets: dict[str, FeatureSet], mode: str) -> None:
    chosen = sets[mode]
    warm = [make_request(f"warm-{seed}", [9, 8, 7, seed], MAX_NEW, seed=seed, temperature=1.0) for seed in range(4)]
    warm = [msgspec.structs.replace(request, verification="rejection") for request in warm]
    greedy = [
        msgspec.structs.replace(request, verification="rejection") if mode == "greedy" else request
        for request in chosen.all()
    ]
    engine = world.engine("eagle3", Knobs(max_num_seqs=16), streams=chosen.texts)
    outcomes = engine.run([*warm, *greedy])
    assert {name: outcomes[name].token_ids for name in chosen.tokens} == chosen.tokens


def test_a_request_that_allows_no_token_ends_alone(world: FeatureWorld, sets: dict[str, FeatureSet]) -> None:
    chosen = sets["greedy"]
    hopeless = make_request("hopeless", [4, 5, 6], 5, allowed_token_ids=[7], min_tokens=1)
    hopeless = msgspec.structs.replace(hopeless, stop_token_ids=(7,))
    engine = world.engine("eagle3", Knobs(max_num_seqs=12), streams=chosen.texts)
    for request in [hopeless, *chosen.all()]:
        engine.submit(request)
    ends: dict[str, RequestOutput] = {}
    while engine.core.has_work:
        for output in engine.core.turn():
            engine.outcomes[output.request_id].token_ids.extend(output.token_ids)
            if output.finish_reason is not None:
                ends[output.request_id] = output
    assert ends["hopeless"].finish_reason == "error"
    assert "allowed no token" in (ends["hopeless"].error or "")
    assert {name: engine.outcomes[name].token_ids for name in chosen.tokens} == chosen.tokens


def all_of(outcome: Outcome, name: str) -> list:
    return [value for one in outcome.runs for value in getattr(one, name)]


@pytest.mark.parametrize("drafter", ["none", "eagle3", "oracle"])
@pytest.mark.parametrize("mode", MODES)
def test_log_probabilities_are_raw_and_cut_with_the_tokens(
    world: FeatureWorld, sets: dict[str, FeatureSet], mode: str, drafter: str
) -> None:
    """Before biases, penalties and temperature; as many as tokens, also when a stop ends an accepted run."""
    chosen = sets[mode]
    outcomes = run(world, chosen, drafter, Knobs(max_num_seqs=12))
    assert "stop" in {one.finish_reason for one in outcomes.values()}
    num_compared = 0
    for name, outcome in outcomes.items():
        expected = chosen.expected[name]
        logprobs, tops = all_of(outcome, "logprobs"), all_of(outcome, "top_logprobs")
        assert len(logprobs) == len(tops) == len(outcome.token_ids)
        assert logprobs == pytest.approx(expected.logprobs, abs=1e-4)
        for top, wanted in zip(tops, expected.top, strict=True):
            assert len(top) == NUM_TOP
            assert [value for _, value in top] == pytest.approx([value for _, value in wanted], abs=1e-4)
            gaps = -torch.tensor([value for _, value in wanted]).diff()
            if gaps.min() > 1e-3:
                num_compared += 1
                assert [token for token, _ in top] == [token for token, _ in wanted]
    assert num_compared > 20, "hardly any position has clear alternatives"


def test_each_row_gets_as_many_alternatives_as_it_asked_for(world: FeatureWorld, sets: dict[str, FeatureSet]) -> None:
    request = sets["greedy"].requests["plain"]
    asked = {"none": None, "chosen": 0, "two": 2, "most": 20}
    requests = [
        msgspec.structs.replace(
            request, request_id=name, sampling=msgspec.structs.replace(request.sampling, logprobs=count)
        )
        for name, count in asked.items()
    ]
    outcomes = world.engine("eagle3", Knobs(max_num_seqs=4)).run(requests)
    widths = {name: {len(top) for top in all_of(outcome, "top_logprobs")} for name, outcome in outcomes.items()}
    assert widths == {"none": set(), "chosen": set(), "two": {2}, "most": {20}}
    assert all_of(outcomes["none"], "logprobs") == []
    assert all_of(outcomes["chosen"], "logprobs") == all_of(outcomes["most"], "logprobs")
    best = [top[:2] for top in all_of(outcomes["most"], "top_logprobs")]
    assert best == all_of(outcomes["two"], "top_logprobs")


def with_prompt_logprobs(request, count: int | None):
    sampling = msgspec.structs.replace(request.sampling, prompt_logprobs=count)
    return msgspec.structs.replace(request, sampling=sampling)


@pytest.mark.parametrize("drafter", ["none", "eagle3"])
@pytest.mark.parametrize("chunk_tokens", [3, 8, 64])
@pytest.mark.parametrize("count", [0, 3])
def test_prompt_log_probabilities_equal_one_pass(
    world: FeatureWorld, sets: dict[str, FeatureSet], drafter: str, chunk_tokens: int, count: int
) -> None:
    """Twice, so that the second time every full page could have been taken from the cache."""
    chosen = sets["greedy"]
    requests = [with_prompt_logprobs(request, count) for request in chosen.all()]
    engine = world.engine(drafter, Knobs(prefill_chunk_tokens=chunk_tokens), streams=chosen.texts)
    for _ in range(2):
        outcomes = engine.run(requests)
        assert tokens_of(outcomes) == chosen.tokens
        for request in requests:
            check_prompt(world, request, outcomes[request.request_id], count)
            assert outcomes[request.request_id].num_prefix_hit_tokens == 0
        engine.outcomes.clear()
    # Others still find the pages of these prompts.
    again = engine.run(chosen.all())
    assert sum(outcome.num_prefix_hit_tokens for outcome in again.values()) > 0
    assert all_of(again["everything"], "prompt_logprobs") == []


def check_prompt(world: FeatureWorld, request, outcome: Outcome, count: int) -> None:
    raw = world.raw_logits(request.prompt_token_ids).log_softmax(-1)[:-1]
    chosen = torch.tensor(request.prompt_token_ids[1:])[:, None]
    assert all_of(outcome, "prompt_logprobs") == pytest.approx(raw.gather(1, chosen)[:, 0].tolist(), abs=1e-4)
    tops = all_of(outcome, "prompt_top_logprobs")
    if not count:
        assert tops == []
        return
    values = [value for top in tops for _, value in top]
    assert values == pytest.approx(raw.topk(count).values.flatten().tolist(), abs=1e-4)
    assert [len(top) for top in tops] == [count] * len(chosen)


@pytest.mark.parametrize("overlap", [False, True])
def test_prompt_log_probabilities_come_once_though_the_prompt_is_computed_twice(
    world: FeatureWorld, sets: dict[str, FeatureSet], overlap: bool
) -> None:
    chosen = sets["greedy"]
    longest = max(len(text) for text in chosen.texts)
    knobs = Knobs(num_pages=-(-longest // world.page_size) + 3, prefill_chunk_tokens=8, overlap=overlap)
    engine = world.engine("eagle3", knobs)
    requests = [with_prompt_logprobs(request, 2) for request in chosen.all()]
    outcomes = engine.run(requests)
    assert engine.core.stats().num_preemptions > 0
    for request in requests:
        check_prompt(world, request, outcomes[request.request_id], 2)
