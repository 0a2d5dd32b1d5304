"""Whole-engine properties on a small random model: two ways of doing the same thing give the same tokens.

Logits of the two ways differ by rounding, so tokens may only be compared where the draw's margin exceeds that
rounding: `reference_tokens` computes every draw from one contiguous forward pass and asserts the margin.
"""

from __future__ import annotations

import pytest

from support.engine_world import MAX_NEW, World, make_world
from support.engines import Knobs, tokens_of

MODES = ["greedy", "coupled"]
DRAFTERS = ["ngram", "eagle3", "random", "constant", "always_wrong", "right_then_wrong", "no_token", "oracle"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("mode", MODES)
def test_09_paged_equals_contiguous(world: World, mode: str) -> None:
    assert tokens_of(world.run("none", mode)) == world.reference_tokens(mode)


@pytest.mark.parametrize("mode", MODES)
def test_10_physical_pages_do_not_matter(world: World, mode: str) -> None:
    engine = world.engine("eagle3", Knobs(enable_prefix=False))
    engine.run(world.churn_requests())
    engine.outcomes.clear()
    used = tokens_of(engine.run(world.requests(mode)))
    assert used == world.reference_tokens(mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chunk_tokens", [1, 3, 8, 17])
def test_11_chunked_prefill_equals_whole(world: World, mode: str, chunk_tokens: int) -> None:
    whole = world.record("steered", mode, Knobs(prefill_chunk_tokens=512))
    chunked = world.record("steered", mode, Knobs(prefill_chunk_tokens=chunk_tokens))
    assert whole[0] == world.reference_tokens(mode)
    assert chunked == whole, "tokens or drafts differ"


@pytest.mark.parametrize("mode", MODES)
def test_12_alone_equals_in_a_batch(world: World, mode: str) -> None:
    together = world.record("steered", mode, Knobs(max_num_seqs=8))
    alone = world.record("steered", mode, Knobs(max_num_seqs=1))
    assert alone == together, "tokens or drafts differ"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drafter", ["none", "steered", "oracle"])
def test_15_prefix_reuse_changes_nothing(world: World, mode: str, drafter: str) -> None:
    recorded = world.recorder(drafter, mode)
    engine = world.engine(drafter, Knobs(enable_prefix=True), mode=mode, drafter=recorded)
    cold = tokens_of(engine.run(world.requests(mode)))
    cold_proposals = world.useful(recorded)
    engine.outcomes.clear()
    recorded.proposals.clear()
    warm = engine.run(world.requests(mode))
    for name, outcome in warm.items():
        num_full_pages = (world.prompt_len(name) - 1) // world.page_size
        assert outcome.num_prefix_hit_tokens == num_full_pages * world.page_size, "a prefix hit lost a page"
    assert tokens_of(warm) == cold == world.reference_tokens(mode)
    assert world.useful(recorded) == cold_proposals


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("overlap", [False, True])
def test_15_a_second_turn_reuses_pages_that_decode_wrote(world: World, mode: str, overlap: bool) -> None:
    """The hit covers the answer of the first turn: its keys, its draft rows and the tap at its last position."""
    knobs = Knobs(overlap=overlap)
    warm_recorder = world.recorder("steered", mode)
    warm_engine = world.engine("steered", knobs, mode=mode, drafter=warm_recorder)
    warm_engine.run(world.requests(mode))
    second = world.second_turns(mode)
    warm_engine.outcomes.clear()
    warm_recorder.proposals.clear()
    warm = warm_engine.run(second)
    cold_recorder = world.recorder("steered", mode)
    cold = world.engine("steered", knobs, mode=mode, drafter=cold_recorder).run(world.second_turns(mode))
    assert tokens_of(warm) == tokens_of(cold)
    num_written = {name: world.prompt_len(name) + MAX_NEW - 1 for name in cold}
    for name, outcome in warm.items():
        assert outcome.num_prefix_hit_tokens == num_written[name] // world.page_size * world.page_size, name
        assert cold[name].num_prefix_hit_tokens == 0
    common = warm_recorder.proposals.keys() & cold_recorder.proposals.keys()
    assert len(common) >= 4 * len(second)
    assert {key: warm_recorder.proposals[key] for key in common} == {
        key: cold_recorder.proposals[key] for key in common
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_17_any_drafter_gives_the_tokens_of_none(world: World, mode: str, drafter: str) -> None:
    assert tokens_of(world.run(drafter, mode)) == world.reference_tokens(mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("draft_len", [1, 2, 5, 9])
def test_17_any_draft_length_gives_the_tokens_of_none(world: World, mode: str, draft_len: int) -> None:
    assert tokens_of(world.run("eagle3", mode, draft_len=draft_len)) == world.reference_tokens(mode)


@pytest.mark.parametrize("mode", MODES)
def test_18_a_perfect_drafter_is_always_accepted(world: World, mode: str) -> None:
    for name, outcome in world.run("oracle", mode).items():
        verified = [run for run in outcome.runs if run.is_verify_step]
        assert all(run.num_accepted == min(len(run.token_ids), run.num_draft_tokens) for run in verified), name
        assert len(verified) == -(-(MAX_NEW - 1) // (world.draft_len + 1)), name


@pytest.mark.parametrize("mode", MODES)
def test_18_a_steered_head_lives_through_accepted_runs(world: World, mode: str) -> None:
    """What the other properties lean on: with this drafter many runs of every length are accepted, and some are not."""
    runs = [run for outcome in world.run("steered", mode).values() for run in outcome.runs if run.is_verify_step]
    counts = [run.num_accepted for run in runs]
    assert {0, 1, 2, 3} <= set(counts)
    assert sum(counts) > 60


@pytest.mark.parametrize("mode", MODES)
def test_18_an_impossible_drafter_is_never_accepted(world: World, mode: str) -> None:
    for outcome in world.run("always_wrong", mode).values():
        assert outcome.num_accepted == 0
        assert outcome.num_verify_steps == MAX_NEW - 1


def test_18_no_drafts_is_plain_decoding(world: World) -> None:
    for outcome in world.run("none", "greedy").values():
        assert all(run.num_draft_tokens == 0 and len(run.token_ids) == 1 for run in outcome.runs)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drafter", ["none", "steered", "oracle", "right_then_wrong", "ngram"])
def test_20_overlap_changes_nothing(world: World, mode: str, drafter: str) -> None:
    plain = world.record(drafter, mode, Knobs(overlap=False))
    overlapped = world.record(drafter, mode, Knobs(overlap=True))
    assert plain[0] == world.reference_tokens(mode)
    assert overlapped == plain, "tokens or drafts differ"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("overlap", [False, True])
def test_08_preempted_requests_give_the_same_stream(world: World, mode: str, overlap: bool) -> None:
    roomy = world.record("steered", mode, Knobs(overlap=overlap))
    recorded = world.recorder("steered", mode)
    knobs = Knobs(num_pages=world.pages_of_longest + 6, overlap=overlap)
    engine = world.engine("steered", knobs, mode=mode, drafter=recorded)
    assert tokens_of(engine.run(world.requests(mode))) == roomy[0] == world.reference_tokens(mode)
    assert engine.core.stats().num_preemptions > 0, "the pool was large enough: the test would prove nothing"
    tight = world.useful(recorded)
    common = tight.keys() & roomy[1].keys()
    assert len(common) > 30
    assert {key: tight[key] for key in common} == {key: roomy[1][key] for key in common}


@pytest.mark.parametrize("overlap", [False, True])
def test_every_page_comes_back(world: World, overlap: bool) -> None:
    engine = world.engine("eagle3", Knobs(overlap=overlap), mode="greedy")
    engine.run(world.requests("greedy"))
    stats = engine.core.stats()
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    assert stats.num_free_pages + stats.num_cached_pages == stats.num_pages


@pytest.mark.parametrize("overlap", [False, True])
def test_a_row_with_a_finished_request_does_not_disturb_the_next(world: World, overlap: bool) -> None:
    """One row serves every request in turn: nothing of a former tenant may show."""
    outcomes = world.run("eagle3", "coupled", Knobs(max_num_seqs=1, overlap=overlap, enable_prefix=False))
    assert tokens_of(outcomes) == world.reference_tokens("coupled")


def test_log_probabilities_are_the_models_own(world: World) -> None:
    for drafter in ("none", "oracle"):
        for name, outcome in world.run(drafter, "greedy", logprobs=0).items():
            logprobs = [value for run in outcome.runs for value in run.logprobs]
            assert len(logprobs) == len(outcome.token_ids)
            assert logprobs == pytest.approx(world.reference_logprobs(name), abs=1e-4)
