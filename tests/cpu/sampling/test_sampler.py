"""Draws of a batch: the class, the batch and the order of rows must not matter."""

from __future__ import annotations

import pytest
import torch

from slipstream.batch.step_inputs import SamplingInputs
from slipstream.sampling.classes import SamplingClass
from slipstream.sampling.noise import gumbel_noise
from slipstream.sampling.sampler import draw, expand_sampling
from slipstream.wire.sampling_params import SamplingParams
from support.filter_oracle import kept_tokens
from support.statistics import chi_square_p
from support.toy_target import sampling_inputs

PARAMS = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.8),
    SamplingParams(temperature=1.0, top_k=3),
    SamplingParams(temperature=2.0, top_p=0.7),
    SamplingParams(temperature=0.5, min_p=0.2),
    SamplingParams(temperature=1.0, top_k=5, top_p=0.9, min_p=0.01),
]


def make_batch(count: int, vocab_size: int = 30) -> tuple[torch.Tensor, torch.Tensor, SamplingInputs]:
    logits = torch.randn(count, vocab_size, generator=torch.Generator().manual_seed(count)) * 2
    params = [PARAMS[row % len(PARAMS)] for row in range(count)]
    return logits, torch.arange(count) + 3, sampling_inputs(params, range(count))


def take(sampling: SamplingInputs, rows: list[int]) -> SamplingInputs:
    names = ("temperature", "top_k", "top_p", "min_p", "seed")
    return SamplingInputs(**{name: getattr(sampling, name)[rows] for name in names})


def test_equals_the_definition_row_by_row():
    logits, positions, sampling = make_batch(60)
    drawn = draw(logits, positions, sampling, SamplingClass.FULL)
    for row in range(60):
        one = PARAMS[row % len(PARAMS)]
        kept = kept_tokens(logits[row].tolist(), one.temperature, one.top_k, one.top_p, one.min_p)
        noise = gumbel_noise(sampling.seed[row : row + 1], positions[row : row + 1], 30)[0]
        if one.is_greedy:
            wanted = int(logits[row].argmax())
        else:
            wanted = max(kept, key=lambda token: logits[row, token] / one.temperature + noise[token])
        assert int(drawn[row]) == wanted


def test_the_class_of_the_batch_does_not_matter():
    logits, positions, sampling = make_batch(60)
    full = draw(logits, positions, sampling, SamplingClass.FULL)
    plain_rows = [row for row in range(60) if row % len(PARAMS) < 2]
    plain = draw(logits[plain_rows], positions[plain_rows], take(sampling, plain_rows), SamplingClass.PLAIN)
    assert torch.equal(plain, full[plain_rows])
    greedy_rows = [row for row in range(60) if row % len(PARAMS) == 0]
    for chosen in SamplingClass:
        greedy = draw(logits[greedy_rows], positions[greedy_rows], take(sampling, greedy_rows), chosen)
        assert torch.equal(greedy, full[greedy_rows])


def test_a_smaller_class_does_less_work(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise AssertionError("filters ran")

    logits, positions, sampling = make_batch(6)
    monkeypatch.setattr("slipstream.sampling.sampler.filter_rows", refuse)
    for chosen in (SamplingClass.GREEDY, SamplingClass.PLAIN):
        draw(logits[:2], positions[:2], take(sampling, [0, 0]), chosen)
    with pytest.raises(AssertionError, match="filters ran"):
        draw(logits, positions, sampling, SamplingClass.FULL)


def test_a_row_alone_draws_what_it_draws_in_a_batch():
    logits, positions, sampling = make_batch(13)
    batch = draw(logits, positions, sampling, SamplingClass.FULL)
    for row in range(13):
        alone = draw(logits[row : row + 1], positions[row : row + 1], take(sampling, [row]), SamplingClass.FULL)
        assert alone[0] == batch[row]


@pytest.mark.parametrize("one", PARAMS[1:], ids=lambda one: f"k{one.top_k}p{one.top_p}m{one.min_p}")
def test_draws_follow_the_filtered_distribution(one: SamplingParams):
    """Over positions and over seeds alike."""
    count, vocab_size = 20_000, 12
    row = torch.randn(vocab_size, generator=torch.Generator().manual_seed(3))
    logits = row.expand(count, vocab_size).contiguous()
    kept = kept_tokens(row.tolist(), one.temperature, one.top_k, one.top_p, one.min_p)
    probs = torch.softmax(row[kept].double() / one.temperature, -1)
    numbers, same = torch.arange(count), torch.full((count,), 7)
    for seeds, positions in ((same, numbers), (numbers, same)):
        drawn = draw(logits, positions, sampling_inputs([one] * count, seeds.tolist()), SamplingClass.FULL)
        counts = torch.bincount(drawn, minlength=vocab_size)
        assert counts.sum() == counts[kept].sum(), "a token outside the filters was drawn"
        assert chi_square_p(counts[kept], probs) > 1e-6
        # The same counts against a hotter distribution: the test must be able to fail.
        hotter = torch.softmax(row[kept].double() / (one.temperature * 2), -1)
        assert chi_square_p(counts[kept], hotter) < 1e-6


def test_expand_repeats_each_request():
    _, _, sampling = make_batch(3)
    expanded = expand_sampling(sampling, 4)
    assert expanded.seed.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert expanded.top_k.dtype == torch.int32
    assert torch.equal(expanded.temperature, sampling.temperature.repeat_interleave(4))
