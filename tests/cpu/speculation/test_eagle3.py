"""The paged, batched, incremental drafter against a reference that recomputes everything for one request."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.base.errors import ConfigError
from slipstream.sampling.noise import gumbel_noise
from slipstream.speculation.eagle3 import Eagle3Drafter
from slipstream.wire.ids import NO_TOKEN
from slipstream.wire.sampling_params import SamplingParams
from support.eagle3_oracle import Eagle3Oracle
from support.eagle3_rig import VOCAB, Rig, Tables, Text, load, make_head, make_tables
from support.statistics import chi_square_p

GREEDY = SamplingParams(temperature=0.0)
WARM = SamplingParams(temperature=0.9, top_k=5, top_p=0.5)
MIN_MARGIN = 2e-4
"""Scores of float32 and float64 differ by less than 2e-5 here, so a draft with this margin is exact."""


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("head")
    spec = make_head(folder, fc_norm=True, norm_output=True)
    return folder, spec


def oracle_drafts(oracle: Eagle3Oracle, rig: Rig, request: int, last: int) -> list[int]:
    """Return the reference's drafts after the token at `last`, and check that they are not near-ties."""
    text, one, seed = rig.texts[request], rig.params[request], rig.seeds[request]

    def choose(scores: torch.Tensor, position: int) -> torch.Tensor:
        if one.is_greedy:
            return scores
        noise = gumbel_noise(torch.tensor([seed]), torch.tensor([position]), VOCAB)[0, oracle.target_ids]
        return scores / one.temperature + noise.double()

    found = oracle.drafts(text.tokens[: last + 1], text.taps[:last], rig.drafter.spec.draft_len, choose)
    assert min(found.margins) > MIN_MARGIN, "a near-tie: choose another seed for this test"
    return found.tokens


def run_steps(rig: Rig, oracle: Eagle3Oracle, prompt_lens: list[int], num_steps: int, seed: int) -> int:
    """Prefill, then steps with random acceptance; every draft of every request must equal the reference's."""
    generator = torch.Generator().manual_seed(seed)
    draft_len = rig.drafter.spec.draft_len
    requests = list(range(len(rig.texts)))
    for request in requests:
        rig.observe(request, 0, prompt_lens[request])
    bases, accepted, query_len = [length - 1 for length in prompt_lens], [0] * len(requests), 1
    num_compared = 0
    for _ in range(num_steps):
        drafts = rig.propose(requests, bases, accepted, query_len)
        for request in requests:
            last = bases[request] + accepted[request] + 1
            assert drafts[request].tolist() == oracle_drafts(oracle, rig, request, last)
            num_compared += draft_len
        bases = [base + a + 1 for base, a in zip(bases, accepted, strict=True)]
        accepted = torch.randint(0, draft_len + 1, (len(requests),), generator=generator).tolist()
        query_len = draft_len + 1
    return num_compared


@pytest.mark.parametrize("draft_len", [1, 3, 9])
def test_equals_the_reference_over_many_steps(head, draft_len: int):
    """Two requests of different lengths, one drawn and one greedy, pages of four tokens in random order."""
    folder, spec = head
    drafter, oracle = load(folder, spec, make_tables(), draft_len)
    texts = [Text.random(spec, 90, seed) for seed in (1, 2)]
    rig = Rig(drafter, texts, [GREEDY, WARM], page_seed=3, seeds=[0, -77])
    assert run_steps(rig, oracle, [5, 9], 8 if draft_len == 9 else 12, seed=draft_len) > 10


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"norm_before_fc": True},
        {"fc_norm": True},
        {"norm_output": True},
        {"norm_before_residual": True},
        {"norm_before_residual": True, "norm_output": True, "fc_norm": True},
        {"num_kv_heads": 4},
        {"num_kv_heads": 1},
        {"draft_vocab_size": 23},
        {"aux_layer_ids": (2,)},
        {"target_hidden_size": 24},
        {"embeddings": False, "lm_head": False},
        {"embeddings": False},
        {"lm_head": False},
    ],
    ids=str,
)
def test_every_flag_equals_the_reference(tmp_path: Path, flags: dict):
    spec = make_head(tmp_path, **flags)
    drafter, oracle = load(tmp_path, spec, make_tables(), 4)
    texts = [Text.random(spec, 50, seed) for seed in (5, 6)]
    rig = Rig(drafter, texts, [WARM, GREEDY], seeds=[3, 4])
    assert run_steps(rig, oracle, [4, 7], 6, seed=0) > 10


def test_flags_are_told_apart(tmp_path: Path):
    """A flag that made no difference to the drafts would make the test above empty."""
    streams = {}
    for name in ("none", "norm_output", "norm_before_residual"):
        spec = make_head(tmp_path / name, **({} if name == "none" else {name: True}))
        _, oracle = load(tmp_path / name, spec, make_tables(), 4)
        text = Text.random(spec, 50, 5)
        streams[name] = [oracle.drafts(text.tokens[:n], text.taps[: n - 1], 4).tokens for n in range(10, 30)]
    assert len({str(stream) for stream in streams.values()}) == 3


def test_without_noise_of_its_own_a_draft_is_greedy(head):
    """`is_greedy` is a promise about the batch; a temperature of 0 says the same for one row."""
    folder, spec = head
    drafter, _ = load(folder, spec, make_tables(), 3)
    texts = [Text.random(spec, 40, seed) for seed in (1, 2)]
    both = Rig(drafter, texts, [GREEDY, GREEDY])
    mixed = Rig(drafter, texts, [GREEDY, WARM])
    for rig in (both, mixed):
        rig.observe(0, 0, 6)
        rig.observe(1, 0, 6)
    greedy, warm = (rig.propose([0, 1], [5, 5], [0, 0], 1) for rig in (both, mixed))
    assert torch.equal(greedy[0], warm[0])
    assert not torch.equal(greedy[1], warm[1])


@pytest.mark.parametrize("chunks", [(1,), (2, 3), (4, 4), (7,)], ids=str)
def test_chunked_prefill_equals_whole(head, chunks: tuple[int, ...]):
    folder, spec = head
    drafter, _ = load(folder, spec, make_tables(), 3)
    text = Text.random(spec, 40, 4)
    whole, pieces = (Rig(drafter, [text], [GREEDY]) for _ in range(2))
    whole.observe(0, 0, 19)
    start = 0
    while start < 19:
        end = min(start + chunks[start % len(chunks)], 19)
        pieces.observe(0, start, end, num_padding=start % 3)
        start = end
    for one, other in zip(whole.rows(0, 1, 19), pieces.rows(0, 1, 19), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    assert torch.equal(whole.propose([0], [18], [0], 1), pieces.propose([0], [18], [0], 1))


def test_prefill_and_decode_store_the_same_rows(head):
    """A page of draft rows depends on its tokens alone, however they came: what prefix reuse relies on."""
    folder, spec = head
    drafter, _ = load(folder, spec, make_tables(), 3)
    text = Text.random(spec, 40, 4)
    prefilled, decoded = (Rig(drafter, [text], [GREEDY]) for _ in range(2))
    prefilled.observe(0, 0, 20)
    decoded.observe(0, 0, 5)
    base, accepted, query_len = 4, 0, 1
    for a in (3, 0, 2, 3, 1, 0):
        decoded.propose([0], [base], [accepted], query_len)
        base, accepted, query_len = base + accepted + 1, a, 4
    for one, other in zip(prefilled.rows(0, 1, base + 1), decoded.rows(0, 1, base + 1), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_nothing_is_written_where_nothing_belongs(head):
    """Slot 0, the null page, the spare pages and slots past the chain keep their NaN."""
    folder, spec = head
    drafter, _ = load(folder, spec, make_tables(), 3)
    rig = Rig(drafter, [Text.random(spec, 40, 4)] * 2, [GREEDY, WARM], page_seed=1)
    rig.observe(0, 0, 6, num_padding=2)
    rig.observe(1, 0, 3)
    rig.propose([0, -1, 1, -1], [5, 0, 2, 0], [0, 0, 0, 0], 1)
    rig.propose([0, -1, 1, -1], [6, 0, 3, 0], [2, 3, 0, 1], 4)
    written = {0: 6 + 2 + 1 + 3, 1: 3 + 0 + 1 + 3}  # base + a + 1, then K - 1 chain rows, as an end
    expected = torch.zeros(rig.cache.k.shape[0] * rig.page_size, dtype=torch.bool)
    for request, end in written.items():
        expected[rig.slots(request, torch.arange(1, end))] = True
    for pages in (rig.cache.k, rig.cache.v):
        is_written = ~pages.flatten(0, 1).isnan().flatten(1).all(-1)
        assert torch.equal(is_written, expected)
        assert not pages.flatten(0, 1)[expected].isnan().any()


def test_physical_pages_do_not_matter(head):
    folder, spec = head
    drafter, _ = load(folder, spec, make_tables(), 9)
    texts = [Text.random(spec, 60, seed) for seed in (1, 2)]
    results = []
    for page_seed in (None, 1, 2):
        rig = Rig(drafter, texts, [GREEDY, WARM], page_seed=page_seed)
        rig.observe(0, 0, 7)
        rig.observe(1, 0, 4)
        drafts = [rig.propose([0, 1], [6, 3], [0, 0], 1), rig.propose([0, 1], [7, 4], [9, 4], 10)]
        results.append(torch.stack(drafts))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_a_request_drafts_alone_as_in_a_batch_and_padded(head):
    folder, spec = head
    drafter, _ = load(folder, spec, make_tables(), 3)
    texts = [Text.random(spec, 60, seed) for seed in (1, 2, 3)]
    steps = [([6, 3, 8], [0, 0, 0], 1), ([7, 4, 9], [3, 0, 2], 4), ([11, 5, 12], [1, 3, 0], 4)]

    def run(entries: list[int]) -> list[torch.Tensor]:
        rig = Rig(drafter, texts, [GREEDY, WARM, WARM])
        for request in set(entries) - {-1}:
            rig.observe(request, 0, steps[0][0][request] + 1)
        results = []
        for bases, accepted, query_len in steps:
            pick = [max(entry, 0) for entry in entries]
            results.append(rig.propose(entries, [bases[i] for i in pick], [accepted[i] for i in pick], query_len))
        return results

    batch = run([0, 1, 2])
    padded = run([-1, 2, 0, -1, 1])
    for step in range(len(steps)):
        assert torch.equal(padded[step][[2, 4, 1]], batch[step])
        assert (padded[step][[0, 3]] == NO_TOKEN).all()
        for request in range(3):
            assert torch.equal(run([request])[step][0], batch[step][request])


def test_limits_end_the_chain(head):
    """No slot at or past the limit is written; drafts without a row are NO_TOKEN; the drafts before are unchanged."""
    folder, spec = head
    drafter, _ = load(folder, spec, make_tables(), 5)
    text = Text.random(spec, 60, 8)
    free = Rig(drafter, [text], [GREEDY])
    free.observe(0, 0, 10)
    free.propose([0], [9], [0], 1)
    wanted = free.propose([0], [10], [2], 6)[0].tolist()  # y at 13; chain rows at 14, 15, 16, 17
    for limit in range(13, 20):
        rig = Rig(drafter, [text], [GREEDY], max_seq_lens=[limit])
        rig.observe(0, 0, 10)
        rig.propose([0], [9], [0], 1)
        found = rig.propose([0], [10], [2], 6)[0].tolist()
        num_rows = max(0, min(5, limit - 13))
        assert found == wanted[:num_rows] + [NO_TOKEN] * (5 - num_rows)
        assert rig.rows(0, limit, 20)[0].isnan().all()


def test_a_page_that_was_not_given_ends_the_chain(head):
    folder, spec = head
    drafter, _ = load(folder, spec, make_tables(), 5)
    rig = Rig(drafter, [Text.random(spec, 60, 8)], [GREEDY])
    rig.observe(0, 0, 10)
    wanted = rig.propose([0], [9], [0], 1)[0].tolist()  # rows at 10, 11 | 12, 13, 14
    rig.page_table[0, 3:] = 0
    assert rig.propose([0], [9], [0], 1)[0].tolist() == wanted[:2] + [NO_TOKEN] * 3
    assert rig.cache.k[0].isnan().all(), "the null page was written"


def test_later_rows_replace_the_guesses_of_earlier_chains(head):
    """Poison every slot behind the verified text: the next drafts must not change."""
    folder, spec = head
    drafter, _ = load(folder, spec, make_tables(), 3)
    text = Text.random(spec, 60, 8)
    results = []
    for poison in (False, True):
        rig = Rig(drafter, [text], [WARM])
        rig.observe(0, 0, 10)
        rig.propose([0], [9], [0], 1)
        if poison:
            slots = rig.slots(0, torch.arange(11, 40))
            rig.cache.k.flatten(0, 1)[slots] = torch.nan
            rig.cache.v.flatten(0, 1)[slots] = torch.nan
        results.append(rig.propose([0], [10], [1], 4))
    assert torch.equal(*results)


def test_bfloat16_agrees_with_the_reference_but_for_near_ties(head):
    """Chance agreement is 1 in 64; a wrong position or a lost residual leaves no more than that."""
    folder, spec = head
    tables = make_tables()
    in_dtype = Tables(tables.embedding.bfloat16(), tables.lm_head.bfloat16())
    drafter, oracle = load(folder, spec, in_dtype, 3, torch.bfloat16)
    text = Text.random(spec, 60, 8)
    rig = Rig(drafter, [text], [GREEDY], dtype=torch.bfloat16)
    rig.observe(0, 0, 6)
    num_equal = 0
    for base in range(5, 45):
        found = rig.propose([0], [base], [0], 1 if base == 5 else 4)[0]
        assert ((found >= 0) & (found < VOCAB)).all()
        num_equal += int(found[0]) == oracle.drafts(text.tokens[: base + 2], text.taps[: base + 1], 1).tokens[0]
    assert num_equal > 28


def test_a_chain_of_no_drafts_is_refused(head):
    folder, spec = head
    drafter, _ = load(folder, spec, make_tables(), 1)
    with pytest.raises(ConfigError, match="draft_len=0 with the eagle3 drafter"):
        Eagle3Drafter(drafter._model, make_tables(), 0)


def test_the_spec_says_what_the_engine_must_provide(head):
    folder, spec = head
    drafter, _ = load(folder, spec, make_tables(), 6)
    assert drafter.spec.draft_len == 6
    assert drafter.spec.aux_layer_ids == (0, 1, 3)
    assert (drafter.spec.num_cache_layers, drafter.spec.num_kv_heads, drafter.spec.head_dim) == (1, 2, 8)
    assert not drafter.spec.needs_history


@pytest.mark.parametrize("draft_vocab_size", [VOCAB, 23])
def test_rejection_rows_draw_with_noise_of_their_own_and_say_from_what(tmp_path: Path, draft_vocab_size: int):
    """Beside a coupled and a greedy row, which stay as they were; probabilities are those of the draws."""
    spec = make_head(tmp_path, draft_vocab_size=draft_vocab_size)
    texts = [Text.random(spec, 40, seed) for seed in (1, 2, 3)]
    params = [SamplingParams(temperature=0.9), SamplingParams(temperature=0.9), SamplingParams(temperature=0.0)]
    count = 300
    drafter, oracle = load(tmp_path, spec, make_tables(), 3)
    rig = Rig(drafter, texts, params)
    for request in range(3):
        rig.observe(request, 0, 6)
    plain = rig.propose([0, 1, 2], [5, 5, 5], [0, 0, 0], 1)
    found = rig.proposal([0, 1, 2], [5, 5, 5], [0, 0, 0], 1, rejection=[True, False, False])
    assert torch.equal(found.draft_tokens[1:], plain[1:])
    assert found.draft_probs is not None
    assert found.draft_probs.shape == (3, 3, spec.vocab_size)
    torch.testing.assert_close(found.draft_probs.sum(-1), torch.ones(3, 3))
    outside = torch.ones(spec.vocab_size, dtype=torch.bool)
    outside[oracle.target_ids] = False
    assert int(outside.sum()) == VOCAB - draft_vocab_size
    assert not found.draft_probs[..., outside].any(), "a token that the head does not know is never drafted"

    # Over many seeds the first draft follows what it says it was drawn from, and it is not the coupled draft.
    counts, num_equal = torch.zeros(spec.vocab_size), 0
    for seed in range(count):
        rig.seeds[0] = seed
        one = rig.proposal([0], [5], [0], 1, rejection=[True])
        assert one.draft_probs is not None
        torch.testing.assert_close(one.draft_probs[0, 0], found.draft_probs[0, 0])
        counts[one.draft_tokens[0, 0]] += 1
        num_equal += int(one.draft_tokens[0, 0] == rig.propose([0], [5], [0], 1)[0, 0])
    probs = found.draft_probs[0, 0]
    is_common = probs * count > 5
    rest = torch.stack([counts[~is_common].sum(), probs[~is_common].sum() * count])
    wanted = torch.cat([probs[is_common] * count, rest[1:]])
    assert chi_square_p(torch.cat([counts[is_common], rest[:1]]), wanted) > 1e-6
    # Independent draws agree as often as two draws from one distribution do.
    expected = float(probs.square().sum()) * count
    assert abs(num_equal - expected) < 6 * (expected + 1) ** 0.5 + 3
