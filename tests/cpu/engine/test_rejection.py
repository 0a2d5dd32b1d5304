"""Property 19 on whole engines: whatever drafts, what is returned follows the target's own distribution."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import msgspec
import pytest
import torch

from slipstream.runner.rows import RowState
from slipstream.scheduler.lifecycle import Decoding
from slipstream.speculation.interface import Drafter
from slipstream.wire.request import Request
from support.drafters import ConstantDrafter, SoftDrafter
from support.engines import Knobs, TestEngine, make_request
from support.feature_world import FeatureWorld
from support.statistics import chi_square_p

VOCAB = 8
PROMPT = [3, 5, 4, 6, 3]
NUM_NEW = 3
COUNT = 2_400
ALLOWED = (0, 2, 3, 5, 7)
WARM = {"temperature": 1.3, "presence_penalty": 0.8, "allowed_token_ids": ALLOWED, "top_p": 0.97}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> FeatureWorld:
    return FeatureWorld(tmp_path_factory.mktemp("tiny"), vocab_size=VOCAB)


def probs_after(world: FeatureWorld, tokens: list[int], request: Request) -> torch.Tensor:
    keys = world.scores(request, world.raw_logits(tokens)[-1], tokens)
    return torch.softmax(keys.double(), -1)


@pytest.fixture(scope="module")
def exact(world: FeatureWorld) -> torch.Tensor:
    """[vocab, vocab, vocab] probability of every answer of three tokens."""
    request = make_request("exact", PROMPT, NUM_NEW, **WARM)
    joint = torch.zeros(VOCAB, VOCAB, VOCAB, dtype=torch.float64)
    first = probs_after(world, PROMPT, request)
    for one in first.nonzero()[:, 0].tolist():
        second = probs_after(world, [*PROMPT, one], request)
        for other in second.nonzero()[:, 0].tolist():
            third = probs_after(world, [*PROMPT, one, other], request)
            joint[one, other] = first[one] * second[other] * third
    assert float(joint.sum()) == pytest.approx(1.0)
    return joint


def requests(count: int = COUNT) -> list[Request]:
    return [
        msgspec.structs.replace(
            make_request(f"r{seed}", PROMPT, NUM_NEW, seed=seed, **WARM), verification="rejection", seed=seed
        )
        for seed in range(count)
    ]


def soft() -> Drafter:
    table = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(8))
    return SoftDrafter(2, table)


DRAFTERS: dict[str, Callable[[], Drafter] | None] = {
    "none": None,
    "eagle3": None,
    "ngram": None,
    "constant": lambda: ConstantDrafter(2, 3),
    "soft": soft,
}


def run(world: FeatureWorld, kind: str, knobs: Knobs) -> tuple[TestEngine, torch.Tensor]:
    """Run many seeds; return the engine and the counts of the three tokens."""
    make = DRAFTERS[kind]
    engine = world.engine(kind, knobs, drafter=make() if make else None)
    engine.run(requests(), max_turns=100_000)
    return engine, counts_of(engine)


def counts_of(engine: TestEngine) -> torch.Tensor:
    counts = torch.zeros(VOCAB, VOCAB, VOCAB)
    for outcome in engine.outcomes.values():
        counts[tuple(outcome.token_ids)] += 1
    return counts


def p_value(counts: torch.Tensor, exact: torch.Tensor) -> float:
    """Compare all tokens in three tables, each with enough counts per cell."""
    banned = [token for token in range(VOCAB) if token not in ALLOWED]
    for axis in range(3):
        assert counts.sum(tuple(a for a in range(3) if a != axis))[banned].sum() == 0, "a banned token was returned"
    values = []
    for axes in ((0, 1), (0, 2), (1, 2)):
        left = next(axis for axis in range(3) if axis not in axes)
        found, wanted = counts.sum(left).flatten(), exact.sum(left).flatten()
        is_common = wanted * counts.sum() > 5
        rest_found, rest_wanted = found[~is_common].sum(), wanted[~is_common].sum()
        if rest_wanted * counts.sum() > 5:
            found = torch.cat([found[is_common], rest_found[None]])
            wanted = torch.cat([wanted[is_common], rest_wanted[None]])
        else:
            found, wanted = found[is_common], wanted[is_common]
        values.append(chi_square_p(found, wanted))
    return min(values)


KNOBS = Knobs(max_num_seqs=32, num_pages=400, poison=False)


@pytest.mark.parametrize("kind", DRAFTERS)
def test_19_the_emitted_distribution_is_the_targets(world: FeatureWorld, exact: torch.Tensor, kind: str) -> None:
    engine, counts = run(world, kind, KNOBS)
    assert p_value(counts, exact) > 1e-6
    stats = engine.core.stats()
    if kind in ("eagle3", "constant", "soft"):
        assert 0.05 < stats.num_accepted_tokens / stats.num_draft_tokens < 0.95, "both outcomes must be common"


@pytest.mark.parametrize("overlap", [False, True])
def test_19_through_preemption(world: FeatureWorld, exact: torch.Tensor, overlap: bool) -> None:
    """Rows are sent back to the queue at any moment of their short lives; what they returned stays returned."""
    engine = world.engine("soft", Knobs(max_num_seqs=8, num_pages=99, poison=False, overlap=overlap), drafter=soft())
    for request in requests():
        engine.submit(request)
    rng = random.Random(5)
    while engine.core.has_work:
        running = engine.scheduler._state.by_age()
        youngest = running[-1] if len(running) > 1 else None
        if isinstance(youngest, Decoding) and rng.random() < 0.8:
            youngest.is_leaving = True
        engine.turn()
    assert engine.core.stats().num_preemptions > COUNT / 8
    assert p_value(counts_of(engine), exact) > 1e-6


def test_19_would_notice_probabilities_of_other_drafts(
    world: FeatureWorld, exact: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant: rows keep the distribution of the first drafts ever made."""
    kept: set[int] = set()
    store = RowState.store_draft_probs

    def store_once(self: RowState, rows: torch.Tensor, probs: torch.Tensor, is_padding: torch.Tensor) -> None:
        if id(self) not in kept:
            kept.add(id(self))
            store(self, torch.arange(self.scratch_row), probs[:1].expand(self.scratch_row, -1, -1), is_padding[:1])

    monkeypatch.setattr(RowState, "store_draft_probs", store_once)
    assert p_value(run(world, "soft", KNOBS)[1], exact) < 1e-6


def test_19_would_notice_a_soft_distribution_of_certain_drafts(
    world: FeatureWorld, exact: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant: drafts are the most likely tokens, but are judged as if they had been drawn."""
    monkeypatch.setattr("support.drafters.gumbel_noise", lambda seed, position, vocab_size: 0.0)
    assert p_value(run(world, "soft", KNOBS)[1], exact) < 1e-6


def test_without_drafts_rejection_is_the_coupled_text(world: FeatureWorld) -> None:
    """Where there is nothing to judge, the token is the target's own draw, with the noise it always has."""
    texts = []
    for verification in ("coupled", "rejection"):
        few = [msgspec.structs.replace(one, verification=verification) for one in requests(40)]
        texts.append({name: one.token_ids for name, one in world.engine("none", KNOBS).run(few).items()})
    assert texts[0] == texts[1]


def test_an_engine_that_couples_all_has_no_room_and_couples_all(world: FeatureWorld) -> None:
    """A request that asks for rejection there gets the coupled text: exact, where half of rejection would not be."""
    section = msgspec.structs.replace(world.eagle_config.speculation, verification="coupled")
    config = msgspec.structs.replace(world.eagle_config, speculation=section)
    engine = TestEngine(config, world.tapped_model, world.drafter("eagle3"), KNOBS)
    assert not engine.runner._parts.rows.keeps_draft_probs
    outcomes = engine.run(requests(40))
    coupled = [msgspec.structs.replace(one, verification="coupled") for one in requests(40)]
    plain = world.engine("none", KNOBS).run(coupled)
    assert {name: one.token_ids for name, one in outcomes.items()} == {n: o.token_ids for n, o in plain.items()}


def test_the_same_seed_in_the_same_engine_gives_the_same_text(world: FeatureWorld) -> None:
    """Noise has no state: rejection is reproducible too, as long as the drafts are."""
    texts = [
        {name: one.token_ids for name, one in world.engine("eagle3", knobs).run(requests(60)).items()}
        for knobs in (KNOBS, Knobs(max_num_seqs=3, overlap=True))
    ]
    assert texts[0] == texts[1]


def test_every_pair_is_possible(exact: torch.Tensor) -> None:
    """The distribution is wide enough to tell right from wrong."""
    pairs = exact.sum(0)
    assert sum(float(pairs[a, b]) > 0.005 for a, b in product(ALLOWED, repeat=2)) >= 12
