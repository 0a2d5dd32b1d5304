"""One function verifies all rows. Greedy and coupled: any drafter gives the text of no drafter, and the target's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from slipstream.batch.step_inputs import SamplingInputs
from slipstream.kernels.sampling.verify_chain.contract import verify_chain
from slipstream.kernels.sampling.verify_rejection.contract import verify_rejection
from slipstream.sampling.classes import SamplingClass
from slipstream.sampling.noise import gumbel_noise
from slipstream.sampling.sampler import draw, expand_sampling
from slipstream.sampling.verify import Verdict, verify
from slipstream.speculation.interface import Drafter
from slipstream.speculation.ngram import NgramDrafter
from slipstream.wire.ids import NO_TOKEN
from slipstream.wire.sampling_params import SamplingParams
from support.drafters import (
    AlwaysWrongDrafter,
    ConstantDrafter,
    NoTokenDrafter,
    OracleDrafter,
    RandomDrafter,
    RightThenWrongDrafter,
)
from support.statistics import chi_square_p
from support.toy_target import ToyTarget, decode, sampling_inputs

VOCAB = 8
LENGTH = 40
PROMPTS = [[1, 2, 3], [4], [5, 6, 5, 6, 5]]
PARAMS = {
    "greedy": [SamplingParams(temperature=0.0)] * 3,
    "coupled": [SamplingParams(temperature=1.0)] * 3,
    "mixed": [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=1.3, top_k=5, top_p=0.9, min_p=0.01),
    ],
}
DRAFTERS = (
    "none",
    "random",
    "constant",
    "no_token",
    "always_wrong",
    "right_then_wrong",
    "oracle",
    "corrupted",
    "ngram",
)


def make_drafter(name: str, draft_len: int, streams: list[list[int]]) -> Drafter | None:
    return {
        "none": lambda: None,
        "random": lambda: RandomDrafter(draft_len, VOCAB),
        "constant": lambda: ConstantDrafter(draft_len, 3),
        "no_token": lambda: NoTokenDrafter(draft_len),
        "always_wrong": lambda: AlwaysWrongDrafter(draft_len, streams, VOCAB),
        "right_then_wrong": lambda: RightThenWrongDrafter(draft_len, streams, VOCAB, num_right=2),
        "oracle": lambda: OracleDrafter(draft_len, streams, VOCAB),
        "corrupted": lambda: OracleDrafter(draft_len, streams, VOCAB, wrong_at=range(3, 100, 5)),
        "ngram": lambda: NgramDrafter(draft_len, 3, 1),
    }[name]()


@pytest.mark.parametrize("draft_len", [1, 3, 9])
@pytest.mark.parametrize("kind", PARAMS)
def test_any_drafter_gives_the_text_of_no_drafter(kind: str, draft_len: int):
    target = ToyTarget(VOCAB)
    plain = decode(target, PROMPTS, PARAMS[kind], LENGTH * 11)
    assert all(set(counts) == {0} for counts in plain.accepted), "K = 0 is plain decoding"
    wanted = [stream[: len(prompt) + LENGTH] for stream, prompt in zip(plain.streams, PROMPTS, strict=True)]
    for name in DRAFTERS:
        found = decode(target, PROMPTS, PARAMS[kind], LENGTH, drafter=make_drafter(name, draft_len, plain.streams))
        assert found.streams == wanted, name
        steps = [counts[1:] for counts in found.accepted]  # the first step has no drafts yet
        if name in ("no_token", "always_wrong"):
            assert all(set(counts) == {0} for counts in steps), name
        elif name == "oracle":
            assert all(set(counts) == {draft_len} for counts in steps), name
        elif name == "right_then_wrong":
            assert all(set(counts) == {min(2, draft_len)} for counts in steps), name


def test_the_text_does_not_depend_on_the_batch():
    target = ToyTarget(VOCAB)
    whole = decode(target, PROMPTS, PARAMS["mixed"], LENGTH, seeds=[7, 8, 9])
    for row in range(3):
        alone = decode(target, [PROMPTS[row]], [PARAMS["mixed"][row]], LENGTH, seeds=[7 + row])
        assert alone.streams[0] == whole.streams[row]


def test_seeds_and_draws_differ():
    target = ToyTarget(VOCAB)
    first = decode(target, [[1]], PARAMS["coupled"][:1], LENGTH, seeds=[1])
    again = decode(target, [[1]], PARAMS["coupled"][:1], LENGTH, seeds=[1])
    other = decode(target, [[1]], PARAMS["coupled"][:1], LENGTH, seeds=[2])
    assert first.streams == again.streams
    assert first.streams != other.streams


@pytest.mark.parametrize("kind", PARAMS)
def test_a_banned_token_never_appears(kind: str):
    """At no ladder position, whatever the drafter insists on."""
    free = decode(ToyTarget(VOCAB), PROMPTS, PARAMS[kind], LENGTH)
    assert any(3 in stream[5:] for stream in free.streams), "the ban would prove nothing"
    target = ToyTarget(VOCAB, banned=[3])
    prompts = [[1, 2, 0], [4], [5, 6, 5, 6, 5]]
    found = decode(target, prompts, PARAMS[kind], LENGTH, drafter=ConstantDrafter(4, 3))
    assert all(3 not in stream for stream in found.streams)
    assert all(set(counts) == {0} for counts in found.accepted)


SMALL = ToyTarget(5, seed=4, spread=0.7)


def pair_counts(drafter: Drafter | None, verifier=verify, count: int = 20_000) -> torch.Tensor:
    """Return [vocab^2] counts of the second and third token after token 0, over as many seeds.

    The first step has no drafts and emits the first token; the pair comes from one ladder when the draft for the
    second token is right, from two ladders otherwise.
    """
    decoded = decode(SMALL, [[0]] * count, [SamplingParams()] * count, 3, drafter=drafter, verifier=verifier)
    pairs = torch.tensor(decoded.streams)[:, 2:]
    return torch.bincount(pairs[:, 0] * SMALL.vocab_size + pairs[:, 1], minlength=SMALL.vocab_size**2)


def pair_probs() -> torch.Tensor:
    probs = torch.softmax(SMALL.table.double(), -1)
    return torch.einsum("a,ab,abc->bc", probs[0, 0], probs[0], probs).reshape(-1)


def noise_shared_by_the_ladder(logits, draft_tokens, base_positions, sampling, sampling_class) -> Verdict:
    """Mutant: every row of a ladder uses the noise of its first position."""
    num_reqs, query_len, vocab_size = logits.shape
    positions = (base_positions + 1)[:, None].expand(-1, query_len).reshape(-1)
    draws = draw(logits.reshape(-1, vocab_size), positions, expand_sampling(sampling, query_len), sampling_class)
    emitted = draws.view(num_reqs, query_len)
    accepted = verify_chain(emitted, draft_tokens)
    return Verdict(accepted, emitted, torch.ones(num_reqs, dtype=torch.bool))


def correction_drawn_again(logits, draft_tokens, base_positions, sampling, sampling_class) -> Verdict:
    """Mutant: after a rejection the correction is a fresh draw, in which the draft has a second chance."""
    verdict = verify(logits, draft_tokens, base_positions, sampling, sampling_class)
    again = verify(logits, draft_tokens, base_positions + 1000, sampling, sampling_class)
    is_correction = torch.arange(logits.shape[1]) == verdict.num_accepted[:, None]
    return Verdict(verdict.num_accepted, torch.where(is_correction, again.emitted, verdict.emitted), verdict.is_finite)


@pytest.mark.parametrize("name", ["none", "constant", "random"])
def test_emitted_pairs_follow_the_target(name: str):
    counts = pair_counts(make_small_drafter(name))
    assert counts.min() > 50
    assert chi_square_p(counts, pair_probs()) > 1e-6


def make_small_drafter(name: str) -> Drafter | None:
    return {"none": None, "constant": ConstantDrafter(2, 1), "random": RandomDrafter(2, 5)}[name]


@pytest.mark.parametrize("mutant", [noise_shared_by_the_ladder, correction_drawn_again])
def test_the_distribution_test_rejects_mutants(mutant):
    assert chi_square_p(pair_counts(ConstantDrafter(2, 1), mutant), pair_probs()) < 1e-6


def test_a_draft_with_the_noise_of_its_position_is_confirmed():
    """A drafter with the target's own logits is always right; with the neighbour's noise it is not."""
    target = ToyTarget(VOCAB)

    class SameLogits(NoTokenDrafter):
        def __init__(self, shift: int) -> None:
            super().__init__(3)
            self.shift = shift

        def drafts_at(self, inputs, positions):
            history = torch.cat([inputs.history, inputs.history[:, :1].expand(-1, 4)], 1)
            drafts = []
            for column in range(3):
                place = positions[:, column : column + 1]
                scores = target.logits(history, place - 1)[:, 0]
                noise = gumbel_noise(inputs.sampling.seed, place[:, 0] + self.shift, VOCAB)
                drafts.append((scores + noise).argmax(-1))
                history = history.scatter(1, place, drafts[-1][:, None])
            return torch.stack(drafts, 1)

    right = decode(target, PROMPTS, PARAMS["coupled"], LENGTH, drafter=SameLogits(0))
    assert all(set(counts[1:]) == {3} for counts in right.accepted)
    wrong = decode(target, PROMPTS, PARAMS["coupled"], LENGTH, drafter=SameLogits(1))
    assert wrong.streams == right.streams
    assert sum(map(sum, wrong.accepted)) < 0.7 * sum(3 * len(counts) for counts in wrong.accepted)


def make_verify_inputs(num_reqs: int = 3, query_len: int = 4):
    logits = torch.randn(num_reqs, query_len, VOCAB, generator=torch.Generator().manual_seed(2))
    base = torch.tensor([3, 10, 5])
    sampling = sampling_inputs([SamplingParams()] * num_reqs, range(num_reqs))
    draws = verify(logits, torch.full((num_reqs, query_len - 1), NO_TOKEN), base, sampling, SamplingClass.FULL).emitted
    return logits, draws[:, :-1].clone(), base, sampling


@pytest.mark.parametrize("fault", [torch.nan, torch.inf], ids=str)
def test_a_fault_ends_its_own_request_only(fault: float):
    logits, drafts, base, sampling = make_verify_inputs()
    good = verify(logits, drafts, base, sampling, SamplingClass.FULL)
    assert good.num_accepted.tolist() == [3, 3, 3]
    assert good.is_finite.all()
    logits[1, 2, 4] = fault
    found = verify(logits, drafts, base, sampling, SamplingClass.FULL)
    assert found.is_finite.tolist() == [True, False, True]
    assert torch.equal(found.emitted[[0, 2]], good.emitted[[0, 2]])
    assert ((found.emitted >= 0) & (found.emitted < VOCAB)).all()


def test_a_fault_behind_a_rejected_draft_is_nobody_s():
    logits, drafts, base, sampling = make_verify_inputs()
    drafts[1, 1] = (drafts[1, 1] + 1) % VOCAB
    logits[1, 2:] = torch.nan
    found = verify(logits, drafts, base, sampling, SamplingClass.FULL)
    assert found.num_accepted.tolist() == [3, 1, 3]
    assert found.is_finite.all()
    logits[1, 1, 0] = torch.nan
    assert verify(logits, drafts, base, sampling, SamplingClass.FULL).is_finite.tolist() == [True, False, True]


def test_a_row_that_allows_no_token_is_a_fault():
    logits, drafts, base, sampling = make_verify_inputs()
    logits[2, 0] = -torch.inf
    assert verify(logits, drafts, base, sampling, SamplingClass.PLAIN).is_finite.tolist() == [True, True, False]


def test_padding_does_not_disturb():
    logits, drafts, base, sampling = make_verify_inputs()
    good = verify(logits, drafts, base, sampling, SamplingClass.FULL)
    base[1] = -1
    drafts[1] = NO_TOKEN
    logits[1] = torch.nan
    found = verify(logits, drafts, base, sampling, SamplingClass.FULL)
    assert torch.equal(found.emitted[[0, 2]], good.emitted[[0, 2]])
    assert found.num_accepted.tolist() == [3, 0, 3]


def rejecting(sampling: SamplingInputs, flags: list[bool]) -> SamplingInputs:
    return replace(sampling, is_rejection=torch.tensor(flags))


def test_each_row_is_verified_its_own_way():
    """Greedy, coupled and rejection rows in one call: each as if the others were of its kind, or not there."""
    logits, drafts, base, sampling = make_verify_inputs()
    sampling = replace(sampling, temperature=torch.tensor([0.0, 0.8, 1.1]))
    drafts = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 0, 1]])
    probs = torch.softmax(torch.randn(3, 3, VOCAB, generator=torch.Generator().manual_seed(1)), -1)
    plain = verify(logits, drafts, base, sampling, SamplingClass.FULL)
    for flags in ([False, False, True], [True, False, True], [True, True, True], [False, False, False]):
        found = verify(logits, drafts, base, rejecting(sampling, flags), SamplingClass.FULL, probs)
        by_rejection, tokens = verify_rejection(
            logits, sampling.temperature, plain.emitted, drafts, probs, sampling.seed, base
        )
        for row in range(3):
            is_judged = flags[row] and row > 0  # a greedy row needs no noise, whatever it asks for
            count = by_rejection[row] if is_judged else plain.num_accepted[row]
            wanted = tokens[row] if is_judged else plain.emitted[row]
            assert found.num_accepted[row] == count
            assert torch.equal(found.emitted[row, : count + 1], wanted[: count + 1])


def test_rejection_judges_filtered_logits():
    """A draft outside the filters of the target is never accepted, and no residual brings it back."""
    count = 400
    row = torch.randn(VOCAB, generator=torch.Generator().manual_seed(4))
    best = row.topk(2).indices
    logits = row.expand(count, 2, VOCAB).contiguous()
    sampling = rejecting(sampling_inputs([SamplingParams(top_k=2)] * count, range(count)), [True] * count)
    drafts = (torch.arange(count) % VOCAB)[:, None]
    probs = torch.full((count, 1, VOCAB), 1 / VOCAB)
    found = verify(logits, drafts, torch.zeros(count).long(), sampling, SamplingClass.FULL, probs)
    assert torch.isin(found.emitted[:, 0], best).all()
    is_outside = ~torch.isin(drafts[:, 0], best)
    assert not found.num_accepted[is_outside].any()
    assert found.num_accepted[~is_outside].any()


def test_faults_of_rejection_rows_stay_with_them():
    logits, _, base, sampling = make_verify_inputs()
    sampling = rejecting(sampling, [True, True, False])
    probs = torch.full((3, 3, VOCAB), 1 / VOCAB)
    drafts = torch.zeros(3, 3, dtype=torch.int64)
    good = verify(logits, drafts, base, sampling, SamplingClass.FULL, probs)
    assert good.is_finite.all()
    logits[1, 0] = torch.nan
    probs[1] = torch.nan
    found = verify(logits, drafts, base, sampling, SamplingClass.FULL, probs)
    assert found.is_finite.tolist() == [True, False, True]
    assert torch.equal(found.emitted[[0, 2]], good.emitted[[0, 2]])
    assert torch.equal(found.num_accepted[[0, 2]], good.num_accepted[[0, 2]])
    assert ((found.emitted >= 0) & (found.emitted < VOCAB)).all()
