"""Rejection verification on a GPU: what many seeds draw follows the target's own distribution, computed on the CPU.

A small random target with filters, penalties and forbidden tokens; the exact probability of every answer of three
tokens comes from whole forward passes on the CPU. Faulty variants must be noticed.
"""

from __future__ import annotations

import msgspec
import pytest
import torch

from slipstream.parallel.group import one_rank
from slipstream.runner.rows import RowState
from slipstream.speculation.registry import build_drafter
from support.device_models import load_on
from support.drafters import SoftDrafter
from support.engines import Knobs, TestEngine, make_request
from support.feature_world import FeatureWorld
from support.statistics import chi_square_p

DEVICE = "cuda"
VOCAB = 32
ALLOWED = (0, 3, 5, 7, 11, 13, 19, 23, 29, 31)
PROMPT = [3, 5, 4, 6, 3, 19, 7]
NUM_NEW = 3
COUNT = 2_400
WARM = {"temperature": 1.3, "presence_penalty": 0.8, "allowed_token_ids": ALLOWED, "top_p": 0.97, "top_k": 9}
KNOBS = Knobs(max_num_seqs=32, num_pages=600, poison=False)
LEAST_P = 1e-6


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return FeatureWorld(tmp_path_factory.mktemp("tiny"), vocab_size=VOCAB)


@pytest.fixture(scope="module")
def exact(world):
    """[VOCAB, VOCAB, VOCAB] float64 probability of every answer, from the CPU's references."""
    request = make_request("exact", PROMPT, NUM_NEW, **WARM)

    def after(tokens):
        return torch.softmax(world.scores(request, world.raw_logits(tokens)[-1], tokens).double(), -1)

    joint = torch.zeros(VOCAB, VOCAB, VOCAB, dtype=torch.float64)
    first = after(PROMPT)
    for one in first.nonzero()[:, 0].tolist():
        second = after([*PROMPT, one])
        for other in second.nonzero()[:, 0].tolist():
            joint[one, other] = first[one] * second[other] * after([*PROMPT, one, other])
    assert float(joint.sum()) == pytest.approx(1.0)
    return joint


def drafter_of(kind, config, model, exact):
    if kind == "soft":
        # A blurred guess at what follows each token: often accepted, often not.
        pairs = exact.sum(2) + 1e-4
        table = 0.8 * (pairs / pairs.sum(1, keepdim=True)).log()
        return SoftDrafter(2, table.float().to(DEVICE))
    section = config.speculation
    if kind == "ngram":
        section = msgspec.structs.replace(section, drafter="ngram", draft_len=3)
    return build_drafter(
        section,
        model,
        group=one_rank(),
        dtype=torch.float32,
        device=DEVICE,
        max_model_len=config.scheduler.max_model_len,
    )


def run(world, exact, kind, *, graphs):
    """Return (counts of every answer, share of accepted drafts) of COUNT seeds."""
    config, model = load_on(world.eagle_config if kind == "eagle3" else world.config, DEVICE, graphs=graphs)
    engine = TestEngine(config, model, drafter_of(kind, config, model, exact), KNOBS)
    engine.runner.warm_up()
    requests = [
        msgspec.structs.replace(
            make_request(f"r{seed}", PROMPT, NUM_NEW, seed=seed, **WARM), verification="rejection", seed=seed
        )
        for seed in range(COUNT)
    ]
    engine.run(requests, max_turns=100_000)
    counts = torch.zeros(VOCAB, VOCAB, VOCAB, dtype=torch.float64)
    for outcome in engine.outcomes.values():
        counts[tuple(outcome.token_ids)] += 1
    stats = engine.core.stats()
    return counts, stats.num_accepted_tokens / max(stats.num_draft_tokens, 1)


def p_value(counts, exact):
    """Compare tables of two tokens each, rare answers lumped together; and the first token alone."""
    assert counts[exact == 0].sum() == 0, "an answer that is filtered or forbidden was returned"
    values = []
    for left in ((2,), (1,), (0,), (1, 2)):
        found, wanted = counts.sum(left).flatten(), exact.sum(left).flatten()
        is_common = wanted * COUNT > 5
        rest = wanted[~is_common].sum()
        bins, probs = found[is_common], wanted[is_common]
        if rest * COUNT > 5:
            bins, probs = torch.cat([bins, found[~is_common].sum()[None]]), torch.cat([probs, rest[None]])
        values.append(chi_square_p(bins, probs))
    return min(values)


@pytest.mark.parametrize(("kind", "graphs"), [("eagle3", True), ("soft", False), ("ngram", False)])
def test_what_is_drawn_follows_the_cpu_s_exact_distribution(world, exact, kind, graphs):
    counts, share_accepted = run(world, exact, kind, graphs=graphs)
    p = p_value(counts, exact)
    print(f"{kind}, graphs {graphs}: p = {p:.3g}, {share_accepted:.2f} of drafts accepted")
    assert p > LEAST_P
    least = {"soft": 0.2, "eagle3": 0.02, "ngram": 0.0}[kind]
    assert least < share_accepted < 0.97, "both outcomes must be common"


def test_probabilities_of_other_drafts_would_be_noticed(world, exact, monkeypatch):
    """A mutant: rows keep the distribution of the first drafts ever made."""
    kept = set()
    store = RowState.store_draft_probs

    def store_once(self, rows, probs, is_padding):
        if id(self) not in kept:
            kept.add(id(self))
            everybody = torch.arange(self.scratch_row, device=rows.device)
            store(self, everybody, probs[:1].expand(self.scratch_row, -1, -1), is_padding[:1])

    monkeypatch.setattr(RowState, "store_draft_probs", store_once)
    assert p_value(run(world, exact, "soft", graphs=False)[0], exact) < LEAST_P


def test_drafts_that_were_not_drawn_would_be_noticed(world, exact, monkeypatch):
    """A mutant: drafts are the likeliest tokens, but are judged as if they had been drawn."""
    monkeypatch.setattr("support.drafters.gumbel_noise", lambda seed, position, vocab_size: 0.0)
    assert p_value(run(world, exact, "soft", graphs=False)[0], exact) < LEAST_P
