"""Structured output in whole engines: with any drafter what a naive loop under fresh masks gives, wherever drafts leave
the grammar, in any company, through preemption; and every answer is what its constraint asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pytest

from slipstream.wire.request import Request
from support.constrained_world import (
    SPECS,
    ConstrainedSet,
    ConstrainedWorld,
    InsertDrafter,
    is_right,
    spaces,
)
from support.drafters import OracleDrafter, RightThenWrongDrafter
from support.engines import Knobs, TestEngine, make_request, random_prompts, tokens_of
from support.feature_world import DRAFT_LEN, Expected
from support.grammar_world import CONTROL, end_id, grammar_tokenizer, letters, marker_id, text_of
from support.no_host_read import NoHostRead

MODES = ["greedy", "coupled"]
TURN_START = grammar_tokenizer().control_ids[CONTROL[1]]
"""A control token that no constraint here allows."""
MARKER_BIAS = {"greedy": 5.0, "coupled": 5.0}
"""Makes the end of reasoning as likely as it must be to be found at any wanted place."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConstrainedWorld]:
    world = ConstrainedWorld(tmp_path_factory.mktemp("tiny") / "model")
    yield world
    world.close()


@pytest.fixture(scope="module")
def sets(world: ConstrainedWorld) -> dict[str, ConstrainedSet]:
    return {mode: ConstrainedSet(world, mode) for mode in MODES}


def check(engine: TestEngine, chosen: ConstrainedSet, requests: Sequence[Request] | None = None) -> None:
    """Run, compare with what must come, and see that nothing is left."""
    requests = chosen.all() if requests is None else list(requests)
    outcomes = engine.run(requests)
    names = {request.request_id for request in requests}
    assert tokens_of(outcomes) == {name: tokens for name, tokens in chosen.tokens.items() if name in names}
    assert {name: one.finish_reason for name, one in outcomes.items()} == {
        name: one.finish_reason for name, one in chosen.expected.items() if name in names
    }
    assert len(engine.registry) == 0


@pytest.mark.parametrize("mode", MODES)
def test_the_expected_answers_are_right(sets: dict[str, ConstrainedSet], mode: str) -> None:
    """Judged without the library; and free texts would not have been."""
    chosen = sets[mode]
    assert all(is_right(name, chosen.expected[name].token_ids) for name in chosen.requests)
    assert {one.finish_reason for one in chosen.expected.values()} == {"stop", "length"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drafter", ["none", "ngram", "eagle3", "oracle", "right_then_wrong", "forbidden"])
@pytest.mark.parametrize("overlap", [False, True])
def test_any_drafter_gives_the_text_of_a_naive_loop(
    world: ConstrainedWorld, sets: dict[str, ConstrainedSet], drafter: str, mode: str, overlap: bool
) -> None:
    chosen = sets[mode]
    check(world.constrained_engine(drafter, Knobs(max_num_seqs=8, overlap=overlap), streams=chosen.streams), chosen)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("place", range(DRAFT_LEN))
@pytest.mark.parametrize("what", ["control token", "end token", "no proposal"])
def test_a_draft_that_the_grammar_forbids_at_any_place(
    world: ConstrainedWorld, sets: dict[str, ConstrainedSet], what: str, place: int, overlap: bool, mode: str
) -> None:
    """What stands before it is accepted as ever, what stands behind it is not looked at, and nothing is out of step."""
    chosen = sets[mode]
    token = {"control token": TURN_START, "end token": end_id(), "no proposal": -1}[what]
    drafter = InsertDrafter(DRAFT_LEN, chosen.streams, world.vocab_size, place, token)
    engine = world.constrained_engine("none", Knobs(max_num_seqs=8, overlap=overlap), drafter=drafter)
    check(engine, chosen)
    longest = {name: max(one.num_accepted for one in outcome.runs) for name, outcome in engine.outcomes.items()}
    # An end token at its place is right once: it is the last token of an answer.
    assert all(count in (place, place + 1) for count in longest.values()), longest


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("overlap", [False, True])
def test_the_exact_continuation_is_always_accepted(
    world: ConstrainedWorld, sets: dict[str, ConstrainedSet], mode: str, overlap: bool
) -> None:
    """Had the masks of later ladder rows not followed the drafts before them, some would be refused."""
    chosen = sets[mode]
    engine = world.constrained_engine(
        "none",
        Knobs(max_num_seqs=8, overlap=overlap),
        drafter=OracleDrafter(DRAFT_LEN, chosen.streams, world.vocab_size),
    )
    check(engine, chosen)
    for name, outcome in engine.outcomes.items():
        for one in outcome.runs:
            assert one.num_accepted == min(len(one.token_ids), one.num_draft_tokens), name
        ladders = [len(one.token_ids) for one in outcome.runs if one.is_verify_step]
        assert len(ladders) == -(-(len(outcome.token_ids) - 1) // (DRAFT_LEN + 1)), name


@pytest.mark.parametrize("num_right", range(DRAFT_LEN + 1))
def test_a_draft_that_the_grammar_allows_and_the_target_does_not_want(
    world: ConstrainedWorld, sets: dict[str, ConstrainedSet], num_right: int
) -> None:
    """Inside a string almost everything is allowed: refused drafts must not be remembered by the grammar."""
    chosen = sets["coupled"]
    drafter = RightThenWrongDrafter(DRAFT_LEN, chosen.streams, world.vocab_size, num_right)
    check(world.constrained_engine("none", Knobs(max_num_seqs=8, overlap=True), drafter=drafter), chosen)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drafter", ["eagle3", "oracle"])
def test_company_and_order_do_not_matter(
    world: ConstrainedWorld, sets: dict[str, ConstrainedSet], mode: str, drafter: str
) -> None:
    chosen = sets[mode]
    requests = chosen.all()
    for order in (requests[::-1], requests[3:] + requests[:3]):
        for max_num_seqs in (8, 3):
            knobs = Knobs(max_num_seqs=max_num_seqs, overlap=max_num_seqs == 3)
            check(world.constrained_engine(drafter, knobs, streams=chosen.streams), chosen, order)
    for request in requests:
        check(world.constrained_engine(drafter, Knobs(), streams=chosen.streams), chosen, [request])


@pytest.mark.parametrize("mode", MODES)
def test_free_rows_get_the_same_news_as_without_company(
    world: ConstrainedWorld, sets: dict[str, ConstrainedSet], mode: str
) -> None:
    """Run by run: tokens, accepted counts and log-probabilities."""
    chosen = sets[mode]
    asked = {
        name: msgspec.structs.replace(request, sampling=msgspec.structs.replace(request.sampling, logprobs=0))
        for name, request in chosen.free.items()
    }

    def news(requests: list[Request]) -> tuple[list[tuple[tuple[int, ...], int]], list[float]]:
        engine = world.constrained_engine("oracle", Knobs(max_num_seqs=8, overlap=True), streams=chosen.streams)
        outcomes = engine.run(requests)
        runs = [one for name in asked for one in outcomes[name].runs]
        return [(one.token_ids, one.num_accepted) for one in runs], [value for one in runs for value in one.logprobs]

    found, logprobs = news([*asked.values(), *chosen.requests.values()])
    alone, alone_logprobs = news(list(asked.values()))
    assert found == alone
    assert len(logprobs) == sum(len(tokens) for tokens, _ in alone) > 0
    assert logprobs == pytest.approx(alone_logprobs, abs=1e-4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("drafter", ["eagle3", "oracle"])
def test_preemption_takes_up_the_text_where_it_was(
    world: ConstrainedWorld, sets: dict[str, ConstrainedSet], mode: str, overlap: bool, drafter: str
) -> None:
    chosen = sets[mode]
    longest = max(request.max_seq_len for request in chosen.all())
    knobs = Knobs(num_pages=-(-longest // world.page_size) + 2, max_num_seqs=4, overlap=overlap)
    engine = world.constrained_engine(drafter, knobs, streams=chosen.streams)
    check(engine, chosen)
    assert engine.core.stats().num_preemptions > 0, "the pool was large enough: the test would prove nothing"


def test_only_the_handoff_reads_the_device(world: ConstrainedWorld, sets: dict[str, ConstrainedSet]) -> None:
    chosen = sets["coupled"]
    engine = world.constrained_engine("eagle3", Knobs(max_num_seqs=8, overlap=True, poison=False))
    with NoHostRead():
        check(engine, chosen)


def test_log_probabilities_are_the_models_own(world: ConstrainedWorld, sets: dict[str, ConstrainedSet]) -> None:
    """Before the mask, as before every other wish."""
    request = sets["greedy"].requests["flag"]
    asked = msgspec.structs.replace(request, sampling=msgspec.structs.replace(request.sampling, logprobs=0))
    outcome = world.constrained_engine("eagle3", Knobs()).run([asked])["flag"]
    tokens = [*request.prompt_token_ids, *outcome.token_ids]
    raw = world.raw_logits(tokens).log_softmax(-1)
    places = range(len(request.prompt_token_ids) - 1, len(tokens) - 1)
    expected = [float(raw[place, tokens[place + 1]]) for place in places]
    assert [value for one in outcome.runs for value in one.logprobs] == pytest.approx(expected, abs=1e-4)


# -- the end of reasoning


def reasoning_set(world: ConstrainedWorld, mode: str) -> list[tuple[Request, Expected]]:
    """Return requests whose reasoning ends at every place of the first token and of an accepted run."""
    found: list[tuple[Request, Expected]] = []
    # The first token comes from the prompt; behind it every ladder holds K + 1 tokens of an oracle's run.
    for place in range(DRAFT_LEN + 2):

        def is_hopeless(tokens: list[int], place: int = place) -> bool:
            return (marker_id() in tokens[:place]) or (len(tokens) == place + 1 and tokens[place] != marker_id())

        request, expected = world.find(
            "regex",
            mode,
            length=6 + place,
            is_wanted=lambda expected: expected.finish_reason == "stop",
            is_hopeless=is_hopeless,
            starts="after_reasoning",
            first_seed=1000 * (place + 1),
            logit_bias=spaces() | {marker_id(): MARKER_BIAS[mode], end_id(): -50.0},
        )
        found.append((msgspec.structs.replace(request, request_id=f"place-{place}"), expected))
    return found


@pytest.fixture(scope="module")
def reasoning(world: ConstrainedWorld) -> dict[str, list[tuple[Request, Expected]]]:
    return {mode: reasoning_set(world, mode) for mode in MODES}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("overlap", [False, True])
def test_the_grammar_begins_behind_reasoning_wherever_it_ends(
    world: ConstrainedWorld, reasoning: dict[str, list[tuple[Request, Expected]]], mode: str, overlap: bool
) -> None:
    """The first token behind the marker is the grammar's first, also when both are drafts of one accepted run; and
    drafts behind it are judged by the grammar at once."""
    found = reasoning[mode]
    tokens = {request.request_id: expected.token_ids for request, expected in found}
    streams = [[*request.prompt_token_ids, *expected.token_ids] for request, expected in found]
    for request, expected in found:
        marker = expected.token_ids.index(marker_id())
        assert is_right("regex", expected.token_ids[marker + 1 :]), request.request_id
        if marker:
            assert not is_right("regex", expected.token_ids), "reasoning is not bound by the grammar"
    drafters = {
        "none": None,
        "oracle": OracleDrafter(DRAFT_LEN, streams, world.vocab_size),
        **{
            f"forbidden-{place}": InsertDrafter(DRAFT_LEN, streams, world.vocab_size, place, letters("x")[0])
            for place in range(DRAFT_LEN)
        },
    }
    for name, drafter in drafters.items():
        engine = world.constrained_engine("none", Knobs(max_num_seqs=8, overlap=overlap), drafter=drafter)
        assert tokens_of(engine.run([request for request, _ in found])) == tokens, name
        if name == "oracle":
            outcomes = engine.outcomes.values()
            assert all(
                one.num_accepted == min(len(one.token_ids), one.num_draft_tokens) for o in outcomes for one in o.runs
            )


def test_preemption_inside_and_behind_reasoning(
    world: ConstrainedWorld, reasoning: dict[str, list[tuple[Request, Expected]]]
) -> None:
    found = reasoning["greedy"]
    tokens = {request.request_id: expected.token_ids for request, expected in found}
    longest = max(request.max_seq_len for request, _ in found)
    streams = [[*request.prompt_token_ids, *expected.token_ids] for request, expected in found]
    for overlap in (False, True):
        knobs = Knobs(num_pages=-(-longest // world.page_size) + 2, max_num_seqs=5, overlap=overlap)
        engine = world.constrained_engine("oracle", knobs, streams=streams)
        assert tokens_of(engine.run([request for request, _ in found])) == tokens
        assert engine.core.stats().num_preemptions > 0


# -- every answer is valid


@pytest.mark.parametrize("verification", ["coupled", "rejection"])
@pytest.mark.parametrize("drafter", ["eagle3", "ngram", "forbidden"])
def test_every_finished_answer_is_what_was_asked_for(world: ConstrainedWorld, drafter: str, verification: str) -> None:
    """Warm, by any kind of verification, many at once."""
    requests: list[Request] = []
    for index in range(40):
        name = list(SPECS)[index % len(SPECS)]
        prompt = random_prompts(world.vocab_size - 60, [3 + index % 7], seed=index)[0]
        request = make_request(
            f"{name}-{index}", prompt, 220, seed=index, temperature=1.1, grammar=SPECS[name], logit_bias=spaces()
        )
        requests.append(
            msgspec.structs.replace(
                request, stop_token_ids=(end_id(),), eos_token_ids=(end_id(),), verification=verification
            )
        )
    engine = world.constrained_engine(drafter, Knobs(max_num_seqs=8, overlap=True, num_pages=400))
    outcomes = engine.run(requests, max_turns=20_000)
    finished = {name: one.token_ids for name, one in outcomes.items() if one.finish_reason == "stop"}
    wrong = [name for name, tokens in finished.items() if not is_right(name.split("-")[0], tokens)]
    assert wrong == [], [text_of(finished[name]) for name in wrong]
    assert len(finished) > 30
    assert {name.split("-")[0] for name in finished} == set(SPECS)
    assert len(engine.registry) == 0


# -- what is left behind


@pytest.mark.parametrize("overlap", [False, True])
def test_requests_that_are_given_up_at_any_moment_leave_nothing(
    world: ConstrainedWorld, sets: dict[str, ConstrainedSet], overlap: bool
) -> None:
    chosen = sets["coupled"]
    for num_turns in range(0, 14, 2):
        engine = world.constrained_engine("oracle", Knobs(max_num_seqs=3, overlap=overlap), streams=chosen.streams)
        for request in chosen.all():
            engine.submit(request)
        for _ in range(num_turns):
            engine.turn()
        for name in list(chosen.requests)[::2]:
            engine.core.abort(name)
            engine.outcomes.pop(name, None)
            assert name not in engine.registry
        while engine.core.has_work:
            engine.core.wait(10.0)
            for output in engine.core.turn():
                if output.request_id in engine.outcomes:
                    engine.outcomes[output.request_id].token_ids.extend(output.token_ids)
        tokens = tokens_of(engine.outcomes)
        assert tokens == {name: chosen.tokens[name] for name in tokens}
        assert len(engine.registry) == 0
        stats = engine.core.stats()
        assert stats.num_free_pages + stats.num_cached_pages == stats.num_pages
