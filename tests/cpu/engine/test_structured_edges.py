"""Structured output in whole engines, at its edges: exact distributions under rejection, ends that are nobody else's:
a grammar that dies, wishes that leave no token, logits that are not numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import msgspec
import pytest
import torch

from slipstream.runner.handoff import NO_TOKEN_LEFT
from slipstream.text.grammar.bitmask import ALLOW_ALL, pack_tokens
from slipstream.text.grammar.matcher import GrammarFault
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.messages import RequestOutput
from slipstream.wire.request import Request
from slipstream.wire.step import NO_TOKEN_CODE
from support.constrained_world import ConstrainedSet, ConstrainedWorld
from support.drafters import OracleDrafter, SoftDrafter
from support.engines import Knobs, TestEngine, make_request
from support.feature_world import DRAFT_LEN, FeatureWorld
from support.grammar_world import end_id, letters, text_of
from support.statistics import chi_square_p
from support.table_grammar import TableCompiler, TableMatcher


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConstrainedWorld]:
    world = ConstrainedWorld(tmp_path_factory.mktemp("tiny") / "model")
    yield world
    world.close()


@pytest.fixture(scope="module")
def chosen(world: ConstrainedWorld) -> ConstrainedSet:
    return ConstrainedSet(world, "greedy")


SMALL_VOCAB = 8
SMALL_TABLE = {
    None: (1, 3, 5),
    1: (2, 3, 5, 7),
    3: (1, 2, 6),
    5: (0, 4),
    2: (1, 7),
    7: (3,),
    6: (0, 6),
    0: (5,),
    4: (4, 5),
}
PROMPT = [3, 5, 4, 6, 3]
NUM_NEW = 3
COUNT = 2_400


@pytest.mark.parametrize("kind", ["none", "soft"])
def test_rejection_follows_the_masked_distribution(tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    world = FeatureWorld(tmp_path_factory.mktemp("small"), vocab_size=SMALL_VOCAB)
    exact = torch.zeros((SMALL_VOCAB,) * NUM_NEW, dtype=torch.float64)

    def walk(tokens: list[int], weight: float) -> None:
        if len(tokens) == NUM_NEW:
            exact[tuple(tokens)] = weight
            return
        allowed = list(SMALL_TABLE[tokens[-1] if tokens else None])
        scores = torch.full((SMALL_VOCAB,), -torch.inf, dtype=torch.float64)
        scores[allowed] = world.raw_logits([*PROMPT, *tokens])[-1].double()[allowed]
        for token, share in enumerate(torch.softmax(scores / 1.3, -1).tolist()):
            if share:
                walk([*tokens, token], weight * share)

    walk([], 1.0)
    table = torch.randn(SMALL_VOCAB, SMALL_VOCAB, generator=torch.Generator().manual_seed(8))
    drafter = SoftDrafter(2, table) if kind == "soft" else world.drafter(kind)
    engine = TestEngine(
        world.config,
        world.model,
        drafter,
        Knobs(max_num_seqs=32, num_pages=400, poison=False),
        compiler=TableCompiler(lambda: TableMatcher(SMALL_TABLE, SMALL_VOCAB)),
    )
    spec = GrammarSpec.regex("any")
    requests = [
        msgspec.structs.replace(
            make_request(f"r{seed}", PROMPT, NUM_NEW, seed=seed, temperature=1.3, grammar=spec),
            verification="rejection",
        )
        for seed in range(COUNT)
    ]
    # The compile queue takes so many at a time.
    for first in range(0, COUNT, 200):
        engine.run(requests[first : first + 200], max_turns=100_000)
    counts = torch.zeros_like(exact)
    for outcome in engine.outcomes.values():
        counts[tuple(outcome.token_ids)] += 1
    assert counts[exact == 0].sum() == 0, "a forbidden token was returned"
    is_common = exact * COUNT > 5
    found, wanted = counts[is_common], exact[is_common]
    if (~is_common).any() and exact[~is_common].sum() * COUNT > 5:
        found = torch.cat([found, counts[~is_common].sum()[None]])
        wanted = torch.cat([wanted, exact[~is_common].sum()[None]])
    assert len(found) > 8
    assert chi_square_p(found, wanted) > 1e-6
    if kind == "soft":
        stats = engine.core.stats()
        assert 0.05 < stats.num_accepted_tokens / stats.num_draft_tokens < 0.95, "both outcomes must be common"
    engine.core.close()


def run_to_ends(engine: TestEngine, requests: list[Request]) -> dict[str, RequestOutput]:
    """Run; return each request's last news."""
    ends: dict[str, RequestOutput] = {}
    for request in requests:
        engine.submit(request)
    while engine.core.has_work:
        engine.core.wait(10.0)
        for output in engine.core.turn():
            engine.outcomes[output.request_id].token_ids.extend(output.token_ids)
            if output.finish_reason is not None:
                ends[output.request_id] = output
    return ends


@pytest.mark.parametrize("overlap", [False, True])
def test_a_grammar_that_dies_ends_its_request_with_the_reason_and_the_same_tokens_with_any_drafter(
    world: ConstrainedWorld, chosen: ConstrainedSet, overlap: bool
) -> None:
    """Whether the token behind which it dies was the target's own or an accepted draft, at any place of a run."""
    request, expected = chosen.requests["regex"], chosen.expected["regex"].token_ids
    free = list(chosen.free.values())
    free_tokens = {one.request_id: chosen.tokens[one.request_id] for one in free}
    stream = [[*request.prompt_token_ids, *expected]]
    for dies_behind in range(1, len(expected)):

        def make(dies_behind: int = dies_behind) -> TableMatcher:
            return DyingMatcher(expected, dies_behind, world.vocab_size)

        texts = []
        for drafter in (None, OracleDrafter(DRAFT_LEN, [*stream, *chosen.streams], world.vocab_size)):
            engine = TestEngine(
                world.config,
                world.model,
                drafter or world.drafter("none"),
                Knobs(overlap=overlap),
                compiler=TableCompiler(make),
            )
            ends = run_to_ends(engine, [request, *free])
            assert ends["regex"].finish_reason == "error"
            assert ends["regex"].error == "structured output cannot go on: it dies here"
            texts.append(engine.outcomes["regex"].token_ids)
            assert {name: engine.outcomes[name].token_ids for name in free_tokens} == free_tokens
            assert engine.core.stats().num_corrupted_requests == 0
            assert len(engine.registry) == 0
            engine.core.close()
        assert texts == [expected[:dies_behind]] * 2


class DyingMatcher(TableMatcher):
    """Allows one text, and gives up behind its first few tokens."""

    def __init__(self, text: Sequence[int], dies_behind: int, vocab_size: int) -> None:
        super().__init__({}, vocab_size)
        self._text, self._dies_behind = list(text), dies_behind

    def fill_masks(self, drafts, out):
        out[:] = ALLOW_ALL
        for row, draft in enumerate((*drafts, -1)):
            place = len(self.accepted) + row
            if place >= self._dies_behind:
                out[row:] = 0
                if row == 0:
                    raise GrammarFault("structured output cannot go on: it dies here")
                return row
            out[row] = pack_tokens([self._text[place]], self._vocab_size)
            if draft != self._text[place]:
                return row
        return len(drafts)

    def accept(self, tokens):
        self.accepted += tokens


def bounded(name: str, pattern: str, **sampling: object) -> Request:
    request = make_request(name, [5, 6, 7], 30, grammar=GrammarSpec.regex(pattern), **sampling)
    return msgspec.structs.replace(request, stop_token_ids=(end_id(),), eos_token_ids=(end_id(),))


@pytest.mark.parametrize("drafter", ["none", "eagle3"])
def test_minimum_lengths_and_constraints_hold_together_or_say_why_not(world: ConstrainedWorld, drafter: str) -> None:
    (a,) = letters("a")
    long = bounded("long", "a{1,20}", min_tokens=9, allowed_token_ids=[a, end_id()])
    full = bounded("full", "a{1,4}", min_tokens=9, allowed_token_ids=[a, end_id()])
    none = bounded("none", "b+", allowed_token_ids=[a])
    biased = bounded("biased", "a{3}", logit_bias={a: -100})
    engine = world.constrained_engine(drafter, Knobs(max_num_seqs=4))
    ends = run_to_ends(engine, [long, full, none, biased])
    tokens = {name: outcome.token_ids for name, outcome in engine.outcomes.items()}
    assert ends["long"].finish_reason == "stop"
    assert len(tokens["long"]) - 1 >= 9
    assert set(tokens["long"][:-1]) == {a}
    assert (ends["full"].finish_reason, ends["full"].error) == ("error", NO_TOKEN_LEFT)
    assert (ends["full"].error_kind, ends["full"].error_code) == ("RequestError", NO_TOKEN_CODE)
    assert tokens["full"] == [a] * 4
    assert (ends["none"].error, tokens["none"]) == (NO_TOKEN_LEFT, [])
    assert text_of(tokens["biased"]) == "aaa", "a bias is a wish, a constraint is not"
    assert engine.core.stats().num_corrupted_requests == 0


def test_logits_that_are_not_numbers_are_not_called_an_empty_choice(world: ConstrainedWorld) -> None:
    engine = world.constrained_engine("none", Knobs())
    parts = engine.runner._parts
    engine.runner._parts = dataclasses.replace(parts, model=Unsound(parts.model))
    ends = run_to_ends(engine, [bounded("r", "a{3}")])
    assert ends["r"].finish_reason == "error"
    assert "not finite" in (ends["r"].error or "")
    assert engine.core.stats().num_corrupted_requests == 1


class Unsound:
    """A target whose logits hold NaN, at a token that the mask forbids."""

    def __init__(self, model: object) -> None:
        self._model = model

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = self._model.compute_logits(hidden)
        logits[..., 3] = torch.nan
        return logits
