"""A drafter that proposes, at one place of a ladder, what a request's wish forbids or talks the target out of: the
token that the target would have drawn there without the wish. It is refused there, what stands before it is accepted,
and the text does not change."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams
from support.drafters import InsteadDrafter
from support.engines import Knobs, Outcome, tokens_of
from support.feature_world import DRAFT_LEN, FeatureSet, FeatureWorld

MODES = ["greedy", "coupled"]
WISHES = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "min_tokens",
)
NEUTRAL = {name: getattr(SamplingParams(), name) for name in WISHES}
KEPT = {"min_tokens": ("logit_bias",)}
"""What makes an end likely enough to be forbidden."""


@dataclass
class Asked:
    """The requests of a mode, what they must give, and what they would get at each place without their wishes."""

    chosen: FeatureSet
    tempting: dict[str, list[int]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> FeatureWorld:
    return FeatureWorld(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def asked(world: FeatureWorld) -> dict[str, Asked]:
    # Behind the first ladder, so that what a wish is about can stand at every place of one.
    sets = {mode: FeatureSet(world, mode, first_place=DRAFT_LEN + 1) for mode in MODES}
    return {
        mode: Asked(
            chosen,
            {name: tempting(world, one, chosen.tokens[name]) for name, one in chosen.requests.items()},
        )
        for mode, chosen in sets.items()
    }


def tempting(world: FeatureWorld, request: Request, answer: list[int]) -> list[int]:
    """Return the draw at every place of an answer, had the request no wishes from there on."""
    dropped = {name: value for name, value in NEUTRAL.items() if name not in KEPT.get(request.request_id, ())}
    plain = msgspec.structs.replace(
        request,
        sampling=msgspec.structs.replace(request.sampling, **dropped),
        bad_token_ids=(),
        stop_token_ids=(),
    )
    text = [*request.prompt_token_ids, *answer]
    raw = world.raw_logits(text)
    first = len(request.prompt_token_ids)
    return [int(world._keys(plain, raw[place - 1], text[:place]).argmax()) for place in range(first, len(text))]


def count_temptations(outcome: Outcome, answer: list[int], wanted: list[int], place: int, name: str) -> int:
    """Check every ladder of a request, and return how many of them held what was not to be drawn."""
    start, found = 0, 0
    for run in outcome.runs:
        index = start + place
        is_tempted = run.is_verify_step and index < len(answer) and wanted[index] != answer[index]
        assert bool(run.num_draft_tokens) == is_tempted, (name, start)
        assert run.num_accepted == (place if is_tempted else 0), (name, start)
        found += is_tempted
        start += len(run.token_ids)
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("place", range(DRAFT_LEN))
def test_what_a_wish_forbids_is_refused_at_its_place_and_changes_nothing(
    world: FeatureWorld, asked: dict[str, Asked], mode: str, overlap: bool, place: int
) -> None:
    chosen, tempted = asked[mode].chosen, asked[mode].tempting
    requests = chosen.requests
    streams = [[*request.prompt_token_ids, *chosen.tokens[name]] for name, request in requests.items()]
    others = [[*request.prompt_token_ids, *tempted[name]] for name, request in requests.items()]
    drafter = InsteadDrafter(DRAFT_LEN, streams, world.vocab_size, place, others)
    engine = world.engine("none", Knobs(max_num_seqs=12, overlap=overlap), drafter=drafter)
    outcomes = engine.run(chosen.all())
    assert tokens_of(outcomes) == chosen.tokens
    counts = {
        name: count_temptations(outcomes[name], chosen.tokens[name], tempted[name], place, name) for name in requests
    }
    assert [name for name, count in counts.items() if not count] == ["plain"], "only who wishes nothing is not tempted"
