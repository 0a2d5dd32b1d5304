"""Rejection sampling: exact by enumeration, equal to a scalar loop, and the target's distribution by chi-square."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.case import case_named
from slipstream.kernels.sampling.gumbel_noise.contract import gumbel_noise
from slipstream.kernels.sampling.gumbel_noise.reference import uniform_noise
from slipstream.kernels.sampling.purposes import Purpose, seed_for
from slipstream.kernels.sampling.verify_rejection import reference
from slipstream.kernels.sampling.verify_rejection.cases import CASES, RejectionCase, make_inputs
from slipstream.kernels.sampling.verify_rejection.contract import verify_rejection
from support import rejection_mutants
from support.rejection import FAULTS, FIRST, purpose_seed, scalar_ladder, verify_faulty
from support.statistics import chi_square_p

VOCAB = 5
COUNT = 200_000


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_a_scalar_loop_token_by_token(case: RejectionCase):
    given = make_inputs(case)
    num_accepted, emitted = verify_rejection(**given)
    draft_len, vocab_size = given["draft_tokens"].shape[1], case.size("vocab_size")
    seed, counts = given["seed"], []
    for row, base in enumerate(given["base_positions"].tolist()):
        places = torch.arange(base + 1, base + 1 + draft_len)
        own = seed[row : row + 1].expand(draft_len)
        wanted = scalar_ladder(
            given["logits"][row],
            case.temperature,
            given["draws"][row],
            given["draft_tokens"][row].tolist(),
            None if given["draft_probs"] is None else given["draft_probs"][row],
            uniform_noise(seed_for(own, Purpose.ACCEPT), places, FIRST)[:, 0],
            gumbel_noise(seed_for(own, Purpose.RESIDUAL), places, torch.arange(vocab_size)),
        )
        counts.append(len(wanted) - 1)
        assert int(num_accepted[row]) == counts[-1]
        assert emitted[row, : len(wanted)].tolist() == wanted
        assert ((emitted[row] >= 0) & (emitted[row] < vocab_size)).all()
    if case.name == "drawn":
        assert set(counts) == {0, 1, 2, 3}, "the case must reach every count"
    if case.name in ("same", "zero"):
        assert set(counts) == {3}, "q equal to p, and a q of zero, reject nothing that the target allows"


def agrees(one: tuple[torch.Tensor, ...], other: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(mine, yours) for mine, yours in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("fault", "name"), [(fault, name) for fault, names in rejection_mutants.FAULTS.items() for name in names]
)
def test_cases_reject_mutants(fault: str, name: str):
    given = make_inputs(case_named(CASES, name))
    sound = verify_rejection(**given)
    assert agrees(rejection_mutants.verify_mutant(verify_rejection, given, None), sound)
    mutant = rejection_mutants.verify_mutant(verify_rejection, given, fault)
    assert not agrees(mutant, sound), f"{name} is blind to {fault}"


def test_every_case_rejects_some_mutant():
    named = {name for names in rejection_mutants.FAULTS.values() for name in names}
    assert named == {case.name for case in CASES}


def integers_over_64(generator: torch.Generator, *shape: int) -> torch.Tensor:
    """Return probabilities that are multiples of 1/64, some of them 0."""
    cuts = torch.randint(0, 65, (*shape, VOCAB - 1), generator=generator).sort(-1).values
    edges = torch.cat([torch.zeros(*shape, 1), cuts, torch.full((*shape, 1), 64)], -1)
    return edges.diff(dim=-1).double() / 64


def halves(generator: torch.Generator, *shape: int) -> torch.Tensor:
    """Return permutations of 1/2, 1/4, 1/8, 1/16, 1/16: quotients p / q are then multiples of 1/32, or above 1."""
    order = torch.rand(*shape, VOCAB, generator=generator).argsort(-1)
    return torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625], dtype=torch.float64)[order]


@pytest.mark.parametrize("kind", ["soft", "certain"])
@pytest.mark.parametrize("seed", range(5))
def test_exact_by_enumeration(monkeypatch: pytest.MonkeyPatch, kind: str, seed: int):
    """Sum over all drafts and all cells of the uniforms: three emitted tokens have the target's joint distribution."""
    generator = torch.Generator().manual_seed(seed)
    p0, p1 = integers_over_64(generator), integers_over_64(generator, VOCAB)
    p2 = integers_over_64(generator, VOCAB, VOCAB)
    q0, q1 = halves(generator), halves(generator, VOCAB)
    num_cells = 64
    cells = (torch.arange(num_cells, dtype=torch.float64) + 0.5) / num_cells
    drafts, uniforms, weight = [], [], []
    guess = (3, 1)
    for first, second in product(range(VOCAB), repeat=2) if kind == "soft" else [guess]:
        mass = float(q0[first] * q1[first, second]) if kind == "soft" else 1.0
        for one, other in product(cells.tolist(), repeat=2):
            drafts.append([first, second])
            uniforms.append([one, other])
            weight.append(mass / num_cells**2)
    draft_tokens = torch.tensor(drafts)
    first, second = draft_tokens.unbind(1)
    count = len(drafts)
    logits = torch.stack([p0.expand(count, -1), p1[first], p2[first, second]], 1).log().float()
    probs = torch.stack([q0.expand(count, -1), q1[first]], 1).float() if kind == "soft" else None
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(reference, "accept_uniforms", lambda *_: torch.tensor(uniforms, dtype=torch.float64))
    monkeypatch.setattr(reference, "draw_weighted", lambda w, *_: seen.append(w) or torch.zeros(count).long())
    zeros = torch.zeros(count, dtype=torch.int64)
    num_accepted, emitted = verify_rejection(
        logits, torch.ones(count), torch.zeros(count, 3).long(), draft_tokens, probs, zeros, zeros
    )
    assert torch.equal(emitted[:, 0][num_accepted > 0], first[num_accepted > 0])
    residual = seen[0] / seen[0].sum(-1, keepdim=True)
    found = torch.zeros(VOCAB, VOCAB, VOCAB, dtype=torch.float64)
    mass = torch.tensor(weight, dtype=torch.float64)
    for accepted, share in ((0, p1[:, :, None] * p2), (1, None), (2, None)):
        rows = (num_accepted == accepted).nonzero()[:, 0]
        for row in rows.tolist():
            a, b = drafts[row]
            if accepted == 0:
                found += mass[row] * residual[row][:, None, None] * share
            elif accepted == 1:
                found[a] += mass[row] * residual[row][:, None] * p2[a]
            else:
                found[a, b] += mass[row] * p2[a, b]
    wanted = p0[:, None, None] * p1[:, :, None] * p2
    assert torch.allclose(found, wanted, atol=1e-6), float((found - wanted).abs().max())


def emitted_pairs(fault: str | None, *, drafting: str = "soft", temperature: float = 1.0) -> tuple[float, float]:
    """Verify many one-draft ladders whose seeds differ; return p of the first and of the second token's counts.

    Position 1 is drafted; position 2 is drafted from the draft, so that K = 2 and rows differ.
    """
    generator = torch.Generator().manual_seed(11)
    table = torch.randn(3, VOCAB, VOCAB, generator=generator)
    p0, p1 = table[0, 0] * 1.3, table[1] * 1.3
    p2 = table[2] * 1.3
    guess = torch.randn(2, VOCAB, VOCAB, generator=generator) * 1.3
    seed, base, ids = torch.arange(COUNT), torch.full((COUNT,), 6), torch.arange(VOCAB)
    draft_seed = purpose_seed(seed, Purpose.DRAFT, fault)

    def draft(scores: torch.Tensor, place: int) -> torch.Tensor:
        noise = gumbel_noise(draft_seed, base + place, ids) if drafting == "soft" else 0.0
        return (scores / temperature + noise).argmax(-1)

    q0 = guess[0, 0].expand(COUNT, -1)
    first = draft(q0, 1)
    q1 = guess[1][first]
    second = draft(q1, 2)
    logits = torch.stack([p0.expand(COUNT, -1), p1[first], p2[second]], 1)
    probs = torch.softmax(torch.stack([q0, q1], 1) / temperature, -1)
    noise = gumbel_noise(seed.repeat_interleave(3), (base[:, None] + torch.arange(1, 4)).reshape(-1), ids)
    draws = (logits.flatten(0, 1) / temperature + noise).argmax(-1).view(COUNT, 3)
    heat = torch.full((COUNT,), temperature)
    tokens = torch.stack([first, second], 1)
    is_point = drafting == "certain"
    arguments = (logits, heat, draws, tokens, None if is_point else probs, seed, base)
    accepted, emitted = verify_faulty(*arguments, fault=fault) if fault else verify_rejection(*arguments)
    # A short run goes on with the target's own draw, as the next step would.
    fresh = (p1[emitted[:, 0]] / temperature + gumbel_noise(seed + COUNT, base + 2, ids)).argmax(-1)
    following = torch.where(accepted > 0, emitted[:, 1], fresh)
    third = (p2[following] / temperature + gumbel_noise(seed + 2 * COUNT, base + 3, ids)).argmax(-1)
    third = torch.where(accepted > 1, emitted[:, 2], third)
    cells = (emitted[:, 0] * VOCAB + following) * VOCAB + third
    soft = [torch.softmax(scores.double() / temperature, -1) for scores in (p0, p1, p2)]
    pairs = soft[0][:, None] * soft[1]
    wanted = (pairs[:, :, None] * soft[2]).reshape(-1)
    counts = torch.bincount(cells, minlength=VOCAB**3)
    return chi_square_p(counts, wanted), float(accepted.double().mean())


@pytest.mark.parametrize("drafting", ["soft", "certain"])
def test_emitted_tokens_follow_the_target(drafting: str):
    p_value, mean_accepted = emitted_pairs(None, drafting=drafting)
    assert p_value > 1e-6
    assert 0.1 < mean_accepted < 1.9, "both outcomes must be common"


def test_the_second_implementation_is_sound():
    """Without a fault it says what the operation says, so that a fault is what the chi-square rejects."""
    for name in ("drawn", "certain", "one_draft", "banned"):
        case = next(case for case in CASES if case.name == name)
        given = make_inputs(case)
        for one, other in zip(verify_rejection(**given), verify_faulty(**given), strict=True):
            width = torch.arange(one.shape[-1]) if one.dim() == 2 else None
            kept = slice(None) if width is None else width <= verify_rejection(**given)[0][:, None]
            assert torch.equal(one[kept], other[kept])


@pytest.mark.parametrize("fault", FAULTS)
def test_the_distribution_test_rejects_mutants(fault: str):
    assert emitted_pairs(fault)[0] < 1e-6


def test_a_soft_q_for_argmax_drafts_is_noticed():
    assert emitted_pairs(None, drafting="argmax")[0] < 1e-6


def simple(num_reqs: int = 3, draft_len: int = 2) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(num_reqs, draft_len + 1, VOCAB, generator=generator)
    return {
        "logits": logits,
        "temperature": torch.ones(num_reqs),
        "draws": logits.argmax(-1),
        "draft_tokens": torch.randint(0, VOCAB, (num_reqs, draft_len), generator=generator),
        "draft_probs": torch.softmax(logits[:, :-1], -1),
        "seed": torch.arange(num_reqs),
        "base_positions": torch.arange(num_reqs),
    }


def test_bad_rows_are_contained():
    good = verify_rejection(**simple())
    for fault in (torch.nan, torch.inf, -torch.inf):
        for name in ("logits", "draft_probs"):
            given = simple()
            given[name][1] = fault
            found = verify_rejection(**given)
            for one, other in zip(found, good, strict=True):
                assert torch.equal(one[[0, 2]], other[[0, 2]])
            assert ((found[1] >= 0) & (found[1] < VOCAB)).all()


def test_a_fault_behind_a_rejected_draft_does_not_reach_the_correction():
    given = simple(1)
    given["logits"][0, 0, given["draft_tokens"][0, 0]] = -torch.inf
    good = verify_rejection(**given)
    given["logits"][0, 1:] = torch.nan
    found = verify_rejection(**given)
    assert int(found[0]) == int(good[0]) == 0
    assert found[1][0, 0] == good[1][0, 0] != given["draft_tokens"][0, 0]


def test_probabilities_that_are_not_numbers_leave_the_targets_distribution():
    """A drafter that broke down proposes something; it is rejected, and the token comes from p."""
    count = 20_000
    logits = torch.tensor([0.3, -1.0, 1.0, 0.0, -0.5])
    given = {
        "logits": logits.expand(count, 2, VOCAB).contiguous(),
        "temperature": torch.ones(count),
        "draws": torch.zeros(count, 2, dtype=torch.int64),
        "draft_tokens": torch.zeros(count, 1, dtype=torch.int64),
        "draft_probs": torch.full((count, 1, VOCAB), torch.nan),
        "seed": torch.arange(count),
        "base_positions": torch.full((count,), 4),
    }
    num_accepted, emitted = verify_rejection(**given)
    assert num_accepted.eq(0).all()
    assert chi_square_p(torch.bincount(emitted[:, 0], minlength=VOCAB), torch.softmax(logits.double(), -1)) > 1e-6


def test_wrong_shapes_are_named():
    given = simple()
    given["draft_probs"] = given["draft_probs"][..., :-1]
    with pytest.raises(ShapeError, match=r"draft_probs is \[3, 2, 4\] float32, allowed is \[3, 2, 5\] float32"):
        verify_rejection(**given)
